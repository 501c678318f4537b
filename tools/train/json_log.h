/*
 * json_log.h - the file of --json: one object per line.
 *
 * Role: writes and checks. Thread: the trainer's only one; rank 0 only.
 */
#ifndef TRAIN_JSON_LOG_H
#define TRAIN_JSON_LOG_H

#include <stdbool.h>
#include <stdio.h>

struct json_log {
  FILE *file; /* NULL: nothing is written */
};

/* False with errno set. */
bool json_log_open(struct json_log *j, const char *path);
/* One line; the format is a whole object without its end of line. */
void json_log_write(struct json_log *j, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* False with errno set if anything written was lost. */
bool json_log_close(struct json_log *j);

#endif
