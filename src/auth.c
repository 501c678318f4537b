/*
 * auth.c - the cryptographic primitives of the handshake, by OpenSSL: HMAC-SHA-256, random bytes,
 * digests.
 *
 * Thread: any. Owner: nothing is kept.
 */
#include <limits.h>
#include <string.h>
#include <openssl/crypto.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/params.h>
#include <openssl/core_names.h>
#include <openssl/rand.h>
#include "net.h"
#include "status.h"

static gyre_status fail_openssl(const char *what) {
  char reason[120] = "unknown reason";
  unsigned long code = ERR_get_error();
  if (code != 0) ERR_error_string_n(code, reason, sizeof reason);
  ERR_clear_error();
  bool memory = code != 0 && ERR_GET_REASON(code) == ERR_R_MALLOC_FAILURE;
  return gy_fail(memory ? GYRE_ERR_NOMEM : GYRE_ERR_SYS, "OpenSSL cannot %s: %s", what, reason);
}

gyre_status gy_hmac(const struct gy_secret *secret, const void *a, size_t a_len, const void *b,
                    size_t b_len, uint8_t out[32]) {
  static char digest[] = "SHA256";
  const OSSL_PARAM params[] = {OSSL_PARAM_construct_utf8_string(OSSL_MAC_PARAM_DIGEST, digest, 0),
                               OSSL_PARAM_construct_end()};
  gyre_status st = GYRE_OK;
  uint8_t mac_bytes[32];
  size_t mac_len = 0;
  EVP_MAC_CTX *ctx = NULL;
  EVP_MAC *mac = EVP_MAC_fetch(NULL, "HMAC", NULL);
  if (mac != NULL) ctx = EVP_MAC_CTX_new(mac);
  if (ctx == NULL || !EVP_MAC_init(ctx, secret->bytes, secret->len, params) ||
      (a_len != 0 && !EVP_MAC_update(ctx, a, a_len)) ||
      (b_len != 0 && !EVP_MAC_update(ctx, b, b_len)) ||
      !EVP_MAC_final(ctx, mac_bytes, &mac_len, sizeof mac_bytes) || mac_len != sizeof mac_bytes)
    st = fail_openssl("compute HMAC-SHA-256");
  else memcpy(out, mac_bytes, sizeof mac_bytes);
  EVP_MAC_CTX_free(ctx);
  EVP_MAC_free(mac);
  return st;
}

gyre_status gy_random(void *out, size_t len) {
  if (len > INT_MAX)
    return gy_fail(GYRE_ERR_ARG, "%zu random bytes are more than can be drawn at once", len);
  if (RAND_bytes(out, (int)len) != 1) return fail_openssl("draw random bytes");
  return GYRE_OK;
}

gyre_status gy_digest16(const void *data, size_t len, uint8_t out[16]) {
  uint8_t digest[32];
  if (!EVP_Digest(data, len, digest, NULL, EVP_sha256(), NULL))
    return fail_openssl("compute SHA-256");
  memcpy(out, digest, 16);
  return GYRE_OK;
}

bool gy_equal_const_time(const void *a, const void *b, size_t len) {
  return CRYPTO_memcmp(a, b, len) == 0;
}
