/* replay.h - gives the files of a corpus to the fuzz target that is linked in. */
#ifndef REPLAY_H
#define REPLAY_H

#include <stddef.h>
#include <stdint.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Every file of the folder; false, said on standard error, if it cannot be read. */
int replay_folder(const char *folder);

#endif
