/* output.c - what is shown and written. See output.h. */
#include "output.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* -------------------------------------------------------------------------- derived figures --- */

double perf_algbw(size_t bytes, const struct perf_side *side) {
  return side->time.p50 > 0.0 ? (double)bytes / side->time.p50 / 1000.0 : 0.0;
}

static double busbw(const struct perf_output *out, size_t bytes, const struct perf_side *s) {
  return perf_algbw(bytes, s) * out->options->coll->bus_factor(out->nranks);
}

static int compare_doubles(const void *a, const void *b) {
  const double *x = a, *y = b;
  return (*x > *y) - (*x < *y);
}

/* The rank with the largest p50, and how it compares with the median over ranks. */
static int slowest_rank(const struct perf_side *side, int nranks, double *ratio) {
  double *p50 = malloc((size_t)nranks * sizeof(*p50));
  int slowest = 0;
  *ratio = 1.0;
  for (int r = 0; r < nranks; r++)
    if (side->by_rank[r].p50 > side->by_rank[slowest].p50) slowest = r;
  if (p50 == NULL) return slowest;
  for (int r = 0; r < nranks; r++) p50[r] = side->by_rank[r].p50;
  qsort(p50, (size_t)nranks, sizeof(*p50), compare_doubles);
  double median = (p50[(nranks - 1) / 2] + p50[nranks / 2]) / 2.0;
  if (median > 0.0) *ratio = side->by_rank[slowest].p50 / median;
  free(p50);
  return slowest;
}

/* ------------------------------------------------------------------------------------ table --- */

static const char *spin_text(void) {
  const char *spin = getenv("GYRE_SPIN_US");
  return spin == NULL || spin[0] == '\0' || strcmp(spin, "-1") == 0 ? "auto" : spin;
}

void perf_output_head(const struct perf_output *out, int hosts, const char *raw) {
  const struct perf_options *o = out->options;
  printf("# gyre-perf %s: %s, %d rank%s on %d host%s, transport %s, algorithm %s, spin %s\n",
         gyre_version_string(), o->coll->name, out->nranks, out->nranks == 1 ? "" : "s", hosts,
         hosts == 1 ? "" : "s", out->transport, out->algo, spin_text());
  printf("# times in us, of the slowest rank; bandwidths in GB/s from p50");
  printf(o->coll->has_root ? "; root %d\n" : "\n", o->root);
  if (raw != NULL)
    printf("# raw: the same over bare sockets, in turns with the collective; %s\n", raw);
  printf("#%37s%-48s%s\n", "", o->coll->has_data ? "out of place" : "",
         perf_collective_sides(o->coll) > 1 ? "in place" : "");
  printf("#%11s %12s %5s %5s", "bytes", "count", "type", "op");
  for (int side = 0; side < perf_collective_sides(o->coll); side++)
    printf(" %10s %10s %8s %8s %7s", "p50", "p99", "algbw", "busbw", "wrong");
  printf(raw != NULL ? " %10s %6s\n" : "\n", "raw p50", "ratio");
  fflush(stdout);
}

static void print_side(const struct perf_output *out, const struct perf_row *row, int i) {
  const struct perf_side *s = &row->side[i];
  printf(" %10.2f %10.2f %8.3f %8.3f", s->time.p50, s->time.p99, perf_algbw(row->bytes, s),
         busbw(out, row->bytes, s));
  if (out->options->check) printf(" %7" PRIu64, s->wrong);
  else printf(" %7s", "-");
}

static void print_ranks(const struct perf_output *out, const struct perf_row *row) {
  for (int r = 0; r < out->nranks; r++) {
    printf("#   rank %-5d", r);
    for (int i = 0; i < row->sides; i++) {
      const struct perf_times *t = &row->side[i].by_rank[r];
      printf("%s p50 %.2f p90 %.2f p99 %.2f min %.2f max %.2f", i == 0 ? "" : "  | in place",
             t->p50, t->p90, t->p99, t->min, t->max);
    }
    printf("\n");
  }
  double ratio;
  int slowest = slowest_rank(&row->side[0], out->nranks, &ratio);
  printf("#   slowest: rank %d, p50 %.2f x the median over ranks\n", slowest, ratio);
}

static void print_row(const struct perf_output *out, const struct perf_row *row) {
  printf("%12zu %12zu %5s %5s", row->bytes, row->count, row->type, row->op);
  for (int i = 0; i < row->sides; i++) print_side(out, row, i);
  if (row->raw_p50 > 0.0)
    printf(" %10.2f %6.2f", row->raw_p50, row->side[0].time.p50 / row->raw_p50);
  printf("\n");
  if (out->options->per_rank) print_ranks(out, row);
  fflush(stdout);
}

/* ------------------------------------------------------------------------------------ files --- */

static void json_text(FILE *f, const char *name, const char *text) {
  fprintf(f, "\"%s\":\"", name);
  for (; *text != '\0'; text++) {
    unsigned char c = (unsigned char)*text;
    if (c == '"' || c == '\\') fprintf(f, "\\%c", c);
    else if (c < 0x20) fprintf(f, "\\u%04x", c);
    else fputc(c, f);
  }
  fprintf(f, "\",");
}

static void json_side(const struct perf_output *out, const struct perf_row *row, int i) {
  const struct perf_side *s = &row->side[i];
  FILE *f = out->json;
  fputc('{', f);
  json_text(f, "collective", out->options->coll->name);
  fprintf(f, "\"ranks\":%d,\"bytes\":%zu,\"count\":%zu,", out->nranks, row->bytes, row->count);
  json_text(f, "dtype", row->type);
  json_text(f, "op", row->op);
  json_text(f, "algo", row->algo != NULL ? row->algo : out->algo);
  json_text(f, "transport", out->transport);
  fprintf(f, "\"in_place\":%s,\"iters\":%" PRIu64 ",", i == 1 ? "true" : "false", s->iterations);
  fprintf(f, "\"p50_us\":%.3f,\"p90_us\":%.3f,\"p99_us\":%.3f,\"min_us\":%.3f,\"max_us\":%.3f,",
          s->time.p50, s->time.p90, s->time.p99, s->time.min, s->time.max);
  fprintf(f, "\"algbw\":%.6g,\"busbw\":%.6g,", perf_algbw(row->bytes, s), busbw(out, row->bytes, s));
  if (out->options->check) fprintf(f, "\"wrong\":%" PRIu64, s->wrong);
  else fprintf(f, "\"wrong\":null");
  if (row->raw_p50 > 0.0)
    fprintf(f, ",\"raw_p50_us\":%.3f,\"ratio\":%.4f", row->raw_p50, s->time.p50 / row->raw_p50);
  if (out->options->per_rank) {
    fprintf(f, ",\"rank_p50_us\":[");
    for (int r = 0; r < out->nranks; r++)
      fprintf(f, "%s%.3f", r == 0 ? "" : ",", s->by_rank[r].p50);
    fputc(']', f);
  }
  fprintf(f, "}\n");
}

/* A text of the user's in quotes, as it may hold commas. */
static void csv_text(FILE *f, const char *text) {
  fputc('"', f);
  for (; *text != '\0'; text++) fprintf(f, *text == '"' ? "\"\"" : "%c", *text);
  fprintf(f, "\",");
}

static void csv_head(const struct perf_output *out) {
  fprintf(out->csv, "collective,ranks,bytes,count,dtype,op,algo,transport,in_place,iters,p50_us,"
                    "p90_us,p99_us,min_us,max_us,algbw,busbw,wrong");
  fprintf(out->csv, out->options->raw ? ",raw_p50_us,ratio\n" : "\n");
}

static void csv_side(const struct perf_output *out, const struct perf_row *row, int i) {
  const struct perf_side *s = &row->side[i];
  FILE *f = out->csv;
  fprintf(f, "%s,%d,%zu,%zu,%s,%s,", out->options->coll->name, out->nranks, row->bytes, row->count,
          row->type, row->op);
  csv_text(f, row->algo != NULL ? row->algo : out->algo);
  csv_text(f, out->transport);
  fprintf(f, "%d,%" PRIu64 ",%.3f,%.3f,%.3f,%.3f,%.3f,%.6g,%.6g,", i, s->iterations, s->time.p50,
          s->time.p90, s->time.p99, s->time.min, s->time.max, perf_algbw(row->bytes, s),
          busbw(out, row->bytes, s));
  if (out->options->check) fprintf(f, "%" PRIu64, s->wrong);
  if (row->raw_p50 > 0.0) fprintf(f, ",%.3f,%.4f", row->raw_p50, s->time.p50 / row->raw_p50);
  else if (out->options->raw) fprintf(f, ",,");
  fputc('\n', f);
}

void perf_output_row(const struct perf_output *out, const struct perf_row *row) {
  print_row(out, row);
  for (int i = 0; i < row->sides; i++) {
    if (out->json != NULL) json_side(out, row, i);
    if (out->csv != NULL) csv_side(out, row, i);
  }
  if (out->json != NULL) fflush(out->json); /* rows survive a later failure */
  if (out->csv != NULL) fflush(out->csv);
}

/* --------------------------------------------------------------------------- open and close --- */

/* The algorithm that was asked for: a name for all collectives, or this one's in a list. */
static const char *asked_algo(const struct perf_options *o) {
  static char found[64];
  const char *text = o->algo != NULL ? o->algo : getenv("GYRE_ALGO");
  size_t name = strlen(o->coll->name);
  if (text == NULL || text[0] == '\0') return "auto";
  if (strchr(text, '=') == NULL) return text;
  while (text != NULL && (strncmp(text, o->coll->name, name) != 0 || text[name] != '=')) {
    text = strchr(text, ',');
    text = text != NULL ? text + 1 : NULL;
  }
  if (text == NULL) return "auto";
  size_t length = strcspn(text + name + 1, ",");
  snprintf(found, sizeof(found), "%.*s", (int)length, text + name + 1);
  return found;
}

static const char *asked_transport(const struct perf_options *o) {
  const char *text = o->transport != NULL ? o->transport : getenv("GYRE_TRANSPORTS");
  return text == NULL || text[0] == '\0' ? "auto" : text;
}

static bool open_file(const char *path, FILE **f, char *why, size_t capacity) {
  if (path == NULL) return true;
  *f = fopen(path, "we");
  if (*f == NULL) snprintf(why, capacity, "cannot write %s: %s", path, strerror(errno));
  return *f != NULL;
}

bool perf_output_open(struct perf_output *out, const struct perf_options *options, int nranks,
                      char *why, size_t capacity) {
  *out = (struct perf_output){.options = options, .nranks = nranks};
  out->algo = asked_algo(options);
  out->transport = asked_transport(options);
  if (!open_file(options->json, &out->json, why, capacity) ||
      !open_file(options->csv, &out->csv, why, capacity))
    return false;
  if (out->csv != NULL) csv_head(out);
  return true;
}

static bool close_file(const char *path, FILE *f, char *why, size_t capacity) {
  if (f == NULL) return true;
  bool ok = !ferror(f);
  ok = fclose(f) == 0 && ok;
  if (!ok) snprintf(why, capacity, "cannot write %s: %s", path, strerror(errno));
  return ok;
}

bool perf_output_close(struct perf_output *out, char *why, size_t capacity) {
  bool ok = fflush(stdout) == 0 && !ferror(stdout);
  if (!ok) snprintf(why, capacity, "cannot write to standard output: %s", strerror(errno));
  if (out->options == NULL) return ok;
  ok = close_file(out->options->json, out->json, why, capacity) && ok;
  return close_file(out->options->csv, out->csv, why, capacity) && ok;
}
