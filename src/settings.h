/*
 * settings.h - the one table of settings.
 *
 * Role:   name, type, range, default, scope and one line of documentation of every GYRE_* variable.
 *         The table makes the environment variables, their checks, the reference page
 *         (docs/settings.md) and gyre-info's listing.
 * Thread: gy_settings_load reads the environment; the result is plain data.
 * Owner:  whoever loads; strings inside are copies held in the struct.
 */
#ifndef GY_SETTINGS_H
#define GY_SETTINGS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "gyre/gyre.h"

enum gy_scope {
  GY_LOCAL,  /* each rank has its own */
  GY_AGREED, /* rank 0's value holds for all; another explicit value fails creation, naming both */
  GY_LAUNCH  /* read by gyre_comm_create_from_env and launchers only */
};
enum gy_kind {
  GY_KIND_UINT,
  GY_KIND_INT,
  GY_KIND_BOOL, /* 0 or 1 */
  GY_KIND_TEXT,
  GY_KIND_CHOICE,     /* one of `choices` */
  GY_KIND_NAMES,      /* some of `choices`, separated by commas */
  GY_KIND_PORTS,      /* "first[-last]" */
  GY_KIND_SIGNAL,     /* a name, or a real-time signal; see gy_settings_trace_signal */
  GY_KIND_SECRET,     /* a text that is never shown */
  GY_KIND_SECRET_FILE /* the path of a file that holds one */
};

/* Every setting, in the order of the documentation. Extend here and in the table of settings.c,
 * nowhere else. */
struct gy_settings {
  /* launch */
  int64_t rank, world_size, local_rank; /* -1: not given */
  char rendezvous[512];
  /* network, local */
  char iface[64];      /* name or CIDR; "": all */
  char port[16];       /* "first[-last]"; "": any */
  char advertise[256]; /* "host[:port]"; "": what is bound */
  char secret[256]; /* from GYRE_SECRET or the file of GYRE_SECRET_FILE; "": none. Never listed. */
  int64_t insecure; /* 1: accept other hosts without a secret */
  /* agreed */
  char transports[64];     /* "": all usable */
  char algo[256];          /* "": cost model */
  int64_t slice_bytes;     /* 0: automatic */
  int64_t window;          /* 0: automatic */
  int64_t checksum;        /* 1: frames carry checksums */
  char tcp_congestion[16]; /* for links within a host; "auto": an unpaced one, "": leave alone */
  /* deadlines */
  int64_t connect_timeout_ms; /* local */
  int64_t op_timeout_ms;      /* agreed */
  int64_t stall_ms;        /* agreed: an operation that has not moved for so long asks the others */
  int64_t linger_ms;       /* local */
  int64_t verdict_ms;      /* agreed: longest wait for the root's verdict */
  int64_t heartbeat_ms;    /* agreed; 0: no heartbeats */
  int64_t peer_timeout_ms; /* agreed: a rank that is silent for so long is lost */
  char fault[256];         /* local: harm to be done to this rank, see docs/faults.md; "": none */
  /* progress, local */
  char progress[16]; /* "caller": a waiting caller drives; "thread": only the background thread */
  int64_t spin_us;   /* -1: automatic */
  char cpu[16];      /* "auto", "scalar", "avx2", "avx512", "neon" */
  /* log, local */
  char log[16];       /* "off", "error", "warn" (default), "info", "debug" */
  char log_file[256]; /* "": standard error; %p is the process id, %r GYRE_RANK */
  /* flight recorder, local */
  int64_t trace_ops;     /* operations kept for each communicator */
  char trace_file[256];  /* "": not written on failure */
  char trace_signal[16]; /* that has it written while the job runs; "": none */
  int64_t trace_query;   /* 1: gyre-info --job may ask this process */
  /* which of the above were given explicitly (bit = index in the table) */
  uint64_t given;
};

struct gy_setting {
  const char *name; /* "GYRE_OP_TIMEOUT_MS" */
  uint8_t kind, scope;
  size_t offset, bytes;  /* of the member in struct gy_settings */
  int64_t min, max, def; /* a default outside min...max means: not given, or automatic */
  int64_t step;          /* numbers are multiples of it; 0: any */
  const char *def_text;  /* default of what is kept as text */
  const char *choices;   /* "caller|thread" */
  const char *member;    /* that gives it, too: "gyre_comm_config.window"; NULL: none */
  const char *doc;       /* one line, without the range, which is printed from the numbers */
};

const struct gy_setting *gy_settings_table(size_t *n);
/* Defaults, then the environment; opens the log as GYRE_LOG and GYRE_LOG_FILE say. ARG for a value
 * outside its rule: the text has variable, value and rule; *out is then untouched. An unknown
 * GYRE_* variable is a warning in the log, once per process, with the nearest known name. */
gyre_status gy_settings_load(struct gy_settings *out);
/* The defaults alone. */
void gy_settings_defaults(struct gy_settings *out);
/* Sets one by name as if by environment, marking it as given; for configuration structs and tests.
 * ARG leaves *s alone; the text names the struct's member as well. */
gyre_status gy_settings_set(struct gy_settings *s, const char *name, const char *value);
/* Whether the environment or gy_settings_set gave it. */
bool gy_settings_given(const struct gy_settings *s, const char *name);
/* The value of table entry i as text, which gy_settings_set takes again ("" for none and automatic;
 * a secret as "(set)" or ""). Returns the bytes stored. */
size_t gy_settings_text(const struct gy_settings *s, size_t i, char *out, size_t capacity);
/* The rule of an entry, "a whole number from 1 to 64". Returns the bytes stored. */
size_t gy_settings_rule(const struct gy_setting *t, char *out, size_t capacity);
/* "local", "agreed", "launch". */
const char *gy_settings_scope_name(uint8_t scope);
/* How long to busy-poll before sleeping, in microseconds, with "automatic" resolved. */
int64_t gy_settings_spin_us(const struct gy_settings *s);
/* The number of GYRE_TRACE_SIGNAL; 0: none. */
int gy_settings_trace_signal(const struct gy_settings *s);

#endif
