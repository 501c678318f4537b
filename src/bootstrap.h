/*
 * bootstrap.h - how the ranks of a communicator meet.
 *
 * Role:   rank 0 (the root) collects a JOIN from every rank, checks them, draws the epoch, and
 *         sends the ROSTER: who is where, and the agreed settings. The connections stay: they are
 *         the control channels (a star).
 * Thread: the driving thread only; nothing blocks; `done` runs from the loop.
 * Owner:  the communicator; the roster and the channels become its own on success.
 *
 * Files: bootstrap.c (root and member), rendezvous.c (tcp://, file://, unique id, out-of-band:
 * where the root is), roster.c.
 */
#ifndef GY_BOOTSTRAP_H
#define GY_BOOTSTRAP_H

#include "channel.h"
#include "schedule.h"

struct gy_member {
  uint8_t host[16];              /* gy_host_id */
  uint8_t local[GY_LOCAL_BYTES]; /* gy_net_listen_local */
  char host_name[64];
  uint32_t pid;
  bool unattended; /* no progress thread: it may be silent for long, and beats for nobody */
  uint32_t n_address;
  struct gy_address address[GY_ADDRESS_MAX];
};

struct gy_agreed { /* rank 0's values; equal on every rank */
  char transports[64], algo[256];
  uint32_t slice_bytes, window;
  uint32_t op_timeout_ms, stall_ms, verdict_ms, heartbeat_ms, peer_timeout_ms;
  char tcp_congestion[16];
  bool checksum;
  struct gy_cost cost;
};

struct gy_roster {
  int nranks;
  uint8_t epoch[GY_KEY_BYTES]; /* random, fresh for each communicator */
  struct gy_agreed agreed;
  struct gy_member *member; /* nranks of them */
};

struct gy_place {            /* what a member must know to dial rank 0 */
  uint8_t key[GY_KEY_BYTES]; /* of the job: what rank 0 expects in a hello */
  uint8_t host[16];          /* gy_host_id of rank 0 */
  uint32_t n_address;
  struct gy_address address[GY_ADDRESS_MAX];
};

struct gy_meeting { /* where and by which secret ranks meet that know each other already */
  struct gy_place place;
  const struct gy_secret *secret;
  char what[128]; /* for messages: "rank 0 of the split (rank 2 of the old communicator)" */
};

struct gy_bootstrap_config {
  int rank, nranks;
  const struct gy_settings *settings; /* after the configuration struct has been applied; copied */
  struct gy_cost cost;                /* used if this is rank 0 */
  bool unattended;                    /* as in gy_member */
  const gyre_unique_id *id;           /* copied; or */
  const gyre_oob *oob;                /* copied; or */
  const struct gy_meeting *meeting;   /* copied; or settings->rendezvous */
};

struct gy_bootstrap;

/* On GYRE_OK: *roster (allocated) and channels[nranks] (allocated array; root: one for each other
 * rank; others: only [0]). The receiver rebinds (or closes) every channel before it returns, so
 * that no message is lost. Otherwise gyre_last_error() has the text. The bootstrap is freed when
 * this returns. */
typedef void (*gy_bootstrap_cb)(void *user, gyre_status status, struct gy_roster *roster,
                                struct gy_channel **channels);

gyre_status gy_bootstrap_start(uv_loop_t *loop, struct gy_net *net,
                               const struct gy_bootstrap_config *config, gy_bootstrap_cb done,
                               void *user, struct gy_bootstrap **out);
/* Gives up: peers are told `why` (an ABORTED text); `done` does not run. */
void gy_bootstrap_cancel(struct gy_bootstrap *b, const char *why);
void gy_roster_free(struct gy_roster *r);

/* The settings of a communicator as rank 0 states them, and a member's that takes them over as its
 * own, unasked: for communicators made from others. */
void gy_agreed_state(struct gy_agreed *a, const struct gy_settings *settings);
void gy_agreed_adopt(const struct gy_agreed *a, struct gy_settings *settings);

/* The secret of a communicator: the id's or the meeting's if there is one, otherwise the
 * settings'. */
void gy_bootstrap_secret(const struct gy_bootstrap_config *config, struct gy_secret *out);
/* Unique ids: made of the net's advertised addresses (as many as fit), a fresh secret and nonce. */
gyre_status gy_unique_id_make(struct gy_net *net, gyre_unique_id *out);

/* ---- message bodies (roster.c). Types below GY_MESSAGE_FIRST_FREE are the bootstrap's. ---- */

/* A member that gives up before it has read the ROSTER says FAIL to a root that has ended well
 * already: the root's communicator then gets GY_MESSAGE_FAIL on that channel, then its end. */
enum {
  GY_MESSAGE_JOIN = 1,
  GY_MESSAGE_ROSTER = 2,
  GY_MESSAGE_FAIL = 3,
  GY_MESSAGE_FIRST_FREE = 16
};

#define GY_BOOTSTRAP_FORMAT 1u /* of these bodies; a root and a member must have the same */
#define GY_FAIL_TEXT 1024
#define GY_DEMAND_MAX 32

struct gy_demand { /* an agreed setting that a rank was given explicitly */
  char name[32], value[256];
};

struct gy_join { /* what a rank says when it has reached the root */
  int32_t rank, nranks;
  uint32_t version;     /* gyre_version() */
  uint32_t patience_ms; /* until its own connect deadline */
  struct gy_member member;
  uint32_t n_demand;
  struct gy_demand demand[GY_DEMAND_MAX];
};

/* Writers fail only for memory (w->failed). Readers refuse short, long and impossible bodies: PROTO
 * with the reason, or VERSION for another format. */
void gy_join_write(struct gy_writer *w, const struct gy_join *join);
gyre_status gy_join_read(const void *body, size_t len, struct gy_join *out);
void gy_roster_write(struct gy_writer *w, const struct gy_roster *roster);
gyre_status gy_roster_read(const void *body, size_t len, struct gy_roster **out);
gyre_status gy_roster_create(int nranks, struct gy_roster **out); /* all zero but nranks */
void gy_fail_write(struct gy_writer *w, gyre_status status, const char *text);
gyre_status gy_fail_read(const void *body, size_t len, gyre_status *status, char text[GY_FAIL_TEXT]);

#endif
