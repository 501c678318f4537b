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
gyre_status gy_fail(gyre_status status, const char *fmt, ...) GY_PRINTF(2, 3);
/* The same for a system call: appends ": <errno text> (errno N)". */
gyre_status gy_fail_errno(gyre_status status, int sys_errno, const char *fmt, ...) GY_PRINTF(3, 4);
/* Replaces this thread's last error by a text that another thread or a peer composed. */
gyre_status gy_fail_text(gyre_status status, const char *text);
/* snprintf that always terminates, never fails and returns the number of bytes stored. */
size_t gy_format(char *out, size_t capacity, const char *fmt, ...) GY_PRINTF(3, 4);
/* Makes a text one printable line: tabs and line feeds become spaces, other control characters '?'. */
void gy_one_line(char *text);

#endif
