/*
 * json.h - writes JSON into a buffer that grows.
 *
 * Thread: one at a time. Owner: whoever made it (all zero is empty), by gy_json_free.
 */
#ifndef GY_JSON_H
#define GY_JSON_H

#include <stdbool.h>

#include "status.h"

struct gy_json {
  char *data; /* terminated by a zero byte once anything has been written */
  size_t len, capacity;
  bool failed; /* out of memory: what is there is incomplete */
};

/* As it stands: punctuation and numbers. */
void gy_json_put(struct gy_json *j, const char *fmt, ...) GY_PRINTF(2, 3);
/* Quoted and escaped; NULL as null. What is no UTF-8 becomes U+FFFD. */
void gy_json_text(struct gy_json *j, const char *text);
void gy_json_free(struct gy_json *j);

#endif
