/*
 * output.h - merging what the ranks print, line by line.
 *
 * Role:   a stream reads what a rank writes to its standard output or error, cuts it into lines and
 *         appends each, with the rank's prefix, to the one queue of the launcher, from where it
 *         goes out in that order. So no line is torn apart by another, also where standard output
 *         and error are the same file.
 * Thread: the only one. Nothing blocks, as long as poll() reported what it should; a full queue is
 *         the caller's sign to read no more.
 */
#ifndef GYRE_RUN_OUTPUT_H
#define GYRE_RUN_OUTPUT_H

#include <stdbool.h>
#include <stddef.h>

struct output_block;
struct output {
  struct output_block *head, *tail;
  size_t queued;  /* bytes */
  bool broken[3]; /* by descriptor: it cannot be written any more; what is for it is dropped */
};

struct stream {
  int fd;     /* the reading end of a pipe, non-blocking; -1: closed */
  int to;     /* STDOUT_FILENO or STDERR_FILENO */
  int prefix; /* the rank; -1: no prefix */
  char *line; /* an unfinished line */
  size_t len, capacity;
};

/* All return false if memory ran out. */
bool output_put(struct output *o, int fd, const char *data, size_t len);
bool output_print(struct output *o, int fd, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

bool output_is_full(const struct output *o);
/* The descriptor that the next bytes are for, to be polled for writing; -1 if there are none. */
int output_next(const struct output *o);
/* Writes some bytes. 0, or the errno with which the descriptor broke. */
int output_write(struct output *o);
void output_free(struct output *o);

enum stream_result { STREAM_MORE, STREAM_EMPTY, STREAM_CLOSED, STREAM_NOMEM };
/* Reads once. */
enum stream_result stream_read(struct stream *s, struct output *o);
/* Takes what is in the pipe, ends an unfinished line, and closes. */
bool stream_finish(struct stream *s, struct output *o);

#endif
