/*
 * rendezvous.h - where rank 0 is: the unique id, tcp://host:port, file:///path, or the caller's
 * own store.
 *
 * Role:   reads and writes the place of rank 0 in each of these. tcp:// needs no writing: the
 *         place is the address itself.
 * Thread: parse, id and store functions: the driving thread. What may wait for a disk or a name
 *         server (gy_rendezvous_file_*, gy_rendezvous_resolve) runs on libuv's thread pool, except
 *         removal.
 * Owner:  the bootstrap.
 */
#ifndef GY_RENDEZVOUS_H
#define GY_RENDEZVOUS_H

#include "bootstrap.h"

enum gy_rendezvous_kind {
  GY_RENDEZVOUS_ID,
  GY_RENDEZVOUS_TCP,
  GY_RENDEZVOUS_FILE,
  GY_RENDEZVOUS_STORE,
  GY_RENDEZVOUS_MEETING
};

/* The line that a file or a store holds. */
#define GY_PLACE_TEXT (100 + GY_ADDRESS_MAX * GY_ADDRESS_TEXT)

struct gy_rendezvous {
  enum gy_rendezvous_kind kind;
  char text[512];        /* for messages: "tcp://10.0.0.1:7000", "the unique id" */
  char host[256];        /* TCP */
  uint16_t port;         /* TCP */
  char path[512];        /* FILE */
  uint64_t file[2];      /* FILE: device and inode of what this process wrote there; 0: nothing */
  gyre_oob oob;          /* STORE */
  struct gy_place place; /* ID, MEETING: whole; TCP: its key only */
};

/* From id, oob, meeting or settings->rendezvous, in this order. ARG with the rule otherwise. */
gyre_status gy_rendezvous_parse(const struct gy_bootstrap_config *config, struct gy_rendezvous *out);
bool gy_place_equal(const struct gy_place *a, const struct gy_place *b);
/* "gyre 1 KEY HOST ADDRESS...\n"; reading answers false for anything else. */
size_t gy_place_print(const struct gy_place *place, char out[GY_PLACE_TEXT]);
bool gy_place_scan(const char *text, struct gy_place *out);

#define GY_ID_SECRET 32
gyre_status gy_id_write(const struct gy_place *place, const uint8_t secret[GY_ID_SECRET],
                        gyre_unique_id *out);
gyre_status gy_id_read(const gyre_unique_id *id, struct gy_place *place,
                       uint8_t secret[GY_ID_SECRET]);

/* TCP, rank 0: the addresses of this machine that the name means. Without `secure` only loopback
 * ones are allowed. */
gyre_status gy_rendezvous_resolve(const struct gy_rendezvous *rv, const struct gy_settings *settings,
                                  bool secure, struct gy_address out[GY_ADDRESS_MAX], size_t *n);
/* FILE and STORE. Reading gives GYRE_IN_PROGRESS, with the reason in gyre_last_error(), while there
 * is no place to read. */
gyre_status gy_rendezvous_file_write(struct gy_rendezvous *rv, const struct gy_place *place);
gyre_status gy_rendezvous_file_read(const struct gy_rendezvous *rv, struct gy_place *out);
/* Removes the file if it still holds this place. */
void gy_rendezvous_file_remove(const struct gy_rendezvous *rv, const struct gy_place *place);
gyre_status gy_rendezvous_store_put(const struct gy_rendezvous *rv, const struct gy_place *place);
gyre_status gy_rendezvous_store_get(const struct gy_rendezvous *rv, struct gy_place *out);

#endif
