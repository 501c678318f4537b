/* hosts.c - which ranks share a machine, and whether its memory suffices. See hosts.h. */
#include "hosts.h"

#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "size.h"

static uint64_t hash_text(const char *text) { /* FNV-1a */
  uint64_t h = UINT64_C(0xcbf29ce484222325);
  for (; *text != '\0'; text++) h = (h ^ (uint8_t)*text) * UINT64_C(0x100000001b3);
  return h;
}

/* The boot id is one per running kernel, also inside containers; the host name stands in for it. */
static uint64_t machine_id(void) {
  char text[256] = "";
  FILE *f = fopen("/proc/sys/kernel/random/boot_id", "re");
  if (f != NULL) {
    if (fgets(text, sizeof(text), f) == NULL) text[0] = '\0';
    fclose(f);
  }
  if (text[0] == '\0' && gethostname(text, sizeof(text) - 1) != 0) return 0;
  return hash_text(text);
}

static uint64_t network_id(uint64_t machine) {
  struct stat st;
  if (stat("/proc/self/ns/net", &st) != 0) return machine;
  return machine ^ ((uint64_t)st.st_ino * UINT64_C(0x9e3779b97f4a7c15));
}

static uint64_t memory_available(void) {
  uint64_t kib = 0;
  char line[128];
  FILE *f = fopen("/proc/meminfo", "re");
  if (f == NULL) return 0;
  while (kib == 0 && fgets(line, sizeof(line), f) != NULL)
    if (sscanf(line, "MemAvailable: %" SCNu64 " kB", &kib) != 1) kib = 0;
  fclose(f);
  return kib * 1024;
}

static int usable_cores(void) {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof(set), &set) == 0) return CPU_COUNT(&set);
  long n = sysconf(_SC_NPROCESSORS_ONLN);
  return n > 0 ? (int)n : 1;
}

static int ranks_on(const struct perf_hosts *hosts, uint64_t machine) {
  int n = 0;
  for (int r = 0; r < hosts->nranks; r++) n += hosts->place[r].machine == machine;
  return n;
}

static bool first_on_machine(const struct perf_hosts *hosts, int rank) {
  for (int r = 0; r < rank; r++)
    if (hosts->place[r].machine == hosts->place[rank].machine) return false;
  return true;
}

gyre_status perf_hosts_learn(struct perf_hosts *hosts, gyre_comm *comm) {
  memset(hosts, 0, sizeof(*hosts));
  hosts->rank = gyre_comm_rank(comm);
  hosts->nranks = gyre_comm_size(comm);
  hosts->cores = usable_cores();
  hosts->place = calloc((size_t)hosts->nranks, sizeof(*hosts->place));
  if (hosts->place == NULL) return GYRE_ERR_NOMEM;
  struct perf_place mine = {.machine = machine_id(), .available = memory_available()};
  mine.network = network_id(mine.machine);
  gyre_status st = gyre_all_gather(comm, &mine, hosts->place, sizeof(mine), GYRE_U8);
  if (st != GYRE_OK) return st;
  hosts->ranks_here = ranks_on(hosts, mine.machine);
  for (int r = 0; r < hosts->nranks; r++) hosts->count += first_on_machine(hosts, r);
  return GYRE_OK;
}

void perf_hosts_free(struct perf_hosts *hosts) {
  free(hosts->place);
  hosts->place = NULL;
}

bool perf_hosts_fits(const struct perf_hosts *hosts, uint64_t bytes_per_rank, char *why,
                     size_t capacity) {
  for (int r = 0; r < hosts->nranks; r++) {
    const struct perf_place *p = &hosts->place[r];
    uint64_t ranks = (uint64_t)ranks_on(hosts, p->machine);
    uint64_t limit = p->available - p->available / 10;
    if (p->available == 0 || bytes_per_rank <= limit / ranks) continue;
    char each[32], all[32], have[32], needs[160];
    bool fits = bytes_per_rank <= UINT64_MAX / ranks;
    perf_format_size(bytes_per_rank, each, sizeof(each));
    perf_format_size(fits ? bytes_per_rank * ranks : UINT64_MAX, all, sizeof(all));
    if (ranks == 1) snprintf(needs, sizeof(needs), "%s", each);
    else
      snprintf(needs, sizeof(needs), "%s on each of %" PRIu64 " ranks, %s in all,", each, ranks, all);
    perf_format_size(p->available, have, sizeof(have));
    snprintf(why, capacity,
             "the largest size needs %s on the machine of rank %d, but %s are available there (a "
             "tenth is left alone): lower -e",
             needs, r, have);
    return false;
  }
  return true;
}
