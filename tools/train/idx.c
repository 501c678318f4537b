/*
 * idx.c - see idx.h.
 */
#include "idx.h"

#include <errno.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

#define IMAGES_MAGIC 0x00000803u
#define LABELS_MAGIC 0x00000801u
/* A header that claims more than this is corrupt, as far as this tool is concerned. */
#define MAX_PAYLOAD ((uint64_t)1 << 31)

static const char installed_advice[] =
    "; install Fashion-MNIST again with: apt install --reinstall dataset-fashion-mnist"
    " (or name a directory of IDX files by --data)";
static const char own_advice[] = "; put a sound file in its place, or leave out --data";
static const char missing_advice[] =
    "; install Fashion-MNIST with: apt install dataset-fashion-mnist"
    " (or name a directory of IDX files by --data)";
static const char own_missing_advice[] =
    "; leave out --data for Fashion-MNIST (apt install dataset-fashion-mnist)";

/* Between two questions whether to go on: a few milliseconds of inflating. */
#define CHUNK ((size_t)1 << 20)

struct idx_file {
  char path[PATH_MAX];
  gzFile gz;      /* zlib hands plain files through unchanged */
  bool installed; /* by the package, not a directory of the user's */
  bool (*go_on)(void *);
  void *user;
  char *why;
};

static bool complain(struct idx_file *f, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* "PATH: what is wrong; what to do". Always false, so that callers can return it. */
static bool complain(struct idx_file *f, const char *format, ...) {
  char what[256];
  va_list args;
  va_start(args, format);
  vsnprintf(what, sizeof what, format, args);
  va_end(args);
  /* A path that is too long loses its end, never the reason. */
  snprintf(f->why, IDX_WHY_SIZE, "%.300s: %s%s", f->path, what,
           f->installed ? installed_advice : own_advice);
  return false;
}

static bool open_file(struct idx_file *f, const char *dir, const char *name) {
  snprintf(f->path, sizeof f->path, "%s/%s", dir, name);
  if (access(f->path, F_OK) != 0) snprintf(f->path, sizeof f->path, "%s/%s.gz", dir, name);
  errno = 0;
  f->gz = gzopen(f->path, "rb");
  if (f->gz) return true;
  if (errno == ENOENT || errno == ENOTDIR) {
    snprintf(f->why, IDX_WHY_SIZE, "%.300s: no such file, with or without .gz%s", f->path,
             f->installed ? missing_advice : own_missing_advice);
    return false;
  }
  return complain(f, "cannot be opened: %s", errno ? strerror(errno) : "out of memory");
}

/* zlib's reason, without the path that it puts before it. */
static const char *reason_of(struct idx_file *f, int *code) {
  const char *text = gzerror(f->gz, code);
  size_t n = strlen(f->path);
  bool named = strncmp(text, f->path, n) == 0 && strncmp(text + n, ": ", 2) == 0;
  return named ? text + n + 2 : text;
}

/* Exactly `bytes`, or a complaint: `what` is "the header", "images" or "labels". */
static bool read_exactly(struct idx_file *f, const char *what, uint8_t *to, size_t bytes) {
  size_t got = 0;
  while (got < bytes) {
    size_t ask = bytes - got < CHUNK ? bytes - got : CHUNK;
    if (f->go_on && !f->go_on(f->user)) {
      f->why[0] = 0;
      return false;
    }
    int n = gzread(f->gz, to + got, (unsigned)ask);
    int code = Z_OK;
    const char *text = reason_of(f, &code);
    if (code == Z_BUF_ERROR)
      return complain(f, "the gzip data is cut short after %zu of %zu bytes of %s",
                      got + (n > 0 ? (size_t)n : 0), bytes, what);
    if (n < 0)
      return complain(f, "cannot read %s: %s", what, code == Z_ERRNO ? strerror(errno) : text);
    if (n == 0) return complain(f, "the file ends after %zu of %zu bytes of %s", got, bytes, what);
    got += (size_t)n;
  }
  return true;
}

/* The end must come now. Reading up to it also makes zlib compare the checksum. */
static bool expect_end(struct idx_file *f) {
  uint8_t extra;
  int n = gzread(f->gz, &extra, 1);
  int code = Z_OK;
  const char *text = reason_of(f, &code);
  if (code == Z_BUF_ERROR) return complain(f, "the gzip data is cut short at its end");
  if (n < 0) return complain(f, "corrupt: %s", text);
  if (n > 0) return complain(f, "holds more bytes than its header says");
  return true;
}

static uint32_t big_endian(const uint8_t b[4]) {
  return (uint32_t)b[0] << 24 | (uint32_t)b[1] << 16 | (uint32_t)b[2] << 8 | b[3];
}

/* Reads the length of each dimension. Returns their product, 0 after a complaint. */
static size_t read_header(struct idx_file *f, uint32_t magic, const char *what, size_t dims,
                          size_t length[]) {
  uint8_t word[4];
  if (!read_exactly(f, "the header", word, sizeof word)) return 0;
  if (big_endian(word) != magic) {
    complain(f, "not an IDX file of %s: it starts with 0x%08x instead of 0x%08x", what,
             big_endian(word), magic);
    return 0;
  }
  uint64_t product = 1;
  for (size_t d = 0; d < dims; d++) {
    if (!read_exactly(f, "the header", word, sizeof word)) return 0;
    length[d] = big_endian(word);
    if (length[d] == 0) {
      complain(f, "the header says that dimension %zu of the %s is 0", d, what);
      return 0;
    }
    if (product > MAX_PAYLOAD / length[d]) {
      complain(f, "the header claims more than 2 GiB of %s", what);
      return 0;
    }
    product *= length[d];
  }
  return (size_t)product;
}

/* Returns the bytes behind the header, in a new allocation; NULL after a complaint. */
static uint8_t *read_file(struct idx_file *f, bool images, size_t length[]) {
  const char *what = images ? "images" : "labels";
  size_t total = read_header(f, images ? IMAGES_MAGIC : LABELS_MAGIC, what, images ? 3 : 1, length);
  if (total == 0) return NULL;
  uint8_t *data = malloc(total);
  if (!data) {
    complain(f, "no memory for %zu bytes of %s", total, what);
    return NULL;
  }
  if (read_exactly(f, what, data, total) && expect_end(f)) return data;
  free(data);
  return NULL;
}

static uint8_t *load_file(struct idx_file *f, const char *dir, const char *part, bool images,
                          size_t length[]) {
  char name[64];
  snprintf(name, sizeof name, "%s-%s-ubyte", part, images ? "images-idx3" : "labels-idx1");
  if (!open_file(f, dir, name)) return NULL;
  uint8_t *data = read_file(f, images, length);
  gzclose_r(f->gz);
  return data;
}

static bool check_labels(struct idx_file *f, const uint8_t *labels, size_t count, size_t images) {
  if (count != images) return complain(f, "holds %zu labels for %zu images", count, images);
  for (size_t i = 0; i < count; i++)
    if (labels[i] >= IDX_CLASSES)
      return complain(f, "label %zu is %u, above the largest, %d", i, labels[i], IDX_CLASSES - 1);
  return true;
}

bool idx_load(const char *dir, const char *part, bool (*go_on)(void *), void *user,
              struct idx_data *out, char why[IDX_WHY_SIZE]) {
  struct idx_file f = {.go_on = go_on, .user = user, .why = why};
  size_t shape[3] = {0}, count = 0;
  struct idx_data d = {0};
  f.installed = strcmp(dir, IDX_DEFAULT_DIR) == 0;
  d.images = load_file(&f, dir, part, true, shape);
  if (!d.images) return false;
  d.count = shape[0], d.rows = shape[1], d.cols = shape[2];
  d.labels = load_file(&f, dir, part, false, &count);
  if (!d.labels || !check_labels(&f, d.labels, count, d.count)) {
    idx_destroy(&d);
    return false;
  }
  *out = d;
  return true;
}

void idx_destroy(struct idx_data *d) {
  free(d->images);
  free(d->labels);
  d->images = d->labels = NULL;
}
