/*
 * coll.c - the collectives: what each is called and what its buffers hold.
 *
 * Role:   see coll.h.
 * Thread: constant data, pure functions.
 */
#include "coll.h"

#include <stddef.h>
#include <string.h>

#define EVERYWHERE(share) \
  { (share), (share) }
#define ROOT_ONLY(share) \
  { GY_NOTHING, (share) }

static const struct gy_coll_traits traits[GY_COLL_COUNT] = {
    [GY_ALL_REDUCE] = {"all_reduce", GY_SPLIT, .reduces = true, .has_data = true,
                       .share = {EVERYWHERE(GY_ALL), EVERYWHERE(GY_ALL)}},
    [GY_REDUCE_SCATTER] = {"reduce_scatter", GY_BLOCK, .reduces = true, .has_data = true,
                           .share = {EVERYWHERE(GY_ALL), EVERYWHERE(GY_OWN_BLOCK)}},
    [GY_ALL_GATHER] = {"all_gather", GY_BLOCK, .has_data = true,
                       .share = {EVERYWHERE(GY_OWN_BLOCK), EVERYWHERE(GY_ALL)}},
    [GY_BROADCAST] = {"broadcast", GY_SPLIT, .rooted = true, .has_data = true,
                      .share = {ROOT_ONLY(GY_ALL), EVERYWHERE(GY_ALL)}},
    [GY_REDUCE] = {"reduce", GY_SPLIT, .reduces = true, .rooted = true, .has_data = true,
                   .share = {EVERYWHERE(GY_ALL), ROOT_ONLY(GY_ALL)}},
    [GY_BARRIER] = {"barrier", GY_SPLIT, .share = {EVERYWHERE(GY_ALL), EVERYWHERE(GY_ALL)}},
    [GY_GATHER] = {"gather", GY_BLOCK, .rooted = true, .has_data = true,
                   .share = {EVERYWHERE(GY_OWN_BLOCK), ROOT_ONLY(GY_ALL)}},
    [GY_SCATTER] = {"scatter", GY_BLOCK, .rooted = true, .has_data = true,
                    .share = {ROOT_ONLY(GY_ALL), EVERYWHERE(GY_OWN_BLOCK)}},
    [GY_ALL_TO_ALL] = {"all_to_all", GY_BLOCK, .has_data = true,
                       .share = {EVERYWHERE(GY_ALL), EVERYWHERE(GY_ALL)}},
    [GY_SCAN] = {"scan", GY_SPLIT, .reduces = true, .has_data = true,
                 .share = {EVERYWHERE(GY_ALL), EVERYWHERE(GY_ALL)}},
    [GY_EXCLUSIVE_SCAN] = {"exclusive_scan", GY_SPLIT, .reduces = true, .has_data = true,
                           .share = {EVERYWHERE(GY_ALL), EVERYWHERE(GY_ALL)}},
    [GY_ALL_GATHER_V] = {"all_gather_v", GY_VARY, .has_data = true,
                         .share = {EVERYWHERE(GY_OWN_BLOCK), EVERYWHERE(GY_ALL)}},
    [GY_REDUCE_SCATTER_V] = {"reduce_scatter_v", GY_VARY, .reduces = true, .has_data = true,
                             .share = {EVERYWHERE(GY_ALL), EVERYWHERE(GY_OWN_BLOCK)}},
    [GY_ALL_TO_ALL_V] = {"all_to_all_v", GY_VARY, .has_data = true,
                         .share = {EVERYWHERE(GY_ALL), EVERYWHERE(GY_ALL)}},
    [GY_GATHER_V] = {"gather_v", GY_VARY, .rooted = true, .has_data = true,
                     .share = {EVERYWHERE(GY_OWN_BLOCK), ROOT_ONLY(GY_ALL)}},
    [GY_SCATTER_V] = {"scatter_v", GY_VARY, .rooted = true, .has_data = true,
                      .share = {ROOT_ONLY(GY_ALL), EVERYWHERE(GY_OWN_BLOCK)}},
    [GY_ALL_REDUCE_WEIGHTED] = {"all_reduce_weighted", GY_SPLIT, .reduces = true, .weighted = true,
                                .has_data = true, .share = {EVERYWHERE(GY_ALL), EVERYWHERE(GY_ALL)}},
};

const struct gy_coll_traits *gy_coll_traits(unsigned coll) {
  return coll < GY_COLL_COUNT ? &traits[coll] : NULL;
}

const char *gy_coll_name(unsigned coll) { return coll < GY_COLL_COUNT ? traits[coll].name : NULL; }

int gy_coll_find(const char *name) {
  for (int coll = 0; coll < GY_COLL_COUNT; coll++)
    if (strcmp(traits[coll].name, name) == 0) return coll;
  return -1;
}

enum gy_share gy_coll_share(unsigned coll, unsigned buf, bool on_root) {
  return (enum gy_share)traits[coll].share[buf][on_root];
}

bool gy_coll_is_scan(unsigned coll) { return coll == GY_SCAN || coll == GY_EXCLUSIVE_SCAN; }

bool gy_coll_finishes(unsigned coll) { return traits[coll].reduces && !gy_coll_is_scan(coll); }

bool gy_coll_has_both(unsigned coll, bool on_root) {
  return gy_coll_share(coll, GY_IN, on_root) != GY_NOTHING &&
         gy_coll_share(coll, GY_OUT, on_root) != GY_NOTHING;
}
