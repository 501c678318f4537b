/* json.c - see json.h. */
#include "json.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FIRST_CAPACITY 4096u

static bool room(struct gy_json *j, size_t more) {
  if (j->failed) return false;
  if (j->capacity - j->len > more) return true; /* and a zero byte */
  size_t capacity = j->capacity ? j->capacity : FIRST_CAPACITY;
  while (capacity - j->len <= more) capacity *= 2;
  char *data = realloc(j->data, capacity);
  if (!data) {
    j->failed = true;
    return false;
  }
  j->data = data;
  j->capacity = capacity;
  return true;
}

static void put_bytes(struct gy_json *j, const char *bytes, size_t n) {
  if (!room(j, n)) return;
  memcpy(j->data + j->len, bytes, n);
  j->len += n;
  j->data[j->len] = 0;
}

void gy_json_put(struct gy_json *j, const char *fmt, ...) {
  va_list args, again;
  va_start(args, fmt);
  va_copy(again, args);
  int n = vsnprintf(NULL, 0, fmt, args);
  if (n > 0 && room(j, (size_t)n)) {
    vsnprintf(j->data + j->len, (size_t)n + 1, fmt, again);
    j->len += (size_t)n;
  }
  va_end(again);
  va_end(args);
}

/* Bytes of the UTF-8 sequence at c; 0 if it is none. */
static size_t utf8_length(const unsigned char *c) {
  size_t n = c[0] < 0x80                   ? 1
             : c[0] >= 0xc2 && c[0] < 0xe0 ? 2
             : (c[0] & 0xf0) == 0xe0       ? 3
             : c[0] >= 0xf0 && c[0] < 0xf5 ? 4
                                           : 0;
  for (size_t i = 1; i < n; i++)
    if ((c[i] & 0xc0) != 0x80) return 0;
  if (n == 3 && ((c[0] == 0xe0 && c[1] < 0xa0) || (c[0] == 0xed && c[1] >= 0xa0)))
    return 0; /* overlong; surrogate */
  if (n == 4 && ((c[0] == 0xf0 && c[1] < 0x90) || (c[0] == 0xf4 && c[1] >= 0x90)))
    return 0; /* overlong; too large */
  return n;
}

void gy_json_text(struct gy_json *j, const char *text) {
  if (!text) {
    gy_json_put(j, "null");
    return;
  }
  put_bytes(j, "\"", 1);
  for (const unsigned char *c = (const unsigned char *)text; *c;) {
    size_t n = utf8_length(c);
    if (n == 0) {
      put_bytes(j, "\\ufffd", 6);
      n = 1;
    } else if (*c == '"' || *c == '\\') {
      gy_json_put(j, "\\%c", *c);
    } else if (*c < 0x20 || *c == 0x7f) {
      gy_json_put(j, "\\u%04x", *c);
    } else {
      put_bytes(j, (const char *)c, n);
    }
    c += n;
  }
  put_bytes(j, "\"", 1);
}

void gy_json_free(struct gy_json *j) {
  free(j->data);
  *j = (struct gy_json){0};
}
