/*
 * gyre-run.c - starts N ranks of a program on this host and sees them to their end.
 *
 * Role:   environment and process group of each rank, its output, the way all end when one fails.
 *         The exit status is that of the first rank that failed.
 * Thread: one. It sleeps in poll() on the ranks' pipes and a signalfd; deadlines are milliseconds
 *         of CLOCK_MONOTONIC.
 *
 * What a rank started and left in its process group is killed when the rank has ended. Processes
 * that lose their parent become children of this one (PR_SET_CHILD_SUBREAPER), so that none is left
 * unreaped.
 */
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <getopt.h>
#include <limits.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "gyre/gyre.h"
#include "run/output.h"

#define RANKS_MAX 1024
#define GRACE_MS 5000 /* for the others to end by themselves */
#define TERM_MS 2000  /* from SIGTERM to SIGKILL */
#define KILL_MS 10000 /* a killed process that is still there sits in the kernel: give up */
#define FLUSH_MS 2000 /* for the reader of our output, once the run was cut short */
#define EXEC_MS 60000 /* for a program to be loaded */

enum {
  STATUS_USAGE = 2,
  STATUS_TIMEOUT = 124,
  STATUS_LAUNCHER = 125,
  STATUS_NO_PROGRAM = 127,
  STATUS_SIGNAL = 128
};

struct options {
  int ranks;
  int64_t limit_ms; /* 0: none */
  bool keep_going, prefix;
  char **env; /* "K=V" of --env */
  int n_env;
  char **program;
};

struct rank {
  pid_t pid; /* also its process group; 0: not started */
  bool running;
  struct stream stream[2];
};

enum phase { RUNNING, GRACE, TERMINATING, KILLING, GIVEN_UP };

struct run {
  const struct options *options;
  struct rank *rank; /* options->ranks of them */
  int started, running;
  struct output output;
  enum phase phase;
  int64_t phase_end, limit_end, all_ended_at; /* INT64_MAX: never, not yet */
  int outcome;                                /* what decided the exit status; -1: nothing has */
  bool cut_short;                             /* by a signal or the time limit */
  int signal_fd, null_fd;
  sigset_t old_mask;
  struct sigaction old_pipe;
  struct rlimit old_files;
  char folder[PATH_MAX]; /* of the rendezvous; "": none was made */
  char rendezvous[PATH_MAX + 32], secret[65];
};

static int64_t now_ms(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* All ranks die with this process (PR_SET_PDEATHSIG). */
static _Noreturn void out_of_memory(void) {
  static const char text[] = "gyre-run: out of memory\n";
  ssize_t ignored = write(STDERR_FILENO, text, sizeof text - 1);
  (void)ignored;
  _exit(STATUS_LAUNCHER);
}

#define say(run, ...)                                                                            \
  do {                                                                                           \
    if (!output_print(&(run)->output, STDERR_FILENO, "gyre-run: " __VA_ARGS__)) out_of_memory(); \
  } while (0)

/* --------------------------------------------------------------------------------- options --- */

static const char usage_text[] =
    "usage: gyre-run -n N [--timeout S] [--keep-going] [--env K=V]... [--no-prefix] -- PROGRAM "
    "[ARGS...]\n"
    "\n"
    "Runs N ranks of PROGRAM on this host, connected with each other, and prints what they print.\n"
    "\n"
    "  -n N, -np N    number of ranks, 1 to 1024\n"
    "  --timeout S    end all ranks after S seconds; the exit status is then 124\n"
    "  --keep-going   when a rank fails, let the others run on\n"
    "  --env K=V      set a variable for all ranks; may be repeated\n"
    "  --no-prefix    do not put \"[rank] \" before each line of output\n"
    "  --help         print this text\n"
    "  --version      print the version\n"
    "\n"
    "When a rank fails, the others have 5 s to end, then get SIGTERM, and SIGKILL 2 s later. The "
    "exit status is that\n"
    "of the first rank that failed (128 + N for signal N), 127 if PROGRAM cannot be started, 0 if "
    "all succeeded.\n";

static _Noreturn void wrong_usage(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
static _Noreturn void wrong_usage(const char *fmt, ...) {
  va_list args;
  va_start(args, fmt);
  fprintf(stderr, "gyre-run: ");
  vfprintf(stderr, fmt, args);
  fprintf(stderr, "\ntry: gyre-run --help\n");
  va_end(args);
  exit(STATUS_USAGE);
}

static int parse_ranks(const char *text) {
  char *end;
  errno = 0;
  long n = strtol(text, &end, 10);
  if (*text < '0' || *text > '9' || *end || errno || n < 1 || n > RANKS_MAX)
    wrong_usage("-n %s: must be a whole number from 1 to %d", text, RANKS_MAX);
  return (int)n;
}

static int64_t parse_limit(const char *text) {
  char *end;
  double s = strtod(text, &end);
  if (strspn(text, "0123456789.") != strlen(text) || *end || end == text || s < 0.001 || s > 1e7)
    wrong_usage("--timeout %s: must be a number of seconds from 0.001 to 10000000", text);
  return (int64_t)llround(s * 1000);
}

static _Noreturn void print_and_exit(const char *text) {
  if (fputs(text, stdout) < 0 || fflush(stdout) != 0) {
    fprintf(stderr, "gyre-run: cannot write standard output: %s\n", strerror(errno));
    exit(STATUS_LAUNCHER);
  }
  exit(0);
}

static void parse_options(int argc, char **argv, struct options *o) {
  static const struct option longs[] = {{"timeout", required_argument, NULL, 't'},
                                        {"keep-going", no_argument, NULL, 'k'},
                                        {"env", required_argument, NULL, 'e'},
                                        {"no-prefix", no_argument, NULL, 'p'},
                                        {"help", no_argument, NULL, 'h'},
                                        {"version", no_argument, NULL, 'V'},
                                        {NULL, 0, NULL, 0}};
  *o = (struct options){.prefix = true, .env = calloc((size_t)argc, sizeof *o->env)};
  if (!o->env) out_of_memory();
  for (int c; (c = getopt_long(argc, argv, "+n:h", longs, NULL)) != -1;) {
    switch (c) {
      case 'n': /* also -np N, as other launchers have it */
        if (strcmp(optarg, "p") == 0 && argv[optind]) optarg = argv[optind++];
        o->ranks = parse_ranks(optarg);
        break;
      case 't': o->limit_ms = parse_limit(optarg); break;
      case 'k': o->keep_going = true; break;
      case 'p': o->prefix = false; break;
      case 'e':
        if (*optarg == '=' || !strchr(optarg, '='))
          wrong_usage("--env %s: must be NAME=VALUE", optarg);
        o->env[o->n_env++] = optarg;
        break;
      case 'h': print_and_exit(usage_text);
      case 'V': printf("gyre-run %s\n", gyre_version_string()); print_and_exit("");
      default: fprintf(stderr, "try: gyre-run --help\n"); exit(STATUS_USAGE);
    }
  }
  if (o->ranks == 0) wrong_usage("-n is missing: how many ranks?");
  if (!argv[optind]) wrong_usage("no program is given");
  o->program = argv + optind;
}

static bool env_option(const struct options *o, const char *name) {
  size_t n = strlen(name);
  for (int i = 0; i < o->n_env; i++)
    if (strncmp(o->env[i], name, n) == 0 && o->env[i][n] == '=') return true;
  return false;
}

/* ----------------------------------------------------------------------------- preparation --- */

/* Descriptors 0 to 2 must not become pipes of ours. */
static void open_standard_descriptors(void) {
  int fd;
  do fd = open("/dev/null", O_RDWR);
  while (fd >= 0 && fd <= STDERR_FILENO);
  if (fd > STDERR_FILENO) close(fd);
}

static void raise_file_limit(struct run *r) {
  if (getrlimit(RLIMIT_NOFILE, &r->old_files) != 0) r->old_files = (struct rlimit){1024, 1024};
  struct rlimit most = {r->old_files.rlim_max, r->old_files.rlim_max};
  setrlimit(RLIMIT_NOFILE, &most); /* where it is not enough, starting a rank says so */
}

static bool watch_signals(struct run *r) {
  static const int watched[] = {SIGCHLD, SIGINT, SIGTERM, SIGHUP, SIGQUIT};
  sigset_t set;
  sigemptyset(&set);
  for (size_t i = 0; i < sizeof watched / sizeof watched[0]; i++) sigaddset(&set, watched[i]);
  signal(SIGCHLD, SIG_DFL); /* ignored, it would take the ranks' statuses away */
  struct sigaction ignore = {.sa_handler = SIG_IGN};
  sigaction(SIGPIPE, &ignore, &r->old_pipe);
  sigprocmask(SIG_BLOCK, &set, &r->old_mask);
  r->signal_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
  return r->signal_fd >= 0;
}

/* A file in a folder of our own: it needs no port that somebody else could take meanwhile. */
static bool make_rendezvous(struct run *r) {
  if (env_option(r->options, "GYRE_RENDEZVOUS")) return true;
  const char *base = getenv("TMPDIR");
  if (!base || *base != '/' || strlen(base) > 256) base = "/tmp";
  snprintf(r->folder, sizeof r->folder, "%s/gyre-run-XXXXXX", base);
  if (!mkdtemp(r->folder)) {
    fprintf(stderr, "gyre-run: cannot make a folder in %s: %s; set TMPDIR to another place\n", base,
            strerror(errno));
    r->folder[0] = 0;
    return false;
  }
  snprintf(r->rendezvous, sizeof r->rendezvous, "file://%s/rendezvous", r->folder);
  return true;
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw) {
  (void)st, (void)type, (void)ftw;
  remove(path);
  return 0;
}

static void remove_rendezvous(struct run *r) {
  if (r->folder[0]) nftw(r->folder, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

static bool make_secret(struct run *r) {
  if (env_option(r->options, "GYRE_SECRET") || env_option(r->options, "GYRE_SECRET_FILE") ||
      getenv("GYRE_SECRET") || getenv("GYRE_SECRET_FILE"))
    return true;
  unsigned char bytes[32];
  if (getrandom(bytes, sizeof bytes, 0) != (ssize_t)sizeof bytes) {
    fprintf(stderr, "gyre-run: no random bytes for a secret: %s\n", strerror(errno));
    return false;
  }
  for (size_t i = 0; i < sizeof bytes; i++) snprintf(r->secret + 2 * i, 3, "%02x", bytes[i]);
  return true;
}

/* -------------------------------------------------------------------------- starting ranks --- */

static void set_environment(const struct run *r, int rank) {
  char number[16];
  snprintf(number, sizeof number, "%d", rank);
  setenv("GYRE_RANK", number, 1);
  setenv("GYRE_LOCAL_RANK", number, 1);
  snprintf(number, sizeof number, "%d", r->options->ranks);
  setenv("GYRE_WORLD_SIZE", number, 1);
  if (*r->rendezvous) setenv("GYRE_RENDEZVOUS", r->rendezvous, 1);
  if (*r->secret) setenv("GYRE_SECRET", r->secret, 1);
  for (int i = 0; i < r->options->n_env; i++) putenv(r->options->env[i]);
}

/* In the child, up to exec. Writes errno to `report` if it fails. */
static void become_rank(const struct run *r, int rank, pid_t parent, const int out[2], int report) {
  if (prctl(PR_SET_PDEATHSIG, SIGKILL) == 0 && getppid() == parent && setpgid(0, 0) == 0 &&
      dup2(r->null_fd, STDIN_FILENO) >= 0 && dup2(out[0], STDOUT_FILENO) >= 0 &&
      dup2(out[1], STDERR_FILENO) >= 0) {
    set_environment(r, rank);
    setrlimit(RLIMIT_NOFILE, &r->old_files);
    sigaction(SIGPIPE, &r->old_pipe, NULL);
    sigprocmask(SIG_SETMASK, &r->old_mask, NULL);
    execvp(r->options->program[0], r->options->program);
  }
  int why = errno;
  ssize_t ignored = write(report, &why, sizeof why);
  (void)ignored;
  _exit(STATUS_NO_PROGRAM);
}

/* 0 once the child runs the program, or the errno that kept it from that. */
static int wait_for_exec(int report) {
  struct pollfd p = {.fd = report, .events = POLLIN};
  int why = 0, n;
  do n = poll(&p, 1, EXEC_MS);
  while (n < 0 && errno == EINTR);
  if (n == 0) return ETIMEDOUT;
  return read(report, &why, sizeof why) == sizeof why ? why : 0;
}

enum start_result { STARTED, NOT_FORKED, NOT_EXECUTED };

/* Leaves errno for the two failures. */
static enum start_result start_rank(struct run *r, int rank) {
  int pipes[3][2], made = 0; /* standard output, standard error, the report of exec */
  struct rank *me = &r->rank[rank];
  pid_t parent = getpid();
  enum start_result result = NOT_FORKED;
  int why;
  for (; made < 3; made++)
    if (pipe2(pipes[made], O_CLOEXEC) != 0) {
      why = errno;
      goto close_pipes;
    }
  pid_t pid = fork();
  why = errno;
  if (pid < 0) goto close_pipes;
  if (pid == 0) become_rank(r, rank, parent, (const int[2]){pipes[0][1], pipes[1][1]}, pipes[2][1]);
  for (int i = 0; i < 3; i++) {
    close(pipes[i][1]);
    pipes[i][1] = -1;
  }
  why = wait_for_exec(pipes[2][0]);
  if (why != 0) {
    kill(pid, SIGKILL);
    while (waitpid(pid, NULL, 0) < 0 && errno == EINTR) continue;
    result = NOT_EXECUTED;
    goto close_pipes;
  }
  for (int i = 0; i < 2; i++) {
    fcntl(pipes[i][0], F_SETFL, O_NONBLOCK);
    me->stream[i] = (struct stream){.fd = pipes[i][0],
                                    .to = i == 0 ? STDOUT_FILENO : STDERR_FILENO,
                                    .prefix = r->options->prefix ? rank : -1};
    pipes[i][0] = -1;
  }
  me->pid = pid;
  me->running = true;
  r->started++;
  r->running++;
  result = STARTED;
close_pipes:
  for (int i = 0; i < made; i++)
    for (int end = 0; end < 2; end++)
      if (pipes[i][end] >= 0) close(pipes[i][end]);
  errno = why;
  return result;
}

/* ---------------------------------------------------------------------------- ending ranks --- */

static void signal_ranks(const struct run *r, int sig) {
  for (int i = 0; i < r->started; i++)
    if (r->rank[i].running) kill(-r->rank[i].pid, sig);
}

/* Phases only go forward. */
static void enter(struct run *r, enum phase phase) {
  static const int64_t lasts[] = {
      [GRACE] = GRACE_MS, [TERMINATING] = TERM_MS, [KILLING] = KILL_MS, [GIVEN_UP] = 0};
  if (phase <= r->phase) return;
  r->phase = phase;
  r->phase_end = now_ms() + lasts[phase];
  if (phase == TERMINATING) {
    signal_ranks(r, SIGTERM);
    signal_ranks(r, SIGCONT); /* a stopped one could not act on it */
  }
  if (phase == KILLING) signal_ranks(r, SIGKILL);
}

static void decide(struct run *r, int status) {
  if (r->outcome < 0) r->outcome = status;
}

/* "1, 2, 7" of the ranks that run, with an end mark if there are too many. */
static const char *list_running(const struct run *r, char *out, size_t capacity) {
  size_t n = 0;
  out[0] = 0;
  for (int i = 0; i < r->started && n + 24 < capacity; i++)
    if (r->rank[i].running) n += (size_t)snprintf(out + n, capacity - n, "%s%d", n ? ", " : "", i);
  if (n + 24 >= capacity) snprintf(out + n, capacity - n, ", ...");
  return out;
}

static void start_all(struct run *r) {
  for (int i = 0; i < r->options->ranks; i++) {
    enum start_result result = start_rank(r, i);
    if (result == STARTED) continue;
    if (result == NOT_EXECUTED)
      say(r, "cannot run %s: %s", r->options->program[0], strerror(errno));
    else
      say(r, "cannot start rank %d: %s; try fewer ranks or higher limits (ulimit -n, -u)", i,
          strerror(errno));
    decide(r, result == NOT_EXECUTED ? STATUS_NO_PROGRAM : STATUS_LAUNCHER);
    enter(r, KILLING);
    return;
  }
}

static bool succeeded(int status) { return WIFEXITED(status) && WEXITSTATUS(status) == 0; }

static void report_failure(struct run *r, int rank, int status) {
  const char *then =
      r->options->keep_going || r->running == 0 ? "" : "; the others have 5 s to end by themselves";
  if (WIFSIGNALED(status)) {
    say(r, "rank %d was ended by signal %d (%s)%s", rank, WTERMSIG(status),
        strsignal(WTERMSIG(status)), then);
    decide(r, STATUS_SIGNAL + WTERMSIG(status));
  } else {
    say(r, "rank %d exited with status %d%s", rank, WEXITSTATUS(status), then);
    decide(r, WEXITSTATUS(status));
  }
  if (!r->options->keep_going) enter(r, GRACE);
}

static int rank_of(const struct run *r, pid_t pid) {
  for (int i = 0; i < r->started; i++)
    if (r->rank[i].running && r->rank[i].pid == pid) return i;
  return -1;
}

/* Collects whoever has ended: ranks, and what they left behind. Of several ranks that failed since
 * the last look, one that a signal ended goes first: more likely a cause than an effect. */
static void reap(struct run *r) {
  int failed = -1, failed_status = 0;
  for (siginfo_t info = {0};
       waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid; info.si_pid = 0) {
    int rank = rank_of(r, info.si_pid), status = 0;
    if (rank >= 0)
      kill(-info.si_pid, SIGKILL); /* before it is reaped, so that the number is still its own */
    if (waitpid(info.si_pid, &status, 0) < 0 || rank < 0) continue;
    struct rank *me = &r->rank[rank];
    me->running = false;
    r->running--;
    for (int i = 0; i < 2; i++)
      if (!stream_finish(&me->stream[i], &r->output)) out_of_memory();
    if (succeeded(status) || (failed >= 0 && (WIFSIGNALED(failed_status) || !WIFSIGNALED(status))))
      continue;
    failed = rank;
    failed_status = status;
  }
  if (failed >= 0 && r->outcome < 0) report_failure(r, failed, failed_status);
  if (r->running == 0 && r->all_ended_at == INT64_MAX) r->all_ended_at = now_ms();
}

/* Whether nobody is left in the ranks' process groups whom we should still reap. */
static bool groups_are_gone(const struct run *r) {
  for (int i = 0; i < r->started; i++) {
    pid_t pid;
    while ((pid = waitpid(-r->rank[i].pid, NULL, WNOHANG)) > 0) continue;
    if (pid == 0) return false;
  }
  return true;
}

static void on_signal(struct run *r, int sig) {
  if (sig == SIGCHLD) return; /* reap() looks at every turn */
  r->cut_short = true;
  if (r->outcome >= 0) {
    enter(r, r->phase < TERMINATING ? TERMINATING : KILLING); /* who asks twice is in a hurry */
    return;
  }
  say(r, "%s: ending all ranks", strsignal(sig));
  decide(r, STATUS_SIGNAL + sig);
  if (sig != SIGTERM) signal_ranks(r, sig);
  enter(r, sig == SIGTERM ? TERMINATING : GRACE);
}

static void read_signals(struct run *r) {
  struct signalfd_siginfo info;
  while (read(r->signal_fd, &info, sizeof info) == (ssize_t)sizeof info)
    on_signal(r, (int)info.ssi_signo);
}

static void check_deadlines(struct run *r) {
  int64_t now = now_ms();
  if (r->running > 0 && now >= r->limit_end && r->phase < TERMINATING) {
    char who[200];
    if (r->outcome < 0)
      say(r, "the time limit of %.15g s is over; still running: rank %s",
          (double)r->options->limit_ms / 1000, list_running(r, who, sizeof who));
    decide(r, STATUS_TIMEOUT);
    r->cut_short = true;
    enter(r, TERMINATING);
  }
  if (r->running > 0 && r->phase != RUNNING && r->phase < GIVEN_UP && now >= r->phase_end) {
    char who[200];
    list_running(r, who, sizeof who);
    enter(r, r->phase + 1);
    if (r->phase == TERMINATING) say(r, "still running: rank %s; ending with SIGTERM", who);
    if (r->phase == KILLING) say(r, "still running: rank %s; ending with SIGKILL", who);
    if (r->phase == GIVEN_UP)
      say(r, "rank %s cannot be killed: waiting in the kernel; giving up", who);
  }
}

/* -------------------------------------------------------------------------------- the loop --- */

/* A reader that takes its time is waited for, like by any filter, unless the run was cut short. */
static bool flush_is_over(const struct run *r) {
  if (r->output.queued == 0 || r->phase == GIVEN_UP) return true;
  return r->cut_short && now_ms() >= r->all_ended_at + FLUSH_MS;
}

static bool is_finished(const struct run *r) {
  if (r->running > 0) return r->phase == GIVEN_UP;
  if (!groups_are_gone(r) && now_ms() < r->all_ended_at + KILL_MS) return false;
  return flush_is_over(r);
}

static int sleep_ms(const struct run *r) {
  if (r->running == 0) return 50; /* what is waited for at the end does not all raise an event */
  int64_t until = r->phase_end, left;
  if (r->phase < TERMINATING && r->limit_end < until) until = r->limit_end;
  left = until == INT64_MAX ? INT64_MAX : until - now_ms();
  return left < 0 ? 0 : left > 1000 ? 1000 : (int)left;
}

static void write_output(struct run *r) {
  int fd = output_next(&r->output), why = output_write(&r->output);
  if (why == 0) return;
  if (why != EPIPE)
    say(r, "cannot write standard %s: %s", fd == STDOUT_FILENO ? "output" : "error", strerror(why));
  decide(r, why == EPIPE ? STATUS_SIGNAL + SIGPIPE : STATUS_LAUNCHER);
  enter(r, TERMINATING); /* nobody wants what they print */
}

/* One turn: sleeps until something can be done, and does it. `polls` and `streams` have room for
 * two descriptors of each rank and two more. */
static void turn(struct run *r, struct pollfd *polls, struct stream **streams) {
  nfds_t n = 0;
  int writable = output_next(&r->output);
  polls[n++] = (struct pollfd){.fd = r->signal_fd, .events = POLLIN};
  polls[n++] = (struct pollfd){.fd = writable, .events = POLLOUT};
  bool full = output_is_full(&r->output);
  for (int i = 0; i < r->started && !full; i++)
    for (int s = 0; s < 2; s++)
      if (r->rank[i].stream[s].fd >= 0) {
        streams[n] = &r->rank[i].stream[s];
        polls[n] = (struct pollfd){.fd = streams[n]->fd, .events = POLLIN};
        n++;
      }
  if (poll(polls, n, sleep_ms(r)) < 0) {
    if (errno != EINTR) out_of_memory();
    return;
  }
  if (polls[0].revents) read_signals(r);
  if (polls[1].revents) write_output(r);
  for (nfds_t i = 2; i < n; i++)
    if (polls[i].revents && stream_read(streams[i], &r->output) == STREAM_NOMEM) out_of_memory();
}

static void run_all(struct run *r) {
  size_t most = 2 * (size_t)r->options->ranks + 2;
  struct pollfd *polls = calloc(most, sizeof *polls);
  struct stream **streams = calloc(most, sizeof *streams);
  if (!polls || !streams) out_of_memory();
  if (r->options->limit_ms) r->limit_end = now_ms() + r->options->limit_ms;
  start_all(r);
  for (reap(r); !is_finished(r); reap(r)) {
    check_deadlines(r);
    turn(r, polls, streams);
  }
  free(polls);
  free(streams);
}

int main(int argc, char **argv) {
  struct options options;
  open_standard_descriptors();
  parse_options(argc, argv, &options);
  struct run r = {.options = &options,
                  .phase_end = INT64_MAX,
                  .limit_end = INT64_MAX,
                  .all_ended_at = INT64_MAX,
                  .outcome = -1};
  r.rank = calloc((size_t)options.ranks, sizeof *r.rank);
  if (!r.rank) out_of_memory();
  for (int i = 0; i < options.ranks; i++) r.rank[i].stream[0].fd = r.rank[i].stream[1].fd = -1;
  int status = STATUS_LAUNCHER;
  raise_file_limit(&r);
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  r.null_fd = open("/dev/null", O_RDONLY | O_CLOEXEC); /* kept: a rank may have no descriptor left */
  if (!watch_signals(&r) || r.null_fd < 0) {
    fprintf(stderr, "gyre-run: cannot prepare for the ranks: %s\n", strerror(errno));
    goto free_ranks;
  }
  if (!make_secret(&r) || !make_rendezvous(&r)) goto free_ranks;
  run_all(&r);
  status = r.outcome < 0 ? 0 : r.outcome;
  remove_rendezvous(&r);
free_ranks:
  output_free(&r.output);
  free(r.rank);
  free(options.env);
  return status;
}
