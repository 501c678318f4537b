/* plan.c - see plan.h. */
#include "plan.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "../../src/status.h"

static const struct kind {
  const char *name, *key; /* key: that of the amount, which must be given; NULL: none */
  uint64_t least, most;
} kinds[] = {
    [GY_FAULT_DELAY] = {"delay", "us", 1, 10000000},
    [GY_FAULT_REORDER] = {"reorder", NULL, 0, 0},
    [GY_FAULT_SHORT] = {"short", "bytes", 1, 1u << 30},
    [GY_FAULT_CUT] = {"cut", "bytes", 0, INT64_MAX},
    [GY_FAULT_FLIP] = {"flip", "byte", 0, INT64_MAX},
    [GY_FAULT_KILL] = {"kill", "slice", 1, INT64_MAX},
    [GY_FAULT_STOP] = {"stop", "slice", 1, INT64_MAX},
};
#define KINDS (sizeof kinds / sizeof *kinds)

#define RULE                                                                               \
  "kind:key=value,... separated by ; with delay:us=N, reorder, short:bytes=N, "            \
  "cut:bytes=N, flip:byte=N[,bit=0-7], kill:slice=N, stop:slice=N, each also with rank=R," \
  "peer=P,op=N,seed=S"

static gyre_status refuse(const char *what, size_t len, const char *why) {
  return gy_fail(GYRE_ERR_ARG, "GYRE_FAULT: \"%.*s\" %s; the form is " RULE, (int)len, what, why);
}

static bool is(const char *name, const char *text, size_t len) {
  return strlen(name) == len && memcmp(name, text, len) == 0;
}

static bool read_number(const char *text, size_t len, uint64_t *out) {
  if (len == 0 || len > 18 || strspn(text, "0123456789") < len) return false;
  *out = strtoull(text, NULL, 10);
  return true;
}

/* One key=value of a rule. *given: whether it was the amount. */
static gyre_status read_pair(const char *text, size_t len, struct gy_fault_rule *r, bool *given) {
  const struct kind *k = &kinds[r->kind];
  const char *equals = memchr(text, '=', len);
  size_t name = equals ? (size_t)(equals - text) : len;
  uint64_t v;
  if (!equals || !read_number(equals + 1, len - name - 1, &v))
    return refuse(text, len, "is no key=number");
  if (k->key && is(k->key, text, name)) {
    if (v < k->least || v > k->most) return refuse(text, len, "is out of range");
    r->amount = v;
    *given = true;
  } else if (is("rank", text, name) && v < 16384) {
    r->rank = (int)v;
  } else if (is("peer", text, name) && v < 16384) {
    r->peer = (int)v;
  } else if (is("op", text, name) && v > 0) {
    r->op = v;
  } else if (is("seed", text, name)) {
    r->seed = v;
  } else if (r->kind == GY_FAULT_FLIP && is("bit", text, name) && v < 8) {
    r->bit = (uint8_t)v;
  } else {
    return refuse(text, len, "is no key of this kind, or out of range");
  }
  return GYRE_OK;
}

static gyre_status read_rule(const char *text, size_t len, struct gy_fault_rule *r) {
  size_t name = strcspn(text, ":;"), kind = 0, at;
  while (kind < KINDS && !is(kinds[kind].name, text, name)) kind++;
  if (kind == KINDS) return refuse(text, len, "is of no known kind");
  *r = (struct gy_fault_rule){.kind = (enum gy_fault_kind)kind, .rank = -1, .peer = -1, .seed = 1};
  bool given = !kinds[kind].key;
  for (at = name; at < len;) {
    const char *pair = text + ++at; /* behind the colon or comma */
    size_t n = strcspn(pair, ",;");
    gyre_status st = read_pair(pair, n, r, &given);
    if (st) return st;
    at += n;
  }
  return given ? GYRE_OK : refuse(text, len, "does not say how much");
}

gyre_status gy_fault_plan_read(const char *text, struct gy_fault_plan *out) {
  struct gy_fault_plan plan = {0};
  while (*text) {
    size_t len = strcspn(text, ";");
    if (plan.n == GY_FAULT_RULES) return refuse(text, len, "is one rule too many (8 at most)");
    gyre_status st = read_rule(text, len, &plan.rule[plan.n++]);
    if (st) return st;
    text += len;
    if (*text) text++;
  }
  if (out) *out = plan;
  return GYRE_OK;
}

bool gy_fault_plan_concerns(const struct gy_fault_plan *plan, int rank) {
  for (unsigned i = 0; i < plan->n; i++) {
    if (plan->rule[i].rank < 0 || plan->rule[i].rank == rank) return true;
  }
  return false;
}
