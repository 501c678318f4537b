/*
 * settings.c - the table of settings and the environment.
 *
 * Role:   see settings.h.
 * Thread: any, as long as nobody changes the environment at the same time.
 */
#include "settings.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "log.h"
#include "status.h"

#define PREFIX "GYRE_"
#define DAY_MS 86400000
#define SPIN_AUTO_US 50

#define ENTRY(kind_, name_, scope_, member)                       \
  .name = (name_), .kind = GY_KIND_##kind_, .scope = GY_##scope_, \
  .offset = offsetof(struct gy_settings, member),                 \
  .bytes = sizeof(((struct gy_settings *)0)->member)

/* clang-format off */
static const struct gy_setting table[] = {
  {ENTRY(UINT, "GYRE_RANK", LAUNCH, rank), .min = 0, .max = 16383, .def = -1,
   .doc = "Rank of this process in the communicator made from the environment."},
  {ENTRY(UINT, "GYRE_WORLD_SIZE", LAUNCH, world_size), .min = 1, .max = 16384, .def = -1,
   .doc = "Number of ranks of the communicator made from the environment."},
  {ENTRY(UINT, "GYRE_LOCAL_RANK", LAUNCH, local_rank), .min = 0, .max = 16383, .def = -1,
   .doc = "Rank of this process among those of its host."},
  {ENTRY(TEXT, "GYRE_RENDEZVOUS", LAUNCH, rendezvous), .def_text = "",
   .member = "gyre_comm_config.rendezvous",
   .doc = "Where the ranks meet: tcp://host:port (rank 0 listens there) or file:///path (all "
          "ranks can reach it)."},

  {ENTRY(TEXT, "GYRE_IFACE", LOCAL, iface), .def_text = "",
   .member = "gyre_context_config.iface",
   .doc = "Interface to listen and dial on, by name (eth0) or as a network (10.0.0.0/8); empty:"
          " all that are up."},
  {ENTRY(PORTS, "GYRE_PORT", LOCAL, port), .min = 1, .max = 65535, .def_text = "",
   .member = "gyre_context_config.port",
   .doc = "Port to listen on, or a range of which the first free one is taken; empty: any free "
          "port."},
  {ENTRY(TEXT, "GYRE_ADVERTISE", LOCAL, advertise), .def_text = "",
   .member = "gyre_context_config.advertise",
   .doc = "Address told to the other ranks, host[:port], when it differs from the bound one; "
          "empty: the bound one."},
  {ENTRY(SECRET, "GYRE_SECRET", LOCAL, secret), .def_text = "",
   .member = "gyre_context_config.secret",
   .doc = "Secret that authenticates every connection; equal on all ranks. Without one only "
          "loopback is used."},
  {ENTRY(SECRET_FILE, "GYRE_SECRET_FILE", LOCAL, secret), .def_text = "",
   .doc = "File that holds the secret, in place of GYRE_SECRET; one trailing line feed is cut."},
  {ENTRY(BOOL, "GYRE_INSECURE", LOCAL, insecure), .min = 0, .max = 1, .def = 0,
   .doc = "1: connect to other hosts without a secret. Anyone who reaches the port can then "
          "join."},

  {ENTRY(NAMES, "GYRE_TRANSPORTS", AGREED, transports), .choices = "tcp|shm", .def_text = "",
   .member = "gyre_comm_config.transports",
   .doc = "Transports that may be used; empty: all that are usable."},
  {ENTRY(TEXT, "GYRE_ALGO", AGREED, algo), .def_text = "",
   .member = "gyre_comm_config.algo",
   .doc = "Algorithm: one name for all collectives that have it, or "
          "all_reduce=ring,broadcast=tree; empty: the cost model."},
  {ENTRY(UINT, "GYRE_SLICE_BYTES", AGREED, slice_bytes), .min = 64, .max = 16777216, .step = 64,
   .def = 0,
   .member = "gyre_comm_config.slice_bytes",
   .doc = "Bytes of a slice, the unit in which a chunk is pipelined."},
  {ENTRY(UINT, "GYRE_WINDOW", AGREED, window), .min = 1, .max = 64, .def = 0,
   .member = "gyre_comm_config.window",
   .doc = "Slices in flight on a link."},
  {ENTRY(BOOL, "GYRE_CHECKSUM", AGREED, checksum), .min = 0, .max = 1, .def = 0,
   .doc = "1: every message carries a checksum (CRC-32C), and one that does not fit ends the "
          "communicator."},
  {ENTRY(TEXT, "GYRE_TCP_CONGESTION", AGREED, tcp_congestion), .def_text = "auto",
   .doc = "Congestion control of links within a host: a name the kernel offers; auto: one that "
          "does not pace; empty: the system's."},

  {ENTRY(UINT, "GYRE_CONNECT_TIMEOUT_MS", LOCAL, connect_timeout_ms), .min = 1, .max = DAY_MS,
   .def = 60000,
   .member = "gyre_comm_config.connect_timeout_ms",
   .doc = "Longest time for the ranks to meet and for a link to open."},
  {ENTRY(UINT, "GYRE_OP_TIMEOUT_MS", AGREED, op_timeout_ms), .min = 1, .max = DAY_MS, .def = 300000,
   .member = "gyre_comm_config.op_timeout_ms",
   .doc = "Longest time an operation may go without moving a byte."},
  {ENTRY(UINT, "GYRE_STALL_MS", AGREED, stall_ms), .min = 1, .max = 3600000, .def = 1000,
   .doc = "An operation that has not moved for so long asks the other ranks what they are "
          "doing."},
  {ENTRY(UINT, "GYRE_LINGER_MS", LOCAL, linger_ms), .min = 0, .max = 60000, .def = 1000,
   .doc = "Longest time the end of a context waits for peers to read what was sent."},
  {ENTRY(UINT, "GYRE_VERDICT_MS", AGREED, verdict_ms), .min = 1, .max = 60000, .def = 500,
   .doc = "Longest wait for rank 0's verdict after a failure."},
  {ENTRY(UINT, "GYRE_HEARTBEAT_MS", AGREED, heartbeat_ms), .min = 0, .max = 3600000, .def = 1000,
   .doc = "How often ranks show each other that they live, but at least four times in "
          "GYRE_PEER_TIMEOUT_MS; 0: never."},
  {ENTRY(UINT, "GYRE_PEER_TIMEOUT_MS", AGREED, peer_timeout_ms), .min = 100, .max = DAY_MS,
   .def = 15000,
   .doc = "A rank of which nothing was heard for so long is lost."},

  {ENTRY(TEXT, "GYRE_FAULT", LOCAL, fault), .def_text = "",
   .doc = "Harm to be done to this rank, for rehearsals: kind:key=value,...;... as docs/faults.md "
          "has it."},
  {ENTRY(CHOICE, "GYRE_PROGRESS", LOCAL, progress), .choices = "caller|thread",
   .def_text = "caller",
   .doc = "Who drives: a waiting caller if there is one, or the background thread only."},
  {ENTRY(INT, "GYRE_SPIN_US", LOCAL, spin_us), .min = -1, .max = 1000000, .def = -1,
   .member = "gyre_context_config.spin_us",
   .doc = "Microseconds to busy-poll before sleeping; 0: never; -1: automatic."},
  {ENTRY(CHOICE, "GYRE_CPU", LOCAL, cpu), .choices = "auto|scalar|avx2|avx512|neon",
   .def_text = "auto",
   .doc = "Instruction set of the reduction kernels; auto: the best this CPU has."},

  {ENTRY(CHOICE, "GYRE_LOG", LOCAL, log), .choices = "off|error|warn|info|debug", .def_text = "warn",
   .doc = "Least severe messages that are logged; off: the library prints nothing."},
  {ENTRY(TEXT, "GYRE_LOG_FILE", LOCAL, log_file), .def_text = "",
   .doc = "File the log is appended to (%p: process id, %r: GYRE_RANK, %%: a percent sign); "
          "empty: standard error."},

  {ENTRY(UINT, "GYRE_TRACE_OPS", LOCAL, trace_ops), .min = 0, .max = 65536, .def = 64,
   .doc = "Operations of each communicator that the flight recorder keeps; 0: none."},
  {ENTRY(TEXT, "GYRE_TRACE_FILE", LOCAL, trace_file), .def_text = "",
   .doc = "File the flight recorder is written to when a communicator fails (%p: process id, %r: "
          "rank, %%: a percent sign); empty: none."},
  {ENTRY(SIGNAL, "GYRE_TRACE_SIGNAL", LOCAL, trace_signal), .def_text = "",
   .doc = "Signal on which the flight recorder is written to GYRE_TRACE_FILE, too; empty: none is "
          "taken."},
  {ENTRY(BOOL, "GYRE_TRACE_QUERY", LOCAL, trace_query), .min = 0, .max = 1, .def = 1,
   .doc = "1: gyre-info --job of the same user may ask this process what it is doing."},
};
/* clang-format on */

#define N_SETTINGS (sizeof table / sizeof table[0])
_Static_assert(N_SETTINGS <= 64, "`given` has one bit for each setting");

const struct gy_setting *gy_settings_table(size_t *n) {
  *n = N_SETTINGS;
  return table;
}

const char *gy_settings_scope_name(uint8_t scope) {
  static const char *const names[] = {
      [GY_LOCAL] = "local", [GY_AGREED] = "agreed", [GY_LAUNCH] = "launch"};
  return names[scope];
}

static const struct gy_setting *find(const char *name) {
  for (size_t i = 0; i < N_SETTINGS; i++)
    if (strcmp(table[i].name, name) == 0) return &table[i];
  return NULL;
}

static uint64_t bit_of(const struct gy_setting *t) { return UINT64_C(1) << (t - table); }

static bool is_number(const struct gy_setting *t) {
  return t->kind == GY_KIND_UINT || t->kind == GY_KIND_INT || t->kind == GY_KIND_BOOL;
}

static bool is_secret(const struct gy_setting *t) {
  return t->kind == GY_KIND_SECRET || t->kind == GY_KIND_SECRET_FILE;
}

static char *text_at(struct gy_settings *s, const struct gy_setting *t) {
  return (char *)s + t->offset;
}

static void store_number(struct gy_settings *s, const struct gy_setting *t, int64_t v) {
  memcpy((char *)s + t->offset, &v, sizeof v);
}

static int64_t number_at(const struct gy_settings *s, const struct gy_setting *t) {
  int64_t v;
  memcpy(&v, (const char *)s + t->offset, sizeof v);
  return v;
}

/* ----------------------------------------------------------------------------------- rules --- */

size_t gy_settings_rule(const struct gy_setting *t, char *out, size_t capacity) {
  switch ((enum gy_kind)t->kind) {
    case GY_KIND_BOOL: return gy_format(out, capacity, "0 or 1");
    case GY_KIND_CHOICE: return gy_format(out, capacity, "one of %s", t->choices);
    case GY_KIND_NAMES:
      return gy_format(out, capacity, "a comma-separated list out of: %s", t->choices);
    case GY_KIND_PORTS:
      return gy_format(out, capacity, "a port or a range first-last, from %lld to %lld",
                       (long long)t->min, (long long)t->max);
    case GY_KIND_SIGNAL:
      return gy_format(out, capacity,
                       "HUP, QUIT, USR1, USR2 or a real-time signal: RTMIN+n, or a number");
    case GY_KIND_TEXT: return gy_format(out, capacity, "at most %zu bytes", t->bytes - 1);
    case GY_KIND_SECRET: return gy_format(out, capacity, "1 to %zu bytes", t->bytes - 1);
    case GY_KIND_SECRET_FILE:
      return gy_format(out, capacity, "the path of a file of 1 to %zu bytes", t->bytes - 1);
    case GY_KIND_UINT:
    case GY_KIND_INT: break;
  }
  size_t n = gy_format(out, capacity, "a whole number from %lld to %lld", (long long)t->min,
                       (long long)t->max);
  if (t->step) n += gy_format(out + n, capacity - n, ", a multiple of %lld", (long long)t->step);
  return n;
}

static gyre_status refuse(const struct gy_setting *t, const char *value) {
  char rule[160];
  gy_settings_rule(t, rule, sizeof rule);
  return gy_fail(GYRE_ERR_ARG, "%s=%.200s: must be %s", t->name, is_secret(t) ? "(hidden)" : value,
                 rule);
}

/* Decimal digits with an optional minus; nothing else, so that 010 or 1e3 is no surprise. */
static bool parse_number(const char *text, int64_t *out) {
  bool negative = *text == '-';
  const char *c = text + negative;
  size_t digits = strspn(c, "0123456789");
  if (digits == 0 || digits > 18 || c[digits]) return false;
  if (*c == '0' && (digits > 1 || negative)) return false;
  *out = (int64_t)strtoll(text, NULL, 10);
  return true;
}

static bool number_fits(const struct gy_setting *t, const char *text, int64_t *out) {
  return parse_number(text, out) && *out >= t->min && *out <= t->max &&
         (t->step == 0 || *out % t->step == 0);
}

/* Whether one item is among those of a list with separator `sep`. */
static bool listed(const char *list, char sep, const char *item, size_t len) {
  while (*list) {
    size_t n = strcspn(list, (const char[]){sep, 0});
    if (n == len && memcmp(list, item, len) == 0) return true;
    list += n + (list[n] == sep);
  }
  return false;
}

static bool names_fit(const struct gy_setting *t, const char *text) {
  for (const char *c = text; *text;) {
    size_t n = strcspn(c, ",");
    if (n == 0 || !listed(t->choices, '|', c, n)) return false;
    if (c > text) { /* a name twice is a slip of the pen */
      char before[64];
      gy_format(before, sizeof before, "%.*s", (int)(c - text - 1), text);
      if (listed(before, ',', c, n)) return false;
    }
    if (!c[n]) break;
    c += n + 1;
  }
  return true;
}

static bool ports_fit(const struct gy_setting *t, const char *text) {
  int64_t first, last;
  char head[16];
  size_t n = strcspn(text, "-");
  if (!*text) return true;
  gy_format(head, sizeof head, "%.*s", (int)n, text);
  if (!number_fits(t, head, &first)) return false;
  if (!text[n]) return true;
  return number_fits(t, text + n + 1, &last) && first <= last;
}

/* None whose arrival means that this process is broken, or whose default is needed by others. */
static int signal_number(const char *text) {
  static const struct {
    const char *name;
    int number;
  } known[] = {{"HUP", SIGHUP}, {"QUIT", SIGQUIT}, {"USR1", SIGUSR1}, {"USR2", SIGUSR2}};
  int64_t number;
  if (strncmp(text, "SIG", 3) == 0) text += 3;
  for (size_t i = 0; i < sizeof known / sizeof *known; i++)
    if (strcmp(text, known[i].name) == 0) return known[i].number;
  bool from_first = strncmp(text, "RTMIN+", 6) == 0;
  if (!parse_number(text + (from_first ? 6 : 0), &number) || number < 0 || number > SIGRTMAX)
    return 0;
  if (from_first) number += SIGRTMIN;
  if (number >= SIGRTMIN && number <= SIGRTMAX) return (int)number;
  for (size_t i = 0; i < sizeof known / sizeof *known && !from_first; i++)
    if (number == known[i].number) return (int)number;
  return 0;
}

static bool text_fits(const struct gy_setting *t, const char *text) {
  if (strlen(text) >= t->bytes) return false;
  switch ((enum gy_kind)t->kind) {
    case GY_KIND_CHOICE: return listed(t->choices, '|', text, strlen(text));
    case GY_KIND_NAMES: return names_fit(t, text);
    case GY_KIND_PORTS: return ports_fit(t, text);
    case GY_KIND_SECRET: return *text != 0;
    case GY_KIND_SIGNAL: return !*text || signal_number(text) != 0;
    case GY_KIND_TEXT:
    case GY_KIND_SECRET_FILE:
    case GY_KIND_UINT:
    case GY_KIND_INT:
    case GY_KIND_BOOL: break;
  }
  return true;
}

/* ------------------------------------------------------------------------------ the secret --- */

/* Fills out[0..capacity) from a regular file; fails if there is more. */
static gyre_status read_whole(int fd, const char *path, char *out, size_t capacity, size_t *len) {
  size_t n = 0;
  while (n < capacity) {
    ssize_t got = read(fd, out + n, capacity - n);
    if (got == 0) break;
    if (got < 0 && errno == EINTR) continue;
    if (got < 0)
      return gy_fail_errno(GYRE_ERR_ARG, errno, "GYRE_SECRET_FILE=%.400s: cannot read", path);
    n += (size_t)got;
  }
  *len = n;
  return GYRE_OK;
}

static void warn_if_exposed(const char *path, mode_t mode) {
  static atomic_flag warned = ATOMIC_FLAG_INIT;
  if ((mode & 0066) == 0 || atomic_flag_test_and_set(&warned)) return;
  gy_log(GY_LOG_WARN,
         "GYRE_SECRET_FILE=%.400s: other users can read or write it (mode %04o); use chmod 600",
         path, (unsigned)(mode & 07777));
}

/* Opening never blocks, not even on a pipe; only regular files are read, so that reading ends. */
static gyre_status read_secret(const struct gy_setting *t, const char *path, char *secret) {
  char buffer[sizeof((struct gy_settings *)0)->secret + 1]; /* one more: too long a file shows */
  size_t len = 0;
  struct stat st;
  int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (fd < 0)
    return gy_fail_errno(GYRE_ERR_ARG, errno, "GYRE_SECRET_FILE=%.400s: cannot open", path);
  gyre_status status =
      fstat(fd, &st) != 0
          ? gy_fail_errno(GYRE_ERR_ARG, errno, "GYRE_SECRET_FILE=%.400s: cannot stat", path)
      : !S_ISREG(st.st_mode)
          ? gy_fail(GYRE_ERR_ARG, "GYRE_SECRET_FILE=%.400s: must be a regular file", path)
          : read_whole(fd, path, buffer, sizeof buffer, &len);
  close(fd);
  if (status != GYRE_OK) return status;
  if (len > 0 && buffer[len - 1] == '\n') len--;
  if (len == 0 || len >= t->bytes || memchr(buffer, 0, len))
    return gy_fail(
        GYRE_ERR_ARG,
        "GYRE_SECRET_FILE=%.400s: the secret in it must be 1 to %zu bytes, none of them NUL", path,
        t->bytes - 1);
  warn_if_exposed(path, st.st_mode);
  memcpy(secret, buffer, len);
  secret[len] = 0;
  return GYRE_OK;
}

/* --------------------------------------------------------------------- getting and setting --- */

void gy_settings_defaults(struct gy_settings *out) {
  memset(out, 0, sizeof *out);
  for (size_t i = 0; i < N_SETTINGS; i++) {
    const struct gy_setting *t = &table[i];
    if (is_number(t)) store_number(out, t, t->def);
    else gy_format(text_at(out, t), t->bytes, "%s", t->def_text);
  }
}

static gyre_status set(struct gy_settings *s, const struct gy_setting *t, const char *value) {
  int64_t number = 0;
  if (is_number(t)) {
    if (!number_fits(t, value, &number)) return refuse(t, value);
    store_number(s, t, number);
  } else if (t->kind == GY_KIND_SECRET_FILE) {
    gyre_status st = read_secret(t, value, text_at(s, t));
    if (st != GYRE_OK) return st;
  } else {
    if (!text_fits(t, value)) return refuse(t, value);
    memcpy(text_at(s, t), value, strlen(value) + 1);
  }
  if (is_secret(t))
    s->given &=
        ~(bit_of(find("GYRE_SECRET")) | bit_of(find("GYRE_SECRET_FILE"))); /* the later one holds */
  s->given |= bit_of(t);
  return GYRE_OK;
}

gyre_status gy_settings_set(struct gy_settings *s, const char *name, const char *value) {
  const struct gy_setting *t = find(name);
  if (!t) return gy_fail(GYRE_ERR_ARG, "%.64s is no setting; gyre-info lists them", name);
  gyre_status st = set(s, t, value);
  if (st == GYRE_OK || !t->member) return st;
  return gy_fail(st, "%s (given as %s)", gyre_last_error(), t->member);
}

bool gy_settings_given(const struct gy_settings *s, const char *name) {
  const struct gy_setting *t = find(name);
  return t && (s->given & bit_of(t)) != 0;
}

size_t gy_settings_text(const struct gy_settings *s, size_t i, char *out, size_t capacity) {
  const struct gy_setting *t = &table[i];
  if (is_number(t)) {
    int64_t v = number_at(s, t);
    if (v < t->min || v > t->max) return gy_format(out, capacity, "%s", "");
    return gy_format(out, capacity, "%lld", (long long)v);
  }
  if (is_secret(t)) return gy_format(out, capacity, "%s", s->given & bit_of(t) ? "(set)" : "");
  return gy_format(out, capacity, "%s", (const char *)s + t->offset);
}

int64_t gy_settings_spin_us(const struct gy_settings *s) {
  return s->spin_us < 0 ? SPIN_AUTO_US : s->spin_us;
}

int gy_settings_trace_signal(const struct gy_settings *s) { return signal_number(s->trace_signal); }

/* ------------------------------------------------------------------------- the environment --- */

#define NAME_MAX_BYTES 64

/* Levenshtein's distance with one row. */
static size_t edit_distance(const char *a, const char *b) {
  size_t row[NAME_MAX_BYTES + 1], len_b = strnlen(b, NAME_MAX_BYTES);
  for (size_t j = 0; j <= len_b; j++) row[j] = j;
  for (size_t i = 0; a[i] && i < NAME_MAX_BYTES; i++) {
    size_t diagonal = row[0];
    row[0] = i + 1;
    for (size_t j = 1; j <= len_b; j++) {
      size_t best = diagonal + (a[i] != b[j - 1]);
      if (row[j] + 1 < best) best = row[j] + 1;
      if (row[j - 1] + 1 < best) best = row[j - 1] + 1;
      diagonal = row[j];
      row[j] = best;
    }
  }
  return row[len_b];
}

static const char *nearest(const char *name) {
  size_t best = SIZE_MAX;
  const char *found = NULL;
  for (size_t i = 0; i < N_SETTINGS; i++) {
    size_t d = edit_distance(name, table[i].name);
    if (d < best) {
      best = d;
      found = table[i].name;
    }
  }
  return found;
}

static void warn_of_unknown(void) {
  extern char **environ;
  static atomic_flag warned = ATOMIC_FLAG_INIT;
  if (atomic_flag_test_and_set(&warned)) return;
  for (char **e = environ; e && *e; e++) {
    if (strncmp(*e, PREFIX, sizeof PREFIX - 1) != 0) continue;
    char name[NAME_MAX_BYTES + 1];
    gy_format(name, sizeof name, "%.*s", (int)strcspn(*e, "="), *e);
    if (!find(name))
      gy_log(GY_LOG_WARN, "%s is no setting of Gyre %s and is ignored; did you mean %s?", name,
             gyre_version_string(), nearest(name));
  }
}

static enum gy_level level_of(const char *text) {
  static const char *const names[] = {"off", "error", "warn", "info", "debug"};
  for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
    if (strcmp(names[i], text) == 0) return (enum gy_level)i;
  return GY_LOG_WARN;
}

/* The log first, so that what the others have to say goes where it should. */
static gyre_status load_log(struct gy_settings *s) {
  static const char *const names[] = {"GYRE_LOG", "GYRE_LOG_FILE"};
  for (size_t i = 0; i < 2; i++) {
    const char *value = getenv(names[i]);
    gyre_status st = value ? set(s, find(names[i]), value) : GYRE_OK;
    if (st != GYRE_OK) return st;
  }
  return gy_log_open(level_of(s->log), s->log_file);
}

gyre_status gy_settings_load(struct gy_settings *out) {
  struct gy_settings s;
  gy_settings_defaults(&s);
  gyre_status st = load_log(&s);
  if (st != GYRE_OK) return st;
  if (getenv("GYRE_SECRET") && getenv("GYRE_SECRET_FILE"))
    return gy_fail(GYRE_ERR_ARG,
                   "GYRE_SECRET and GYRE_SECRET_FILE are both set; unset one of them");
  for (size_t i = 0; i < N_SETTINGS; i++) {
    const char *value = getenv(table[i].name);
    if (value && !(s.given & bit_of(&table[i]))) st = set(&s, &table[i], value);
    if (st != GYRE_OK) return st;
  }
  warn_of_unknown();
  *out = s;
  return GYRE_OK;
}
