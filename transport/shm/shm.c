/*
 * shm.c - the transport between processes of one host: memory that both have, and a Unix socket.
 *
 * Role:   the lower rank dials the other's process by its local address (net.h), makes the segment and passes it over
 *         the socket. From then on data goes through the segment alone (io.c); the socket carries a byte when an end
 *         that sleeps is to be woken, and its end says that the peer is gone.
 * Thread: the driving thread. Owner: the engine opens and closes links; sockets that outlive them linger in the net.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "../../src/log.h"
#include "../../src/loop.h"
#include "link.h"

struct shm_early { /* a peer's connection that came before our end was opened */
  struct shm_early *next;
  struct gy_conn conn;
};

/* ---------------------------------------------------------------------------- link up, down --- */

void gy_shm_link_down(struct shm_link *l, gyre_status why, int sys_errno) {
  if (l->down) return;
  l->down = true;
  gy_on_link_down(&l->base, why, sys_errno);
}

static void free_watch(uv_handle_t *handle) { free(handle); }

static void unwatch(struct shm_link *l) {
  if (!l->watch) return;
  uv_close((uv_handle_t *)l->watch, free_watch); /* takes the descriptor out of the poll set at once */
  l->watch = NULL;
}

static void use(struct shm_link *l, struct shm_segment *s) {
  int own = l->shm->core->rank < l->base.peer ? 0 : 1;
  l->out = (struct shm_way){s->head[own], s->body[own], &s->taken[own].n, 0, SHM_CELLS};
  l->in = (struct shm_way){s->head[!own], s->body[!own], &s->taken[!own].n, 0, 0};
  l->asleep = &s->asleep[own].n;
  l->peer_asleep = &s->asleep[!own].n;
  l->segment = s;
}

static void end(struct shm_link *l, int sys_errno) {
  l->ended = true;
  l->ended_errno = sys_errno;
  uv_poll_stop(l->watch);
}

static void take_segment(struct shm_link *l) {
  struct shm_segment *s;
  gyre_status st = gy_shm_take(l->fd, &s);
  if (!st) {
    use(l, s);
  } else if (st == GYRE_ERR_PEER_LOST) {
    end(l, 0);
  } else if (st != GYRE_IN_PROGRESS) {
    uv_poll_stop(l->watch);
    gy_shm_link_down(l, st, 0);
  }
}

static void on_event(uv_poll_t *handle, int status, int events) {
  struct shm_link *l = handle->data;
  char bells[64];
  (void)status; /* the read says what is wrong */
  (void)events;
  if (!l->segment) take_segment(l);
  if (!l->segment || l->ended) return;
  ssize_t n;
  do {
    n = recv(l->fd, bells, sizeof bells, MSG_DONTWAIT);
  } while (n == (ssize_t)sizeof bells || (n < 0 && errno == EINTR));
  if (n == 0) end(l, 0);
  else if (n < 0 && errno != EAGAIN && errno != EWOULDBLOCK) end(l, errno);
}

static gyre_status watch(struct shm_link *l, int fd) {
  uv_poll_t *handle = malloc(sizeof *handle);
  if (!handle)
    return gy_fail(GYRE_ERR_NOMEM, "out of memory for the link to rank %d", l->base.peer);
  gyre_status st = gy_loop_watch(l->shm->core->uv, handle, fd);
  if (st) {
    free(handle);
    return gy_fail(st, "the link to rank %d: %s", l->base.peer, gyre_last_error());
  }
  handle->data = l;
  l->watch = handle;
  int rc = uv_poll_start(handle, UV_READABLE, on_event);
  if (!rc) return GYRE_OK;
  unwatch(l);
  return gy_fail_errno(GYRE_ERR_SYS, -rc, "cannot watch the link to rank %d", l->base.peer);
}

static gyre_status link_up(struct shm_link *l, const struct gy_conn *conn) {
  gyre_status st = watch(l, conn->fd);
  if (st) return st;
  l->fd = conn->fd;
  gy_log(GY_LOG_DEBUG, "rank %d lane %u to rank %d: shared memory, %zu bytes", l->shm->core->rank,
         l->base.lane, l->base.peer, sizeof(struct shm_segment));
  return GYRE_OK;
}

static void dialled(void *user, gyre_status status, const struct gy_conn *conn) {
  struct shm_link *l = user;
  struct shm_segment *s;
  l->dial = NULL;
  if (!status) {
    status = link_up(l, conn);
    if (status) close(conn->fd);
  }
  if (!status) {
    status = gy_shm_make(l->fd, &s);
    if (!status) use(l, s);
  }
  /* Whoever refuses like this has closed its transport: it leaves. */
  if (status == GYRE_ERR_ABORTED) status = GYRE_ERR_PEER_LOST;
  if (status) gy_shm_link_down(l, status, 0);
}

static struct shm_link *find_link(struct shm *t, int peer, uint16_t lane) {
  struct shm_link *l = t->links;
  while (l && (l->base.peer != peer || l->base.lane != lane)) l = l->next;
  return l;
}

static bool is_early(const struct shm *t, const struct gy_identity *id) {
  const struct shm_early *e = t->early;
  while (e && (e->conn.id.from != id->from || e->conn.id.lane != id->lane)) e = e->next;
  return e != NULL;
}

static gyre_status accepted(void *user, const struct gy_conn *conn) {
  struct shm *t = user;
  if (conn->id.from < 0 || conn->id.from >= t->core->rank)
    return gy_fail(GYRE_ERR_PROTO, "rank %d has no business dialling rank %d", conn->id.from,
                   t->core->rank);
  struct shm_link *l = find_link(t, conn->id.from, conn->id.lane);
  if (is_early(t, &conn->id) || (l && l->fd >= 0))
    return gy_fail(GYRE_ERR_PROTO, "rank %d has connected lane %u already", conn->id.from,
                   conn->id.lane);
  if (l) return link_up(l, conn);
  struct shm_early *e = malloc(sizeof *e);
  if (!e) return gy_fail(GYRE_ERR_NOMEM, "out of memory for the link to rank %d", conn->id.from);
  *e = (struct shm_early){t->early, *conn};
  t->early = e;
  return GYRE_OK;
}

/* ---------------------------------------------------------------------------- open and close --- */

static bool has_local(const struct gy_member *m) {
  static const uint8_t none[sizeof m->local];
  return memcmp(m->local, none, sizeof none) != 0;
}

static int shm_reach(const struct gy_comm_core *core, int peer, char *why, size_t capacity) {
  const struct gy_member *mine = &core->roster->member[core->rank],
                         *theirs = &core->roster->member[peer];
  if (memcmp(mine->host, theirs->host, sizeof mine->host)) {
    gy_format(why, capacity, "rank %d is on another host, %s", peer, theirs->host_name);
    return 0;
  }
  if (!has_local(mine) || !has_local(theirs)) {
    gy_format(why, capacity, "rank %d has no local address", has_local(mine) ? peer : core->rank);
    return 0;
  }
  gy_format(why, capacity, "rank %d is process %u of this host", peer, theirs->pid);
  return 5; /* below TCP: only where it is asked for */
}

static gyre_status shm_open_transport(struct gy_comm_core *core, struct gy_tl **out) {
  struct shm *t = calloc(1, sizeof *t);
  if (!t) return gy_fail(GYRE_ERR_NOMEM, "out of memory for the shared-memory transport");
  t->core = core;
  gyre_status st = gy_net_expect(core->net, GY_CONN_SHARED, core->roster->epoch, core->rank,
                                 &core->secret, accepted, t, &t->expect);
  if (st) {
    free(t);
    return st;
  }
  *out = (struct gy_tl *)t;
  return GYRE_OK;
}

static void shm_close(struct gy_tl *tl) {
  struct shm *t = (struct shm *)tl;
  gy_net_unexpect(t->expect);
  while (t->early) {
    struct shm_early *next = t->early->next;
    close(t->early->conn.fd);
    free(t->early);
    t->early = next;
  }
  free(t);
}

static gyre_status dial(struct shm_link *l) {
  const struct gy_comm_core *core = l->shm->core;
  struct gy_address there;
  gy_address_of_local(core->roster->member[l->base.peer].local, &there);
  struct gy_dial_target target = {.candidate = &there, .n_candidate = 1};
  struct gy_identity id = {
      .kind = GY_CONN_SHARED, .lane = l->base.lane, .from = core->rank, .to = l->base.peer};
  memcpy(id.key, core->roster->epoch, sizeof id.key);
  return gy_dial_start(core->net, &target, &id, &core->secret,
                       (uint32_t)core->settings->connect_timeout_ms, dialled, l, &l->dial);
}

/* Uses the connection that came early, if it did. */
static gyre_status adopt(struct shm_link *l) {
  for (struct shm_early **p = &l->shm->early; *p; p = &(*p)->next) {
    struct shm_early *e = *p;
    if (e->conn.id.from != l->base.peer || e->conn.id.lane != l->base.lane) continue;
    gyre_status st = link_up(l, &e->conn);
    if (st) return st;
    *p = e->next;
    free(e);
    break;
  }
  return GYRE_OK;
}

static gyre_status shm_link_open(struct gy_tl *tl, int peer, uint16_t lane, void *owner,
                                 struct gy_link **out) {
  struct shm *t = (struct shm *)tl;
  struct shm_link *l = calloc(1, sizeof *l);
  if (!l) return gy_fail(GYRE_ERR_NOMEM, "out of memory for the link to rank %d", peer);
  l->base = (struct gy_link){.tl = tl, .peer = peer, .lane = lane, .owner = owner};
  l->shm = t;
  l->fd = -1;
  l->checksum = t->core->roster->agreed.checksum;
  l->rx.tail = &l->rx.head;
  l->tx.tail = &l->tx.head;
  gyre_status st = t->core->rank < peer ? dial(l) : adopt(l);
  if (st) {
    free(l);
    return st;
  }
  l->next = t->links;
  t->links = l;
  *out = &l->base;
  return GYRE_OK;
}

static void shm_link_close(struct gy_link *base, bool graceful) {
  struct shm_link *l = (struct shm_link *)base;
  struct shm *t = l->shm;
  struct shm_link **p = &t->links;
  while (*p != l) p = &(*p)->next;
  *p = l->next;
  if (l->dial) gy_dial_cancel(l->dial);
  unwatch(l);
  if (l->segment)
    gy_shm_unmap(l->segment); /* the peer has its own mapping, with all that was sent */
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

static void shm_post_send(struct gy_link *base, struct gy_xfer *x) {
  struct shm_link *l = (struct shm_link *)base;
  append(&l->tx, x);
  if (l->tx_next) return;
  l->tx_next = x;
  if (!l->down) gy_shm_send(l);
}

static void shm_post_recv(struct gy_link *base, struct gy_xfer *x) {
  append(&((struct shm_link *)base)->rx, x);
}

static unsigned report_sent(struct shm_link *l) {
  unsigned n = 0;
  while (l->tx.head != l->tx_next) {
    struct gy_xfer *x = l->tx.head;
    l->tx.head = x->next;
    if (!l->tx.head) l->tx.tail = &l->tx.head;
    gy_on_xfer_done(&l->base, x);
    n++;
  }
  return n;
}

/* The peer has gone, and something is posted that it would have to take or give. A peer that is only done before this end
 * is no loss. */
static bool is_lost(const struct shm_link *l) {
  return l->ended && !l->down && (l->rx.head ? !gy_shm_has_come(l) : l->tx_next != NULL);
}

/* A pass that finds nothing may be the last before a sleep that has been armed for. */
static void stay_awake(struct shm_link *l) {
  if (atomic_load_explicit(l->asleep, memory_order_relaxed)) atomic_store(l->asleep, 0);
}

static unsigned poll_link(struct shm_link *l, bool spin) {
  unsigned moved = report_sent(l);
  if (l->down) return moved;
  if (l->segment) {
    moved += gy_shm_receive(l);
    if (l->tx_next && !l->down) moved += gy_shm_send(l);
    moved += report_sent(l);
    if (spin || moved) stay_awake(l);
  }
  if (is_lost(l)) {
    gy_shm_link_down(l, GYRE_ERR_PEER_LOST, l->ended_errno);
    moved++;
  }
  return moved;
}

static unsigned shm_poll(struct gy_tl *tl, bool spin) {
  unsigned moved = 0;
  for (struct shm_link *l = ((struct shm *)tl)->links; l; l = l->next) moved += poll_link(l, spin);
  return moved;
}

/* Whether a link may be slept on; the peer then knows what to wake this end for. */
static bool arm_link(struct shm_link *l) {
  if (l->tx.head != l->tx_next || is_lost(l)) return false;
  if (l->down || !l->segment) return true;
  atomic_store(l->asleep, SHM_WANTS_DATA | (l->tx_next ? SHM_WANTS_ROOM : 0));
  bool has_come = gy_shm_has_come(l);
  if (has_come && !l->rx.head) gy_shm_look(l);
  return !(has_come && l->rx.head) && !gy_shm_can_send(l);
}

static bool shm_arm(struct gy_tl *tl) {
  bool quiet = true;
  for (struct shm_link *l = ((struct shm *)tl)->links; l; l = l->next) quiet &= arm_link(l);
  return quiet;
}

static size_t shm_describe(const struct gy_link *base, char *out, size_t capacity) {
  const struct shm_link *l = (const struct shm_link *)base;
  if (!l->segment)
    return gy_format(out, capacity, "shm, not connected%s",
                     l->dial ? ", dialling" : ", waiting for its dial");
  return gy_format(out, capacity, "shm%s, %llu bytes in, %llu out", l->down ? ", broken" : "",
                   (unsigned long long)base->bytes_in, (unsigned long long)base->bytes_out);
}

const struct gy_tl_ops gy_shm_ops = {
    .name = "shm",
    .abi = GY_TL_ABI,
    .caps = GY_CAP_HOST_MEM | GY_CAP_RECV_REDUCE | GY_CAP_SAME_HOST,
    .reach = shm_reach,
    .open = shm_open_transport,
    .link_open = shm_link_open,
    .link_close = shm_link_close,
    .close = shm_close,
    .post_send = shm_post_send,
    .post_recv = shm_post_recv,
    .poll = shm_poll,
    .arm = shm_arm,
    .describe = shm_describe,
};
