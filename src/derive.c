/*
 * derive.c - communicators made from others: split, duplicate and shrink.
 *
 * Role:   the public functions. A new communicator is first a call in its parent's groups (group.h),
 *         and as soon as it knows its ranks a creation like any other, with the parent's secret,
 *         flags and settings. One that is made from what is left of a failed one is agreed on
 *         otherwise (shrink.h).
 * Thread: posted from any thread; the rest on the driving thread, locked.
 * Owner:  as with gyre_comm_create; until the request completes it is in its parent's list of
 *         children, which fail with the parent.
 */
#include <stddef.h>
#include <string.h>

#include "comm.h"

#define OF(command, member) ((gyre_comm *)(void *)((char *)(command)-offsetof(gyre_comm, member)))

/* (locked) The group is known: its ranks meet at its first one's port, where the parent's roster
 * has it. */
static void on_group(struct gy_group_call *call, const struct gy_group *group) {
  gyre_comm *c = OF(call, call), *parent = c->parent;
  c->entered = false;
  if (group->rank < 0) {
    gy_comm_none(c);
    return;
  }
  const struct gy_member *m = &parent->roster->member[group->root];
  struct gy_meeting meeting = {.secret = &parent->core.secret};
  memcpy(meeting.place.key, group->key, sizeof group->key);
  memcpy(meeting.place.host, m->host, sizeof m->host);
  memcpy(meeting.place.address, m->address, sizeof m->address);
  meeting.place.n_address = m->n_address;
  gy_format(meeting.what, sizeof meeting.what,
            "rank 0 of the new communicator (rank %d of the one it is made from)", group->root);
  c->core.rank = group->rank;
  c->core.nranks = group->nranks;
  gy_comm_meet(c, &meeting);
}

/* (locked) From now on it is the parent's child. */
static void adopt(gyre_comm *c) {
  gyre_comm *parent = c->parent;
  gy_agreed_adopt(&parent->roster->agreed, &c->settings);
  c->sibling = parent->children;
  parent->children = c;
  gy_comm_list(c);
}

static void start_group(struct gy_command *command) {
  gyre_comm *c = OF(command, start);
  adopt(c);
  const gyre_error *v = gy_fault_verdict(c->parent->fault);
  if (v->status) {
    gy_comm_give_up(c, v->status, v->text);
    return;
  }
  c->entered = true;
  gy_groups_enter(c->parent->groups, &c->call);
}

/* ---------------------------------------------------------------------------------- shrink --- */

static void find_dead(void *user, bool *dead) {
  const gyre_comm *c = user;
  gy_fault_find_dead(c->parent->fault, dead);
}

static void on_shrunk(void *user, gyre_status status, int rank, struct gy_roster *roster,
                      struct gy_channel **channels) {
  gyre_comm *c = user;
  c->parent->shrunk = status == GYRE_OK;
  if (status) {
    gy_comm_creation_failed(c, status);
    return;
  }
  c->core.rank = rank;
  c->core.nranks = roster->nranks;
  gy_comm_met(c, GYRE_OK, roster, channels);
}

static void start_shrink(struct gy_command *command) {
  gyre_comm *c = OF(command, start), *parent = c->parent;
  struct gy_shrink_config config = {.uv = c->core.uv,
                                    .net = c->core.net,
                                    .settings = &c->settings,
                                    .secret = &parent->core.secret,
                                    .roster = parent->roster,
                                    .rank = parent->core.rank,
                                    .find_dead = find_dead,
                                    .done = on_shrunk,
                                    .user = c};
  gy_comm_apply_verdict(parent); /* before this is its child, which would end with it */
  adopt(c);
  gyre_status st = GYRE_OK;
  if (!gy_fault_verdict(parent->fault)->status)
    st = gy_fail(GYRE_ERR_STATE,
                 "gyre_comm_shrink: the communicator has not failed; abort it first");
  else if (parent->shrunk)
    st =
        gy_fail(GYRE_ERR_STATE, "gyre_comm_shrink: this communicator has been shrunk already; what "
                                "was made of it may be");
  else st = gy_shrink_start(&config, &c->shrink);
  if (st) {
    gy_comm_creation_failed(c, st);
    return;
  }
  parent->shrunk = true;
  c->core.secret = parent->core.secret;
}

/* ------------------------------------------------------------------------ public functions --- */

static gyre_status derive(gyre_comm *parent, const struct gy_group_call *call, const char *name,
                          gyre_comm **out, gyre_request **req) {
  if (gy_operator_guard()) return GYRE_ERR_STATE;
  if (!parent || !out || !req)
    return gy_fail(GYRE_ERR_ARG, "%s: the communicator, out or the request is NULL", name);
  if (gy_birth_check(&parent->ctx->birth, name)) return GYRE_ERR_STATE;
  gyre_comm *c = gy_comm_alloc(parent->ctx, &parent->settings, out);
  if (!c) return GYRE_ERR_NOMEM;
  c->parent = parent;
  c->flags = parent->flags;
  if (call) c->call = *call;
  c->call.done = on_group;
  gyre_status st = gy_comm_begin(c, call ? start_group : start_shrink, req);
  if (st) gy_comm_free(c);
  return st;
}

static gyre_status no_callback(const char *name) {
  if (!gy_loop_in_callback()) return GYRE_OK;
  return gy_fail(GYRE_ERR_STATE, "%s: not from a callback; use %s_async there", name, name);
}

gyre_status gyre_comm_split_async(gyre_comm *comm, int color, int key, gyre_comm **out,
                                  gyre_request **req) {
  struct gy_group_call call = {.kind = GY_GROUP_SPLIT, .color = color, .key = key};
  return derive(comm, &call, "gyre_comm_split", out, req);
}

gyre_status gyre_comm_split(gyre_comm *comm, int color, int key, gyre_comm **out) {
  gyre_request *req = NULL;
  gyre_status st = no_callback("gyre_comm_split");
  if (!st) st = gyre_comm_split_async(comm, color, key, out, &req);
  return st ? st : gyre_wait(req, -1);
}

gyre_status gyre_comm_dup_async(gyre_comm *comm, gyre_comm **out, gyre_request **req) {
  struct gy_group_call call = {.kind = GY_GROUP_DUP};
  return derive(comm, &call, "gyre_comm_dup", out, req);
}

gyre_status gyre_comm_dup(gyre_comm *comm, gyre_comm **out) {
  gyre_request *req = NULL;
  gyre_status st = no_callback("gyre_comm_dup");
  if (!st) st = gyre_comm_dup_async(comm, out, &req);
  return st ? st : gyre_wait(req, -1);
}

gyre_status gyre_comm_shrink_async(gyre_comm *comm, gyre_comm **out, gyre_request **req) {
  return derive(comm, NULL, "gyre_comm_shrink", out, req);
}

gyre_status gyre_comm_shrink(gyre_comm *comm, gyre_comm **out) {
  gyre_request *req = NULL;
  gyre_status st = no_callback("gyre_comm_shrink");
  if (!st) st = gyre_comm_shrink_async(comm, out, &req);
  return st ? st : gyre_wait(req, -1);
}
