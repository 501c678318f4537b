/*
 * raw_links.c - the connections of the bare socket path. See raw.h.
 *
 * Every rank listens, publishes its addresses through the communicator, dials the higher ranks it
 * needs and accepts the lower ones. A connection proves itself with a nonce that rank 0 drew.
 */
#include "raw.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define MAX_CANDIDATES 8
#define DIAL_MS 2000    /* for one address */
#define ACCEPT_MS 10000 /* for all */
#define HELLO_MS 1000

struct card { /* what a rank publishes: IPv4 addresses are in their IPv6-mapped form */
  uint8_t address[MAX_CANDIDATES][16];
  uint16_t port;
  uint16_t candidates;
};

struct hello {
  uint8_t nonce[16];
  int32_t rank;
};

bool perf_raw_needs(int a, int b, int nranks) {
  int distance = a < b ? b - a : a - b;
  if (distance == 0) return false;
  if (distance == 1 || distance == nranks - 1) return true;
  bool doubling = (nranks & (nranks - 1)) == 0;
  int differs = a ^ b;
  return doubling && (differs & (differs - 1)) == 0;
}

static void peer_name(int fd, char *out, size_t capacity) {
  struct sockaddr_storage addr = {0};
  socklen_t len = sizeof(addr);
  char host[64] = "?", port[16] = "?";
  if (fd < 0 || getpeername(fd, (struct sockaddr *)&addr, &len) != 0) {
    snprintf(out, capacity, "not connected");
    return;
  }
  if (addr.ss_family == AF_INET) {
    const struct sockaddr_in *a = (const struct sockaddr_in *)&addr;
    inet_ntop(AF_INET, &a->sin_addr, host, sizeof(host));
    snprintf(port, sizeof(port), "%u", ntohs(a->sin_port));
  } else if (addr.ss_family == AF_INET6) {
    const struct sockaddr_in6 *a = (const struct sockaddr_in6 *)&addr;
    inet_ntop(AF_INET6, &a->sin6_addr, host, sizeof(host));
    snprintf(port, sizeof(port), "%u", ntohs(a->sin6_port));
  }
  snprintf(out, capacity, "%s port %s", host, port);
}

bool perf_raw_fail(struct perf_raw *raw, int peer, const char *what, int error) {
  char name[96];
  if (raw->why[0] != '\0') return false;
  peer_name(peer >= 0 ? raw->fd[peer] : -1, name, sizeof(name));
  int n = peer < 0 ? snprintf(raw->why, sizeof(raw->why), "raw sockets: %s", what)
                   : snprintf(raw->why, sizeof(raw->why), "raw sockets: rank %d (%s): %s", peer,
                              name, what);
  if (error != 0 && n > 0 && (size_t)n < sizeof(raw->why))
    snprintf(raw->why + n, sizeof(raw->why) - (size_t)n, ": %s", strerror(error));
  return false;
}

/* -------------------------------------------------------------------------------- addresses --- */

static bool wanted_interface(const struct ifaddrs *i) {
  const char *only = getenv("GYRE_IFACE");
  if (i->ifa_addr == NULL || !(i->ifa_flags & IFF_UP) || (i->ifa_flags & IFF_LOOPBACK))
    return false;
  return only == NULL || if_nametoindex(only) == 0 || strcmp(only, i->ifa_name) == 0;
}

static bool mapped_address(const struct sockaddr *from, uint8_t out[16]) {
  if (from->sa_family == AF_INET) {
    memset(out, 0, 10);
    memset(out + 10, 0xff, 2);
    memcpy(out + 12, &((const struct sockaddr_in *)(const void *)from)->sin_addr, 4);
    return true;
  }
  if (from->sa_family != AF_INET6) return false;
  const struct sockaddr_in6 *a = (const struct sockaddr_in6 *)(const void *)from;
  memcpy(out, &a->sin6_addr, 16);
  return !IN6_IS_ADDR_LINKLOCAL(&a->sin6_addr); /* these need a scope, which is local */
}

static void list_candidates(struct card *card) {
  struct ifaddrs *all = NULL;
  if (getifaddrs(&all) != 0) return;
  for (struct ifaddrs *i = all; i != NULL && card->candidates < MAX_CANDIDATES; i = i->ifa_next)
    if (wanted_interface(i) && mapped_address(i->ifa_addr, card->address[card->candidates]))
      card->candidates++;
  freeifaddrs(all);
}

static socklen_t socket_address(const uint8_t mapped[16], uint16_t port,
                                struct sockaddr_storage *out) {
  static const uint8_t v4_prefix[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
  memset(out, 0, sizeof(*out));
  if (memcmp(mapped, v4_prefix, sizeof(v4_prefix)) == 0) {
    struct sockaddr_in *a = (struct sockaddr_in *)out;
    a->sin_family = AF_INET;
    a->sin_port = htons(port);
    memcpy(&a->sin_addr, mapped + 12, 4);
    return sizeof(*a);
  }
  struct sockaddr_in6 *a = (struct sockaddr_in6 *)out;
  a->sin6_family = AF_INET6;
  a->sin6_port = htons(port);
  memcpy(&a->sin6_addr, mapped, 16);
  return sizeof(*a);
}

/* ---------------------------------------------------------------------------------- sockets --- */

static int64_t now_ms(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* Within a host an unpaced congestion control, as the library chooses; GYRE_TCP_CONGESTION decides
 * as it does there. A refusal is no failure: what is in force is reported. */
static void set_congestion(int fd) {
  const char *wanted = getenv("GYRE_TCP_CONGESTION");
  if (wanted != NULL && wanted[0] == '\0') return;
  if (wanted != NULL && strcmp(wanted, "auto") != 0) {
    setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, wanted, (socklen_t)strlen(wanted));
    return;
  }
  if (setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, "cubic", 5) != 0)
    setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, "reno", 4);
}

static bool one_network(const struct perf_hosts *hosts) {
  for (int r = 1; r < hosts->nranks; r++)
    if (hosts->place[r].network != hosts->place[0].network) return false;
  return true;
}

/* Loopback alone when all ranks share it; otherwise every address, IPv6 and IPv4 in one socket. */
static int listen_on(bool loopback, int backlog, uint16_t *port) {
  static const uint8_t local[16] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 127, 0, 0, 1};
  static const uint8_t any4[16] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
  static const uint8_t any6[16] = {0};
  struct sockaddr_storage addr;
  socklen_t len = socket_address(loopback ? local : any6, 0, &addr);
  int fd = socket(addr.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0 && !loopback) { /* a kernel without IPv6 */
    len = socket_address(any4, 0, &addr);
    fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  }
  if (fd < 0) return -1;
  int off = 0;
  if (addr.ss_family == AF_INET6) setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
  if (bind(fd, (struct sockaddr *)&addr, len) != 0 || listen(fd, backlog) != 0) goto close_fd;
  len = sizeof(addr);
  if (getsockname(fd, (struct sockaddr *)&addr, &len) != 0) goto close_fd;
  *port = ntohs(addr.ss_family == AF_INET ? ((struct sockaddr_in *)&addr)->sin_port
                                          : ((struct sockaddr_in6 *)&addr)->sin6_port);
  return fd;
close_fd:
  close(fd);
  return -1;
}

static bool connect_within(int fd, const struct sockaddr_storage *addr, socklen_t len, int ms) {
  if (connect(fd, (const struct sockaddr *)addr, len) == 0) return true;
  if (errno != EINPROGRESS) return false;
  struct pollfd p = {.fd = fd, .events = POLLOUT};
  int error = ETIMEDOUT;
  socklen_t size = sizeof(error);
  if (poll(&p, 1, ms) == 1) getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size);
  errno = error;
  return error == 0;
}

static bool set_up(struct perf_raw *raw, int peer, int fd, bool same_host) {
  int on = 1;
  raw->fd[peer] = fd;
  if (same_host) set_congestion(fd);
  if (fcntl(fd, F_SETFL, O_NONBLOCK) != 0)
    return perf_raw_fail(raw, peer, "cannot make the socket non-blocking", errno);
  if (setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)) != 0)
    return perf_raw_fail(raw, peer, "cannot set TCP_NODELAY", errno);
  socklen_t size = sizeof(raw->congestion) - 1;
  if (raw->congestion[0] == '\0')
    getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, raw->congestion, &size);
  return true;
}

static bool dial(struct perf_raw *raw, int peer, const struct card *card, bool same_host,
                 const struct hello *hello) {
  static const uint8_t local[16] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 127, 0, 0, 1};
  int error = EHOSTUNREACH;
  int tries = same_host ? 1 : card->candidates;
  for (int i = 0; i < tries; i++) {
    struct sockaddr_storage addr;
    socklen_t len = socket_address(same_host ? local : card->address[i], card->port, &addr);
    int fd = socket(addr.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) {
      error = errno;
      continue;
    }
    if (connect_within(fd, &addr, len, DIAL_MS) &&
        send(fd, hello, sizeof(*hello), MSG_NOSIGNAL) == (ssize_t)sizeof(*hello))
      return set_up(raw, peer, fd, same_host);
    error = errno;
    close(fd);
  }
  return perf_raw_fail(raw, peer, "cannot connect to any of its addresses", error);
}

/* One inbound connection; whatever does not prove itself is dropped. Returns the rank, or -1. */
static int accept_one(struct perf_raw *raw, int listener, const struct perf_hosts *hosts,
                      const uint8_t nonce[16]) {
  struct hello hello;
  struct timeval limit = {.tv_sec = HELLO_MS / 1000};
  int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
  if (fd < 0) return -1;
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
  ssize_t n = recv(fd, &hello, sizeof(hello), MSG_WAITALL);
  if (n != (ssize_t)sizeof(hello) || memcmp(hello.nonce, nonce, sizeof(hello.nonce)) != 0 ||
      hello.rank < 0 || hello.rank >= raw->rank || raw->fd[hello.rank] >= 0) {
    close(fd);
    return -1;
  }
  bool same_host = hosts->place[hello.rank].network == hosts->place[raw->rank].network;
  return set_up(raw, hello.rank, fd, same_host) ? hello.rank : -1;
}

static bool connect_all(struct perf_raw *raw, int listener, const struct card *cards,
                        const struct perf_hosts *hosts, const uint8_t nonce[16]) {
  struct hello hello = {.rank = raw->rank};
  memcpy(hello.nonce, nonce, sizeof(hello.nonce));
  int missing = 0;
  for (int r = 0; r < raw->nranks; r++) {
    if (!perf_raw_needs(raw->rank, r, raw->nranks)) continue;
    bool same_host = hosts->place[r].network == hosts->place[raw->rank].network;
    if (r < raw->rank) missing++;
    else if (!dial(raw, r, &cards[r], same_host, &hello)) return false;
  }
  int64_t deadline = now_ms() + ACCEPT_MS;
  while (missing > 0) {
    int64_t left = deadline - now_ms();
    struct pollfd p = {.fd = listener, .events = POLLIN};
    if (left <= 0 || (poll(&p, 1, (int)left) < 0 && errno != EINTR))
      return perf_raw_fail(raw, -1, "a lower rank did not connect within 10 s", 0);
    if ((p.revents & POLLIN) && accept_one(raw, listener, hosts, nonce) >= 0) missing--;
    if (raw->why[0] != '\0') return false;
  }
  return true;
}

/* ------------------------------------------------------------------------------ open, close --- */

static bool open_here(struct perf_raw *raw, const struct perf_hosts *hosts, int *listener,
                      struct card *card) {
  bool loopback = one_network(hosts);
  raw->stage = malloc(PERF_RAW_SLICE + sizeof(float));
  if (raw->stage == NULL) return perf_raw_fail(raw, -1, "no memory for the staging buffer", 0);
  memset(raw->stage, 0, PERF_RAW_SLICE + sizeof(float)); /* no page faults while timing */
  *listener = listen_on(loopback, raw->nranks, &card->port);
  if (*listener < 0) return perf_raw_fail(raw, -1, "cannot listen", errno);
  if (!loopback) list_candidates(card);
  return true;
}

/* Everyone learns whether everyone succeeded. */
static gyre_status all_succeeded(struct perf_raw *raw, gyre_comm *comm, bool here) {
  uint8_t mine = here, all = 0;
  gyre_status st = gyre_all_reduce(comm, &mine, &all, 1, GYRE_U8, GYRE_MIN);
  if (st != GYRE_OK) return st;
  if (all == 0) perf_raw_fail(raw, -1, "another rank could not open its connections", 0);
  return all != 0 ? GYRE_OK : GYRE_ERR_SYS;
}

gyre_status perf_raw_open(struct perf_raw *raw, gyre_comm *comm, const struct perf_hosts *hosts) {
  memset(raw, 0, sizeof(*raw));
  raw->rank = hosts->rank;
  raw->nranks = hosts->nranks;
  raw->yields = hosts->ranks_here > hosts->cores;
  raw->fd = malloc((size_t)raw->nranks * sizeof(*raw->fd));
  struct card *cards = calloc((size_t)raw->nranks, sizeof(*cards));
  struct card mine = {0};
  uint8_t nonce[16] = {0};
  int listener = -1;
  gyre_status st = GYRE_ERR_NOMEM;
  for (int r = 0; raw->fd != NULL && r < raw->nranks; r++) raw->fd[r] = -1;
  if (raw->fd == NULL || cards == NULL) goto free_cards;
  bool ok = open_here(raw, hosts, &listener, &mine);
  if (ok && raw->rank == 0 && getrandom(nonce, sizeof(nonce), 0) != (ssize_t)sizeof(nonce))
    ok = perf_raw_fail(raw, -1, "no random bytes", errno);
  st = gyre_broadcast(comm, nonce, nonce, sizeof(nonce), GYRE_U8, 0);
  if (st == GYRE_OK) st = gyre_all_gather(comm, &mine, cards, sizeof(mine), GYRE_U8);
  if (st == GYRE_OK) st = all_succeeded(raw, comm, ok);
  if (st == GYRE_OK) st = all_succeeded(raw, comm, connect_all(raw, listener, cards, hosts, nonce));
  if (listener >= 0) close(listener);
free_cards:
  free(cards);
  return st;
}

void perf_raw_close(struct perf_raw *raw) {
  for (int r = 0; raw->fd != NULL && r < raw->nranks; r++)
    if (raw->fd[r] >= 0) close(raw->fd[r]);
  free(raw->fd);
  free(raw->stage);
  raw->fd = NULL;
  raw->stage = NULL;
}
