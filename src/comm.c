/* comm.c - see comm.h. */
#include "comm.h"

#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dump.h"
#include "../transport/fault/fault.h"
#include "../transport/fault/plan.h"
#include "log.h"
#include "select.h"

static const struct {
  const struct gy_tl_ops *plain, *faulty; /* faulty: does what GYRE_FAULT asks for */
} transports[] = {{&gy_tcp_ops, &gy_fault_tcp_ops}, {&gy_shm_ops, &gy_fault_shm_ops}};

/* What the engine relies on: it has no second way to reduce what arrives. */
#define NEEDED_CAPS (GY_CAP_HOST_MEM | GY_CAP_RECV_REDUCE)

#define OF(command, member) ((gyre_comm *)(void *)((char *)(command)-offsetof(gyre_comm, member)))

/* --------------------------------------------------------------------------------- the verdict --- */

static void give_up_children(gyre_comm *c, gyre_status st, const char *text) {
  while (c->children) gy_comm_give_up(c->children, st, text);
}

/* The engine closes its links here. */
void gy_comm_apply_verdict(gyre_comm *c) {
  const gyre_error *v = gy_fault_verdict(c->fault);
  if (c->applied || v->status == GYRE_OK) return;
  c->applied = true;
  pthread_mutex_lock(&c->verdict_lock);
  c->verdict = *v;
  pthread_mutex_unlock(&c->verdict_lock);
  gy_dump_by_setting(c->ctx, c->core.rank, "failure"); /* while operations are still in flight */
  gy_engine_fail(c->engine, v->status, v->text, false);
  give_up_children(c, v->status, v->text);
}

static unsigned comm_pass(struct gy_source *s, bool spin) {
  gyre_comm *c = OF(s, source);
  unsigned events = gy_engine_pass(c->engine, spin);
  gy_fault_check(c->fault);
  if (!c->applied && gy_fault_verdict(c->fault)->status != GYRE_OK) {
    gy_comm_apply_verdict(c);
    events++;
  }
  return events;
}

static bool comm_arm(struct gy_source *s) { return gy_engine_arm(OF(s, source)->engine); }

static void link_down(void *user, int peer, gyre_status why, int sys_errno) {
  gyre_comm *c = user;
  gy_fault_suspect(c->fault, peer, why, sys_errno);
}

static void mismatch(void *user, int peer, const struct gy_descriptor *mine,
                     const struct gy_descriptor *theirs) {
  gyre_comm *c = user;
  gy_fault_mismatch(c->fault, peer, mine, theirs);
}

static void other_message(void *user, int from, uint8_t type, struct gy_reader *r) {
  gyre_comm *c = user;
  gy_groups_message(c->groups, from, type, r);
}

static void rank_left(void *user, int rank) {
  gyre_comm *c = user;
  gy_groups_left(c->groups, rank);
}

/* ------------------------------------------------------------------------------------- create --- */

static void unlist(gyre_comm *c) {
  for (gyre_comm **p = &c->ctx->comms; *p; p = &(*p)->next) {
    if (*p != c) continue;
    *p = c->next;
    return;
  }
}

void gy_comm_free(gyre_comm *c) {
  if (c->roster) gy_roster_free(c->roster);
  pthread_mutex_destroy(&c->verdict_lock);
  gy_operators_end(&c->operators);
  free(c->peer_ops);
  free(c);
}

void gy_comm_list(gyre_comm *c) {
  c->next = c->ctx->comms;
  c->ctx->comms = c;
  gy_loop_busy(c->ctx->loop, 1);
}

/* The creation is over, well or not. */
static void leave_parent(gyre_comm *c) {
  if (!c->parent) return;
  gyre_comm **p = &c->parent->children;
  while (*p != c) p = &(*p)->sibling;
  *p = c->sibling;
  c->parent = NULL;
}

static void dissolve(gyre_comm *c) {
  gy_shrink_end(c->shrink);
  leave_parent(c);
  gy_loop_busy(c->ctx->loop, -1);
  unlist(c);
  gy_comm_free(c);
}

void gy_comm_creation_failed(gyre_comm *c, gyre_status st) {
  gyre_request *req = c->creating;
  char text[512];
  gy_format(text, sizeof text, "%s", gyre_last_error());
  dissolve(c);
  gy_request_complete(req, st, text);
}

void gy_comm_none(gyre_comm *c) {
  gyre_request *req = c->creating;
  *c->out = NULL;
  dissolve(c);
  gy_request_complete(req, GYRE_OK, NULL);
}

void gy_comm_give_up(gyre_comm *c, gyre_status st, const char *text) {
  if (c->entered) gy_groups_cancel(c->parent->groups, &c->call);
  if (c->bootstrap) gy_bootstrap_cancel(c->bootstrap, text);
  gy_fail_text(st, text);
  gy_comm_creation_failed(c, st);
}

static bool names(const char *list, const char *name) {
  size_t len = strlen(name);
  for (const char *p = list; (p = strstr(p, name)); p += len) {
    bool starts = p == list || p[-1] == ',', ends = !p[len] || p[len] == ',';
    if (starts && ends) return true;
  }
  return false;
}

/* The transport with the highest score for each peer. */
static gyre_status choose_transports(gyre_comm *c) {
  const char *wanted = c->roster->agreed.transports;
  struct gy_fault_plan plan;
  gyre_status st = gy_fault_plan_read(c->settings.fault, &plan);
  if (st) return st;
  bool faulty = gy_fault_plan_concerns(&plan, c->core.rank);
  char why[200] = "no transport is enabled";
  c->peer_ops[c->core.rank] = &gy_self_ops;
  for (int peer = 0; peer < c->core.nranks; peer++) {
    int best = 0;
    for (size_t i = 0; i < sizeof transports / sizeof *transports && peer != c->core.rank; i++) {
      const struct gy_tl_ops *ops = faulty ? transports[i].faulty : transports[i].plain;
      if (*wanted && !names(wanted, ops->name)) continue;
      if (ops->abi != GY_TL_ABI || (ops->caps & NEEDED_CAPS) != NEEDED_CAPS) continue;
      int score = ops->reach(&c->core, peer, why, sizeof why);
      if (score <= best) continue;
      best = score;
      c->peer_ops[peer] = ops;
    }
    if (!best && peer != c->core.rank) {
      return gy_fail(GYRE_ERR_UNSUPPORTED, "rank %d cannot reach rank %d by \"%s\": %s",
                     c->core.rank, peer, *wanted ? wanted : "any transport", why);
    }
  }
  return GYRE_OK;
}

static gyre_status assemble(gyre_comm *c, struct gy_channel **channels) {
  c->peer_ops = calloc((size_t)c->core.nranks, sizeof *c->peer_ops);
  if (!c->peer_ops) return gy_fail(GYRE_ERR_NOMEM, "out of memory for %d ranks", c->core.nranks);
  gyre_status st = choose_transports(c);
  if (st) return st;
  struct gy_engine_config engine = {.core = &c->core,
                                    .loop = c->ctx->loop,
                                    .requests = c->ctx->requests,
                                    .peer_ops = c->peer_ops,
                                    .link_down = link_down,
                                    .mismatch = mismatch,
                                    .user = c};
  st = gy_engine_create(&engine, &c->engine);
  if (st) return st;
  struct gy_fault_config fault = {.core = &c->core,
                                  .engine = c->engine,
                                  .channels = channels,
                                  .other_message = other_message,
                                  .rank_left = rank_left,
                                  .user = c};
  st = gy_groups_create(&c->core, &c->fault, &c->groups);
  if (st) goto free_engine;
  st = gy_fault_create(&fault, &c->fault);
  if (st) goto free_groups;
  return GYRE_OK;

free_groups:
  gy_groups_free(c->groups);
free_engine:
  gy_engine_free(c->engine);
  return st;
}

static void log_creation(const gyre_comm *c, int here) {
  gy_log(
      GY_LOG_INFO,
      "rank %d of %d: communicator created, %d ranks on this host, %d cores, slice %u, window %u",
      c->core.rank, c->core.nranks, here, c->ctx->cores, c->roster->agreed.slice_bytes,
      c->roster->agreed.window);
}

/* Whose connection is missing; -1: nobody's. */
static int find_lost(const gyre_comm *c, struct gy_channel *const *channels) {
  if (c->core.rank > 0) return channels[0] ? -1 : 0;
  for (int r = 1; r < c->core.nranks; r++)
    if (!channels[r]) return r;
  return -1;
}

static void judge_lost(gyre_comm *c, int lost) {
  char who[128], text[256];
  gy_format(text, sizeof text, "%s was lost while the communicator was being made",
            gy_fault_name(c->fault, lost, who, sizeof who));
  gy_fault_judge(c->fault, GYRE_ERR_PEER_LOST, lost, text);
}

void gy_comm_met(void *comm, gyre_status status, struct gy_roster *roster,
                 struct gy_channel **channels) {
  gyre_comm *c = comm;
  c->bootstrap = NULL;
  if (status) {
    gy_comm_creation_failed(c, status);
    return;
  }
  c->roster = roster;
  c->core.roster = roster;
  int here = 0;
  for (int r = 0; r < roster->nranks; r++) {
    here += memcmp(roster->member[r].host, roster->member[c->core.rank].host, 16) == 0;
  }
  int lost = find_lost(c, channels);
  gyre_status st = assemble(c, channels);
  if (st) {
    for (int r = 0; r < roster->nranks; r++) {
      if (channels[r]) gy_channel_close(channels[r]);
    }
    free(channels);
    gy_comm_creation_failed(c, st);
    return;
  }
  if (lost >= 0) judge_lost(c, lost);
  if (here > c->ctx->cores) gy_loop_yield(c->ctx->loop, true);
  log_creation(c, here);
  leave_parent(c);
  c->source.pass = comm_pass;
  c->source.arm = comm_arm;
  gy_loop_add(c->ctx->loop, &c->source);
  gy_loop_busy(c->ctx->loop, -1);
  st = c->flags & GYRE_F_EAGER_LINKS ? gy_engine_warm(c->engine) : GYRE_OK;
  if (st) gy_fault_suspect(c->fault, -1, st, 0);
  gyre_request *req = c->creating;
  c->creating = NULL;
  *c->out = c;
  gy_request_complete(req, GYRE_OK, NULL);
}

void gy_comm_meet(gyre_comm *c, const struct gy_meeting *meeting) {
  struct gy_bootstrap_config config = {.rank = c->core.rank,
                                       .nranks = c->core.nranks,
                                       .settings = &c->settings,
                                       .unattended = c->ctx->unattended,
                                       .id = c->has_id ? &c->id : NULL,
                                       .oob = c->has_oob ? &c->oob : NULL,
                                       .meeting = meeting};
  gy_bootstrap_secret(&config, &c->core.secret);
  size_t slice = c->settings.slice_bytes ? (size_t)c->settings.slice_bytes : 256u << 10;
  gy_cost_default(&config.cost, c->core.nranks, c->ctx->cores, slice);
  gyre_status st = gy_bootstrap_start(gy_loop_uv(c->ctx->loop), c->ctx->net, &config, gy_comm_met,
                                      c, &c->bootstrap);
  if (st) gy_comm_creation_failed(c, st);
}

static void start_creation(struct gy_command *command) {
  gyre_comm *c = OF(command, start);
  gy_comm_list(c);
  gy_comm_meet(c, NULL);
}

static gyre_status set_number(struct gy_settings *s, const char *name, uint32_t value) {
  char text[16];
  snprintf(text, sizeof text, "%u", value);
  return value ? gy_settings_set(s, name, text) : GYRE_OK;
}

/* A program that was compiled with an older header hands over a shorter struct: what it lacks keeps
 * its default. */
static gyre_status take_config(const gyre_comm_config *config, gyre_comm_config *out) {
  const size_t size_0_1 = 72; /* padding included, so the members that came later are not in it */
  if (config->size < size_0_1) {
    return gy_fail(GYRE_ERR_ARG,
                   "gyre_comm_config.size is %zu, not %zu: start from GYRE_COMM_CONFIG_INIT",
                   config->size, sizeof *config);
  }
  size_t known =
      config->size < sizeof *config ? offsetof(gyre_comm_config, heartbeat_ms) : sizeof *config;
  memcpy(out, config, known);
  return GYRE_OK;
}

static gyre_status apply_config(gyre_comm *c, const gyre_comm_config *given) {
  struct gy_settings *s = &c->settings;
  gyre_comm_config known = GYRE_COMM_CONFIG_INIT;
  if (!given) return GYRE_OK;
  gyre_status st = take_config(given, &known);
  if (st) return st;
  const gyre_comm_config *config = &known;
  if (config->flags & ~(GYRE_F_EAGER_LINKS | GYRE_F_CHECKSUM)) {
    return gy_fail(GYRE_ERR_ARG, "gyre_comm_config.flags has unknown bits: 0x%x", config->flags);
  }
  c->flags = config->flags;
  c->has_id = config->id != NULL;
  c->has_oob = !c->has_id && config->oob != NULL;
  if (c->has_id) c->id = *config->id;
  if (c->has_oob) c->oob = *config->oob;
  st = config->rendezvous ? gy_settings_set(s, "GYRE_RENDEZVOUS", config->rendezvous) : GYRE_OK;
  if (!st && config->transports) st = gy_settings_set(s, "GYRE_TRANSPORTS", config->transports);
  if (!st && config->fault) st = gy_settings_set(s, "GYRE_FAULT", config->fault);
  if (!st && config->algo) st = gy_settings_set(s, "GYRE_ALGO", config->algo);
  if (!st && config->flags & GYRE_F_CHECKSUM) st = gy_settings_set(s, "GYRE_CHECKSUM", "1");
  if (!st) st = set_number(s, "GYRE_SLICE_BYTES", config->slice_bytes);
  if (!st) st = set_number(s, "GYRE_WINDOW", config->window);
  if (!st) st = set_number(s, "GYRE_CONNECT_TIMEOUT_MS", config->connect_timeout_ms);
  if (!st) st = set_number(s, "GYRE_OP_TIMEOUT_MS", config->op_timeout_ms);
  if (!st && config->heartbeat_ms == GYRE_NO_HEARTBEAT)
    st = gy_settings_set(s, "GYRE_HEARTBEAT_MS", "0");
  else if (!st) st = set_number(s, "GYRE_HEARTBEAT_MS", config->heartbeat_ms);
  if (!st) st = set_number(s, "GYRE_PEER_TIMEOUT_MS", config->peer_timeout_ms);
  return st;
}

static gyre_status check_creation(const gyre_comm *c) {
  if (c->core.nranks < 1 || c->core.nranks > 16384) {
    return gy_fail(GYRE_ERR_ARG, "gyre_comm_create: %d ranks: must be from 1 to 16384",
                   c->core.nranks);
  }
  if (c->core.rank < 0 || c->core.rank >= c->core.nranks) {
    return gy_fail(GYRE_ERR_ARG, "gyre_comm_create: rank %d of %d: must be from 0 to %d",
                   c->core.rank, c->core.nranks, c->core.nranks - 1);
  }
  if (c->has_oob && (!c->oob.put || !c->oob.get)) {
    return gy_fail(GYRE_ERR_ARG, "gyre_comm_create: the out-of-band table needs both put and get");
  }
  if (c->core.nranks > 1 && !c->has_id && !c->has_oob && !*c->settings.rendezvous) {
    return gy_fail(GYRE_ERR_ARG,
                   "gyre_comm_create: %d ranks but no rendezvous; set GYRE_RENDEZVOUS "
                   "(tcp://host:port or file:///path) or the "
                   "configuration's id, oob or rendezvous",
                   c->core.nranks);
  }
  gyre_status st = gy_fault_plan_read(c->settings.fault, NULL);
  return st ? st : gy_select_check(c->settings.algo);
}

gyre_comm *gy_comm_alloc(gyre_context *ctx, const struct gy_settings *settings, gyre_comm **out) {
  gyre_comm *c = calloc(1, sizeof *c);
  if (!c) {
    gy_fail(GYRE_ERR_NOMEM, "out of memory for a communicator");
    return NULL;
  }
  pthread_mutex_init(&c->verdict_lock, NULL);
  gy_operators_init(&c->operators);
  c->ctx = ctx;
  c->settings = *settings;
  c->verdict = (gyre_error)GYRE_ERROR_INIT;
  c->core =
      (struct gy_comm_core){.uv = gy_loop_uv(ctx->loop), .net = ctx->net, .settings = &c->settings};
  c->out = out;
  return c;
}

gyre_status gy_comm_begin(gyre_comm *c, void (*start)(struct gy_command *), gyre_request **req) {
  c->creating = gy_request_create(c->ctx->requests);
  if (!c->creating) return GYRE_ERR_NOMEM;
  c->start.run = start;
  *req = c->creating;
  gy_loop_post(c->ctx->loop, &c->start, false);
  return GYRE_OK;
}

gyre_status gyre_comm_create_async(gyre_context *ctx, int rank, int nranks,
                                   const gyre_comm_config *config, gyre_comm **out,
                                   gyre_request **req) {
  if (gy_operator_guard()) return GYRE_ERR_STATE;
  if (!ctx || !out || !req)
    return gy_fail(GYRE_ERR_ARG, "gyre_comm_create: context, out or request is NULL");
  if (gy_birth_check(&ctx->birth, "gyre_comm_create")) return GYRE_ERR_STATE;
  gyre_comm *c = gy_comm_alloc(ctx, &ctx->settings, out);
  if (!c) return GYRE_ERR_NOMEM;
  c->core.rank = rank;
  c->core.nranks = nranks;
  gyre_status st = apply_config(c, config);
  if (!st) st = check_creation(c);
  if (!st) st = gy_comm_begin(c, start_creation, req);
  if (st) gy_comm_free(c);
  return st;
}

gyre_status gyre_comm_create(gyre_context *ctx, int rank, int nranks,
                             const gyre_comm_config *config, gyre_comm **out) {
  gyre_request *req = NULL;
  if (gy_loop_in_callback())
    return gy_fail(GYRE_ERR_STATE, "gyre_comm_create: not from a callback");
  gyre_status st = gyre_comm_create_async(ctx, rank, nranks, config, out, &req);
  return st ? st : gyre_wait(req, -1);
}

/* --------------------------------------------------------------------------- abort, end, status --- */

static void run_abort(struct gy_command *command) {
  gyre_comm *c = OF(command, abort);
  gy_fault_abort(c->fault, c->why);
  gy_comm_apply_verdict(c);
}

gyre_status gyre_comm_abort(gyre_comm *comm, const char *why) {
  if (gy_operator_guard()) return GYRE_ERR_STATE;
  if (!comm) return gy_fail(GYRE_ERR_ARG, "gyre_comm_abort: the communicator is NULL");
  if (gy_birth_check(&comm->ctx->birth, "gyre_comm_abort")) return GYRE_ERR_STATE;
  if (atomic_exchange(&comm->aborting, true)) return GYRE_OK;
  gy_format(comm->why, sizeof comm->why, "%s", why ? why : "");
  comm->abort.run = run_abort;
  gy_loop_post(comm->ctx->loop, &comm->abort, false);
  return GYRE_OK;
}

static void ended(struct gy_command *command) {
  gyre_comm *c = OF(command, end);
  gy_loop_complete(c->ctx->loop, &c->ended);
}

/* (locked) Tells the peers, fails what is in flight, and lets the callbacks of that run before
 * `ended`. */
static void end_comm(struct gy_command *command) {
  gyre_comm *c = OF(command, end);
  gy_comm_apply_verdict(c);
  gy_loop_remove(c->ctx->loop, &c->source);
  gy_fault_leave(c->fault,
                 c->ctx->ending ? "it destroyed its context" : "it destroyed its communicator");
  gy_engine_fail(c->engine, GYRE_ERR_ABORTED,
                 "the communicator was destroyed while the operation was in flight", true);
  give_up_children(c, GYRE_ERR_ABORTED,
                   "the communicator was destroyed while another was being made from it");
  gy_groups_free(c->groups);
  gy_shrink_end(c->shrink);
  unlist(c);
  c->end.run = ended;
  gy_loop_defer(c->ctx->loop, &c->end);
}

void gyre_comm_destroy(gyre_comm *comm) {
  if (!comm || gy_operator_guard()) return;
  if (gy_birth_check(&comm->ctx->birth, "gyre_comm_destroy")) return;
  if (gy_loop_in_callback()) {
    gy_fail(GYRE_ERR_STATE, "gyre_comm_destroy: not from a callback; use gyre_comm_abort there");
    return;
  }
  struct gy_loop *loop = comm->ctx->loop;
  comm->end.run = end_comm;
  gy_loop_post(loop, &comm->end, true);
  gy_loop_wait(loop, &comm->ended, -1);
  gy_engine_free(comm->engine);
  gy_comm_free(comm);
}

struct sweep { /* asks, on the driving thread, for one communicator that is left */
  struct gy_command command;
  gyre_context *ctx;
  gyre_comm *left;
  atomic_int done;
};

static void find_left(struct gy_command *command) {
  struct sweep *s = (struct sweep *)(void *)command;
  s->ctx->ending = true;
  for (gyre_comm *c; (c = s->ctx->comms) && c->creating;) /* unlisted by its failure */
    gy_comm_give_up(c, GYRE_ERR_ABORTED,
                    "the context was destroyed while the communicator was being created");
  s->left = s->ctx->comms;
  gy_loop_complete(s->ctx->loop, &s->done);
}

void gy_comm_destroy_all(gyre_context *ctx) {
  for (;;) {
    struct sweep s = {.command = {.run = find_left}, .ctx = ctx};
    gy_loop_post(ctx->loop, &s.command, true);
    gy_loop_wait(ctx->loop, &s.done, -1);
    if (!s.left) return;
    gyre_comm_destroy(s.left);
  }
}

/* ------------------------------------------------------------------------------- operators --- */

static gyre_status create_operator(gyre_comm *comm, const char *function,
                                   const struct gy_operator_spec *spec, gyre_op *op) {
  gyre_status st = gy_operator_guard();
  if (st) return st;
  if (!comm || !op)
    return gy_fail(GYRE_ERR_ARG, "gyre_%s: the communicator or the operator is NULL", function);
  return gy_operators_add(&comm->operators, spec, op);
}

gyre_status gyre_op_create(gyre_comm *comm, gyre_op_fn fn, void *user, uint32_t flags, gyre_op *op) {
  bool commutative = flags & GYRE_OP_COMMUTATIVE;
  if (!fn || flags & ~GYRE_OP_COMMUTATIVE)
    return gy_fail(GYRE_ERR_ARG,
                   "gyre_op_create: the function is %s, flags are 0x%x: "
                   "must be a function, and 0 or GYRE_OP_COMMUTATIVE",
                   fn ? "given" : "NULL", flags);
  struct gy_operator_spec spec = {
      .kind = commutative ? GY_OP_COMMUTATIVE : GY_OP_ORDERED, .fn = fn, .user = user};
  return create_operator(comm, "op_create", &spec, op);
}

gyre_status gyre_op_create_premul_sum(gyre_comm *comm, double factor, gyre_op *op) {
  if (!isfinite(factor))
    return gy_fail(GYRE_ERR_ARG, "gyre_op_create_premul_sum: the factor %g is not finite", factor);
  struct gy_operator_spec spec = {.kind = GY_OP_PREMUL_SUM, .factor = factor};
  return create_operator(comm, "op_create_premul_sum", &spec, op);
}

gyre_status gyre_op_free(gyre_comm *comm, gyre_op op) {
  gyre_status st = gy_operator_guard();
  if (st) return st;
  if (!comm) return gy_fail(GYRE_ERR_ARG, "gyre_op_free: the communicator is NULL");
  return gy_operators_remove(&comm->operators, op);
}

/* ---------------------------------------------------------------------------------- status --- */

gyre_status gyre_comm_status(const gyre_comm *comm, gyre_error *out) {
  if (!comm || !out)
    return gy_fail(GYRE_ERR_ARG, "gyre_comm_status: the communicator or out is NULL");
  if (gy_birth_check(&comm->ctx->birth, "gyre_comm_status")) return GYRE_ERR_STATE;
  if (out->size < sizeof *out) {
    return gy_fail(GYRE_ERR_ARG, "gyre_error.size is %zu, not %zu: start from GYRE_ERROR_INIT",
                   out->size, sizeof *out);
  }
  gyre_comm *c = (gyre_comm *)(uintptr_t)comm; /* the lock is no part of what const promises */
  pthread_mutex_lock(&c->verdict_lock);
  *out = c->verdict;
  pthread_mutex_unlock(&c->verdict_lock);
  return out->status;
}

int gyre_comm_rank(const gyre_comm *comm) { return comm ? comm->core.rank : -1; }
int gyre_comm_size(const gyre_comm *comm) { return comm ? comm->core.nranks : -1; }
