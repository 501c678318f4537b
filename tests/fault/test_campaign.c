/*
 * test_campaign.c - the fault campaign: many faults of every kind, several at a time, each of them
 * in a process of its own with a deadline. Without arguments, the few that the quick suite affords;
 * by hand, tests/fault/campaign.
 */
#include <ctype.h>
#include <dirent.h>
#include <getopt.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "hosts.h"
#include "trial.h"

#define MAX_KINDS 64
#define MAX_JOBS 64
#define TRIAL_MS 120000 /* after which a trial hangs */

extern char **environ;

static struct {
  int count, jobs;
  unsigned seed;
  bool chosen[MAX_KINDS], verbose;
  const char *transport;
  FILE *json, *table;
} options = {.count = 60, .jobs = 8, .seed = 1};

struct tally { /* of a kind */
  int faults, right, late;
  double *multiple; /* of the bound, of those that ended with a verdict */
  int n_multiple;
};
static struct tally tally[MAX_KINDS];

struct job {
  pid_t pid; /* 0: free */
  int up_fd, said_fd;
  int kind;
  unsigned seed;
  int64_t began;
};
static struct job jobs[MAX_JOBS];

/* ------------------------------------------------------------------------------------ a trial --- */

static struct plan the_plan;
static struct outcome the_outcome;

static void the_trial(void **state) {
  (void)state;
  trial_run(&the_plan, &the_outcome);
}

static void forget_settings(void) {
  for (char **e = environ; *e;) {
    char name[64];
    size_t n = strcspn(*e, "=");
    if (strncmp(*e, "GYRE_", 5) != 0 || n >= sizeof name) {
      e++;
      continue;
    }
    memcpy(name, *e, n);
    name[n] = '\0';
    unsetenv(name);
    e = environ;
  }
}

/* In its own process: says what it has to say into a file in memory, and the outcome to the pipe. */
static void run_trial(int kind, unsigned seed, int up_fd, int said_fd) {
  const struct CMUnitTest tests[] = {cmocka_unit_test_teardown(the_trial, world_teardown)};
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  setpgid(0, 0);
  dup2(said_fd, STDOUT_FILENO);
  dup2(said_fd, STDERR_FILENO);
  forget_settings();
  if (options.transport) setenv("GYRE_TRANSPORTS", options.transport, 1);
  setenv("GYRE_LOG", options.verbose ? "info" : "off", 1);
  the_plan = plan_draw(&kinds[kind], seed);
  int failed = cmocka_run_group_tests(tests, NULL, NULL);
  fflush(NULL);
  if (write(up_fd, &the_outcome, sizeof the_outcome) != (ssize_t)sizeof the_outcome) failed = 1;
  _exit(failed ? 1 : 0);
}

static bool start(struct job *job, int kind, unsigned seed) {
  int up[2];
  *job = (struct job){.kind = kind, .seed = seed, .began = now_ns()};
  if (pipe(up)) return false;
  job->said_fd = memfd_create("said", 0);
  fflush(NULL);
  job->pid = job->said_fd < 0 ? -1 : fork();
  if (job->pid == 0) {
    close(up[0]);
    run_trial(kind, seed, up[1], job->said_fd);
  }
  close(up[1]);
  job->up_fd = up[0];
  return job->pid > 0;
}

static void copy(int from_fd) {
  char bytes[4096];
  ssize_t n;
  lseek(from_fd, 0, SEEK_SET);
  while ((n = read(from_fd, bytes, sizeof bytes)) > 0) fwrite(bytes, 1, (size_t)n, stdout);
}

static void write_json(const struct job *job, const char *text, bool right, const struct outcome *o) {
  if (!options.json) return;
  fprintf(options.json,
          "{\"kind\":\"%s\",\"seed\":%u,\"right\":%s,\"took_ms\":%lld,\"bound_ms\":%lld,"
          "\"plan\":\"%s\"}\n",
          kinds[job->kind].name, job->seed, right ? "true" : "false", (long long)o->took_ms,
          (long long)o->bound_ms, text);
}

/* The trial is over, or has to be. */
static void finish(struct job *job, bool in_time) {
  struct outcome o = {-1, -1};
  struct tally *t = &tally[job->kind];
  struct plan plan = plan_draw(&kinds[job->kind], job->seed);
  char text[600];
  int status = -1;
  bool told = in_time && read(job->up_fd, &o, sizeof o) == (ssize_t)sizeof o;
  if (!in_time) kill(-job->pid, SIGKILL); /* with all its ranks */
  waitpid(job->pid, &status, 0);
  kill(-job->pid, SIGKILL);
  bool right = told && WIFEXITED(status) && WEXITSTATUS(status) == 0;
  plan_text(&plan, text, sizeof text);
  t->faults++;
  t->right += right;
  if (right && o.took_ms >= 0) {
    t->multiple[t->n_multiple++] = (double)o.took_ms / (double)o.bound_ms;
    t->late += o.took_ms > o.bound_ms;
  }
  if (!right) {
    printf("FAILED: %s, seed %u: %s\n", kinds[job->kind].name, job->seed, text);
    printf("  %s; to repeat it alone: tests/fault/campaign --kind %s --seed %u --count 1\n",
           in_time ? "wrong" : "hung", kinds[job->kind].name, job->seed);
  }
  if (!right || options.verbose) copy(job->said_fd);
  write_json(job, text, right, &o);
  close(job->up_fd);
  close(job->said_fd);
  job->pid = 0;
}

/* --------------------------------------------------------------------------------- the campaign --- */

/* Waits a moment for trials that are over. */
static void reap(void) {
  struct pollfd p[MAX_JOBS];
  for (int i = 0; i < options.jobs; i++)
    p[i] = (struct pollfd){jobs[i].pid ? jobs[i].up_fd : -1, POLLIN, 0};
  poll(p, (nfds_t)options.jobs, 200);
  for (int i = 0; i < options.jobs; i++) {
    if (!jobs[i].pid) continue;
    if (p[i].revents) finish(&jobs[i], true);
    else if (now_ns() - jobs[i].began > (int64_t)patience(TRIAL_MS) * 1000000)
      finish(&jobs[i], false);
  }
}

static struct job *free_job(void) {
  for (;;) {
    for (int i = 0; i < options.jobs; i++)
      if (!jobs[i].pid) return &jobs[i];
    reap();
  }
}

/* Names in shared memory that look like this library's. */
static int shared_memory(void) {
  int n = 0;
  DIR *dir = opendir("/dev/shm");
  for (struct dirent *e; dir && (e = readdir(dir));) n += strstr(e->d_name, "gyre") != NULL;
  if (dir) closedir(dir);
  return n;
}

static int compare(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static void write_table(FILE *f) {
  int faults = 0, right = 0, late = 0;
  fprintf(f, "| Kind | What | Faults | Right | Wrong | Bound | Median | Greatest |\n"
             "|---|---|---|---|---|---|---|---|\n");
  for (int k = 0; k < n_kinds; k++) {
    struct tally *t = &tally[k];
    if (!t->faults) continue;
    fprintf(f, "| `%s` | %s | %d | %d | %d | ", kinds[k].name, kinds[k].what, t->faults, t->right,
            t->faults - t->right);
    qsort(t->multiple, (size_t)t->n_multiple, sizeof *t->multiple, compare);
    if (kinds[k].harmless) fprintf(f, "nothing fails | | |\n");
    else if (!t->n_multiple) fprintf(f, "%s | | |\n", kinds[k].bound);
    else
      fprintf(f, "%s | %.2f | %.2f |\n", kinds[k].bound, t->multiple[t->n_multiple / 2],
              t->multiple[t->n_multiple - 1]);
    faults += t->faults;
    right += t->right;
    late += t->late;
  }
  fprintf(f, "| all | | %d | %d | %d | %d over theirs | | |\n", faults, right, faults - right, late);
}

static const char help[] =
    "usage: campaign [--count N] [--seed S] [--kind K]... [--jobs J] [--json FILE] [--table FILE]\n"
    "                [--strict] [--verbose]\n\n"
    "Does harm to jobs of 2 to 6 ranks, N faults spread evenly over the kinds, and judges what "
    "each\n"
    "rank makes of it. What fault number i of a kind is follows from the seed S + i.\n\n"
    "  --kind K      only this kind (again for more)\n"
    "  --jobs J      so many at a time (8); most of them wait most of the time\n"
    "  --json FILE   a line for each fault\n"
    "  --table FILE  the summary that is printed, without the rest\n"
    "  --strict      a verdict later than its bound is wrong; without, one that takes ten times as "
    "long\n"
    "  --transport T as GYRE_TRANSPORTS; what needs hosts is left out\n"
    "  --verbose     what the ranks say, also where all is right\n\nKinds:\n";

static int usage(FILE *f, int status) {
  fputs(help, f);
  for (int k = 0; k < n_kinds; k++) fprintf(f, "  %-12s %s\n", kinds[k].name, kinds[k].what);
  return status;
}

static bool choose(const char *name) {
  for (int k = 0; k < n_kinds; k++) {
    if (strcmp(name, kinds[k].name) != 0) continue;
    options.chosen[k] = true;
    return true;
  }
  fprintf(stderr, "campaign: there is no kind \"%s\"; --help lists them\n", name);
  return false;
}

static bool number(const char *text, int least, int most, int *out) {
  char *end;
  long value = strtol(text, &end, 10);
  if (!isdigit((unsigned char)*text) || *end || value < least || value > most) {
    fprintf(stderr, "campaign: \"%s\" is not a whole number from %d to %d\n", text, least, most);
    return false;
  }
  *out = (int)value;
  return true;
}

static bool create(const char *path, FILE **out) {
  *out = fopen(path, "w");
  if (!*out) perror(path);
  return *out;
}

/* -1: go on; else the exit status. */
static int parse(int argc, char **argv) {
  static const struct option list[] = {
      {"count", 1, NULL, 'n'},  {"seed", 1, NULL, 's'},    {"kind", 1, NULL, 'k'},
      {"jobs", 1, NULL, 'j'},   {"json", 1, NULL, 'o'},    {"table", 1, NULL, 't'},
      {"strict", 0, NULL, 'x'}, {"verbose", 0, NULL, 'v'}, {"transport", 1, NULL, 'T'},
      {"help", 0, NULL, 'h'},   {NULL, 0, NULL, 0}};
  int value;
  for (int o; (o = getopt_long(argc, argv, "", list, NULL)) != -1;) {
    bool good = true;
    switch (o) {
      case 'n': good = number(optarg, 1, 1000000, &options.count); break;
      case 's':
        if ((good = number(optarg, 0, 1000000000, &value))) options.seed = (unsigned)value;
        break;
      case 'j': good = number(optarg, 1, MAX_JOBS, &options.jobs); break;
      case 'k': good = choose(optarg); break;
      case 'o': good = create(optarg, &options.json); break;
      case 't': good = create(optarg, &options.table); break;
      case 'x': setenv("BOUNDS", "strict", 1); break;
      case 'T': options.transport = optarg; break;
      case 'v': options.verbose = true; break;
      case 'h': return usage(stdout, 0);
      default: return usage(stderr, 2);
    }
    if (!good) return 2;
  }
  return optind < argc ? usage(stderr, 2) : -1;
}

/* The kinds of this run, as far as they are possible here. */
static int select_kinds(int *out) {
  bool all = true;
  const char *missing = NULL;
  int n = 0;
  for (int k = 0; k < n_kinds; k++) all = all && !options.chosen[k];
  for (int k = 0; k < n_kinds; k++) {
    if (all ? (sanitized() || options.transport) && kinds[k].needs_hosts : !options.chosen[k])
      continue; /* they wait longest */
    if (kinds[k].needs_hosts && !missing && (missing = hosts_missing()))
      printf("left out, what needs hosts: %s\n", missing);
    if (!kinds[k].needs_hosts || !missing) out[n++] = k;
  }
  return n;
}

int main(int argc, char **argv) {
  int selected[MAX_KINDS];
  if (sanitized()) {
    options.count = 23;
    options.jobs = 16;
  }
  int status = parse(argc, argv);
  if (status >= 0) return status;
  int n = select_kinds(selected), before = shared_memory(), wrong = 0;
  int64_t began = now_ns();
  for (int k = 0; k < n_kinds; k++)
    tally[k].multiple = calloc((size_t)options.count, sizeof(double));
  for (int i = 0; i < options.count && n > 0; i++) {
    if (!start(free_job(), selected[i % n], options.seed + (unsigned)(i / n))) {
      perror("campaign: cannot start a trial");
      return 2;
    }
  }
  for (int i = 0; i < options.jobs; i++)
    while (jobs[i].pid) reap();
  write_table(stdout);
  if (options.table) write_table(options.table);
  printf("%.0f s\n", (double)(now_ns() - began) / 1e9);
  if (shared_memory() > before) {
    printf("FAILED: something is left in /dev/shm\n");
    wrong = 1;
  }
  for (int k = 0; k < n_kinds; k++) wrong += tally[k].faults - tally[k].right;
  for (int k = 0; k < n_kinds; k++) free(tally[k].multiple);
  if (options.json) fclose(options.json);
  if (options.table) fclose(options.table);
  return n == 0 ? 77 : wrong > 0;
}
