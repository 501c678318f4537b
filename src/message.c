/*
 * message.c - see message.h.
 *
 * The builder is not asked: it knows collectives, and no rank that is its own peer.
 */
#include "message.h"

#include <stdlib.h>
#include "status.h"

const struct gy_algo gy_message_send = {.name = "send", .coll = GY_MESSAGE};
const struct gy_algo gy_message_recv = {.name = "recv", .coll = GY_MESSAGE};

struct message { /* a program with its one queue behind it */
  struct gy_insn insn;
  struct gy_queue queue;
  uint16_t order;
};

gyre_status gy_message_program(const struct gy_key *key, bool receives, struct gy_program **out) {
  struct gy_program *p = calloc(1, sizeof *p + sizeof(struct message));
  if (p == NULL) return gy_fail(GYRE_ERR_NOMEM, "no memory for a message's program");
  struct message *m = (struct message *)(void *)p->insn;
  struct gy_ref ref = {.buf = receives ? GY_OUT : GY_IN};
  *p = (struct gy_program){.n_insn = 1,
                           .n_chunk = 1,
                           .n_queue = 1,
                           .layout = GY_SPLIT,
                           .order = &m->order,
                           .queue = &m->queue};
  m->insn = (struct gy_insn){.op = receives ? GY_RECV : GY_SEND,
                             .lane = GY_MESSAGE_LANE,
                             .peer = (uint16_t)key->root,
                             .src = ref,
                             .dst = ref,
                             .dep = {GY_NODEP, GY_NODEP}};
  m->queue = (struct gy_queue){
      .peer = (uint16_t)key->root, .lane = GY_MESSAGE_LANE, .recv = receives, .count = 1};
  *out = p;
  return GYRE_OK;
}
