/*
 * idx.h - images and labels in the IDX format, plain or gzip.
 *
 * Role: reads one half of a data set (training or test) into memory and checks every count and
 * label. Thread: the trainer's only one. Owner: the caller of idx_load owns what it filled in.
 *
 * An IDX file is a big-endian header (magic 0x00000803 for images, 0x00000801 for labels, then one
 * 32-bit length per dimension) and the bytes.
 */
#ifndef TRAIN_IDX_H
#define TRAIN_IDX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define IDX_DEFAULT_DIR "/usr/share/datasets/fashion-mnist"
#define IDX_CLASSES 10
#define IDX_WHY_SIZE 768

struct idx_data {
  size_t count;      /* samples */
  size_t rows, cols; /* of an image */
  uint8_t *images;   /* count * rows * cols, row by row */
  uint8_t *labels;   /* count, each below IDX_CLASSES */
};

/* Loads DIR/PART-images-idx3-ubyte and DIR/PART-labels-idx1-ubyte, each with or without ".gz";
 * `part` is "train" or "t10k". On failure *out is untouched and `why` says which file, what is
 * wrong with it and what to do. `go_on` (may be NULL) is asked about every mebibyte; if it answers
 * false, loading fails with an empty `why`. */
bool idx_load(const char *dir, const char *part, bool (*go_on)(void *), void *user,
              struct idx_data *out, char why[IDX_WHY_SIZE]);
void idx_destroy(struct idx_data *d);

#endif
