/*
 * tcp.c - the TCP transport: one socket for a link, dialled by the lower rank, watched by the
 * context's loop.
 *
 * Thread: the driving thread. Owner: the engine opens and closes links; sockets that outlive them
 *         linger in the net.
 */
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <linux/sockios.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "../../src/log.h"
#include "../../src/loop.h"
#include "link.h"

struct early { /* a peer's connection that came before our end was opened */
  struct early *next;
  struct gy_conn conn;
};

/* ------------------------------------------------------------------------------- watching --- */

static void on_event(uv_poll_t *handle, int status, int events);

/* The peer's end is noticed on an idle link too; data that nobody has asked for yet is noticed
 * once. */
static int wanted(const struct tcp_link *l) {
  if (l->down) return 0;
  return (l->rx.head || !l->readable ? UV_READABLE : 0) | (l->tx_next ? UV_WRITABLE : 0);
}

static void set_watch(struct tcp_link *l, int events) {
  if (events) {
    uv_poll_start(l->watch, events, on_event);
  } else {
    uv_poll_stop(l->watch);
  }
  l->watched = events;
}

static void on_event(uv_poll_t *handle, int status, int events) {
  struct tcp_link *l = handle->data;
  if (status < 0 || events & UV_READABLE)
    l->readable = true; /* the next read will say what is wrong */
  if (status < 0 || events & UV_WRITABLE) l->writable = true;
  if (status < 0) l->watched = 0; /* libuv has stopped the handle */
  /* What is not wanted any more would be reported again and again, as events are level-triggered;
   * the rest stays watched. */
  if (l->watched & ~wanted(l)) set_watch(l, wanted(l));
}

static void watch(struct tcp_link *l) {
  if (l->watch && wanted(l) & ~l->watched) set_watch(l, wanted(l) | l->watched);
}

static void free_watch(uv_handle_t *handle) { free(handle); }

static void unwatch(struct tcp_link *l) {
  if (!l->watch) return;
  uv_poll_stop(l->watch);
  uv_close((uv_handle_t *)l->watch, free_watch); /* takes the descriptor out of the poll set at once */
  l->watch = NULL;
  l->watched = 0;
}

/* ---------------------------------------------------------------------------- link up, down --- */

static bool same_host(const struct tcp *t, int peer) {
  const struct gy_member *m = t->core->roster->member;
  return memcmp(m[peer].host, m[t->core->rank].host, sizeof m[peer].host) == 0;
}

static void warn_of_congestion(const char *wanted, int sys_errno) {
  static atomic_flag warned = ATOMIC_FLAG_INIT;
  if (atomic_flag_test_and_set(&warned)) return;
  gy_log(
      GY_LOG_WARN,
      "GYRE_TCP_CONGESTION=%s cannot be had (%s), links keep the system's; what there is stands in "
      "/proc/sys/net/ipv4/tcp_allowed_congestion_control",
      wanted, strerror(sys_errno));
}

/* A pacing congestion control (bbr) costs a quarter of the bandwidth on loopback, so links within a
 * host get one without. Only what the kernel allows to everybody is tried; that none works is no
 * error. */
static void set_congestion(const struct tcp *t, int peer, int fd) {
  static const char *const unpaced[] = {"cubic", "reno"};
  const char *wanted = t->core->roster->agreed.tcp_congestion;
  if (!*wanted || !same_host(t, peer)) return;
  if (strcmp(wanted, "auto")) {
    if (setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, wanted, (socklen_t)strlen(wanted)))
      warn_of_congestion(wanted, errno);
    return;
  }
  for (size_t i = 0; i < sizeof unpaced / sizeof *unpaced; i++) {
    if (!setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, unpaced[i], (socklen_t)strlen(unpaced[i])))
      return;
  }
}

void gy_tcp_link_down(struct tcp_link *l, gyre_status why, int sys_errno) {
  if (l->down) return;
  l->down = true;
  gy_on_link_down(&l->base, why, sys_errno);
}

static gyre_status link_up(struct tcp_link *l, const struct gy_conn *conn) {
  uv_poll_t *watch_handle = malloc(sizeof *watch_handle);
  if (!watch_handle)
    return gy_fail(GYRE_ERR_NOMEM, "out of memory for the link to rank %d", l->base.peer);
  gyre_status st = gy_loop_watch(l->tcp->core->uv, watch_handle, conn->fd);
  if (st) {
    free(watch_handle);
    return gy_fail(st, "the link to rank %d: %s", l->base.peer, gyre_last_error());
  }
  watch_handle->data = l;
  l->watch = watch_handle;
  l->fd = conn->fd;
  l->local = conn->local;
  l->peer = conn->peer;
  l->readable = l->writable = true;
  set_congestion(l->tcp, l->base.peer, l->fd);
  gy_socket_peer_timeout(l->fd, l->tcp->core->roster->agreed.peer_timeout_ms, false);
  char here[GY_ADDRESS_TEXT], there[GY_ADDRESS_TEXT];
  gy_log(GY_LOG_DEBUG, "rank %d lane %u to rank %d: %s -> %s", l->tcp->core->rank, l->base.lane,
         l->base.peer, gy_address_text(&l->local, here), gy_address_text(&l->peer, there));
  return GYRE_OK;
}

static void dialled(void *user, gyre_status status, const struct gy_conn *conn) {
  struct tcp_link *l = user;
  l->dial = NULL;
  if (!status) {
    status = link_up(l, conn);
    if (status) close(conn->fd);
  }
  /* Whoever refuses like this has closed its transport: it leaves. */
  if (status == GYRE_ERR_ABORTED) status = GYRE_ERR_PEER_LOST;
  if (status) gy_tcp_link_down(l, status, 0);
}

static struct tcp_link *find_link(struct tcp *t, int peer, uint16_t lane) {
  struct tcp_link *l = t->links;
  while (l && (l->base.peer != peer || l->base.lane != lane)) l = l->next;
  return l;
}

static gyre_status accepted(void *user, const struct gy_conn *conn) {
  struct tcp *t = user;
  if (conn->id.from < 0 || conn->id.from >= t->core->rank) {
    return gy_fail(GYRE_ERR_PROTO, "rank %d has no business dialling rank %d", conn->id.from,
                   t->core->rank);
  }
  struct tcp_link *l = find_link(t, conn->id.from, conn->id.lane);
  for (struct early *e = t->early; e; e = e->next) {
    if (e->conn.id.from != conn->id.from || e->conn.id.lane != conn->id.lane) continue;
    return gy_fail(GYRE_ERR_PROTO, "rank %d has connected lane %u already", conn->id.from,
                   conn->id.lane);
  }
  if (l && l->fd >= 0) {
    return gy_fail(GYRE_ERR_PROTO, "rank %d has connected lane %u already", conn->id.from,
                   conn->id.lane);
  }
  if (l) return link_up(l, conn);
  struct early *e = malloc(sizeof *e);
  if (!e) return gy_fail(GYRE_ERR_NOMEM, "out of memory for the link to rank %d", conn->id.from);
  e->conn = *conn;
  e->next = t->early;
  t->early = e;
  return GYRE_OK;
}

/* ---------------------------------------------------------------------------- open and close --- */

static int tcp_reach(const struct gy_comm_core *core, int peer, char *why, size_t capacity) {
  const struct gy_member *m = &core->roster->member[peer];
  if (!m->n_address) {
    gy_format(why, capacity, "rank %d told no address", peer);
    return 0;
  }
  char text[GY_ADDRESS_TEXT];
  gy_format(why, capacity, "rank %d listens on %s", peer, gy_address_text(&m->address[0], text));
  return 10;
}

static gyre_status tcp_open(struct gy_comm_core *core, struct gy_tl **out) {
  gyre_status st = GYRE_ERR_NOMEM;
  struct tcp *t = calloc(1, sizeof *t);
  if (!t) goto no_memory;
  t->core = core;
  t->staging = aligned_alloc(4096, STAGING_BYTES + 4096);
  if (!t->staging) goto free_transport;
  memset(t->staging, 0, STAGING_BYTES + 4096); /* touched now, not in the first operation */
  st = gy_net_expect(core->net, GY_CONN_DATA, core->roster->epoch, core->rank, &core->secret,
                     accepted, t, &t->expect);
  if (st) goto free_staging;
  *out = (struct gy_tl *)t;
  return GYRE_OK;

free_staging:
  free(t->staging);
  free(t);
  return st;
free_transport:
  free(t);
no_memory:
  return gy_fail(GYRE_ERR_NOMEM, "out of memory for the TCP transport");
}

static void tcp_close(struct gy_tl *tl) {
  struct tcp *t = (struct tcp *)tl;
  gy_net_unexpect(t->expect);
  while (t->early) {
    struct early *next = t->early->next;
    close(t->early->conn.fd);
    free(t->early);
    t->early = next;
  }
  free(t->staging);
  free(t);
}

static gyre_status dial(struct tcp_link *l) {
  const struct gy_comm_core *core = l->tcp->core;
  const struct gy_member *m = &core->roster->member[l->base.peer];
  struct gy_address candidate[GY_ADDRESS_MAX];
  size_t n = gy_address_order(core->settings, m->address, m->n_address,
                              same_host(l->tcp, l->base.peer), candidate);
  struct gy_dial_target target = {.candidate = candidate, .n_candidate = n};
  struct gy_identity id = {
      .kind = GY_CONN_DATA, .lane = l->base.lane, .from = core->rank, .to = l->base.peer};
  memcpy(id.key, core->roster->epoch, sizeof id.key);
  if (!n) {
    return gy_fail(GYRE_ERR_SYS,
                   "rank %d on %s told no address that can be reached from another host",
                   l->base.peer, m->host_name);
  }
  return gy_dial_start(core->net, &target, &id, &core->secret,
                       (uint32_t)core->settings->connect_timeout_ms, dialled, l, &l->dial);
}

/* Uses the connection that came early, if it did. */
static gyre_status adopt(struct tcp_link *l) {
  for (struct early **p = &l->tcp->early; *p; p = &(*p)->next) {
    struct early *e = *p;
    if (e->conn.id.from != l->base.peer || e->conn.id.lane != l->base.lane) continue;
    gyre_status st = link_up(l, &e->conn);
    if (st) return st;
    *p = e->next;
    free(e);
    break;
  }
  return GYRE_OK;
}

static gyre_status tcp_link_open(struct gy_tl *tl, int peer, uint16_t lane, void *owner,
                                 struct gy_link **out) {
  struct tcp *t = (struct tcp *)tl;
  uint32_t window = t->core->roster->agreed.window;
  gyre_status st;
  struct tcp_link *l = calloc(1, sizeof *l + window * sizeof *l->tx_header);
  if (!l) return gy_fail(GYRE_ERR_NOMEM, "out of memory for the link to rank %d", peer);
  l->base = (struct gy_link){.tl = tl, .peer = peer, .lane = lane, .owner = owner};
  l->tcp = t;
  l->fd = -1;
  l->window = window;
  l->head = t->core->roster->agreed.checksum ? GY_FRAME_SUMMED : GY_FRAME_BYTES;
  l->tx_header = (uint8_t(*)[GY_FRAME_MAX_OFFSET + 1])(l + 1);
  l->rx.tail = &l->rx.head;
  l->tx.tail = &l->tx.head;
  st = t->core->rank < peer ? dial(l) : adopt(l);
  if (st) {
    free(l);
    return st;
  }
  l->next = t->links;
  t->links = l;
  *out = &l->base;
  return GYRE_OK;
}

static void tcp_link_close(struct gy_link *base, bool graceful) {
  struct tcp_link *l = (struct tcp_link *)base;
  struct tcp *t = l->tcp;
  for (struct tcp_link **p = &t->links; *p; p = &(*p)->next) {
    if (*p != l) continue;
    *p = l->next;
    break;
  }
  if (l->dial) gy_dial_cancel(l->dial);
  unwatch(l);
  if (l->fd >= 0 && graceful && !l->down) {
    gy_net_linger(t->core->net, l->fd, NULL, 0, (uint32_t)t->core->settings->linger_ms);
  } else if (l->fd >= 0) {
    close(l->fd);
  }
  free(l);
}

/* -------------------------------------------------------------------------------------- data --- */

static void append(struct xfer_queue *q, struct gy_xfer *x) {
  x->next = NULL;
  *q->tail = x;
  q->tail = &x->next;
}

static void tcp_post_send(struct gy_link *base, struct gy_xfer *x) {
  struct tcp_link *l = (struct tcp_link *)base;
  bool first = !l->tx_next;
  append(&l->tx, x);
  gy_tcp_prepare(l, x);
  if (first) l->tx_next = x;
  else if (!l->held) return;
  l->held = x->more;
  if (!l->held && l->fd >= 0 && !l->down && !l->tx_errno && !l->sent) gy_tcp_send(l);
}

static void tcp_post_recv(struct gy_link *base, struct gy_xfer *x) {
  append(&((struct tcp_link *)base)->rx, x);
}

static unsigned tcp_poll(struct gy_tl *tl, bool spin) {
  unsigned moved = 0;
  for (struct tcp_link *l = ((struct tcp *)tl)->links; l; l = l->next) {
    if (l->tx.head != l->tx_next) moved += gy_tcp_report_sent(l);
    if (l->fd < 0 || l->down) continue;
    l->sent = false;
    if (l->rx.head && (spin || l->readable)) moved += gy_tcp_receive(l);
    if (l->tx_next && !l->down && !l->tx_errno && (spin || l->writable)) moved += gy_tcp_send(l);
    if (l->tx.head != l->tx_next) moved += gy_tcp_report_sent(l);
  }
  return moved;
}

static bool tcp_arm(struct gy_tl *tl) {
  bool quiet = true;
  for (struct tcp_link *l = ((struct tcp *)tl)->links; l; l = l->next) {
    if (l->tx.head != l->tx_next) quiet = false;
    if (l->down) continue;
    if (!l->rx.head && l->readable && l->fd >= 0) gy_tcp_look(l);
    watch(l);
    if ((l->rx.head && l->readable) || (l->tx_next && l->writable && l->fd >= 0)) quiet = false;
  }
  return quiet;
}

static size_t tcp_describe(const struct gy_link *base, char *out, size_t capacity) {
  const struct tcp_link *l = (const struct tcp_link *)base;
  char here[GY_ADDRESS_TEXT], there[GY_ADDRESS_TEXT];
  if (l->fd < 0)
    return gy_format(out, capacity, "tcp, not connected%s",
                     l->dial ? ", dialling" : ", waiting for its dial");
  return gy_format(out, capacity, "tcp %s -> %s%s, %llu bytes in, %llu out",
                   gy_address_text(&l->local, here), gy_address_text(&l->peer, there),
                   l->down ? ", broken" : "", (unsigned long long)base->bytes_in,
                   (unsigned long long)base->bytes_out);
}

/* A peer that does not read lets its window close. It is then asked in growing intervals, so that
 * the age of its last answer says nothing. */
static uint32_t tcp_silence(const struct gy_link *base, bool *awaited) {
  const struct tcp_link *l = (const struct tcp_link *)base;
  struct tcp_info info = {0};
  socklen_t size = sizeof info;
  *awaited = false;
  if (l->fd < 0 || l->down || getsockopt(l->fd, IPPROTO_TCP, TCP_INFO, &info, &size))
    return UINT32_MAX;
  int queued = 0;
  bool window_closed = !info.tcpi_unacked && !ioctl(l->fd, SIOCOUTQ, &queued) && queued > 0;
  if (window_closed) return UINT32_MAX;
  *awaited = info.tcpi_unacked > 0;
  return info.tcpi_last_ack_recv < info.tcpi_last_data_recv ? info.tcpi_last_ack_recv
                                                            : info.tcpi_last_data_recv;
}

const struct gy_tl_ops gy_tcp_ops = {
    .name = "tcp",
    .abi = GY_TL_ABI,
    .caps = GY_CAP_HOST_MEM | GY_CAP_RECV_REDUCE,
    .reach = tcp_reach,
    .open = tcp_open,
    .link_open = tcp_link_open,
    .link_close = tcp_link_close,
    .close = tcp_close,
    .post_send = tcp_post_send,
    .post_recv = tcp_post_recv,
    .poll = tcp_poll,
    .arm = tcp_arm,
    .describe = tcp_describe,
    .silence = tcp_silence,
};
