/*
 * launch.c - a communicator from what a launcher put into the environment.
 *
 * Understands GYRE_RANK, GYRE_WORLD_SIZE, GYRE_RENDEZVOUS (gyre-run and our own), and torchrun's
 * RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT. torchrun's agent listens on MASTER_PORT itself, so
 * rank 0 takes the port after it. Part of either set is an error: a process that a launcher meant to
 * be one of many would otherwise run alone, and nobody would notice.
 */
#include "launch.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "context.h"
#include "status.h"

/* An empty variable counts as none, as it does for the settings. */
static const char *variable(const char *name) {
  const char *text = getenv(name);
  return text && *text ? text : NULL;
}

/* `why` explains a rule that does not explain itself; "" otherwise. */
static gyre_status number(const char *name, int64_t min, int64_t max, const char *why, int64_t *out) {
  const char *text = variable(name);
  char *end;
  errno = 0;
  long long v = text ? strtoll(text, &end, 10) : -1;
  if (!text || *end || errno || v < min || v > max) {
    return gy_fail(GYRE_ERR_ARG, "%s=%s: must be a whole number from %lld to %lld%s", name,
                   text ? text : "", (long long)min, (long long)max, why);
  }
  *out = v;
  return GYRE_OK;
}

/* ------------------------------------------------------------------- half an environment --- */

struct named {
  const char *name;
  bool set;
};

/* "A", "A and B", "A, B and C" of those that are `set`. */
static void list_names(const struct named *v, size_t n, bool set, char *out, size_t capacity) {
  size_t left = 0, len = 0;
  for (size_t i = 0; i < n; i++) left += v[i].set == set;
  out[0] = 0;
  for (size_t i = 0; i < n; i++) {
    if (v[i].set != set) continue;
    left--;
    len += gy_format(out + len, capacity - len, "%s%s", v[i].name,
                     left > 1    ? ", "
                     : left == 1 ? " and "
                                 : "");
  }
}

static gyre_status half(const char *launcher, const struct named *v, size_t n) {
  char there[128], missing[128];
  size_t n_there = 0;
  for (size_t i = 0; i < n; i++) n_there += v[i].set;
  list_names(v, n, true, there, sizeof there);
  list_names(v, n, false, missing, sizeof missing);
  return gy_fail(GYRE_ERR_ARG,
                 "%s %s set but %s %s not: %s sets all of them; unset %s to run as one rank", there,
                 n_there == 1 ? "is" : "are", missing, n - n_there == 1 ? "is" : "are", launcher,
                 n_there == 1 ? "it" : "them");
}

/* ------------------------------------------------------------------------------- launchers --- */

struct launch {
  int64_t rank, size;
  char rendezvous[512];
};

static gyre_status from_torchrun(bool where, struct launch *l) {
  const char *host = variable("MASTER_ADDR");
  bool port_set = variable("MASTER_PORT") != NULL;
  const struct named v[] = {{"RANK", variable("RANK") != NULL},
                            {"WORLD_SIZE", variable("WORLD_SIZE") != NULL},
                            {"MASTER_ADDR", host != NULL},
                            {"MASTER_PORT", port_set}};
  int64_t port = 0;
  if (!v[0].set || !v[1].set) return half("torchrun", v, sizeof v / sizeof v[0]);
  gyre_status st = number("WORLD_SIZE", 1, 16384, "", &l->size);
  if (!st) st = number("RANK", 0, l->size - 1, "", &l->rank);
  if (st || l->size == 1 || where) return st;
  if (!host || !port_set) return half("torchrun", v, sizeof v / sizeof v[0]);
  st = number("MASTER_PORT", 1, 65534,
              ", as rank 0 listens on the port after it (torchrun's agent has that one itself)",
              &port);
  if (st) return st;
  bool bare_v6 = strchr(host, ':') && *host != '[';
  gy_format(l->rendezvous, sizeof l->rendezvous, bare_v6 ? "tcp://[%s]:%lld" : "tcp://%s:%lld",
            host, (long long)port + 1);
  return GYRE_OK;
}

gyre_status gy_launch_check(const struct gy_settings *s) {
  if (s->rank < 0 || s->world_size < 0 || s->rank < s->world_size) return GYRE_OK;
  return gy_fail(GYRE_ERR_ARG, "GYRE_RANK=%lld: must be less than GYRE_WORLD_SIZE=%lld",
                 (long long)s->rank, (long long)s->world_size);
}

static gyre_status from_gyre(const struct gy_settings *s, bool where, struct launch *l) {
  const struct named v[] = {{"GYRE_RANK", s->rank >= 0},
                            {"GYRE_WORLD_SIZE", s->world_size >= 0},
                            {"GYRE_RENDEZVOUS", s->rendezvous[0] != 0}};
  bool alone = s->rank >= 0 && s->world_size == 1;
  if (!v[0].set || !v[1].set || !(where || alone)) {
    /* A place that the program gives is as good as GYRE_RENDEZVOUS, and then nobody misses it. */
    return half("gyre-run", v, where && !v[2].set ? 2 : 3);
  }
  l->rank = s->rank;
  l->size = s->world_size;
  return gy_launch_check(s);
}

static gyre_status read_launch(const struct gy_settings *s, bool where, struct launch *l) {
  static const char *const torchrun[] = {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"};
  if (s->rank >= 0 || s->world_size >= 0) return from_gyre(s, where, l);
  for (size_t i = 0; i < sizeof torchrun / sizeof torchrun[0]; i++)
    if (variable(torchrun[i])) return from_torchrun(where, l);
  if (s->rendezvous[0]) return from_gyre(s, where, l);
  if (s->local_rank < 0) return GYRE_OK;
  return gy_fail(GYRE_ERR_ARG,
                 "GYRE_LOCAL_RANK is set but GYRE_RANK, GYRE_WORLD_SIZE and GYRE_RENDEZVOUS are "
                 "not: a launcher sets all of them; unset it to run as one rank");
}

gyre_status gyre_comm_create_from_env(gyre_context *ctx, const gyre_comm_config *config,
                                      gyre_comm **out) {
  if (!ctx || !out)
    return gy_fail(GYRE_ERR_ARG, "gyre_comm_create_from_env: the context or out is NULL");
  const struct gy_settings *s = &ctx->settings;
  gyre_comm_config c = GYRE_COMM_CONFIG_INIT;
  struct launch l = {.rank = 0, .size = 1};
  if (config && config->size < sizeof c) {
    return gy_fail(GYRE_ERR_ARG,
                   "gyre_comm_config.size is %zu, not %zu: start from GYRE_COMM_CONFIG_INIT",
                   config->size, sizeof c);
  }
  if (config) c = *config;
  bool where = c.rendezvous || c.id || c.oob || *s->rendezvous;
  gyre_status st = read_launch(s, where, &l);
  if (st) return st;
  if (*l.rendezvous) c.rendezvous = l.rendezvous;
  return gyre_comm_create(ctx, (int)l.rank, (int)l.size, &c, out);
}
