/*
 * log.h - one line per event, to standard error or a file: warnings and errors unless GYRE_LOG says
 * otherwise.
 *
 * Thread: any; lines are written whole.
 */
#ifndef GY_LOG_H
#define GY_LOG_H

#include <stdatomic.h>
#include "status.h"

enum gy_level { GY_LOG_OFF, GY_LOG_ERROR, GY_LOG_WARN, GY_LOG_INFO, GY_LOG_DEBUG };

/* Done by gy_settings_load (later calls change it for the whole process). file "" is standard
 * error; %p in it is the process id, %r GYRE_RANK. ARG if it cannot be opened. */
gyre_status gy_log_open(enum gy_level level, const char *file);
extern atomic_int gy_log_level; /* read by the macro, so that a suppressed line costs one load */
void gy_log_write(enum gy_level level, const char *fmt, ...) GY_PRINTF(2, 3);

/* "gyre 12:03:04.123 pid 77 WARN text" */
#define gy_log(level, ...)                                                         \
  do {                                                                             \
    if ((int)(level) <= atomic_load_explicit(&gy_log_level, memory_order_relaxed)) \
      gy_log_write((level), __VA_ARGS__);                                          \
  } while (0)

#endif
