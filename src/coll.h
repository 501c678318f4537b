/*
 * coll.h - the collectives: what each is called and what its buffers hold.
 *
 * Role:   one row for each; whatever differs between collectives and is neither an algorithm nor an
 *         oracle is asked here.
 * Thread: constant data, pure functions.
 */
#ifndef GY_COLL_H
#define GY_COLL_H

#include <stdbool.h>
#include <stdint.h>

/* The number travels on the wire: append only. */
enum gy_coll {
  GY_ALL_REDUCE,
  GY_REDUCE_SCATTER,
  GY_ALL_GATHER,
  GY_BROADCAST,
  GY_REDUCE,
  GY_BARRIER,
  GY_GATHER,
  GY_SCATTER,
  GY_ALL_TO_ALL,
  GY_SCAN,
  GY_EXCLUSIVE_SCAN,
  GY_ALL_GATHER_V,
  GY_REDUCE_SCATTER_V,
  GY_ALL_TO_ALL_V,
  GY_GATHER_V,
  GY_SCATTER_V,
  GY_ALL_REDUCE_WEIGHTED,
  GY_COLL_COUNT
};

enum gy_buf { GY_IN, GY_OUT, GY_TMP };

/* How a buffer of the call is cut into chunks. */
enum gy_layout {
  GY_SPLIT, /* `count` elements are cut into n_chunk chunks, nearly equal, borders on multiples of 64 bytes */
  GY_BLOCK, /* every chunk is `count` elements; chunk c of IN or OUT starts at c * count */
  GY_VARY   /* every chunk is where and as long as the call's arrays say */
};

/* What a rank has of a buffer. GY_OWN_BLOCK: chunk 0 is this rank's own block. In place, it lies in the
 * other buffer, which holds all, where this rank's block belongs. */
enum gy_share { GY_NOTHING, GY_OWN_BLOCK, GY_ALL };

struct gy_coll_traits {
  const char *name; /* "all_reduce" */
  uint8_t layout;   /* enum gy_layout */
  bool reduces;     /* takes an operator */
  bool weighted;    /* each rank gives a weight, see weights.h */
  bool rooted;
  bool has_data; /* false: a barrier, whose programs name buffers that nobody has */
  uint8_t share[2][2]; /* enum gy_share of [GY_IN or GY_OUT], [elsewhere, on the root]; without a root both are equal */
};

/* NULL if there is none of this number. */
const struct gy_coll_traits *gy_coll_traits(unsigned coll);
const char *gy_coll_name(unsigned coll); /* "all_reduce"; NULL if none */
int gy_coll_find(const char *name);      /* -1 if none */
/* What a rank has of GY_IN or GY_OUT. */
enum gy_share gy_coll_share(unsigned coll, unsigned buf, bool on_root);
/* A scan's result is that of some of the ranks only. */
bool gy_coll_is_scan(unsigned coll);
/* Whether its reduction ends with the contributions of all ranks, where an average divides. */
bool gy_coll_finishes(unsigned coll);
/* Ranks that have only one of the two buffers cannot be in place. */
bool gy_coll_has_both(unsigned coll, bool on_root);

#endif
