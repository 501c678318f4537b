/* context.c - see context.h. */
#include "context.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bootstrap.h"
#include "comm.h"
#include "dump.h"
#include "dump_signal.h"
#include "log.h"
#include "operator.h"
#include "query.h"

static gyre_status set_text(struct gy_settings *s, const char *name, const char *value) {
  return value ? gy_settings_set(s, name, value) : GYRE_OK;
}

static gyre_status apply_config(struct gy_settings *s, const gyre_context_config *c) {
  char number[24];
  if (!c) return GYRE_OK;
  if (c->size < sizeof *c) {
    return gy_fail(GYRE_ERR_ARG,
                   "gyre_context_config.size is %zu, not %zu: start from GYRE_CONTEXT_CONFIG_INIT",
                   c->size, sizeof *c);
  }
  if (c->flags & ~GYRE_F_NO_PROGRESS_THREAD) {
    return gy_fail(GYRE_ERR_ARG, "gyre_context_config.flags has unknown bits: 0x%x", c->flags);
  }
  snprintf(number, sizeof number, "%d", c->spin_us);
  gyre_status st = set_text(s, "GYRE_IFACE", c->iface);
  if (!st) st = set_text(s, "GYRE_ADVERTISE", c->advertise);
  if (!st) st = set_text(s, "GYRE_PORT", c->port);
  if (!st) st = set_text(s, "GYRE_SECRET", c->secret);
  if (!st && c->spin_us != -1) st = set_text(s, "GYRE_SPIN_US", number);
  return st;
}

static gyre_status open_log(const struct gy_settings *s) {
  static const char *const names[] = {"off", "error", "warn", "info", "debug"};
  for (int level = GY_LOG_OFF; level <= GY_LOG_DEBUG; level++) {
    if (!strcmp(s->log, names[level])) return gy_log_open((enum gy_level)level, s->log_file);
  }
  return GYRE_OK;
}

static int count_cores(void) {
  cpu_set_t set;
  int n = sched_getaffinity(0, sizeof set, &set) ? 1 : CPU_COUNT(&set);
  return n > 0 ? n : 1;
}

struct start {
  gyre_context *ctx;
  gyre_status status;
  char text[512];
};

/* Those who may ask for the flight recorder. */
static void open_dump(void *arg) {
  struct start *s = arg;
  s->status = gy_dump_signal_open(s->ctx, &s->ctx->dump_signal);
  if (s->status) gy_format(s->text, sizeof s->text, "%s", gyre_last_error());
  else gy_query_open(s->ctx, &s->ctx->query);
}

static void end_context(gyre_context *ctx);

gyre_status gyre_context_create(gyre_context **out) { return gyre_context_create_with(NULL, out); }

gyre_status gyre_context_create_with(const gyre_context_config *config, gyre_context **out) {
  if (!out) return gy_fail(GYRE_ERR_ARG, "gyre_context_create: out is NULL");
  gyre_context *ctx = calloc(1, sizeof *ctx);
  if (!ctx) return gy_fail(GYRE_ERR_NOMEM, "out of memory for a context");
  ctx->birth = gy_birth_now();
  gyre_status st = gy_settings_load(&ctx->settings);
  if (!st) st = apply_config(&ctx->settings, config);
  if (!st) st = open_log(&ctx->settings);
  if (!st) st = gy_net_check(&ctx->settings);
  if (!st) st = gy_dump_check(&ctx->settings);
  if (!st && strcmp(ctx->settings.cpu, "auto")) st = gy_reduce_use(ctx->settings.cpu);
  if (st) goto free_context;
  ctx->cores = count_cores();
  ctx->unattended = config && config->flags & GYRE_F_NO_PROGRESS_THREAD;
  st = gy_loop_create(&ctx->settings, !ctx->unattended, &ctx->loop);
  if (st) goto free_context;
  st = gy_request_pool_create(ctx->loop, &ctx->requests);
  if (st) goto destroy_loop;
  st = gy_net_create(gy_loop_uv(ctx->loop), &ctx->settings, &ctx->net);
  if (st) goto release_pool;
  struct start start = {.ctx = ctx};
  gy_loop_call(ctx->loop, open_dump, &start);
  if (start.status) {
    end_context(ctx);
    return gy_fail_text(start.status, start.text);
  }
  *out = ctx;
  return GYRE_OK;

release_pool:
  gy_request_pool_release(ctx->requests);
destroy_loop:
  gy_loop_destroy(ctx->loop);
free_context:
  free(ctx);
  return st;
}

/* ------------------------------------------------------------------------------------ destroy --- */

struct task { /* a command that its poster waits for */
  struct gy_command command;
  gyre_context *ctx;
  atomic_int done;
  gyre_status status;
  gyre_unique_id *id;
  char text[512];
  bool lingering;
};

static void run_task(struct task *t, gyre_context *ctx, void (*run)(struct gy_command *c)) {
  *t = (struct task){.command = {.run = run}, .ctx = ctx};
  gy_loop_post(ctx->loop, &t->command, true);
  gy_loop_wait(ctx->loop, &t->done, -1);
}

static void net_closed(void *user) {
  struct task *t = user;
  gy_loop_complete(t->ctx->loop, &t->done);
}

static void close_net(struct gy_command *c) {
  struct task *t = (struct task *)(void *)c;
  gy_query_close(t->ctx->query);
  gy_dump_signal_close(t->ctx->dump_signal);
  gy_net_close(t->ctx->net, net_closed, t);
}

static void look_at_linger(struct gy_command *c) {
  struct task *t = (struct task *)(void *)c;
  t->lingering = gy_net_lingering(t->ctx->net) > 0;
  gy_loop_complete(t->ctx->loop, &t->done);
}

/* Lets peers read what was sent, until each has closed its side or its linger time is over. */
static void wait_for_linger(gyre_context *ctx) {
  atomic_int never = 0;
  struct task t;
  for (int64_t waited = 0; waited < ctx->settings.linger_ms + 100; waited += 5) {
    run_task(&t, ctx, look_at_linger);
    if (!t.lingering) return;
    gy_loop_wait(ctx->loop, &never, 5);
  }
}

static void end_context(gyre_context *ctx) {
  struct task t;
  run_task(&t, ctx, close_net);
  gy_loop_destroy(ctx->loop);
  gy_request_pool_release(ctx->requests);
  free(ctx);
}

void gyre_context_destroy(gyre_context *ctx) {
  if (!ctx || gy_operator_guard()) return;
  if (gy_birth_check(&ctx->birth, "gyre_context_destroy")) return;
  if (gy_loop_in_callback()) {
    gy_fail(GYRE_ERR_STATE, "gyre_context_destroy: not from a callback");
    return;
  }
  gy_comm_destroy_all(ctx);
  wait_for_linger(ctx);
  end_context(ctx);
}

/* ------------------------------------------------------------------------------ embedding, ids --- */

int gyre_context_fd(gyre_context *ctx) {
  if (!ctx) {
    gy_fail(GYRE_ERR_ARG, "gyre_context_fd: the context is NULL");
    return -1;
  }
  if (gy_birth_check(&ctx->birth, "gyre_context_fd")) return -1;
  return gy_loop_fd(ctx->loop);
}

gyre_status gyre_progress(gyre_context *ctx) {
  if (gy_operator_guard()) return GYRE_ERR_STATE;
  if (!ctx) return gy_fail(GYRE_ERR_ARG, "gyre_progress: the context is NULL");
  if (gy_birth_check(&ctx->birth, "gyre_progress")) return GYRE_ERR_STATE;
  if (gy_loop_in_callback()) return gy_fail(GYRE_ERR_STATE, "gyre_progress: not from a callback");
  gy_loop_progress(ctx->loop);
  return GYRE_OK;
}

static void make_id(struct gy_command *c) {
  struct task *t = (struct task *)(void *)c;
  t->status = gy_net_listen(t->ctx->net, true);
  gyre_unique_id id;
  if (!t->status) t->status = gy_unique_id_make(t->ctx->net, &id);
  if (t->status) {
    gy_format(t->text, sizeof t->text, "%s", gyre_last_error());
  } else {
    *t->id = id;
  }
  gy_loop_complete(t->ctx->loop, &t->done);
}

gyre_status gyre_unique_id_create(gyre_context *ctx, gyre_unique_id *out) {
  if (gy_operator_guard()) return GYRE_ERR_STATE;
  if (!ctx || !out)
    return gy_fail(GYRE_ERR_ARG, "gyre_unique_id_create: the context or out is NULL");
  if (gy_birth_check(&ctx->birth, "gyre_unique_id_create")) return GYRE_ERR_STATE;
  if (gy_loop_in_callback())
    return gy_fail(GYRE_ERR_STATE, "gyre_unique_id_create: not from a callback");
  struct task t = {.command = {.run = make_id}, .ctx = ctx, .id = out};
  gy_loop_post(ctx->loop, &t.command, true);
  gy_loop_wait(ctx->loop, &t.done, -1);
  return t.status ? gy_fail_text(t.status, t.text) : GYRE_OK;
}
