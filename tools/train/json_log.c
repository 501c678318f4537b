/*
 * json_log.c - see json_log.h.
 */
#include "json_log.h"

#include <errno.h>
#include <stdarg.h>

bool json_log_open(struct json_log *j, const char *path) {
  j->file = fopen(path, "we");
  return j->file != NULL;
}

void json_log_write(struct json_log *j, const char *format, ...) {
  if (!j->file) return;
  va_list args;
  va_start(args, format);
  vfprintf(j->file, format, args);
  va_end(args);
  fputc('\n', j->file);
}

bool json_log_close(struct json_log *j) {
  FILE *f = j->file;
  j->file = NULL;
  if (!f) return true;
  bool lost = ferror(f) != 0;
  int write_errno = lost ? EIO : 0; /* the errno of an earlier write is gone */
  if (fclose(f) != 0) return false;
  errno = write_errno;
  return !lost;
}
