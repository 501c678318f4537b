/*
 * status.c - the last error of a thread, and the names of statuses, types and operators.
 *
 * Role:   see status.h. Nothing here allocates, so that a failure to allocate can be reported too.
 * Thread: any; the text is per thread.
 */
#include "status.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define TEXT_MAX 4096
#define CUT_MARK "..."

static _Thread_local char last_error[TEXT_MAX];

void gy_one_line(char *text) {
  for (unsigned char *c = (unsigned char *)text; *c; c++)
    if (*c < 0x20 || *c == 0x7f) *c = *c == '\n' || *c == '\t' ? ' ' : '?';
}

/* `text` is never last_error itself, because arguments of a format may point into that. */
static void keep(const char *text) {
  size_t len = strnlen(text, TEXT_MAX);
  if (len < TEXT_MAX) {
    memcpy(last_error, text, len + 1);
  } else {
    memcpy(last_error, text, TEXT_MAX - sizeof CUT_MARK);
    memcpy(last_error + TEXT_MAX - sizeof CUT_MARK, CUT_MARK, sizeof CUT_MARK);
  }
  gy_one_line(last_error);
}

/* vsnprintf that marks a cut and returns the number of bytes stored. */
static size_t format_cut(char *out, size_t capacity, const char *fmt, va_list args) GY_PRINTF(3, 0);
static size_t format_cut(char *out, size_t capacity, const char *fmt, va_list args) {
  if (capacity == 0) return 0;
  int n = vsnprintf(out, capacity, fmt, args);
  if (n < 0) {
    out[0] = 0;
    return 0;
  }
  if ((size_t)n < capacity) return (size_t)n;
  if (capacity > sizeof CUT_MARK)
    memcpy(out + capacity - sizeof CUT_MARK, CUT_MARK, sizeof CUT_MARK);
  return capacity - 1;
}

gyre_status gy_fail_format(gyre_status status, const char *fmt, ...) {
  int saved_errno = errno;
  char text[TEXT_MAX];
  va_list args;
  va_start(args, fmt);
  format_cut(text, sizeof text, fmt, args);
  va_end(args);
  keep(text);
  errno = saved_errno;
  return status;
}

const char *gy_errno_advice(int sys_errno) {
  switch (sys_errno) {
    case EMFILE: return "; raise ulimit -n";
    case ENFILE: return "; raise sysctl fs.file-max";
    default: return "";
  }
}

gyre_status gy_fail_errno_format(gyre_status status, int sys_errno, const char *fmt, ...) {
  int saved_errno = errno;
  char reason[128], suffix[256], text[TEXT_MAX];
  gy_format(suffix, sizeof suffix, ": %s (errno %d)%s",
            strerror_r(sys_errno, reason, sizeof reason), sys_errno, gy_errno_advice(sys_errno));
  va_list args;
  va_start(args, fmt);
  size_t n = format_cut(text, sizeof text - strlen(suffix), fmt,
                        args); /* a long text never hides the errno */
  va_end(args);
  memcpy(text + n, suffix, strlen(suffix) + 1);
  keep(text);
  errno = saved_errno;
  return status;
}

gyre_status gy_fail_copy(gyre_status status, const char *text) {
  if (text != last_error) keep(text);
  return status;
}

size_t gy_format(char *out, size_t capacity, const char *fmt, ...) {
  va_list args;
  va_start(args, fmt);
  size_t n = format_cut(out, capacity, fmt, args);
  va_end(args);
  return n;
}

const char *gyre_last_error(void) { return last_error; }

/* ---------------------------------------------------------------------------- static names --- */

#define TEXT_OF(x) #x
#define DOTTED(a, b, c) TEXT_OF(a) "." TEXT_OF(b) "." TEXT_OF(c)

int gyre_version(void) { return GYRE_VERSION; }

const char *gyre_version_string(void) {
  return DOTTED(GYRE_VERSION_MAJOR, GYRE_VERSION_MINOR, GYRE_VERSION_PATCH);
}

const char *gyre_status_name(gyre_status status) {
  switch (status) {
    case GYRE_OK: return "OK";
    case GYRE_IN_PROGRESS: return "IN_PROGRESS";
    case GYRE_ERR_ARG: return "ARG";
    case GYRE_ERR_NOMEM: return "NOMEM";
    case GYRE_ERR_SYS: return "SYS";
    case GYRE_ERR_CUDA: return "CUDA";
    case GYRE_ERR_VERBS: return "VERBS";
    case GYRE_ERR_PROTO: return "PROTO";
    case GYRE_ERR_VERSION: return "VERSION";
    case GYRE_ERR_AUTH: return "AUTH";
    case GYRE_ERR_MISMATCH: return "MISMATCH";
    case GYRE_ERR_TIMEOUT: return "TIMEOUT";
    case GYRE_ERR_PEER_LOST: return "PEER_LOST";
    case GYRE_ERR_ABORTED: return "ABORTED";
    case GYRE_ERR_STATE: return "STATE";
    case GYRE_ERR_UNSUPPORTED: return "UNSUPPORTED";
    case GYRE_ERR_INTERNAL: return "INTERNAL";
  }
  return "UNKNOWN";
}

static const struct {
  const char *name;
  size_t size;
} dtypes[GYRE_DTYPE_COUNT] = {
    [GYRE_F32] = {"f32", 4},         [GYRE_F64] = {"f64", 8},
    [GYRE_F16] = {"f16", 2},         [GYRE_BF16] = {"bf16", 2},
    [GYRE_I8] = {"i8", 1},           [GYRE_U8] = {"u8", 1},
    [GYRE_I16] = {"i16", 2},         [GYRE_U16] = {"u16", 2},
    [GYRE_I32] = {"i32", 4},         [GYRE_U32] = {"u32", 4},
    [GYRE_I64] = {"i64", 8},         [GYRE_U64] = {"u64", 8},
    [GYRE_F32_I32] = {"f32_i32", 8}, [GYRE_F64_I64] = {"f64_i64", 16},
    [GYRE_I32_I32] = {"i32_i32", 8}, [GYRE_I64_I64] = {"i64_i64", 16},
    [GYRE_F8_E4M3] = {"f8e4m3", 1},  [GYRE_F8_E5M2] = {"f8e5m2", 1},
};

size_t gyre_dtype_size(gyre_dtype type) {
  return (unsigned)type < GYRE_DTYPE_COUNT ? dtypes[type].size : 0;
}

const char *gyre_dtype_name(gyre_dtype type) {
  return (unsigned)type < GYRE_DTYPE_COUNT ? dtypes[type].name : NULL;
}
