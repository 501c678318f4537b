/*
 * rendezvous.c - where rank 0 is: the unique id, tcp://host:port, file:///path, or the caller's
 * own store.
 *
 * Role, thread, owner: see rendezvous.h.
 */
#include "rendezvous.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "fork.h"
#include "status.h"

#define ID_VERSION 1u
#define STORE_KEY "gyre/root"
#define TCP_PREFIX "tcp://"
#define FILE_PREFIX "file://"

/* ----------------------------------------------------------------------------------- place --- */

static bool same_address(const struct gy_address *a, const struct gy_address *b) {
  char ta[GY_ADDRESS_TEXT], tb[GY_ADDRESS_TEXT];
  return strcmp(gy_address_text(a, ta), gy_address_text(b, tb)) == 0;
}

bool gy_place_equal(const struct gy_place *a, const struct gy_place *b) {
  if (memcmp(a->key, b->key, sizeof a->key) != 0 || memcmp(a->host, b->host, sizeof a->host) != 0)
    return false;
  if (a->n_address != b->n_address) return false;
  for (uint32_t i = 0; i < a->n_address; i++)
    if (!same_address(&a->address[i], &b->address[i])) return false;
  return true;
}

static void print_hex(const uint8_t in[16], char out[33]) {
  for (size_t i = 0; i < 16; i++) snprintf(out + 2 * i, 3, "%02x", in[i]);
}

static bool scan_hex(const char *text, uint8_t out[16]) {
  if (strlen(text) != 32 || strspn(text, "0123456789abcdef") != 32) return false;
  for (size_t i = 0; i < 16; i++) {
    unsigned byte = 0;
    sscanf(text + 2 * i, "%2x", &byte);
    out[i] = (uint8_t)byte;
  }
  return true;
}

size_t gy_place_print(const struct gy_place *place, char out[GY_PLACE_TEXT]) {
  char key[33], host[33], address[GY_ADDRESS_TEXT];
  print_hex(place->key, key);
  print_hex(place->host, host);
  size_t len = gy_format(out, GY_PLACE_TEXT, "gyre 1 %s %s", key, host);
  for (uint32_t i = 0; i < place->n_address; i++)
    len += gy_format(out + len, GY_PLACE_TEXT - len, " %s",
                     gy_address_text(&place->address[i], address));
  return len + gy_format(out + len, GY_PLACE_TEXT - len, "\n");
}

static bool scan_address(const char *text, struct gy_address *out) {
  char host[GY_ADDRESS_TEXT];
  uint16_t port;
  return gy_address_split(text, host, sizeof host, &port) == GYRE_OK &&
         gy_address_numeric(host, port, out);
}

bool gy_place_scan(const char *text, struct gy_place *out) {
  char copy[GY_PLACE_TEXT], *rest = copy, *word[4 + GY_ADDRESS_MAX];
  struct gy_place place;
  size_t n = 0, len = strlen(text);
  if (len == 0 || len >= sizeof copy || text[len - 1] != '\n') return false;
  memcpy(copy, text, len);
  copy[len - 1] = '\0';
  for (char *w; n < 4 + GY_ADDRESS_MAX && (w = strsep(&rest, " ")) != NULL;) word[n++] = w;
  if (rest || n < 4 || strcmp(word[0], "gyre") != 0 || strcmp(word[1], "1") != 0) return false;
  memset(&place, 0, sizeof place);
  if (!scan_hex(word[2], place.key) || !scan_hex(word[3], place.host)) return false;
  /* A link-local address names an interface that need not exist here: such an address is of no use,
   * the others are. */
  for (size_t i = 4; i < n; i++)
    if (scan_address(word[i], &place.address[place.n_address])) place.n_address++;
  *out = place;
  return true;
}

/* ------------------------------------------------------------------------------- unique id --- */
/* {u8 version, secret, key, host, u8 number of addresses, addresses}, the rest zero. */

gyre_status gy_id_write(const struct gy_place *place, const uint8_t secret[GY_ID_SECRET],
                        gyre_unique_id *out) {
  struct gy_writer head = {0};
  const size_t room =
      sizeof out->bytes - (1 + GY_ID_SECRET + sizeof place->key + sizeof place->host + 1);
  struct gy_writer list = {0};
  uint8_t n = 0;
  for (uint32_t i = 0; i < place->n_address; i++) {
    size_t before = list.len;
    gy_w_address(&list, &place->address[i]);
    if (list.len > room) list.len = before;
    else n++;
  }
  gy_w_u8(&head, ID_VERSION);
  gy_w_bytes(&head, secret, GY_ID_SECRET);
  gy_w_bytes(&head, place->key, sizeof place->key);
  gy_w_bytes(&head, place->host, sizeof place->host);
  gy_w_u8(&head, n);
  gy_w_bytes(&head, list.data, list.len);
  bool failed = head.failed || list.failed;
  memset(out, 0, sizeof *out);
  if (!failed) memcpy(out->bytes, head.data, head.len);
  explicit_bzero(head.own, sizeof head.own);
  gy_w_free(&head);
  gy_w_free(&list);
  return failed ? gy_fail(GYRE_ERR_NOMEM, "out of memory for a unique id") : GYRE_OK;
}

gyre_status gy_id_read(const gyre_unique_id *id, struct gy_place *place,
                       uint8_t secret[GY_ID_SECRET]) {
  struct gy_reader r = {.data = id->bytes, .len = sizeof id->bytes};
  struct gy_place p;
  memset(&p, 0, sizeof p);
  uint8_t version = gy_r_u8(&r);
  gy_r_bytes(&r, secret, GY_ID_SECRET);
  gy_r_bytes(&r, p.key, sizeof p.key);
  gy_r_bytes(&r, p.host, sizeof p.host);
  p.n_address = gy_r_u8(&r);
  if (p.n_address > GY_ADDRESS_MAX) p.n_address = 0;
  for (uint32_t i = 0; i < p.n_address; i++) gy_r_address(&r, &p.address[i]);
  if (version != ID_VERSION || p.n_address == 0 || r.failed)
    return gy_fail(
        GYRE_ERR_ARG,
        "the unique id was not made by gyre_unique_id_create of this version; copy all of its %zu "
        "bytes",
        sizeof id->bytes);
  *place = p;
  return GYRE_OK;
}

/* ----------------------------------------------------------------------------------- parse --- */

static gyre_status parse_tcp(const char *text, struct gy_rendezvous *out) {
  char name[32];
  out->kind = GY_RENDEZVOUS_TCP;
  gyre_status status =
      gy_address_split(text + strlen(TCP_PREFIX), out->host, sizeof out->host, &out->port);
  if (status != GYRE_OK || out->port == 0 || !out->host[0])
    return gy_fail(
        GYRE_ERR_ARG,
        "rendezvous \"%s\": must be tcp://host:port or tcp://[v6]:port with a port from 1 to 65535",
        text);
  /* Ranks spell the host differently (a name, an address, a wildcard), so only the port identifies
   * the job. */
  size_t len = gy_format(name, sizeof name, "tcp %u", out->port);
  return gy_digest16(name, len, out->place.key);
}

gyre_status gy_rendezvous_parse(const struct gy_bootstrap_config *config, struct gy_rendezvous *out) {
  const char *text = config->settings->rendezvous;
  memset(out, 0, sizeof *out);
  if (config->id) {
    uint8_t secret[GY_ID_SECRET];
    char address[GY_ADDRESS_TEXT];
    gyre_status status = gy_id_read(config->id, &out->place, secret);
    explicit_bzero(secret, sizeof secret);
    if (status != GYRE_OK) return status;
    out->kind = GY_RENDEZVOUS_ID;
    gy_format(out->text, sizeof out->text, "%s (unique id)",
              gy_address_text(&out->place.address[0], address));
    return GYRE_OK;
  }
  if (config->oob) {
    if (!config->oob->put || !config->oob->get)
      return gy_fail(GYRE_ERR_ARG, "the out-of-band store must have both put and get");
    out->kind = GY_RENDEZVOUS_STORE;
    out->oob = *config->oob;
    gy_format(out->text, sizeof out->text, "the out-of-band store");
    return GYRE_OK;
  }
  if (config->meeting) {
    out->kind = GY_RENDEZVOUS_MEETING;
    out->place = config->meeting->place;
    gy_format(out->text, sizeof out->text, "%s", config->meeting->what);
    return GYRE_OK;
  }
  gy_format(out->text, sizeof out->text, "%s", text);
  if (strncmp(text, TCP_PREFIX, strlen(TCP_PREFIX)) == 0) return parse_tcp(text, out);
  if (strncmp(text, FILE_PREFIX "/", strlen(FILE_PREFIX) + 1) == 0 && text[strlen(text) - 1] != '/') {
    out->kind = GY_RENDEZVOUS_FILE;
    gy_format(out->path, sizeof out->path, "%s", text + strlen(FILE_PREFIX));
    return GYRE_OK;
  }
  if (!text[0])
    return gy_fail(
        GYRE_ERR_ARG,
        "no rendezvous: give a unique id, an out-of-band store, or GYRE_RENDEZVOUS=tcp://host:port "
        "or file:///path");
  return gy_fail(GYRE_ERR_ARG,
                 "rendezvous \"%s\": must be tcp://host:port or file:///absolute/path/of/a/file",
                 text);
}

/* ------------------------------------------------------------------------------------- tcp --- */

/* The kernel knows best which addresses are ours: it lets a socket be bound to no other. */
static bool is_local(const struct gy_address *a) {
  struct gy_address probe = *a;
  gy_address_set_port(&probe, 0);
  gy_fork_hold();
  int fd = socket(probe.sa.any.sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  bool local = fd >= 0 && bind(fd, &probe.sa.any, gy_address_len(&probe)) == 0;
  if (fd >= 0) close(fd);
  gy_fork_release();
  return local;
}

static void add_address(struct gy_address out[GY_ADDRESS_MAX], size_t *n, const struct gy_address *a) {
  for (size_t i = 0; i < *n; i++)
    if (same_address(&out[i], a)) return;
  if (*n < GY_ADDRESS_MAX) out[(*n)++] = *a;
}

static gyre_status lookup(const struct gy_rendezvous *rv, struct addrinfo **out) {
  char service[8];
  const struct addrinfo hints = {
      .ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV};
  gy_format(service, sizeof service, "%u", rv->port);
  int rc = getaddrinfo(rv->host, service, &hints, out);
  if (rc == 0) return GYRE_OK;
  if (rc == EAI_SYSTEM)
    return gy_fail_errno(GYRE_ERR_SYS, errno, "%s: cannot resolve %s", rv->text, rv->host);
  return gy_fail(GYRE_ERR_SYS, "%s: cannot resolve %s: %s", rv->text, rv->host, gai_strerror(rc));
}

/* Many systems map their own name to a loopback address, where the other hosts, which resolve it
 * properly, find nobody. So such a name means the chosen interfaces as well. */
static gyre_status add_chosen(const struct gy_rendezvous *rv, const struct gy_settings *settings,
                              bool secure, struct gy_address out[GY_ADDRESS_MAX], size_t *n) {
  struct gy_address numeric, chosen[GY_ADDRESS_MAX];
  size_t n_chosen;
  if (gy_address_numeric(rv->host, rv->port, &numeric) || strcmp(rv->host, "localhost") == 0)
    return GYRE_OK;
  for (size_t i = 0; i < *n; i++)
    if (!gy_address_is_loopback(&out[i])) return GYRE_OK;
  gyre_status status = gy_address_choose(settings, secure, chosen, &n_chosen);
  for (size_t i = 0; status == GYRE_OK && i < n_chosen; i++) {
    gy_address_set_port(&chosen[i], rv->port);
    add_address(out, n, &chosen[i]);
  }
  return status;
}

gyre_status gy_rendezvous_resolve(const struct gy_rendezvous *rv, const struct gy_settings *settings,
                                  bool secure, struct gy_address out[GY_ADDRESS_MAX], size_t *n) {
  struct addrinfo *list = NULL;
  char here[512];
  size_t exposed = 0;
  gyre_status status = lookup(rv, &list);
  if (status != GYRE_OK) return status;
  *n = 0;
  for (const struct addrinfo *ai = list; ai; ai = ai->ai_next) {
    struct gy_address a;
    memset(&a, 0, sizeof a);
    if (ai->ai_addrlen > sizeof a.sa) continue;
    memcpy(&a.sa, ai->ai_addr, ai->ai_addrlen);
    if (!is_local(&a)) continue;
    if (secure || settings->insecure || gy_address_is_loopback(&a)) add_address(out, n, &a);
    else exposed++;
  }
  freeaddrinfo(list);
  if (*n > 0) return add_chosen(rv, settings, secure, out, n);
  if (exposed > 0)
    return gy_fail(GYRE_ERR_AUTH,
                   "%s: rank 0 listens on other than loopback addresses only with a secret; set "
                   "GYRE_SECRET or "
                   "GYRE_SECRET_FILE on every rank (or GYRE_INSECURE=1 on a network you trust)",
                   rv->text);
  gy_address_list(here, sizeof here);
  return gy_fail(
      GYRE_ERR_ARG,
      "%s: rank 0 must listen there, but %s is no address of this machine, which has: %s", rv->text,
      rv->host, here);
}

/* ------------------------------------------------------------------------------------ file --- */

static gyre_status write_whole(int fd, const char *text, size_t len) {
  while (len > 0) {
    ssize_t n = write(fd, text, len);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return GYRE_ERR_SYS;
    text += n;
    len -= (size_t)n;
  }
  return GYRE_OK;
}

gyre_status gy_rendezvous_file_write(struct gy_rendezvous *rv, const struct gy_place *place) {
  char text[GY_PLACE_TEXT], unique[33], temporary[sizeof rv->path + 64];
  size_t len = gy_place_print(place, text);
  print_hex(place->key, unique);
  gy_format(temporary, sizeof temporary, "%s.%.12s.tmp", rv->path, unique);
  int fd = open(temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (fd < 0)
    return gy_fail_errno(GYRE_ERR_SYS, errno,
                         "%s: rank 0 cannot create %s; its folder must exist and be writable",
                         rv->text, temporary);
  gyre_status status = write_whole(fd, text, len);
  int error = errno;
  struct stat st;
  if (fstat(fd, &st) == 0) {
    rv->file[0] = st.st_dev;
    rv->file[1] = st.st_ino;
  }
  if (close(fd) != 0 && status == GYRE_OK) { /* network file systems report a full disk here */
    status = GYRE_ERR_SYS;
    error = errno;
  }
  if (status == GYRE_OK && rename(temporary, rv->path) != 0) {
    status = GYRE_ERR_SYS;
    error = errno;
  }
  if (status == GYRE_OK) return GYRE_OK;
  unlink(temporary);
  return gy_fail_errno(status, error, "%s: rank 0 cannot write %s", rv->text, rv->path);
}

gyre_status gy_rendezvous_file_read(const struct gy_rendezvous *rv, struct gy_place *out) {
  char text[GY_PLACE_TEXT];
  int fd = open(rv->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (fd < 0) return gy_fail_errno(GYRE_IN_PROGRESS, errno, "cannot read %s", rv->path);
  ssize_t len;
  do len = read(fd, text, sizeof text - 1);
  while (len < 0 && errno == EINTR);
  int error = errno;
  close(fd);
  if (len < 0) return gy_fail_errno(GYRE_IN_PROGRESS, error, "cannot read %s", rv->path);
  text[len] = '\0';
  if (!gy_place_scan(text, out))
    return gy_fail(GYRE_IN_PROGRESS, "%s holds something else", rv->path);
  return GYRE_OK;
}

void gy_rendezvous_file_remove(const struct gy_rendezvous *rv, const struct gy_place *place) {
  struct gy_place now;
  struct stat st;
  errno = 0;
  bool mine = gy_rendezvous_file_read(rv, &now) == GYRE_OK
                  ? memcmp(now.key, place->key, sizeof now.key) == 0
                  : (errno == EMFILE || errno == ENFILE) && lstat(rv->path, &st) == 0 &&
                        st.st_dev == rv->file[0] && st.st_ino == rv->file[1];
  if (mine) unlink(rv->path);
}

/* ----------------------------------------------------------------------------------- store --- */

gyre_status gy_rendezvous_store_put(const struct gy_rendezvous *rv, const struct gy_place *place) {
  char text[GY_PLACE_TEXT];
  size_t len = gy_place_print(place, text);
  int rc = rv->oob.put(rv->oob.user, STORE_KEY, text, len);
  if (rc == 0) return GYRE_OK;
  return gy_fail(GYRE_ERR_SYS, "the out-of-band store refused to put \"%s\" (it returned %d)",
                 STORE_KEY, rc);
}

gyre_status gy_rendezvous_store_get(const struct gy_rendezvous *rv, struct gy_place *out) {
  char text[GY_PLACE_TEXT];
  size_t len = 0;
  int rc = rv->oob.get(rv->oob.user, STORE_KEY, text, sizeof text - 1, &len);
  if (rc == 1)
    return gy_fail(GYRE_IN_PROGRESS, "the out-of-band store has no \"%s\" yet", STORE_KEY);
  if (rc != 0)
    return gy_fail(GYRE_ERR_SYS, "the out-of-band store failed to get \"%s\" (it returned %d)",
                   STORE_KEY, rc);
  if (len < sizeof text) text[len] = '\0';
  if (len >= sizeof text || !gy_place_scan(text, out))
    return gy_fail(GYRE_IN_PROGRESS, "\"%s\" in the out-of-band store holds something else",
                   STORE_KEY);
  return GYRE_OK;
}
