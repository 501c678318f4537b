/*
 * heartbeat.c - see heartbeat.h.
 *
 * One timer for each communicator, and no work between its calls: that a peer was heard is the time
 * of the last byte on its channel, whatever the byte was.
 */
#include "heartbeat.h"

#include <stdlib.h>
#include "status.h"

#define RECHECK_MS \
  10 /* after a silence has lasted too long, for the sockets to be read once more */

struct gy_heartbeat {
  uv_timer_t timer;
  struct gy_heartbeat_config cfg;
  uint32_t interval, timeout;
  uint64_t last; /* when the timer last ran */
  uint64_t woke; /* silence counts from here: the start, or when this process had slept */
  bool overdue;  /* somebody was silent for too long at the last look */
  bool ended;
};

uint32_t gy_heartbeat_interval(const struct gy_agreed *a) {
  uint32_t quarter = a->peer_timeout_ms / 4;
  return a->heartbeat_ms < quarter ? a->heartbeat_ms : quarter;
}

static bool is_watched(const struct gy_heartbeat *h, int peer) {
  return h->cfg.channels[peer] && !h->cfg.roster->member[peer].unattended;
}

uint64_t gy_heartbeat_silence(const struct gy_heartbeat *h, int peer) {
  if (!is_watched(h, peer)) return UINT64_MAX;
  uint64_t since = gy_channel_last_heard(h->cfg.channels[peer]), now = uv_now(h->cfg.uv);
  if (since < h->woke) since = h->woke;
  return now > since ? now - since : 0;
}

static bool is_silent(const struct gy_heartbeat *h, int peer) {
  return is_watched(h, peer) && gy_heartbeat_silence(h, peer) >= h->timeout;
}

static bool any_silent(const struct gy_heartbeat *h) {
  for (int r = 0; r < h->cfg.roster->nranks; r++) {
    if (is_silent(h, r)) return true;
  }
  return false;
}

static void tell_silent(struct gy_heartbeat *h) {
  for (int r = 0; r < h->cfg.roster->nranks && !h->ended; r++) {
    if (is_silent(h, r)) h->cfg.silent(h->cfg.user, r, gy_heartbeat_silence(h, r));
  }
}

static void send_beats(struct gy_heartbeat *h) {
  for (int r = 0; r < h->cfg.roster->nranks; r++) {
    if (is_watched(h, r)) (void)gy_channel_send(h->cfg.channels[r], GY_MESSAGE_BEAT, NULL, 0);
  }
}

static void on_timer(uv_timer_t *timer) {
  struct gy_heartbeat *h = timer->data;
  uint64_t now = uv_now(h->cfg.uv), gap = now - h->last;
  bool slept = gap > h->interval + h->timeout / 2;
  h->last = now;
  if (slept)
    h->woke = now; /* it was this process that was silent; what came meanwhile is read first */
  if (!slept && !h->overdue && any_silent(h)) {
    h->overdue = true;
    uv_timer_start(timer, on_timer, h->interval < RECHECK_MS ? h->interval : RECHECK_MS, 0);
    return;
  }
  h->overdue = false;
  tell_silent(h);
  if (!h->ended) h->cfg.beat(h->cfg.user);
  if (h->ended) return;
  if (!slept) send_beats(h);
  uv_timer_start(timer, on_timer, h->interval, 0);
}

gyre_status gy_heartbeat_create(const struct gy_heartbeat_config *config, struct gy_heartbeat **out) {
  struct gy_heartbeat *h = calloc(1, sizeof *h);
  if (!h) return gy_fail(GYRE_ERR_NOMEM, "out of memory for heartbeats");
  h->cfg = *config;
  h->interval = gy_heartbeat_interval(&config->roster->agreed);
  h->timeout = config->roster->agreed.peer_timeout_ms;
  uv_timer_init(config->uv, &h->timer);
  h->timer.data = h;
  uv_update_time(config->uv); /* the loop may have slept outside uv_run: its clock is then old */
  h->last = h->woke = uv_now(config->uv);
  if (h->interval && !config->roster->member[config->rank].unattended)
    uv_timer_start(&h->timer, on_timer, h->interval, 0);
  *out = h;
  return GYRE_OK;
}

static void free_heartbeat(uv_handle_t *handle) { free(handle->data); }

void gy_heartbeat_end(struct gy_heartbeat *h) {
  h->ended = true;
  uv_timer_stop(&h->timer);
  uv_close((uv_handle_t *)&h->timer, free_heartbeat);
}
