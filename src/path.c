/* path.c - see path.h. */
#include "path.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

gyre_status gy_path_expand(const char *setting, const char *file, int rank, char *out,
                           size_t capacity) {
  const char *named = getenv("GYRE_RANK");
  char rank_text[16], pid_text[16];
  size_t n = 0;
  if (rank >= 0) gy_format(rank_text, sizeof rank_text, "%d", rank);
  else gy_format(rank_text, sizeof rank_text, "%s", named && *named ? named : "none");
  gy_format(pid_text, sizeof pid_text, "%ld", (long)getpid());
  out[0] = 0;
  for (const char *c = file; *c; c++) {
    char one[2] = {*c, 0};
    const char *piece = one;
    if (*c == '%') {
      c++;
      if (*c == 'p') piece = pid_text;
      else if (*c == 'r') piece = rank_text;
      else if (*c != '%')
        return gy_fail(GYRE_ERR_ARG, "%s=%.200s: after %% must be p (process id), r (rank) or %%",
                       setting, file);
    }
    size_t len = strlen(piece);
    if (n + len >= capacity)
      return gy_fail(GYRE_ERR_ARG, "%s=%.200s: the path is longer than %zu bytes", setting, file,
                     capacity - 1);
    memcpy(out + n, piece, len + 1);
    n += len;
  }
  return GYRE_OK;
}
