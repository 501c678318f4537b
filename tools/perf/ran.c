/* ran.c - which algorithm an operation ran by. See ran.h. */
#include "ran.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The flight recorder as text, to be freed; NULL if it cannot be had. */
static char *read_recorder(gyre_comm *comm) {
  char path[300], *text = NULL;
  const char *folder = getenv("TMPDIR");
  size_t size = 0;
  if (folder == NULL || folder[0] == '\0' || strlen(folder) > 200 || strchr(folder, '%') != NULL)
    folder = "/tmp"; /* a % has a meaning to gyre_comm_dump */
  snprintf(path, sizeof(path), "%s/gyre-perf-XXXXXX", folder);
  int fd = mkstemp(path);
  if (fd < 0) return NULL;
  close(fd);
  FILE *file = gyre_comm_dump(comm, path) == GYRE_OK ? fopen(path, "re") : NULL;
  /* One long text: it holds no zero byte. */
  if (file != NULL && getdelim(&text, &size, '\0', file) < 0) {
    free(text);
    text = NULL;
  }
  if (file != NULL) fclose(file);
  unlink(path);
  return text;
}

bool perf_algorithm_that_ran(gyre_comm *comm, const char *what, char out[PERF_ALGO_BYTES]) {
  static const char key[] = "\"algorithm\": \"";
  char sought[160];
  char *text = read_recorder(comm), *last = NULL;
  bool found = false;
  if (text == NULL) return false;
  int length = snprintf(sought, sizeof(sought), "\"what\": \"%s", what);
  for (char *at = text; (at = strstr(at, sought)) != NULL; at++) {
    char next = at[length];
    if (next < '0' || next > '9') last = at; /* not only the beginning of a larger count */
  }
  char *name = last != NULL ? strstr(last, key) : NULL;
  char *end = name != NULL ? strchr(name + strlen(key), '"') : NULL;
  if (end != NULL && end - (name + strlen(key)) < PERF_ALGO_BYTES) {
    snprintf(out, PERF_ALGO_BYTES, "%.*s", (int)(end - (name + strlen(key))), name + strlen(key));
    found = true;
  }
  free(text);
  return found;
}
