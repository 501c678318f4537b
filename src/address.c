/*
 * address.c - socket addresses, interfaces, and what identifies a host; see address.h.
 *
 * Thread: any. Owner: nothing is kept but the host's id, computed once.
 */
#include "address.h"
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "fork.h"
#include "net.h"
#include "status.h"

/* ---------------------------------------------------------------------------- one address --- */

#define LOCAL_PREFIX "gyre-link/"
#define LOCAL_LEN \
  (1 + sizeof LOCAL_PREFIX - 1 + 2 * (size_t)GY_LOCAL_BYTES) /* the name begins with a zero byte */

static bool is_local(const struct gy_address *a) { return a->sa.any.sa_family == AF_UNIX; }

void gy_address_of_local(const uint8_t name[GY_LOCAL_BYTES], struct gy_address *out) {
  struct gy_address a;
  memset(&a, 0, sizeof a);
  a.sa.local.sun_family = AF_UNIX;
  char *at = a.sa.local.sun_path + 1;
  size_t n = gy_format(at, sizeof a.sa.local.sun_path - 1, "%s", LOCAL_PREFIX);
  for (size_t i = 0; i < GY_LOCAL_BYTES; i++, n += 2)
    gy_format(at + n, sizeof a.sa.local.sun_path - 1 - n, "%02x", (unsigned)name[i]);
  *out = a;
}

socklen_t gy_address_len(const struct gy_address *a) {
  if (is_local(a)) return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + LOCAL_LEN);
  return a->sa.any.sa_family == AF_INET6 ? (socklen_t)sizeof a->sa.v6 : (socklen_t)sizeof a->sa.v4;
}

uint16_t gy_address_port(const struct gy_address *a) {
  if (is_local(a)) return 0;
  return ntohs(a->sa.any.sa_family == AF_INET6 ? a->sa.v6.sin6_port : a->sa.v4.sin_port);
}

void gy_address_set_port(struct gy_address *a, uint16_t port) {
  if (a->sa.any.sa_family == AF_INET6) a->sa.v6.sin6_port = htons(port);
  else a->sa.v4.sin_port = htons(port);
}

bool gy_address_is_loopback(const struct gy_address *a) {
  if (is_local(a)) return true;
  if (a->sa.any.sa_family == AF_INET6) {
    const struct in6_addr *v6 = &a->sa.v6.sin6_addr;
    return IN6_IS_ADDR_LOOPBACK(v6) || (IN6_IS_ADDR_V4MAPPED(v6) && v6->s6_addr[12] == 127);
  }
  return a->sa.any.sa_family == AF_INET && (ntohl(a->sa.v4.sin_addr.s_addr) >> 24) == 127;
}

bool gy_address_is_link_local(const struct gy_address *a) {
  if (a->sa.any.sa_family == AF_INET6) return IN6_IS_ADDR_LINKLOCAL(&a->sa.v6.sin6_addr);
  return a->sa.any.sa_family == AF_INET && (ntohl(a->sa.v4.sin_addr.s_addr) >> 16) == 0xa9fe;
}

/* The host part alone, with the scope of a link-local address: "fe80::1%eth0". */
static void host_text(const struct gy_address *a, char *out, size_t capacity) {
  char host[INET6_ADDRSTRLEN] = "?", zone[IF_NAMESIZE];
  if (a->sa.any.sa_family == AF_INET) {
    inet_ntop(AF_INET, &a->sa.v4.sin_addr, host, sizeof host);
    gy_format(out, capacity, "%s", host);
  } else if (a->sa.any.sa_family == AF_INET6) {
    unsigned scope = a->sa.v6.sin6_scope_id;
    inet_ntop(AF_INET6, &a->sa.v6.sin6_addr, host, sizeof host);
    if (scope == 0) gy_format(out, capacity, "%s", host);
    else if (if_indextoname(scope, zone) != NULL) gy_format(out, capacity, "%s%%%s", host, zone);
    else gy_format(out, capacity, "%s%%%u", host, scope);
  } else {
    gy_format(out, capacity, "?");
  }
}

const char *gy_address_text(const struct gy_address *a, char out[GY_ADDRESS_TEXT]) {
  if (is_local(a)) { /* the end that has dialled has no name */
    gy_format(out, GY_ADDRESS_TEXT, "a local socket%s%s", a->sa.local.sun_path[1] ? ", " : "",
              a->sa.local.sun_path + 1);
    return out;
  }
  char host[INET6_ADDRSTRLEN + IF_NAMESIZE + 1];
  host_text(a, host, sizeof host);
  gy_format(out, GY_ADDRESS_TEXT, a->sa.any.sa_family == AF_INET6 ? "[%s]:%u" : "%s:%u", host,
            (unsigned)gy_address_port(a));
  return out;
}

/* Decimal digits only, 1 to 65535. */
static bool parse_port(const char *text, uint16_t *port) {
  char *end = NULL;
  if (*text < '0' || *text > '9') return false;
  errno = 0;
  unsigned long v = strtoul(text, &end, 10);
  if (errno != 0 || *end != '\0' || v == 0 || v > 65535) return false;
  *port = (uint16_t)v;
  return true;
}

gyre_status gy_address_split(const char *text, char *host, size_t capacity, uint16_t *port) {
  const char *begin = text, *end, *colon;
  uint16_t parsed = 0;
  if (text[0] == '[') {
    begin = text + 1;
    end = strchr(begin, ']');
    colon = end != NULL ? end + 1 : NULL;
  } else {
    end = colon = strrchr(text, ':');
    if (end != NULL && memchr(begin, ':', (size_t)(end - begin)) != NULL)
      return gy_fail(GYRE_ERR_ARG,
                     "\"%s\" is ambiguous: put an IPv6 address in brackets, as in [::1]:7000", text);
  }
  if (end == NULL || end == begin || *colon != ':')
    return gy_fail(GYRE_ERR_ARG,
                   "\"%s\" is not host:port, as in node1:7000, 10.0.0.1:7000 or [::1]:7000", text);
  if (!parse_port(colon + 1, &parsed))
    return gy_fail(GYRE_ERR_ARG, "\"%s\" has no valid port: it must be a number from 1 to 65535",
                   text);
  size_t len = (size_t)(end - begin);
  if (len >= capacity)
    return gy_fail(GYRE_ERR_ARG, "the host in \"%s\" is longer than %zu bytes", text, capacity - 1);
  memcpy(host, begin, len);
  host[len] = '\0';
  *port = parsed;
  return GYRE_OK;
}

/* An IPv4 address in IPv6 clothes becomes IPv4, so that it meets the listeners, which are IPv6
 * only. */
static void unmap_v4(struct gy_address *a) {
  if (a->sa.any.sa_family != AF_INET6 || !IN6_IS_ADDR_V4MAPPED(&a->sa.v6.sin6_addr)) return;
  struct gy_address v4;
  memset(&v4, 0, sizeof v4);
  v4.sa.v4.sin_family = AF_INET;
  v4.sa.v4.sin_port = a->sa.v6.sin6_port;
  memcpy(&v4.sa.v4.sin_addr, &a->sa.v6.sin6_addr.s6_addr[12], 4);
  *a = v4;
}

bool gy_address_numeric(const char *host, uint16_t port, struct gy_address *out) {
  struct gy_address a;
  memset(&a, 0, sizeof a);
  if (inet_pton(AF_INET, host, &a.sa.v4.sin_addr) == 1) {
    a.sa.v4.sin_family = AF_INET;
  } else {
    /* Not inet_pton: it does not know scopes. A numeric host is parsed here without asking
     * anybody. */
    const struct addrinfo hints = {
        .ai_family = AF_INET6, .ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICHOST};
    struct addrinfo *list = NULL;
    if (strchr(host, ':') == NULL || getaddrinfo(host, NULL, &hints, &list) != 0) return false;
    memcpy(&a.sa.v6, list->ai_addr, sizeof a.sa.v6);
    freeaddrinfo(list);
  }
  gy_address_set_port(&a, port);
  unmap_v4(&a);
  *out = a;
  return true;
}

gyre_status gy_address_local(int fd, struct gy_address *out) {
  struct gy_address a;
  socklen_t len = sizeof a;
  memset(&a, 0, sizeof a);
  if (getsockname(fd, &a.sa.any, &len) != 0)
    return gy_fail_errno(GYRE_ERR_SYS, errno, "cannot ask for the local address of socket %d", fd);
  *out = a;
  return GYRE_OK;
}

gyre_status gy_address_peer(int fd, struct gy_address *out) {
  struct gy_address a;
  socklen_t len = sizeof a;
  memset(&a, 0, sizeof a);
  if (getpeername(fd, &a.sa.any, &len) != 0)
    return gy_fail_errno(GYRE_ERR_SYS, errno, "cannot ask for the peer address of socket %d", fd);
  *out = a;
  return GYRE_OK;
}

/* -------------------------------------------------------------------------- the interfaces --- */

struct interface { /* one address of one interface */
  char name[IF_NAMESIZE];
  struct gy_address address;
  unsigned prefix; /* bits of the subnet */
  unsigned flags;  /* IFF_* */
};

/* The address bytes: 4 or 16 of them. */
static const uint8_t *host_bytes(const struct gy_address *a, size_t *len) {
  bool v6 = a->sa.any.sa_family == AF_INET6;
  *len = v6 ? 16 : 4;
  return v6 ? a->sa.v6.sin6_addr.s6_addr : (const uint8_t *)&a->sa.v4.sin_addr;
}

static bool same_subnet(const struct gy_address *a, const struct gy_address *b, unsigned prefix) {
  size_t len, b_len;
  const uint8_t *x = host_bytes(a, &len), *y = host_bytes(b, &b_len);
  if (a->sa.any.sa_family != b->sa.any.sa_family || prefix > 8 * len) return false;
  size_t whole = prefix / 8;
  unsigned rest = prefix % 8;
  if (memcmp(x, y, whole) != 0) return false;
  return rest == 0 || ((x[whole] ^ y[whole]) >> (8 - rest)) == 0;
}

static unsigned mask_bits(const struct sockaddr *mask, int family) {
  unsigned bits = 0;
  size_t len;
  struct gy_address m;
  if (mask == NULL) return family == AF_INET6 ? 128 : 32;
  memset(&m, 0, sizeof m);
  memcpy(&m, mask, family == AF_INET6 ? sizeof m.sa.v6 : sizeof m.sa.v4);
  m.sa.any.sa_family = (sa_family_t)family;
  const uint8_t *b = host_bytes(&m, &len);
  for (size_t i = 0; i < len; i++) bits += (unsigned)__builtin_popcount(b[i]);
  return bits;
}

/* All IP addresses of this host, in the kernel's order. *out is the caller's to free; untouched on
 * failure. */
static gyre_status interfaces(struct interface **out, size_t *n) {
  struct ifaddrs *list = NULL;
  size_t total = 0, used = 0;
  gy_fork_hold(); /* it asks the kernel over a socket, which no child is to have */
  int rc = getifaddrs(&list), failed = errno;
  gy_fork_release();
  if (rc != 0) return gy_fail_errno(GYRE_ERR_SYS, failed, "cannot list the network interfaces");
  for (const struct ifaddrs *i = list; i != NULL; i = i->ifa_next) total++;
  struct interface *all = calloc(total + 1, sizeof *all);
  if (all == NULL) {
    freeifaddrs(list);
    return gy_fail(GYRE_ERR_NOMEM, "out of memory listing %zu network interfaces", total);
  }
  for (const struct ifaddrs *i = list; i != NULL; i = i->ifa_next) {
    if (i->ifa_addr == NULL) continue;
    int family = i->ifa_addr->sa_family;
    if (family != AF_INET && family != AF_INET6) continue;
    struct interface *f = &all[used++];
    gy_format(f->name, sizeof f->name, "%s", i->ifa_name);
    memcpy(&f->address, i->ifa_addr,
           family == AF_INET6 ? sizeof f->address.sa.v6 : sizeof f->address.sa.v4);
    f->prefix = mask_bits(i->ifa_netmask, family);
    f->flags = i->ifa_flags;
  }
  freeifaddrs(list);
  *out = all;
  *n = used;
  return GYRE_OK;
}

/* How well an address serves to be reached at: lower is better. */
enum reach { REACH_GLOBAL, REACH_TUNNEL, REACH_LINK_LOCAL, REACH_LOOPBACK };

static enum reach reach_of(const struct interface *f) {
  /* Bridges of containers and virtual machines: the same private address exists on many hosts. */
  static const char *const bridge[] = {"docker", "br-",     "virbr", "veth",
                                       "cni",    "flannel", "lxc",   "podman"};
  if (gy_address_is_loopback(&f->address)) return REACH_LOOPBACK;
  if (gy_address_is_link_local(&f->address)) return REACH_LINK_LOCAL;
  if ((f->flags & (IFF_POINTOPOINT | IFF_LOOPBACK)) != 0 || (f->flags & IFF_RUNNING) == 0)
    return REACH_TUNNEL;
  for (size_t i = 0; i < sizeof bridge / sizeof bridge[0]; i++)
    if (strncmp(f->name, bridge[i], strlen(bridge[i])) == 0) return REACH_TUNNEL;
  return REACH_GLOBAL;
}

struct filter {     /* GYRE_IFACE, taken apart */
  const char *name; /* an interface; NULL: by subnet, or all */
  bool by_subnet;
  struct gy_address base;
  unsigned prefix;
};

/* A numeric address with or without "/bits" is a subnet; everything else is a name. */
static gyre_status parse_filter(const char *text, struct filter *out) {
  char host[64];
  struct filter f = {.name = text[0] != '\0' ? text : NULL};
  const char *slash = strchr(text, '/');
  size_t len = slash != NULL ? (size_t)(slash - text) : strlen(text);
  if (len >= sizeof host) return gy_fail(GYRE_ERR_ARG, "GYRE_IFACE=%s is too long", text);
  memcpy(host, text, len);
  host[len] = '\0';
  if (len != 0 && gy_address_numeric(host, 0, &f.base)) {
    unsigned long most = f.base.sa.any.sa_family == AF_INET6 ? 128 : 32, bits = most;
    char *end = NULL;
    if (slash != NULL) bits = strtoul(slash + 1, &end, 10);
    if (slash != NULL && (slash[1] < '0' || slash[1] > '9' || *end != '\0' || bits > most))
      return gy_fail(GYRE_ERR_ARG, "GYRE_IFACE=%s: the part after the slash must be 0 to %lu", text,
                     most);
    f.name = NULL;
    f.by_subnet = true;
    f.prefix = (unsigned)bits;
  } else if (slash != NULL) {
    return gy_fail(GYRE_ERR_ARG,
                   "GYRE_IFACE=%s is neither an interface name nor a subnet such as 10.0.0.0/8",
                   text);
  }
  *out = f;
  return GYRE_OK;
}

static bool filter_takes(const struct filter *f, const struct interface *i) {
  if ((i->flags & IFF_UP) == 0) return false;
  if (f->name != NULL) return strcmp(f->name, i->name) == 0;
  if (f->by_subnet) return same_subnet(&f->base, &i->address, f->prefix);
  return true;
}

static gyre_status fail_no_match(const char *iface, bool loopback_only) {
  char list[320];
  gy_address_list(list, sizeof list);
  if (loopback_only)
    return gy_fail(
        GYRE_ERR_ARG,
        "no loopback address%s%s; without a secret only loopback is allowed: set GYRE_SECRET or "
        "GYRE_SECRET_FILE on every rank; there is: %s",
        iface[0] != '\0' ? " matches GYRE_IFACE=" : " is up", iface, list);
  return gy_fail(GYRE_ERR_ARG, "no address that is up%s%s; there is: %s",
                 iface[0] != '\0' ? " matches GYRE_IFACE=" : "", iface, list);
}

gyre_status gy_address_choose(const struct gy_settings *s, bool has_secret,
                              struct gy_address out[GY_ADDRESS_MAX], size_t *n) {
  bool loopback_only = !has_secret && !s->insecure;
  struct filter filter;
  struct interface *all = NULL;
  size_t total = 0, taken[REACH_LOOPBACK + 1] = {0}, used = 0;
  gyre_status st = parse_filter(s->iface, &filter);
  if (st != GYRE_OK) return st;
  st = interfaces(&all, &total);
  if (st != GYRE_OK) return st;

  for (size_t i = 0; i < total; i++)
    if (filter_takes(&filter, &all[i])) taken[reach_of(&all[i])]++;
  /* Loopback comes last but is never crowded out: it is how the ranks of one host meet. */
  size_t room_loopback = taken[REACH_LOOPBACK] < 2 ? taken[REACH_LOOPBACK] : 2;
  for (int reach = loopback_only ? REACH_LOOPBACK : REACH_GLOBAL; reach <= REACH_LOOPBACK; reach++) {
    size_t limit = reach == REACH_LOOPBACK ? GY_ADDRESS_MAX : GY_ADDRESS_MAX - room_loopback;
    for (size_t i = 0; i < total && used < limit; i++) {
      if (!filter_takes(&filter, &all[i]) || (int)reach_of(&all[i]) != reach) continue;
      out[used] = all[i].address;
      gy_address_set_port(&out[used++], 0);
    }
  }
  free(all);
  if (used == 0) return fail_no_match(s->iface, loopback_only);
  *n = used;
  return GYRE_OK;
}

size_t gy_address_list(char *out, size_t capacity) {
  struct interface *all = NULL;
  size_t n = 0, used = 0;
  if (capacity == 0) return 0;
  out[0] = '\0';
  if (interfaces(&all, &n) != GYRE_OK) return gy_format(out, capacity, "(unknown)");
  for (size_t i = 0; i < n; i++) {
    char host[INET6_ADDRSTRLEN + IF_NAMESIZE + 1];
    host_text(&all[i].address, host, sizeof host);
    used += gy_format(out + used, capacity - used, "%s%s %s/%u %s", i == 0 ? "" : ", ", all[i].name,
                      host, all[i].prefix, (all[i].flags & IFF_UP) != 0 ? "up" : "down");
  }
  free(all);
  return used;
}

/* ------------------------------------------------------------------------ dialling a peer --- */

/* The scope in a link-local address of another host is that host's own: replace it by that of our
 * first interface with such an address. False if there is none. */
static bool adopt_scope(struct gy_address *a, const struct interface *all, size_t n) {
  if (a->sa.any.sa_family != AF_INET6 || !gy_address_is_link_local(a)) return true;
  for (size_t i = 0; i < n; i++) {
    const struct gy_address *mine = &all[i].address;
    if ((all[i].flags & IFF_UP) == 0 || mine->sa.any.sa_family != AF_INET6 ||
        !gy_address_is_link_local(mine))
      continue;
    a->sa.v6.sin6_scope_id = mine->sa.v6.sin6_scope_id;
    return true;
  }
  return false;
}

static bool on_our_subnet(const struct gy_address *a, const struct interface *all, size_t n) {
  for (size_t i = 0; i < n; i++)
    if ((all[i].flags & IFF_UP) != 0 && same_subnet(a, &all[i].address, all[i].prefix)) return true;
  return false;
}

/* Another host's address that is ours too, as those of container bridges often are: it leads back
 * here. */
static bool is_ours(const struct gy_address *a, const struct interface *all, size_t n) {
  for (size_t i = 0; i < n; i++) {
    size_t len;
    (void)host_bytes(a, &len);
    if (same_subnet(a, &all[i].address, (unsigned)(8 * len))) return true;
  }
  return false;
}

/* Moves the interfaces that GYRE_IFACE takes to the front; returns how many. */
static size_t chosen_first(const struct gy_settings *s, struct interface *all, size_t n) {
  struct filter filter;
  size_t chosen = 0;
  if (parse_filter(s->iface, &filter) != GYRE_OK) return n;
  for (size_t i = 0; i < n; i++) {
    if (!filter_takes(&filter, &all[i])) continue;
    struct interface taken = all[i];
    all[i] = all[chosen];
    all[chosen++] = taken;
  }
  return chosen;
}

size_t gy_address_order(const struct gy_settings *s, const struct gy_address *from, size_t n,
                        bool same_host, struct gy_address out[GY_ADDRESS_MAX]) {
  enum { FIRST, MIDDLE, LAST };
  struct interface *all = NULL;
  size_t total = 0, used = 0;
  if (interfaces(&all, &total) != GYRE_OK)
    total = 0; /* then nothing counts as near; the order is still legal */
  size_t chosen = chosen_first(s, all, total);
  for (int class = FIRST; class <= LAST; class ++) {
    for (size_t i = 0; i < n && used < GY_ADDRESS_MAX; i++) {
      struct gy_address a = from[i];
      bool loopback = gy_address_is_loopback(&a);
      int mine;
      if (loopback && !same_host) continue;
      if (!same_host && !adopt_scope(&a, all, chosen)) continue;
      if (loopback) mine = FIRST;
      else if (gy_address_is_link_local(&a) || (!same_host && is_ours(&a, all, total))) mine = LAST;
      else mine = !same_host && on_our_subnet(&a, all, chosen) ? FIRST : MIDDLE;
      if (mine == class) out[used++] = a;
    }
  }
  free(all);
  return used;
}

/* ------------------------------------------------------------------------------- the host --- */

static uint8_t host_id[16];
static pthread_once_t host_id_once = PTHREAD_ONCE_INIT;

static void host_id_compute(void) {
  struct {
    char boot[64];
    uint64_t device, inode;
  } what;
  struct stat ns;
  memset(&what, 0, sizeof what);
  int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
  ssize_t got = fd >= 0 ? read(fd, what.boot, sizeof what.boot - 1) : -1;
  if (fd >= 0) close(fd);
  if (got > 0 && stat("/proc/self/ns/net", &ns) == 0) {
    what.device = (uint64_t)ns.st_dev;
    what.inode = (uint64_t)ns.st_ino;
    if (gy_digest16(&what, sizeof what, host_id) == GYRE_OK) return;
  }
  /* Without /proc nothing proves that two processes share a host: be a host of one's own. */
  if (gy_random(host_id, sizeof host_id) == GYRE_OK) return;
  uint64_t fallback[2] = {(uint64_t)getpid(), (uint64_t)(uintptr_t)&what};
  memcpy(host_id, fallback, sizeof host_id);
}

void gy_host_id(uint8_t out[16]) {
  pthread_once(&host_id_once, host_id_compute);
  memcpy(out, host_id, sizeof host_id);
}

void gy_host_name(char *out, size_t capacity) {
  char name[256];
  if (gethostname(name, sizeof name) != 0) name[0] = '\0';
  name[sizeof name - 1] = '\0';
  gy_format(out, capacity, "%s", name[0] != '\0' ? name : "?");
}
