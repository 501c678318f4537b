/*
 * status.h - turning a failure into a status and a text.
 *
 * Role:   every failure passes through gy_fail, which keeps the text for gyre_last_error().
 * Thread: any; the text is per thread.
 */
#ifndef GY_STATUS_H
#define GY_STATUS_H

#include <stdarg.h>
#include "gyre/gyre.h"

#define GY_PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))

/* Stores the formatted text as this thread's last error and returns `status`, so that
 * `return gy_fail(GYRE_ERR_ARG, "...")` is the usual form. */
#define gy_fail(status, ...) gy_same((status), gy_fail_format((status), __VA_ARGS__))
/* The same for a system call: appends ": <errno text> (errno N)". */
#define gy_fail_errno(status, sys_errno, ...) \
  gy_same((status), gy_fail_errno_format((status), (sys_errno), __VA_ARGS__))
/* Replaces this thread's last error by a text that another thread or a peer composed. */
#define gy_fail_text(status, text) gy_same((status), gy_fail_copy((status), (text)))

/* What stands behind them. They are macros around an inline function so that compilers and
 * analysers see, in every file, that a failure returns the status it was given. */
gyre_status gy_fail_format(gyre_status status, const char *fmt, ...) GY_PRINTF(2, 3);
/* "; raise ..." where an errno says that a limit is reached, else "". gy_fail_errno has it in its text. */
const char *gy_errno_advice(int sys_errno);
gyre_status gy_fail_errno_format(gyre_status status, int sys_errno, const char *fmt, ...)
    GY_PRINTF(3, 4);
gyre_status gy_fail_copy(gyre_status status, const char *text);
static inline gyre_status gy_same(gyre_status status, gyre_status stored) {
  (void)stored;
  return status;
}
/* snprintf that always terminates, never fails and returns the number of bytes stored. */
size_t gy_format(char *out, size_t capacity, const char *fmt, ...) GY_PRINTF(3, 4);
/* Makes a text one printable line: tabs and line feeds become spaces, other control characters
 * '?'. */
void gy_one_line(char *text);

#endif
