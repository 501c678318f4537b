/* hosts.c - see hosts.h. */
#include "hosts.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#ifndef TCP_RTO_MAX_MS /* Linux 6.15 */
#define TCP_RTO_MAX_MS 44
#endif

/* By sh; 0 if all of it succeeded. */
static int sh(const char *script) {
  char command[4096];
  snprintf(command, sizeof command, "set -e; exec 2>/dev/null; %s", script);
  return system(command);
}

const char *hosts_open(void) {
  if (geteuid() != 0) return "network namespaces need root";
  if (sh("for tool in ip nft nsenter; do command -v $tool; done >/dev/null") != 0)
    return "there is no ip, nft or nsenter (Debian: iproute2, nftables, util-linux)";
  if (unshare(CLONE_NEWNET)) return "cannot make a network namespace";
  if (sh("ip link add switch type bridge forward_delay 0; ip link set switch up; ip link set lo "
         "up"))
    return "cannot make a bridge";
  return NULL;
}

const char *hosts_missing(void) {
  static char why[128];
  int up[2];
  pid_t pid;
  if (pipe(up)) return "no pipe";
  fflush(NULL);
  if ((pid = fork()) == 0) {
    const char *text = hosts_open();
    if (text && write(up[1], text, strlen(text)) < 0) _exit(1);
    _exit(0);
  }
  close(up[1]);
  ssize_t n = read(up[0], why, sizeof why - 1);
  close(up[0]);
  waitpid(pid, NULL, 0);
  return n > 0 ? why : NULL;
}

bool hosts_retry_soon(void) {
  int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), ms = 1000;
  bool can = fd >= 0 && !setsockopt(fd, IPPROTO_TCP, TCP_RTO_MAX_MS, &ms, sizeof ms);
  if (fd >= 0) close(fd);
  return can;
}

bool hosts_enter(int rank) {
  char name[16];
  int n = snprintf(name, sizeof name, "host%d", rank);
  return !unshare(CLONE_NEWNET | CLONE_NEWUTS) && !sethostname(name, (size_t)n);
}

bool hosts_connect(const struct world *w) {
  char script[3500] = "";
  size_t n = 0;
  for (int r = 0; r < w->nranks; r++) {
    int pid = (int)w->rank[r].pid;
    n += (size_t)snprintf(script + n, sizeof script - n,
                          "ip link add cable%d type veth peer name eth0 netns %d;"
                          "ip link set cable%d master switch; ip link set cable%d up;"
                          "nsenter -t %d -n sh -ec 'ip link set lo up;"
                          "ip address add 10.99.0.%d/24 dev eth0; ip link set eth0 up';",
                          r, pid, r, r, pid, r + 1);
  }
  return sh(script) == 0;
}

void hosts_cut(int rank) {
  char script[64];
  snprintf(script, sizeof script, "ip link set cable%d nomaster", rank);
  if (sh(script)) fail_msg("cannot cut the cable of rank %d", rank);
}

void hosts_mend(int rank) {
  char script[64];
  snprintf(script, sizeof script, "ip link set cable%d master switch", rank);
  if (sh(script)) fail_msg("cannot mend the cable of rank %d", rank);
}

bool hosts_part(const struct world *w, int a, int b) {
  char script[512];
  int from[2] = {a, b};
  for (int i = 0; i < 2; i++) {
    snprintf(script, sizeof script,
             "nsenter -t %d -n nft 'add table ip cut; add chain ip cut in { type filter hook input "
             "priority 0; }; add rule ip cut in ip saddr 10.99.0.%d drop'",
             (int)w->rank[from[i]].pid, from[1 - i] + 1);
    if (sh(script)) return false;
  }
  return true;
}
