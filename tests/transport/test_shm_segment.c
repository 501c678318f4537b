/*
 * test_shm_segment.c - what comes in place of shared memory, and what a peer may write there, is not believed; limits
 * on memory and descriptors are errors; bells are rung for those who sleep.
 */
#include "world.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "status.h"
#include "transport/shm/link.h"

/* ----------------------------------------------------------------------------- the descriptor --- */

struct note {
  uint32_t magic, cells, piece, bytes;
};

static const struct note good = {0x47595348u, SHM_CELLS, SHM_PIECE, sizeof(struct shm_segment)};

static void tell(int socket, const void *data, size_t n, int fd) {
  union {
    struct cmsghdr header;
    char room[CMSG_SPACE(sizeof(int))];
  } control = {0};
  struct iovec iov = {(void *)(uintptr_t)data, n};
  struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};
  if (fd >= 0) {
    msg.msg_control = &control;
    msg.msg_controllen = sizeof control;
    struct cmsghdr *c = CMSG_FIRSTHDR(&msg);
    *c = (struct cmsghdr){
        .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(sizeof fd)};
    memcpy(CMSG_DATA(c), &fd, sizeof fd);
  }
  assert_int_equal(sendmsg(socket, &msg, 0), n);
}

static int memory(size_t bytes, int seals) {
  int fd = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  assert_true(fd >= 0 && ftruncate(fd, (off_t)bytes) == 0);
  if (seals) assert_int_equal(fcntl(fd, F_ADD_SEALS, seals), 0);
  return fd;
}

/* What the acceptor makes of a note of n bytes with this descriptor. */
static gyre_status take(const void *note, size_t n, int fd, struct shm_segment **out) {
  int pair[2];
  assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
  if (n) tell(pair[0], note, n, fd);
  gyre_status st = gy_shm_take(pair[1], out);
  close(pair[0]);
  close(pair[1]);
  if (fd >= 0) close(fd);
  return st;
}

static void refused(const struct note *note, int fd, const char *why) {
  struct shm_segment *s = NULL;
  assert_int_equal(take(note, sizeof *note, fd, &s), GYRE_ERR_PROTO);
  assert_null(s);
  if (!strstr(gyre_last_error(), why))
    fail_msg("\"%s\" does not say \"%s\"", gyre_last_error(), why);
}

static void what_is_no_segment_is_refused(void **state) {
  (void)state;
  const size_t size = sizeof(struct shm_segment);
  struct note other = good;
  struct shm_segment *s = NULL;
  unsigned before = count_fds();
  assert_int_equal(take(&good, 0, -1, &s), GYRE_IN_PROGRESS);
  assert_int_equal(take(&good, 7, -1, &s), GYRE_ERR_PROTO);
  refused(&good, -1, "no descriptor");
  refused(&good, memory(size - 1, F_SEAL_SHRINK), "another size");
  refused(&good, memory(size + 1, F_SEAL_SHRINK), "another size");
  refused(&good, memory(size, 0), "not sealed");
  refused(&good, open("/dev/null", O_RDWR | O_CLOEXEC), "another size");
  other.cells++;
  refused(&other, memory(size, F_SEAL_SHRINK), "another layout");
  other = good;
  other.magic = 0;
  refused(&other, memory(size, F_SEAL_SHRINK), "another layout");
  assert_int_equal(take(&good, sizeof good, memory(size, F_SEAL_SHRINK), &s), GYRE_OK);
  gy_shm_unmap(s);
  assert_int_equal(count_fds(), before);
}

static void the_peer_may_have_gone(void **state) {
  (void)state;
  int pair[2];
  struct shm_segment *s;
  assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
  close(pair[0]);
  assert_int_equal(gy_shm_take(pair[1], &s), GYRE_ERR_PEER_LOST);
  assert_int_equal(gy_shm_make(pair[1], &s), GYRE_ERR_PEER_LOST);
  close(pair[1]);
}

/* A file may not be as large as the segment: what cannot be allocated must be an error, and leave nothing. */
static void memory_that_is_short_is_an_error(void **state) {
  (void)state;
  int pair[2];
  struct shm_segment *s;
  struct rlimit was, less;
  unsigned before;
  assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
  before = count_fds();
  assert_int_equal(getrlimit(RLIMIT_FSIZE, &was), 0);
  less = was;
  less.rlim_cur = sizeof(struct shm_segment) / 2;
  assert_int_equal(setrlimit(RLIMIT_FSIZE, &less), 0);
  void (*handler)(int) = signal(SIGXFSZ, SIG_IGN);
  gyre_status st = gy_shm_make(pair[0], &s);
  signal(SIGXFSZ, handler);
  assert_int_equal(setrlimit(RLIMIT_FSIZE, &was), 0);
  assert_int_equal(st, GYRE_ERR_SYS);
  assert_non_null(strstr(gyre_last_error(), "GYRE_TRANSPORTS=tcp"));
  assert_int_equal(count_fds(), before);
  close(pair[0]);
  close(pair[1]);
}

/* -------------------------------------------------------------------------------------- pieces --- */

struct both {
  struct world *w;
  struct end *e[2];
  struct shm_link *from;
};

static struct both connected(struct world *w) {
  struct both b = {.w = w};
  struct transfer send, recv;
  uint8_t out[100] = {1}, in[100];
  world_open(w, &gy_shm_ops, 2, 4);
  world_open_transports(w);
  b.e[0] = end_open(w, 0, 1, 0);
  b.e[1] = end_open(w, 1, 0, 0);
  post_recv(b.e[1], &recv, in, sizeof in);
  post_send(b.e[0], &send, out, sizeof out);
  WORLD_UNTIL(w, recv.done && send.done);
  b.from = (struct shm_link *)b.e[0]->link;
  return b;
}

enum wrong {
  LONG_PIECE,
  FAR_PIECE,
  LONG_FOR_MESSAGE,
  EMPTY_PIECE,
  BROKEN_ELEMENT,
  OTHER_INDEX,
  OTHER_LENGTH,
  WRONGS
};

/* The head that a right sender would write, but for one thing. */
static void write_head(const struct both *b, const struct transfer *t, enum wrong wrong) {
  struct shm_head *h = &b->from->out.head[b->from->out.pieces % SHM_CELLS];
  const struct gy_descriptor *call = t->x.call;
  h->piece = h->bytes = (uint32_t)t->x.bytes;
  h->index = t->x.index;
  h->count = call->count;
  h->seq = (uint32_t)call->seq;
  h->root = call->root;
  h->coll = call->coll;
  h->dtype = call->dtype;
  h->op = call->op;
  h->algo = call->algo;
  h->offset = 0;
  switch (wrong) {
    case LONG_PIECE: h->piece = SHM_PIECE + 1; break;
    case FAR_PIECE: h->offset = SHM_LINE; break;
    case LONG_FOR_MESSAGE: h->piece += 4; break;
    case EMPTY_PIECE: h->piece = 0; break;
    case BROKEN_ELEMENT: h->piece -= 2; break;
    case OTHER_INDEX: h->index++; break;
    case OTHER_LENGTH: h->bytes += 4; break;
    default: break;
  }
  atomic_store(&h->full, b->from->out.pieces + 1);
}

static void a_wrong_piece_ends_the_link(void **state) {
  (void)state;
  static const struct reduction sum = {.type = GYRE_F32, .op = GYRE_SUM};
  for (int wrong = 0; wrong <= WRONGS; wrong++) {
    static struct world w;
    struct both b = connected(&w);
    struct transfer recv;
    float in[40] = {0}, own[40] = {0};
    post_reduce(b.e[1], &recv, &sum, in, own, sizeof in);
    write_head(&b, &recv, (enum wrong)wrong);
    WORLD_UNTIL(&w, recv.done || b.e[1]->downs);
    assert_int_equal(recv.done, wrong == WRONGS);
    assert_int_equal(b.e[1]->downs, wrong != WRONGS);
    if (wrong != WRONGS) assert_int_equal(b.e[1]->why, GYRE_ERR_PROTO);
    world_idle(&w, 5);
    assert_int_equal(b.e[1]->downs, wrong != WRONGS);
    world_close(&w);
  }
}

/* The counter of taken cells is the peer's to write as well. */
static void a_wrong_count_sends_nothing(void **state) {
  (void)state;
  static struct world w;
  struct both b = connected(&w);
  struct transfer send;
  uint8_t out[100] = {0};
  atomic_store(b.from->out.taken, b.from->out.pieces + 5);
  b.from->out.free = 0;
  post_send(b.e[0], &send, out, sizeof out);
  world_idle(&w, 20);
  assert_false(send.done);
  world_close(&w);
}

/* -------------------------------------------------------------------------------------- bells --- */

static bool has_bell(const struct end *e) {
  char bell;
  return recv(((struct shm_link *)e->link)->fd, &bell, 1, MSG_PEEK | MSG_DONTWAIT) == 1;
}

/* As the loop does it: after an arm that allows a sleep one more pass, which finds nothing. */
static void fall_asleep(struct both *b) {
  for (int r = 0; r < 2; r++) assert_true(b->w->ops->arm(b->w->rank[r].tl));
  for (int r = 0; r < 2; r++) assert_int_equal(b->w->ops->poll(b->w->rank[r].tl, false), 0);
  for (int r = 0; r < 2; r++) assert_false(has_bell(b->e[r]));
}

static void who_sleeps_is_woken(void **state) {
  (void)state;
  static struct world w;
  struct both b = connected(&w);
  struct transfer send[2], recv[2];
  static uint8_t out[64 * SHM_PIECE], in[sizeof out];
  /* For data. */
  fall_asleep(&b);
  post_recv(b.e[1], &recv[0], in, 10);
  post_send(b.e[0], &send[0], out, 10);
  assert_true(has_bell(b.e[1]));
  WORLD_UNTIL(&w, send[0].done && recv[0].done);
  world_idle(&w, 5); /* the bell is heard */
  /* Not while it polls. */
  for (int r = 0; r < 2; r++) b.w->ops->poll(b.w->rank[r].tl, true);
  post_recv(b.e[1], &recv[1], in, sizeof in);
  post_send(b.e[0], &send[1], out, sizeof out);
  assert_false(has_bell(b.e[1]));
  /* For room. */
  while (b.w->ops->poll(b.w->rank[0].tl, false)) continue;
  assert_true(b.w->ops->arm(b.w->rank[0].tl));
  assert_int_equal(b.w->ops->poll(b.w->rank[0].tl, false), 0);
  assert_false(has_bell(b.e[0]));
  assert_true(b.w->ops->poll(b.w->rank[1].tl, false) > 0);
  assert_true(has_bell(b.e[0]));
  WORLD_UNTIL(&w, send[1].done && recv[1].done);
  world_close(&w);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(what_is_no_segment_is_refused),
      cmocka_unit_test(the_peer_may_have_gone),
      cmocka_unit_test(memory_that_is_short_is_an_error),
      cmocka_unit_test(a_wrong_piece_ends_the_link),
      cmocka_unit_test(a_wrong_count_sends_nothing),
      cmocka_unit_test(who_sleeps_is_woken),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
