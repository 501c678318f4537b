/*
 * query.h - tells whoever asks what this process is doing (gyre-info --job).
 *
 * Role:   a Unix socket of the abstract namespace for each context, so that there is no file to be
 *         left behind or to be tampered with. Connecting is the question; the answer is the document
 *         of docs/tracing.md, and then the end of the stream. Only the same user and root are
 *         answered.
 * Thread: the driving thread, locked.
 * Owner:  the context.
 */
#ifndef GY_QUERY_H
#define GY_QUERY_H

#include "context.h"

/* "gyre/PID/N" behind the zero byte of the address, N from 0 for each context of a process. */
#define GY_QUERY_PREFIX "gyre"
#define GY_QUERY_CONTEXTS 256
/* Longest time to read an answer. */
#define GY_QUERY_MS 5000

struct gy_query;

/* *out NULL: the setting says no; or it cannot be, which is logged and harms nothing else. */
void gy_query_open(gyre_context *ctx, struct gy_query **out);
void gy_query_close(struct gy_query *q); /* NULL is fine */

#endif
