/*
 * launch.c - a communicator from what a launcher put into the environment.
 *
 * Understands GYRE_RANK, GYRE_WORLD_SIZE, GYRE_RENDEZVOUS (gyre-run and our own), and torchrun's
 * RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT. torchrun's agent listens on MASTER_PORT itself, so
 * rank 0 takes the port after it.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "context.h"
#include "status.h"

static gyre_status number(const char *name, int64_t min, int64_t max, int64_t *out) {
  const char *text = getenv(name);
  char *end;
  errno = 0;
  long long v = text && *text ? strtoll(text, &end, 10) : -1;
  if (!text || !*text || *end || errno || v < min || v > max) {
    return gy_fail(GYRE_ERR_ARG, "%s=%s: must be a whole number from %lld to %lld", name,
                   text ? text : "(not set)", (long long)min, (long long)max);
  }
  *out = v;
  return GYRE_OK;
}

struct launch {
  int64_t rank, size;
  char rendezvous[512];
};

static gyre_status from_torchrun(struct launch *l) {
  int64_t port = 0;
  const char *host = getenv("MASTER_ADDR");
  gyre_status st = number("WORLD_SIZE", 1, 16384, &l->size);
  if (!st) st = number("RANK", 0, l->size - 1, &l->rank);
  if (st || l->size == 1) return st;
  if (!host || !*host) {
    return gy_fail(GYRE_ERR_ARG,
                   "RANK and WORLD_SIZE are set but MASTER_ADDR is not: torchrun sets all four");
  }
  st = number("MASTER_PORT", 1, 65534, &port);
  if (st) return st;
  bool bare_v6 = strchr(host, ':') && *host != '[';
  gy_format(l->rendezvous, sizeof l->rendezvous, bare_v6 ? "tcp://[%s]:%lld" : "tcp://%s:%lld",
            host, (long long)port + 1);
  return GYRE_OK;
}

static gyre_status from_gyre(const struct gy_settings *s, struct launch *l) {
  if (s->rank < 0 || s->world_size < 0) {
    return gy_fail(GYRE_ERR_ARG, "%s is set but %s is not: a launcher sets both",
                   s->rank < 0 ? "GYRE_WORLD_SIZE" : "GYRE_RANK",
                   s->rank < 0 ? "GYRE_RANK" : "GYRE_WORLD_SIZE");
  }
  if (s->rank >= s->world_size) {
    return gy_fail(GYRE_ERR_ARG, "GYRE_RANK=%lld: must be less than GYRE_WORLD_SIZE=%lld",
                   (long long)s->rank, (long long)s->world_size);
  }
  l->rank = s->rank;
  l->size = s->world_size;
  return GYRE_OK;
}

gyre_status gyre_comm_create_from_env(gyre_context *ctx, const gyre_comm_config *config,
                                      gyre_comm **out) {
  if (!ctx || !out)
    return gy_fail(GYRE_ERR_ARG, "gyre_comm_create_from_env: the context or out is NULL");
  const struct gy_settings *s = &ctx->settings;
  gyre_comm_config c = GYRE_COMM_CONFIG_INIT;
  struct launch l = {.rank = 0, .size = 1};
  gyre_status st = GYRE_OK;
  if (config && config->size < sizeof c) {
    return gy_fail(GYRE_ERR_ARG,
                   "gyre_comm_config.size is %zu, not %zu: start from GYRE_COMM_CONFIG_INIT",
                   config->size, sizeof c);
  }
  if (config) c = *config;
  if (s->rank >= 0 || s->world_size >= 0) {
    st = from_gyre(s, &l);
  } else if (getenv("RANK") && getenv("WORLD_SIZE")) {
    st = from_torchrun(&l);
  }
  if (st) return st;
  bool where = c.rendezvous || c.id || c.oob || *s->rendezvous;
  if (!where && *l.rendezvous) c.rendezvous = l.rendezvous;
  return gyre_comm_create(ctx, (int)l.rank, (int)l.size, &c, out);
}
