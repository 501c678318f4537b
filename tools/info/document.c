/* document.c - see document.h. */
#include "document.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dump.h"
#include "status.h"

#define RANKS_MAX 16384

struct text { /* a copy that a document owns */
  struct text *next;
  char chars[];
};

/* ----------------------------------------------------------------------------------- values --- */

static const char *text(struct document *d, const char *chars) {
  size_t len = chars ? strlen(chars) : 0;
  struct text *t = len ? malloc(sizeof *t + len + 1) : NULL;
  if (!t) return "";
  for (size_t i = 0; i <= len; i++) {
    unsigned char c = (unsigned char)chars[i];
    t->chars[i] = chars[i];
    if (i < len && (c < 0x20 || c == 0x7f)) t->chars[i] = '?';
  }
  t->next = d->texts;
  d->texts = t;
  return t->chars;
}

static const char *text_at(struct document *d, const json_t *object, const char *key) {
  return text(d, json_string_value(json_object_get(object, key)));
}

/* From 0 on; what is none is 0. */
static int64_t number_at(const json_t *object, const char *key) {
  json_int_t n = json_integer_value(json_object_get(object, key));
  return n > 0 ? n : 0;
}

static int rank_at(const json_t *object, const char *key, int size) {
  const json_t *value = json_object_get(object, key);
  json_int_t n = json_is_integer(value) ? json_integer_value(value) : -1;
  return n >= 0 && n < size ? (int)n : -1;
}

/* ------------------------------------------------------------------------------- operations --- */

static void read_operation(struct view *v, struct document *d, const json_t *json,
                           struct operation *out) {
  const char *status = json_string_value(json_object_get(json, "status"));
  const char *kind = json_string_value(json_object_get(json, "kind"));
  const json_t *waiting = json_object_get(json, "waiting");
  *out = (struct operation){
      .number = (uint64_t)number_at(json, kind ? "number" : "seq"),
      .what = text_at(d, json, "what"),
      .in_flight = status && strcmp(status, "IN_PROGRESS") == 0,
      .ok = status && strcmp(status, "OK") == 0,
      .started_ns = number_at(json, "started_ns"),
      .finished_ns = number_at(json, "finished_ns"),
      .started = text_at(d, json, "started"),
      .moved = (uint64_t)number_at(json, "moved_in") + (uint64_t)number_at(json, "moved_out"),
      .waiting_for = kind ? rank_at(json, "peer", v->size) : rank_at(waiting, "rank", v->size),
      .receives = kind && strcmp(kind, "recv") == 0};
}

static struct operation *read_operations(struct view *v, struct document *d, const json_t *list,
                                         size_t *n) {
  size_t i, size = json_array_size(list);
  struct operation *ops = size ? calloc(size, sizeof *ops) : NULL;
  json_t *one;
  *n = ops ? size : 0;
  if (ops) json_array_foreach(list, i, one) read_operation(v, d, one, &ops[i]);
  return ops;
}

const struct operation *view_operation(const struct view *v, uint64_t number) {
  for (size_t i = 0; i < v->n_operations; i++)
    if (v->operations[i].number == number) return &v->operations[i];
  return NULL;
}

/* ---------------------------------------------------------------------------- communicators --- */

static const char *read_verdict(struct document *d, const json_t *verdict) {
  const char *status = json_string_value(json_object_get(verdict, "status"));
  const char *words = json_string_value(json_object_get(verdict, "text"));
  char line[1024];
  if (!status) return "";
  gy_format(line, sizeof line, "%s: %s", status, words ? words : "");
  return text(d, line);
}

static bool read_view(struct document *d, json_t *json, struct view *v) {
  int64_t size = number_at(json, "size");
  if (size < 1 || size > RANKS_MAX) return false;
  v->document = d;
  v->size = (int)size;
  v->rank = rank_at(json, "rank", v->size);
  if (v->rank < 0) return false;
  v->id = text_at(d, json, "id");
  v->posted = (uint64_t)number_at(json, "posted");
  v->started = (uint64_t)number_at(json, "started");
  v->first_unfinished = (uint64_t)number_at(json, "first_unfinished");
  v->verdict = read_verdict(d, json_object_get(json, "verdict"));
  v->operations = read_operations(v, d, json_object_get(json, "operations"), &v->n_operations);
  v->messages = read_operations(v, d, json_object_get(json, "messages"), &v->n_messages);
  v->members = json_incref(json_object_get(json, "members"));
  return true;
}

const char *view_member(const struct view *v, int rank, char *out, size_t capacity) {
  const json_t *m = v ? json_array_get(v->members, (size_t)rank) : NULL;
  const char *host = json_string_value(json_object_get(m, "host"));
  size_t n = gy_format(out, capacity, "rank %d", rank);
  if (!host) return out;
  gy_format(out + n, capacity - n, " (%s, pid %lld)", host, (long long)number_at(m, "pid"));
  for (char *c = out; *c; c++)
    if ((unsigned char)*c < 0x20 || *c == 0x7f) *c = '?';
  return out;
}

void view_drop_members(struct view *v) {
  json_decref(v->members);
  v->members = NULL;
}

/* -------------------------------------------------------------------------------- documents --- */

static bool refuse(struct document *d, const char *reason, char *why, size_t capacity) {
  gy_format(why, capacity, "%s: %s", d->name, reason);
  return false;
}

static bool take(struct document *d, const json_t *root, char *why, size_t capacity) {
  const json_t *format = json_object_get(root, "format");
  json_t *comms = json_object_get(root, "communicators"), *one;
  char reason[160];
  size_t i;
  if (!json_is_string(json_object_get(root, "gyre")) || !json_is_integer(format) ||
      !json_is_array(comms))
    return refuse(d, "this is JSON, but no record of Gyre's", why, capacity);
  if (json_integer_value(format) != GY_DUMP_FORMAT) {
    gy_format(reason, sizeof reason,
              "it has form %lld, this program reads form %d; use the gyre-info of version %.40s",
              (long long)json_integer_value(format), GY_DUMP_FORMAT, text_at(d, root, "gyre"));
    return refuse(d, reason, why, capacity);
  }
  d->host = text_at(d, root, "host");
  d->now = text_at(d, root, "now");
  d->pid = number_at(root, "pid");
  d->now_ns = number_at(root, "now_ns");
  d->views = calloc(json_array_size(comms) + 1, sizeof *d->views);
  if (!d->views) return refuse(d, "out of memory", why, capacity);
  json_array_foreach(comms, i, one) {
    if (!read_view(d, one, &d->views[d->n_views++]))
      return refuse(d, "a communicator in it has no rank or no size", why, capacity);
  }
  return true;
}

struct document *document_read(const char *name, const char *json, size_t len, char *why,
                               size_t capacity) {
  json_error_t error;
  struct document *d = calloc(1, sizeof *d);
  if (!d) {
    gy_format(why, capacity, "%s: out of memory", name);
    return NULL;
  }
  d->name = text(d, name);
  json_t *root = json_loadb(json, len, JSON_REJECT_DUPLICATES, &error);
  bool good = root != NULL;
  if (good) good = take(d, root, why, capacity);
  else gy_format(why, capacity, "%s: line %d: %s", name, error.line, error.text);
  json_decref(root);
  if (good) return d;
  document_free(d);
  return NULL;
}

void document_free(struct document *d) {
  if (!d) return;
  for (size_t i = 0; i < d->n_views; i++) {
    view_drop_members(&d->views[i]);
    free(d->views[i].operations);
    free(d->views[i].messages);
  }
  while (d->texts) {
    struct text *next = d->texts->next;
    free(d->texts);
    d->texts = next;
  }
  free(d->views);
  free(d);
}
