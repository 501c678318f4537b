/* replay.c - gives the files of a corpus to the fuzz target that is linked in. */
#include "replay.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { INPUT_MAX = 1 << 20 };

static int replay_file(const char *path) {
  FILE *f = fopen(path, "rb");
  uint8_t *data = malloc(INPUT_MAX);
  size_t len = f && data ? fread(data, 1, INPUT_MAX, f) : 0;
  int good = f && data && !ferror(f);
  if (good) LLVMFuzzerTestOneInput(data, len);
  else perror(path);
  if (f) fclose(f);
  free(data);
  return good;
}

int replay_folder(const char *folder) {
  DIR *dir = opendir(folder);
  int good = dir != NULL;
  if (!dir) {
    perror(folder);
    return 0;
  }
  for (struct dirent *e; good && (e = readdir(dir)) != NULL;) {
    char path[4096];
    if (e->d_name[0] == '.') continue;
    snprintf(path, sizeof path, "%s/%s", folder, e->d_name);
    good = replay_file(path);
  }
  closedir(dir);
  return good;
}
