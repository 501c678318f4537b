/* output.c - see output.h. */
#include "output.h"

#include <errno.h>
#include <limits.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define BLOCK_BYTES 65536u
#define QUEUE_BYTES (1u << 20)
#define LINE_BYTES (256u << 10) /* a longer line is passed on in pieces */

struct output_block {
  struct output_block *next;
  int fd;
  size_t start, end;
  char data[BLOCK_BYTES];
};

/* The last block if it is for fd and has room, otherwise a new one. */
static struct output_block *block_for(struct output *o, int fd) {
  struct output_block *b = o->tail;
  if (b && b->fd == fd && b->end < sizeof b->data) return b;
  b = malloc(sizeof *b);
  if (!b) return NULL;
  b->next = NULL;
  b->fd = fd;
  b->start = b->end = 0;
  if (o->tail) o->tail->next = b;
  else o->head = b;
  o->tail = b;
  return b;
}

static void drop_head(struct output *o) {
  struct output_block *b = o->head;
  o->queued -= b->end - b->start;
  o->head = b->next;
  if (!o->head) o->tail = NULL;
  free(b);
}

bool output_put(struct output *o, int fd, const char *data, size_t len) {
  if (o->broken[fd]) return true;
  while (len > 0) {
    struct output_block *b = block_for(o, fd);
    if (!b) return false;
    size_t room = sizeof b->data - b->end, n = len < room ? len : room;
    memcpy(b->data + b->end, data, n);
    b->end += n;
    o->queued += n;
    data += n;
    len -= n;
  }
  return true;
}

bool output_print(struct output *o, int fd, const char *fmt, ...) {
  char text[4096];
  va_list args;
  va_start(args, fmt);
  int n = vsnprintf(text, sizeof text - 1, fmt, args);
  va_end(args);
  if (n < 0) return true;
  if ((size_t)n > sizeof text - 2) n = (int)sizeof text - 2;
  text[n] = '\n';
  return output_put(o, fd, text, (size_t)n + 1);
}

bool output_is_full(const struct output *o) { return o->queued >= QUEUE_BYTES; }

int output_next(const struct output *o) { return o->head ? o->head->fd : -1; }

int output_write(struct output *o) {
  struct output_block *b = o->head;
  if (!b) return 0;
  size_t n = b->end - b->start;
  ssize_t written = write(b->fd, b->data + b->start,
                          n < PIPE_BUF ? n : PIPE_BUF); /* so much never blocks after poll() */
  if (written < 0) {
    int why = errno;
    if (why == EINTR || why == EAGAIN) return 0;
    o->broken[b->fd] = true;
    while (o->head && o->broken[o->head->fd]) drop_head(o);
    return why;
  }
  b->start += (size_t)written;
  o->queued -= (size_t)written;
  if (b->start == b->end) drop_head(o);
  while (o->head && o->broken[o->head->fd]) drop_head(o);
  return 0;
}

void output_free(struct output *o) {
  while (o->head) drop_head(o);
}

/* --------------------------------------------------------------------------------- streams --- */

static bool put_prefix(const struct stream *s, struct output *o) {
  char prefix[16];
  if (s->prefix < 0) return true;
  int n = snprintf(prefix, sizeof prefix, "[%d] ", s->prefix);
  return output_put(o, s->to, prefix, (size_t)n);
}

/* Passes the unfinished line on. With a prefix it gets a line feed, since the next bytes may be of
 * another rank. */
static bool put_unfinished(struct stream *s, struct output *o) {
  if (s->len == 0) return true;
  bool ok = put_prefix(s, o) && output_put(o, s->to, s->line, s->len);
  if (ok && s->prefix >= 0) ok = output_put(o, s->to, "\n", 1);
  s->len = 0;
  return ok;
}

static bool keep_unfinished(struct stream *s, const char *data, size_t len) {
  if (s->len + len > s->capacity) {
    size_t capacity = s->capacity ? s->capacity : 256;
    while (capacity < s->len + len) capacity *= 2;
    char *line = realloc(s->line, capacity);
    if (!line) return false;
    s->line = line;
    s->capacity = capacity;
  }
  memcpy(s->line + s->len, data, len);
  s->len += len;
  return true;
}

static bool take(struct stream *s, struct output *o, const char *data, size_t len) {
  while (len > 0) {
    const char *feed = memchr(data, '\n', len);
    if (!feed) {
      if (!keep_unfinished(s, data, len)) return false;
      return s->len < LINE_BYTES || put_unfinished(s, o);
    }
    size_t n = (size_t)(feed - data) + 1;
    bool ok = put_prefix(s, o) && output_put(o, s->to, s->line, s->len);
    if (!ok || !output_put(o, s->to, data, n)) return false;
    s->len = 0;
    data += n;
    len -= n;
  }
  return true;
}

enum stream_result stream_read(struct stream *s, struct output *o) {
  char data[65536];
  if (s->fd < 0) return STREAM_CLOSED;
  ssize_t got = read(s->fd, data, sizeof data);
  if (got > 0) return take(s, o, data, (size_t)got) ? STREAM_MORE : STREAM_NOMEM;
  if (got < 0 && (errno == EINTR || errno == EAGAIN)) return STREAM_EMPTY;
  return stream_finish(s, o) ? STREAM_CLOSED : STREAM_NOMEM;
}

bool stream_finish(struct stream *s, struct output *o) {
  if (s->fd < 0) return true;
  int fd = s->fd;
  enum stream_result r = STREAM_MORE;
  for (int i = 0; i < 64 && r == STREAM_MORE;
       i++) { /* a pipe holds far less; whoever else writes to it must not hold us */
    char data[65536];
    ssize_t got = read(fd, data, sizeof data);
    if (got > 0) r = take(s, o, data, (size_t)got) ? STREAM_MORE : STREAM_NOMEM;
    else if (got == 0 || errno != EINTR) r = STREAM_CLOSED;
  }
  close(fd);
  s->fd = -1;
  bool ok = put_unfinished(s, o);
  free(s->line);
  s->line = NULL;
  s->capacity = 0;
  return ok && r != STREAM_NOMEM;
}
