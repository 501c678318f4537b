/* options.c - the command line of gyre-perf. See options.h. */
#include "options.h"

#include <errno.h>
#include <getopt.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "size.h"

#define DEFAULT_MIN ((size_t)8)
#define DEFAULT_MAX ((size_t)64 << 20)
#define MAX_SECONDS 86400.0

enum {
  OPT_TIME = 256,
  OPT_TRANSPORT,
  OPT_ALGO,
  OPT_CHECK,
  OPT_JSON,
  OPT_CSV,
  OPT_PER_RANK,
  OPT_RAW,
  OPT_VERSION
};

static const struct option long_options[] = {
    {"min", required_argument, NULL, 'b'},
    {"max", required_argument, NULL, 'e'},
    {"factor", required_argument, NULL, 'f'},
    {"iters", required_argument, NULL, 'n'},
    {"time", required_argument, NULL, OPT_TIME},
    {"warmup", required_argument, NULL, 'w'},
    {"type", required_argument, NULL, 'd'},
    {"op", required_argument, NULL, 'o'},
    {"root", required_argument, NULL, 'r'},
    {"transport", required_argument, NULL, OPT_TRANSPORT},
    {"algo", required_argument, NULL, OPT_ALGO},
    {"check", no_argument, NULL, OPT_CHECK},
    {"json", required_argument, NULL, OPT_JSON},
    {"csv", required_argument, NULL, OPT_CSV},
    {"per-rank", no_argument, NULL, OPT_PER_RANK},
    {"raw", no_argument, NULL, OPT_RAW},
    {"help", no_argument, NULL, 'h'},
    {"version", no_argument, NULL, OPT_VERSION},
    {NULL, 0, NULL, 0},
};

static const char help_text[] =
    "Usage: gyre-perf COLLECTIVE [OPTION]...\n"
    "Measures a collective on all ranks of the job; run it under gyre-run, torchrun or another\n"
    "launcher. Alone it runs on one rank.\n"
    "\n"
    "COLLECTIVE: all_reduce reduce_scatter all_gather broadcast reduce scan exclusive_scan\n"
    "gather scatter all_to_all all_gather_v reduce_scatter_v all_to_all_v gather_v scatter_v\n"
    "send_recv (a shift around the ring of ranks) barrier\n"
    "\n"
    "Sizes are in bytes and take K, M, G or T (binary). For all_gather and reduce_scatter a size\n"
    "is that of the larger buffer.\n"
    "  -b, --min SIZE        first size (8)\n"
    "  -e, --max SIZE        last size (64M)\n"
    "  -f, --factor N        from one size to the next, at least 2 (2)\n"
    "  -n, --iters N         timed calls of each kind per row, instead of --time\n"
    "      --time SECONDS    time to spend on a row (0.5)\n"
    "  -w, --warmup N        calls of each kind before a row is timed (5)\n"
    "  -d, --type TYPE       f32 f64 f16 bf16 f8e4m3 f8e5m2 i8 u8 i16 u16 i32 u32 i64 u64,\n"
    "                        the pairs f32_i32 f64_i64 i32_i32 i64_i64, or all (f32)\n"
    "  -o, --op OP           sum prod min max avg; of integers band bor bxor land lor lxor;\n"
    "                        of pairs minloc maxloc; or all that take the type (sum)\n"
    "  -r, --root RANK       root of a rooted collective (0)\n"
    "      --transport NAME  transports to use, as GYRE_TRANSPORTS\n"
    "      --algo NAME       algorithm to use, as GYRE_ALGO\n"
    "      --check           verify every element on every rank; wrong ones make the status 1\n"
    "      --json FILE       also write one JSON object a line\n"
    "      --csv FILE        also write comma-separated values\n"
    "      --per-rank        also show each rank's own figures\n"
    "      --raw             all_reduce of f32 sums only: the same over bare sockets, in turns\n"
    "  -h, --help            show this text\n"
    "      --version         show the version\n"
    "\n"
    "Exit status: 0 on success, 1 on a failure or a wrong element, 2 on a wrong command line.\n";

const char *perf_options_help(void) { return help_text; }

struct parse {
  struct perf_options *o;
  bool has_max;
  bool has_time;
  char *why;
  size_t capacity;
};

__attribute__((format(printf, 2, 3))) static bool wrong(struct parse *p, const char *format, ...) {
  va_list args;
  va_start(args, format);
  vsnprintf(p->why, p->capacity, format, args);
  va_end(args);
  return false;
}

static bool parse_number(struct parse *p, const char *option, const char *text, uint64_t min,
                         uint64_t max, uint64_t *out) {
  char *end = NULL;
  errno = 0;
  unsigned long long n = strtoull(text, &end, 10);
  if (text[0] < '0' || text[0] > '9' || *end != '\0' || errno != 0 || n < min || n > max)
    return wrong(p, "%s %s: must be a whole number from %llu to %llu", option, text,
                 (unsigned long long)min, (unsigned long long)max);
  *out = n;
  return true;
}

static bool parse_bytes(struct parse *p, const char *option, const char *text, size_t *out) {
  return perf_parse_size(text, out) ||
         wrong(p, "%s %s: must be a number of bytes such as 4097, 64K, 16M or 1G", option, text);
}

static bool parse_seconds(struct parse *p, const char *text) {
  char *end = NULL;
  double s = strtod(text, &end);
  if (end == text || *end != '\0' || !(s > 0.0) || s > MAX_SECONDS)
    return wrong(p, "--time %s: must be seconds, more than 0, at most %g", text, MAX_SECONDS);
  p->o->seconds = s;
  p->has_time = true;
  return true;
}

static bool parse_type(struct parse *p, const char *text) {
  p->o->type = -1;
  if (strcmp(text, "all") == 0) return true;
  for (int t = 0; t < GYRE_DTYPE_COUNT; t++)
    if (strcmp(text, gyre_dtype_name((gyre_dtype)t)) == 0) p->o->type = t;
  return p->o->type >= 0 || wrong(p,
                                  "-d %s: no such type; there are f32 f64 f16 bf16 f8e4m3 f8e5m2 "
                                  "i8 u8 i16 u16 i32 u32 i64 u64 "
                                  "f32_i32 f64_i64 i32_i32 i64_i64 and all",
                                  text);
}

static bool parse_op(struct parse *p, const char *text) {
  p->o->op = -1;
  if (strcmp(text, "all") == 0) return true;
  for (int op = 0; op < GYRE_OP_COUNT; op++)
    if (strcmp(text, gyre_op_name((gyre_op)op)) == 0) p->o->op = op;
  return p->o->op >= 0 ||
         wrong(p,
               "-o %s: no such operator; there are sum prod min max avg band bor bxor land lor "
               "lxor minloc maxloc and all",
               text);
}

static bool parse_option(struct parse *p, int option, const char *value) {
  struct perf_options *o = p->o;
  uint64_t n = 0;
  bool ok = true;
  switch (option) {
    case 'b': return parse_bytes(p, "-b", value, &o->min_bytes);
    case 'e': p->has_max = true; return parse_bytes(p, "-e", value, &o->max_bytes);
    case 'f':
      ok = parse_number(p, "-f", value, 2, 1 << 20, &n);
      o->factor = (size_t)n;
      return ok;
    case 'n': return parse_number(p, "-n", value, 1, UINT64_C(1000000000), &o->iterations);
    case 'w': return parse_number(p, "-w", value, 0, UINT64_C(1000000000), &o->warmup);
    case 'r':
      ok = parse_number(p, "-r", value, 0, 16383, &n);
      o->root = (int)n;
      return ok;
    case 'd': return parse_type(p, value);
    case 'o': return parse_op(p, value);
    case OPT_TIME: return parse_seconds(p, value);
    case OPT_TRANSPORT: o->transport = value; return true;
    case OPT_ALGO: o->algo = value; return true;
    case OPT_JSON: o->json = value; return true;
    case OPT_CSV: o->csv = value; return true;
    case OPT_CHECK: o->check = true; return true;
    case OPT_PER_RANK: o->per_rank = true; return true;
    case OPT_RAW: o->raw = true; return true;
    default: return false;
  }
}

static bool unknown_option(struct parse *p, int argc, char **argv, int missing) {
  const char *arg = optind > 0 && optind <= argc ? argv[optind - 1] : "?";
  if (missing == ':') return wrong(p, "%s needs a value", arg);
  if (optopt > 0 && optopt < 256) return wrong(p, "unknown option -%c", optopt);
  return wrong(p, "unknown option %s", arg);
}

/* What only the whole command line shows. */
static bool check_together(struct parse *p, int argc, char **argv) {
  struct perf_options *o = p->o;
  if (optind == argc) return wrong(p, "no collective given; there are %s", perf_collective_names());
  o->coll = perf_collective_find(argv[optind]);
  if (o->coll == NULL)
    return wrong(p, "no collective %s; there are %s", argv[optind], perf_collective_names());
  if (optind + 1 < argc)
    return wrong(p, "one collective at a time: %s is one too many", argv[optind + 1]);
  if (!p->has_max && o->max_bytes < o->min_bytes) o->max_bytes = o->min_bytes;
  if (p->has_max && o->min_bytes == DEFAULT_MIN && o->max_bytes < DEFAULT_MIN)
    o->min_bytes = o->max_bytes;
  if (o->min_bytes > o->max_bytes)
    return wrong(p, "-b %zu is more than -e %zu", o->min_bytes, o->max_bytes);
  if (o->iterations != 0 && p->has_time) return wrong(p, "give either -n or --time");
  bool both = o->coll->has_op && o->type >= 0 && o->op >= 0;
  if (both && !gyre_op_accepts((gyre_op)o->op, (gyre_dtype)o->type))
    return wrong(p, "-o %s does not take -d %s", gyre_op_name((gyre_op)o->op),
                 gyre_dtype_name((gyre_dtype)o->type));
  if (both && !perf_collective_takes(o->coll, (gyre_dtype)o->type, (gyre_op)o->op))
    return wrong(p, "-o %s: %s has no such result", gyre_op_name((gyre_op)o->op), o->coll->name);
  bool plain = strcmp(o->coll->name, "all_reduce") == 0 && o->type == GYRE_F32 && o->op == GYRE_SUM;
  if (o->raw && !plain) return wrong(p, "--raw compares all_reduce with -d f32 and -o sum only");
  return true;
}

enum perf_parsed perf_options_parse(struct perf_options *o, int argc, char **argv, char *why,
                                    size_t capacity) {
  *o = (struct perf_options){.min_bytes = DEFAULT_MIN,
                             .max_bytes = DEFAULT_MAX,
                             .factor = 2,
                             .seconds = 0.5,
                             .warmup = 5,
                             .type = GYRE_F32,
                             .op = GYRE_SUM};
  struct parse p = {.o = o, .why = why, .capacity = capacity};
  why[0] = '\0';
  optind = 0; /* glibc: start over, so that this may be called again */
  for (;;) {
    int option = getopt_long(argc, argv, ":b:e:f:n:w:d:o:r:h", long_options, NULL);
    if (option == -1) break;
    if (option == 'h') return PERF_HELP;
    if (option == OPT_VERSION) return PERF_VERSION;
    if (option == '?' || option == ':') {
      unknown_option(&p, argc, argv, option);
      return PERF_USAGE_ERROR;
    }
    if (!parse_option(&p, option, optarg)) return PERF_USAGE_ERROR;
  }
  return check_together(&p, argc, argv) ? PERF_RUN : PERF_USAGE_ERROR;
}
