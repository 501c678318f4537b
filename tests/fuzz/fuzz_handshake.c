/*
 * fuzz_handshake.c - any bytes, in any pieces, into either end of the handshake.
 *
 * Checks: no crash or undefined behaviour; never more bytes taken than the message has; an end that
 * does not know the secret is never believed. The first byte of an input chooses the end, the
 * second the length of the pieces. A libFuzzer target when built with GY_LIBFUZZER; otherwise a
 * test that replays the files of the folder given as argument (if any) and a fixed set of generated
 * inputs: true conversations and their mutations.
 */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "handshake.h"
#include "status.h"

static const struct gy_identity ident = {
    .kind = GY_CONN_CONTROL, .key = "0123456789abcde", .from = 3, .to = 0};
static const struct gy_secret secret = {.bytes = "sesame", .len = 6};

#define CHECK(condition)                                                            \
  do {                                                                              \
    if (!(condition)) {                                                             \
      fprintf(stderr, "%s:%d: %s does not hold\n", __FILE__, __LINE__, #condition); \
      abort();                                                                      \
    }                                                                               \
  } while (0)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  struct gy_handshake h;
  if (size < 2) return 0;
  bool acceptor = (data[0] & 1) != 0, has_secret = (data[0] & 2) != 0;
  static const struct gy_secret none;
  size_t piece = data[1] == 0 ? 1 : data[1], left = size - 2;
  const uint8_t *in = data + 2;
  bool believed = false;
  if (acceptor) gy_handshake_accept(&h);
  else CHECK(gy_handshake_dial(&h, &ident, has_secret ? &secret : &none) == GYRE_OK);
  while (!believed) {
    size_t want = gy_handshake_want(&h);
    CHECK(h.have + want <= sizeof h.in);
    if (want == 0) break;
    size_t n = want < piece ? want : piece;
    if (n > left) break; /* the rest never comes */
    memcpy(h.in + h.have, in, n);
    in += n;
    left -= n;
    switch (gy_handshake_take(&h, n)) {
      case GY_EVENT_WAIT: break;
      case GY_EVENT_HELLO:
        CHECK(h.hello.id.from >= 0 && h.hello.id.to >= 0 &&
              h.hello.min_version <= h.hello.max_version);
        if (gy_handshake_challenge(&h, has_secret ? &secret : &none) != GYRE_OK) return 0;
        CHECK(h.out_len == GY_CHALLENGE_BYTES);
        break;
      /* The nonces are fresh, so no input can hold a right proof. */
      case GY_EVENT_CHALLENGED:
      case GY_EVENT_PROVEN:
      case GY_EVENT_WELCOME: believed = true; break;
      case GY_EVENT_FAILED:
        CHECK(h.failure != 0 && h.status < GYRE_OK && gyre_last_error()[0] != '\0');
        CHECK(gy_handshake_want(&h) == 0);
        return 0;
    }
  }
  CHECK(!believed);
  return 0;
}

#ifndef GY_LIBFUZZER

static uint64_t random_state = 88172645463325252u;
static uint32_t next_random(void) { /* xorshift: the same inputs in every run */
  random_state ^= random_state << 13;
  random_state ^= random_state >> 7;
  random_state ^= random_state << 17;
  return (uint32_t)(random_state >> 32);
}

/* One message of each type, right in form, behind each other in random order. */
static size_t generate(uint8_t *out, size_t capacity) {
  static const size_t sizes[] = {GY_HELLO_BYTES, GY_CHALLENGE_BYTES, GY_RESPONSE_BYTES,
                                 GY_WELCOME_BYTES, GY_REJECT_BYTES};
  struct gy_hello hello = {.min_version = (uint16_t)(next_random() % 3),
                           .max_version = (uint16_t)(1 + next_random() % 3),
                           .has_secret = next_random() % 2,
                           .id = ident};
  struct gy_challenge challenge = {.has_secret = next_random() % 2,
                                   .version = (uint16_t)(next_random() % 4)};
  size_t used = 2;
  out[0] = (uint8_t)next_random();
  out[1] = (uint8_t)(next_random() % 3 == 0 ? 255 : next_random());
  for (uint32_t i = 0, n = 1 + next_random() % 3; i < n; i++) {
    uint32_t type = i == 0 ? (out[0] & 1 ? 0 : 1) : next_random() % 5;
    if (used + sizes[type] > capacity) break;
    switch (type) {
      case 0: gy_hello_encode(&hello, out + used); break;
      case 1: gy_challenge_encode(&challenge, out + used); break;
      case 2: gy_response_encode(challenge.hmac, out + used); break;
      case 3: gy_welcome_encode(out + used); break;
      default:
        gy_reject_encode((gyre_status)(int)(next_random() % 20) - 17, "some \x7f words\n",
                         out + used);
        break;
    }
    used += sizes[type];
  }
  for (uint32_t i = 0, n = next_random() % 4; i < n; i++) /* mutate */
    out[next_random() % used] = (uint8_t)next_random();
  return next_random() % 4 == 0 ? next_random() % (used + 1) : used; /* cut */
}

static int replay(const char *folder) {
  DIR *dir = opendir(folder);
  const struct dirent *entry;
  int n = 0;
  if (dir == NULL) {
    perror(folder);
    return -1;
  }
  while ((entry = readdir(dir)) != NULL) {
    char path[4096];
    static uint8_t data[65536];
    if (entry->d_name[0] == '.') continue;
    gy_format(path, sizeof path, "%s/%s", folder, entry->d_name);
    FILE *f = fopen(path, "rb");
    if (f == NULL) continue;
    LLVMFuzzerTestOneInput(data, fread(data, 1, sizeof data, f));
    fclose(f);
    n++;
  }
  closedir(dir);
  return n;
}

int main(int argc, char **argv) {
  enum { GENERATED = 20000 };
  for (int i = 1; i < argc; i++)
    if (replay(argv[i]) < 0) return 1;
  for (int i = 0; i < GENERATED; i++) {
    /* On the heap and of the exact size, so that a sanitizer sees the first byte read beyond. */
    uint8_t buffer[1024];
    size_t len = generate(buffer, sizeof buffer);
    uint8_t *exact = malloc(len + (len == 0));
    if (exact == NULL) return 1;
    memcpy(exact, buffer, len);
    LLVMFuzzerTestOneInput(exact, len);
    free(exact);
  }
  printf("%d generated inputs\n", GENERATED);
  return 0;
}
#endif
