/*
 * gyre-info.c - what Gyre sees and will do on this host: settings, transports, interfaces, CPU.
 *
 * Role:   gathers the facts once, then prints them as text or as one JSON object; also makes
 *         docs/settings.md. With --job it asks processes what they are doing instead (tools/info/).
 * Thread: one.
 */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <openssl/crypto.h>
#include <uv.h>

#include "address.h"
#ifdef GYRE_WITH_JANSSON
#include "ask.h"
#endif
#include "bootstrap.h"
#include "dump.h"
#include "json.h"
#include "launch.h"
#include "log.h"
#include "net.h"
#include "reduce.h"
#include "rendezvous.h"
#include "select.h"
#include "settings.h"
#include "status.h"

struct transport {
  const char *name;
  bool usable;
  char reason[1024];
};

struct facts {
  struct gy_settings settings;
  struct transport transport[2];
  size_t n_transport;
  char interfaces[8192]; /* see gy_address_list */
  char cpu_model[128], cpu_features[512];
  const char *kernels; /* instruction set of the reduction kernels */
  unsigned cores;
  int64_t spin_us;
};

/* ------------------------------------------------------------------------------- gathering --- */

static bool listed(const char *list, const char *name, const char *separators) {
  size_t len = strlen(name);
  while (*list) {
    size_t n = strcspn(list, separators);
    if (n == len && memcmp(list, name, n) == 0) return true;
    list += n;
    list += strspn(list, separators);
  }
  return false;
}

/* The value of the first line of /proc/cpuinfo with one of two keys; "" if there is none. */
static void cpuinfo(const char *key, const char *other_key, char *out, size_t capacity) {
  FILE *f = fopen("/proc/cpuinfo", "r");
  char *line = NULL;
  size_t size = 0;
  out[0] = 0;
  while (f && getline(&line, &size, f) > 0) {
    char *colon = strchr(line, ':');
    if (!colon) continue;
    size_t len = (size_t)(colon - line);
    while (len > 0 && strchr(" \t", line[len - 1])) len--;
    line[len] = 0;
    if (strcmp(line, key) != 0 && strcmp(line, other_key) != 0) continue;
    gy_format(out, capacity, "%s", colon + 1 + strspn(colon + 1, " \t"));
    out[strcspn(out, "\n")] = 0;
    break;
  }
  free(line);
  if (f) fclose(f);
}

/* Those the kernels use or could use, as the kernel names them. */
static void find_cpu(struct facts *f) {
  static const char *const known[] = {"sse4_2",      "avx",         "f16c",     "fma",
                                      "avx2",        "avx512f",     "avx512bw", "avx512vl",
                                      "avx512_bf16", "avx512_fp16", "amx_bf16", "asimd",
                                      "asimdhp",     "bf16",        "sve",      "sve2"};
  char flags[8192];
  size_t used = 0;
  cpuinfo("model name", "Processor", f->cpu_model, sizeof f->cpu_model);
  cpuinfo("flags", "Features", flags, sizeof flags);
  for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
    if (listed(flags, known[i], " "))
      used += gy_format(f->cpu_features + used, sizeof f->cpu_features - used, "%s%s",
                        used ? " " : "", known[i]);
  f->cores = uv_available_parallelism();
  f->kernels = gy_reduce_isa();
}

static bool is_named(const struct gy_settings *s, struct transport *t) {
  if (!s->transports[0] || listed(s->transports, t->name, ",")) return true;
  gy_format(t->reason, sizeof t->reason, "GYRE_TRANSPORTS=%s does not name it", s->transports);
  return false;
}

static void find_shm(const struct gy_settings *s, struct transport *t) {
  t->name = "shm";
  if (!is_named(s, t)) return;
  struct gy_address address[GY_ADDRESS_MAX];
  size_t n = 0;
  if (gy_address_choose(s, s->secret[0] != 0, address, &n) != GYRE_OK) {
    gy_format(t->reason, sizeof t->reason, "ranks meet over TCP: %s", gyre_last_error());
    return;
  }
  t->usable = true;
  gy_format(t->reason, sizeof t->reason,
            "between processes of this host that see the same loopback interface; only where "
            "GYRE_TRANSPORTS names it and not tcp");
}

static void find_tcp(const struct gy_settings *s, struct transport *t) {
  struct gy_address address[GY_ADDRESS_MAX];
  size_t n = 0;
  bool secret = s->secret[0] != 0;
  t->name = "tcp";
  if (!is_named(s, t)) return;
  if (gy_address_choose(s, secret, address, &n) != GYRE_OK) {
    gy_format(t->reason, sizeof t->reason, "%s", gyre_last_error());
    return;
  }
  t->usable = true;
  size_t used = gy_format(t->reason, sizeof t->reason, "listens on ");
  for (size_t i = 0; i < n; i++) {
    char text[GY_ADDRESS_TEXT];
    gy_address_text(&address[i], text);
    char *port = strrchr(text, ':'); /* not chosen yet */
    if (port) *port = 0;
    used += gy_format(t->reason + used, sizeof t->reason - used, "%s%s", i ? ", " : "", text);
  }
  if (!secret && !s->insecure)
    gy_format(t->reason + used, sizeof t->reason - used,
              "; loopback only, as no secret is set (GYRE_SECRET)");
}

static gyre_status refused(gyre_status status, const char *name) {
  return status == GYRE_OK ? GYRE_OK : gy_fail(status, "%s: %s", name, gyre_last_error());
}

/* What gy_settings_load leaves to those who use the values. */
static gyre_status check_settings(const struct gy_settings *s) {
  gyre_status st = gy_launch_check(s);
  if (st == GYRE_OK) st = gy_net_check(s);
  if (st == GYRE_OK) st = gy_dump_check(s);
  if (st == GYRE_OK) st = refused(gy_reduce_use(s->cpu), "GYRE_CPU");
  if (st == GYRE_OK) st = refused(gy_select_check(s->algo), "GYRE_ALGO");
  if (st == GYRE_OK && s->rendezvous[0]) {
    struct gy_rendezvous rendezvous;
    struct gy_bootstrap_config config = {.nranks = 1, .settings = s};
    st = gy_rendezvous_parse(&config, &rendezvous);
    st = refused(st, "GYRE_RENDEZVOUS");
  }
  return st;
}

static gyre_status gather(struct facts *f) {
  memset(f, 0, sizeof *f);
  gyre_status st = gy_settings_load(&f->settings);
  if (st == GYRE_OK) st = check_settings(&f->settings);
  if (st != GYRE_OK) return st;
  f->spin_us = gy_settings_spin_us(&f->settings);
  find_cpu(f);
  find_tcp(&f->settings, &f->transport[f->n_transport++]);
  find_shm(&f->settings, &f->transport[f->n_transport++]);
  gy_address_list(f->interfaces, sizeof f->interfaces);
  return GYRE_OK;
}

static bool any_usable(const struct facts *f) {
  for (size_t i = 0; i < f->n_transport; i++)
    if (f->transport[i].usable) return true;
  return false;
}

/* Takes the next of gy_address_list's items apart: "eth0 10.0.0.1/24 up". False at the end. */
struct interface {
  char name[64], address[128], state[16];
};

static bool next_interface(const char **list, struct interface *out) {
  memset(out, 0, sizeof *out);
  while (**list) {
    const char *item = *list;
    size_t n = strcspn(item, ",");
    *list += n + strspn(item + n, ", ");
    char text[256];
    gy_format(text, sizeof text, "%.*s", (int)n, item);
    if (sscanf(text, "%63s %127s %15s", out->name, out->address, out->state) == 3) return true;
  }
  return false;
}

/* ------------------------------------------------------------------------------------ text --- */

static bool is_text(const struct gy_setting *t) {
  return t->kind != GY_KIND_UINT && t->kind != GY_KIND_INT && t->kind != GY_KIND_BOOL;
}

/* What stands for an empty value. */
static const char *absent(const struct gy_setting *t) {
  return t->scope == GY_LAUNCH ? "(not given)" : is_text(t) ? "(none)" : "(automatic)";
}

static void value_or_absent(const struct gy_settings *s, size_t i, char *out, size_t capacity) {
  size_t n;
  if (gy_settings_text(s, i, out, capacity) == 0)
    gy_format(out, capacity, "%s", absent(&gy_settings_table(&n)[i]));
}

static void print_settings(const struct facts *f) {
  struct gy_settings defaults;
  size_t n;
  const struct gy_setting *t = gy_settings_table(&n);
  gy_settings_defaults(&defaults);
  printf("\nSettings (* given by the environment)\n");
  for (size_t i = 0; i < n; i++) {
    char value[600], def[600], rule[160];
    value_or_absent(&f->settings, i, value, sizeof value);
    value_or_absent(&defaults, i, def, sizeof def);
    gy_settings_rule(&t[i], rule, sizeof rule);
    gy_one_line(value);
    char mark = gy_settings_given(&f->settings, t[i].name) ? '*' : ' ';
    printf("%c %-24s %s\n", mark, t[i].name, value);
    printf("    default %s; %s; %s\n    %s\n", def, gy_settings_scope_name(t[i].scope), rule,
           t[i].doc);
  }
}

static void print_text(const struct facts *f) {
  printf("Gyre %s (libuv %s, %s)\n\n", gyre_version_string(), uv_version_string(),
         OpenSSL_version(OPENSSL_VERSION));
  printf("CPU         %s\n", f->cpu_model[0] ? f->cpu_model : "(unknown)");
  printf("  cores     %u for this process\n", f->cores);
  printf("  features  %s\n", f->cpu_features[0] ? f->cpu_features : "(none that matter)");
  printf("  kernels   %s\n", f->kernels);
  printf("Spin        %lld us before sleeping%s; gives way to others when the host has more ranks "
         "than cores\n",
         (long long)f->spin_us, f->settings.spin_us < 0 ? " (automatic)" : "");
  printf("\nTransports\n");
  for (size_t i = 0; i < f->n_transport; i++)
    printf("  %-9s %s: %s\n", f->transport[i].name,
           f->transport[i].usable ? "usable" : "not usable", f->transport[i].reason);
  printf("\nInterfaces\n");
  const char *list = f->interfaces;
  for (struct interface it; next_interface(&list, &it);)
    printf("  %-9s %s %s\n", it.name, it.address, it.state);
  print_settings(f);
}

/* ------------------------------------------------------------------------------------ JSON --- */

static void json_text(const char *text) {
  struct gy_json j = {0};
  gy_json_text(&j, text);
  fputs(j.failed ? "null" : j.data, stdout);
  gy_json_free(&j);
}

static void json_member(const char *before, const char *key, const char *text) {
  printf("%s\"%s\": ", before, key);
  if (*text) json_text(text);
  else printf("null");
}

static void json_settings(const struct facts *f) {
  struct gy_settings defaults;
  size_t n;
  const struct gy_setting *t = gy_settings_table(&n);
  gy_settings_defaults(&defaults);
  printf("  \"settings\": [");
  for (size_t i = 0; i < n; i++) {
    char value[600], def[600], rule[160];
    gy_settings_text(&f->settings, i, value, sizeof value);
    gy_settings_text(&defaults, i, def, sizeof def);
    gy_settings_rule(&t[i], rule, sizeof rule);
    json_member(i ? ",\n    {" : "\n    {", "name", t[i].name);
    json_member(", ", "value", value);
    json_member(", ", "default", def);
    printf(", \"given\": %s", gy_settings_given(&f->settings, t[i].name) ? "true" : "false");
    json_member(", ", "scope", gy_settings_scope_name(t[i].scope));
    json_member(", ", "rule", rule);
    json_member(", ", "doc", t[i].doc);
    printf("}");
  }
  printf("\n  ]\n");
}

static void print_json(const struct facts *f) {
  json_member("{\n  ", "version", gyre_version_string());
  json_member(",\n  ", "libuv", uv_version_string());
  json_member(",\n  ", "openssl", OpenSSL_version(OPENSSL_VERSION_STRING));
  json_member(",\n  \"cpu\": {", "model", f->cpu_model);
  printf(", \"cores\": %u, \"features\": [", f->cores);
  for (const char *c = f->cpu_features, *comma = ""; *c; comma = ", ") {
    size_t n = strcspn(c, " ");
    printf("%s\"%.*s\"", comma, (int)n, c);
    c += n + (c[n] == ' ');
  }
  json_member("], ", "kernels", f->kernels);
  printf("},\n  \"spin_us\": %lld,\n  \"transports\": [", (long long)f->spin_us);
  for (size_t i = 0; i < f->n_transport; i++) {
    json_member(i ? ", {" : "{", "name", f->transport[i].name);
    printf(", \"usable\": %s", f->transport[i].usable ? "true" : "false");
    json_member(", ", "reason", f->transport[i].reason);
    printf("}");
  }
  printf("],\n  \"interfaces\": [");
  const char *list = f->interfaces, *before = "{";
  for (struct interface it; next_interface(&list, &it); before = ", {") {
    json_member(before, "name", it.name);
    json_member(", ", "address", it.address);
    json_member(", ", "state", it.state);
    printf("}");
  }
  printf("],\n");
  json_settings(f);
  printf("}\n");
}

/* -------------------------------------------------------------------------------- the page --- */

/* A table cell: '|' would end it. */
static void print_cell(const char *text) {
  printf(" ");
  for (const char *c = text; *c; c++) printf(*c == '|' ? "\\|" : "%c", *c);
  printf(" |");
}

static void print_markdown(void) {
  struct gy_settings defaults;
  size_t n;
  const struct gy_setting *t = gy_settings_table(&n);
  gy_settings_defaults(&defaults);
  printf("# Settings\n\n"
         "<!-- Made by `gyre-info --settings-markdown` from the table in src/settings.c. Do not "
         "edit. -->\n\n"
         "Every setting is an environment variable; a configuration struct of the API goes before "
         "it. A value outside its\n"
         "rule is an error that says the rule, never a silent default. An unknown `GYRE_*` "
         "variable is a warning, once per\n"
         "process, with the nearest known name. `gyre-info` lists the values in force.\n\n"
         "Scope: *launch* settings are read by `gyre_comm_create_from_env` and set by launchers; "
         "*local* ones may differ\n"
         "between ranks; of *agreed* ones rank 0's value holds for all ranks, and creating the "
         "communicator fails where\n"
         "another rank was explicitly given another value.\n\n"
         "| Variable | Value | Default | Scope | Meaning |\n|---|---|---|---|---|\n");
  for (size_t i = 0; i < n; i++) {
    char def[600], rule[160];
    value_or_absent(&defaults, i, def, sizeof def);
    gy_settings_rule(&t[i], rule, sizeof rule);
    printf("| `%s` |", t[i].name);
    print_cell(rule);
    print_cell(def);
    print_cell(gy_settings_scope_name(t[i].scope));
    print_cell(t[i].doc);
    printf("\n");
  }
}

/* ------------------------------------------------------------------------------------ main --- */

static const char usage_text[] =
    "usage: gyre-info [--json | --settings-markdown]\n"
    "       gyre-info --job PID|FILE...\n"
    "\n"
    "Shows what Gyre sees and will do on this host: versions, CPU, transports, interfaces, and "
    "every setting with its\n"
    "value, default, scope and meaning. A wrong GYRE_* variable is an error.\n"
    "With --job it tells what the ranks of a job are doing and who keeps the others waiting, from "
    "processes of this host or\n"
    "files of the flight recorder.\n"
    "\n"
    "  --json               one JSON object\n"
    "  --settings-markdown  the reference page of the settings\n"
    "  --job                what each process and file named has to say, put together\n"
    "  --help               print this text\n"
    "  --version            print the version\n"
    "\n"
    "Exit status: 0; 1 if a setting is wrong, no transport is usable, or a process or file cannot "
    "be "
    "read; 2 for wrong\n"
    "usage; 3 if a communicator has failed, its ranks disagree, or one keeps the others waiting.\n";

static int finish(int status) {
  if (fflush(stdout) == 0 && !ferror(stdout)) return status;
  fprintf(stderr, "gyre-info: cannot write standard output\n");
  return 1;
}

#ifdef GYRE_WITH_JANSSON
static int report_job(char *const *arguments, int n) {
  struct job *job = job_new();
  if (!job) {
    fprintf(stderr, "gyre-info: out of memory\n");
    return 1;
  }
  int unread = ask_all(job, arguments, n);
  bool good = job_report(job, stdout);
  job_free(job);
  return finish(unread ? 1 : good ? 0 : 3);
}
#else
static int report_job(char *const *arguments, int n) {
  (void)arguments;
  (void)n;
  fprintf(stderr, "gyre-info: built without --job, which needs Jansson (Debian: apt-get install "
                  "libjansson-dev)\n");
  return 1;
}
#endif

int main(int argc, char **argv) {
  static const struct option longs[] = {
      {"json", no_argument, NULL, 'j'},    {"settings-markdown", no_argument, NULL, 'm'},
      {"job", no_argument, NULL, 'J'},     {"help", no_argument, NULL, 'h'},
      {"version", no_argument, NULL, 'V'}, {NULL, 0, NULL, 0}};
  static struct facts facts;
  int mode = 0;
  for (int c; (c = getopt_long(argc, argv, "h", longs, NULL)) != -1;) {
    if (c == '?' || (mode && mode != c)) {
      fprintf(stderr, "try: gyre-info --help\n");
      return 2;
    }
    mode = c;
  }
  if (mode == 'J' && optind == argc) {
    fprintf(stderr, "gyre-info: --job: name a process or a file\ntry: gyre-info --help\n");
    return 2;
  }
  if (mode == 'J') return report_job(argv + optind, argc - optind);
  if (optind < argc) {
    fprintf(stderr, "gyre-info: %s: no argument is expected\n", argv[optind]);
    fprintf(stderr, "try: gyre-info --help\n");
    return 2;
  }
  if (mode == 'h') printf("%s", usage_text);
  if (mode == 'V') printf("gyre-info %s\n", gyre_version_string());
  if (mode == 'm') print_markdown();
  if (mode == 'h' || mode == 'V' || mode == 'm') return finish(0);
  if (gather(&facts) != GYRE_OK) {
    fprintf(stderr, "gyre-info: %s\n", gyre_last_error());
    return 1;
  }
  if (mode == 'j') print_json(&facts);
  else print_text(&facts);
  return finish(any_usable(&facts) ? 0 : 1);
}
