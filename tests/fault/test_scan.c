/*
 * test_scan.c - a stranger knocks at every listening port of a running job: with noise, with half a
 * greeting, with silence. The job takes no notice.
 */
#include "world.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define RANKS 4
#define SILENT 40 /* connections that stay open, to each port */

/* All-reduces until rank 0 has been told to stop, which it says in the sum. */
static int work(struct self *self) {
  static float in[16384], out[16384];
  self_create(self, NULL);
  gyre_status st = GYRE_OK;
  uint64_t n = 0;
  for (bool stop = false; !st && !stop; n++) {
    struct pollfd p = {self->hear_fd, POLLIN, 0};
    for (size_t i = 0; i < 16384; i++) in[i] = 1;
    in[0] = self->rank == 0 && poll(&p, 1, 0) == 1 ? 1 : 0;
    st = gyre_all_reduce(self->comm, in, out, 16384, GYRE_F32, GYRE_SUM);
    stop = out[0] > 0;
    if (!st && (out[1] < 3.5f || out[16383] > 4.5f)) st = GYRE_ERR_INTERNAL;
    if (n == 3) self_say(self, READY, st, 0);
  }
  self_say(self, RETURNED, st, n);
  return 0;
}

/* ------------------------------------------------------------------------- the ports of a process --- */

static bool owns(pid_t pid, unsigned long inode) {
  char path[64], wanted[64], link[64];
  bool found = false;
  snprintf(path, sizeof path, "/proc/%d/fd", (int)pid);
  snprintf(wanted, sizeof wanted, "socket:[%lu]", inode);
  DIR *dir = opendir(path);
  for (struct dirent *e; dir && !found && (e = readdir(dir));) {
    char name[PATH_MAX];
    snprintf(name, sizeof name, "%s/%s", path, e->d_name);
    ssize_t n = readlink(name, link, sizeof link - 1);
    if (n > 0) link[n] = 0;
    found = n > 0 && !strcmp(link, wanted);
  }
  if (dir) closedir(dir);
  return found;
}

/* Listening IPv4 ports on 127.0.0.1 of a process. */
static int ports_of(pid_t pid, uint16_t *port, int capacity) {
  char line[512];
  int n = 0;
  FILE *f = fopen("/proc/net/tcp", "r");
  while (f && n < capacity && fgets(line, sizeof line, f)) {
    unsigned address, number, state;
    unsigned long inode;
    if (sscanf(line, " %*d: %x:%x %*x:%*x %x %*x:%*x %*x:%*x %*x %*u %*d %lu", &address, &number,
               &state, &inode) != 4)
      continue;
    if (state == 0x0a && owns(pid, inode)) port[n++] = (uint16_t)number;
  }
  if (f) fclose(f);
  return n;
}

/* ------------------------------------------------------------------------------------ knocking --- */

static int knock(uint16_t port) {
  struct sockaddr_in at = {
      .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd >= 0 && connect(fd, (struct sockaddr *)&at, sizeof at) == 0) return fd;
  if (fd >= 0) close(fd);
  return -1;
}

static void say(int fd, const void *bytes, size_t n) {
  ssize_t sent = send(fd, bytes, n, MSG_NOSIGNAL | MSG_DONTWAIT);
  (void)sent; /* it may have been shown the door already */
}

static void slam(int fd) { /* a reset instead of an end */
  struct linger now = {1, 0};
  setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof now);
  close(fd);
}

static void annoy(uint16_t port, unsigned *seed) {
  uint8_t noise[4096], hello[80] = "GYRE\1\1\1\0\1\0";
  for (size_t i = 0; i < sizeof noise; i++) noise[i] = (uint8_t)rand_r(seed);
  for (size_t i = 16; i < sizeof hello; i++) hello[i] = (uint8_t)rand_r(seed);
  for (int i = 0; i < 60; i++) {
    int fd = knock(port);
    if (fd < 0) continue;
    switch (i % 5) {
      case 0: say(fd, noise, (size_t)rand_r(seed) % sizeof noise); break;
      case 1: say(fd, hello, (size_t)rand_r(seed) % sizeof hello); break; /* half a greeting */
      case 2: say(fd, hello, sizeof hello); break; /* a whole one, from nobody */
      case 3: say(fd, hello, 8), say(fd, noise, sizeof noise); break;
      default: break;
    }
    if (i % 3) close(fd);
    else slam(fd);
  }
}

static void a_port_scan_does_not_disturb_a_job(void **state) {
  (void)state;
  struct world w;
  struct report ready[RANKS], end[RANKS];
  static int silent[RANKS * 8 * SILENT];
  int n_silent = 0, n_ports = 0;
  unsigned seed = (unsigned)now_ns();
  print_message("seed %u\n", seed);
  world_start(&w, RANKS, work, NULL);
  world_collect(&w, READY, -1, ready);
  for (int round = 0; round < rounds(2); round++) {
    for (int r = 0; r < RANKS; r++) {
      uint16_t port[8];
      int n = ports_of(w.rank[r].pid, port, 8);
      n_ports += n;
      for (int i = 0; i < n; i++) {
        annoy(port[i], &seed);
        for (int k = 0; k < SILENT && round == 0; k++) {
          int fd = knock(port[i]);
          if (fd >= 0) silent[n_silent++] = fd;
        }
      }
    }
  }
  assert_true(n_ports >= RANKS);
  assert_true(n_silent > 0);
  world_tell(&w, 0, 's');
  world_collect(&w, RETURNED, -1, end);
  for (int r = 0; r < RANKS; r++) {
    if (end[r].status) fail_msg("rank %d: %s: %s", r, gyre_status_name(end[r].status), end[r].text);
  }
  while (n_silent > 0) close(silent[--n_silent]);
  world_end(&w, -1);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_teardown(a_port_scan_does_not_disturb_a_job, world_teardown)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
