/*
 * path.h - file names with placeholders, as settings have them.
 *
 * Thread: any.
 */
#ifndef GY_PATH_H
#define GY_PATH_H

#include "status.h"

/* Replaces %p by the process id, %r by `rank` (-1: GYRE_RANK, or "none"), %% by a percent sign. ARG
 * for anything else after a percent sign, and for a path that is too long; the text names
 * `setting`. */
gyre_status gy_path_expand(const char *setting, const char *file, int rank, char *out,
                           size_t capacity);

#endif
