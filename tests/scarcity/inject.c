/* inject.c - see inject.h. Functions of the C library are replaced by the linker (see `wrap`) where only
 * the library's own calls count, and by definitions of the same name where libuv's count, too. */
#include "inject.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#include <openssl/crypto.h>
#include <uv.h>

static _Thread_local int my_rank = -1;

static struct {
  enum scarce what;
  enum extent extent;
  atomic_int rank; /* -1: nothing is counted */
  unsigned at;
  atomic_uint count;
  atomic_bool struck, over;
  int64_t until_ns;
  char where[160];
} plan = {.rank = -1};

static atomic_long blocks;

extern char __executable_start[];

static int64_t now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static bool fails(enum scarce what, const char *function, const void *caller) {
  if (my_rank < 0 || my_rank != atomic_load(&plan.rank) || what != plan.what) return false;
  unsigned n = atomic_fetch_add(&plan.count, 1) + 1;
  if (!plan.at || n < plan.at) return false;
  if (n == plan.at) {
    plan.until_ns = now_ns() + INT64_C(1000000) * SPELL_MS;
    snprintf(plan.where, sizeof plan.where, "%s, called from %#tx", function,
             (const char *)caller - __executable_start);
    atomic_store(&plan.struck, true);
    return true;
  }
  if (plan.extent == ONE || !atomic_load(&plan.struck) || atomic_load(&plan.over)) return false;
  return now_ns() < plan.until_ns;
}

void inject_rank(int rank) { my_rank = rank; }

void inject_begin(enum scarce what, int rank, unsigned k, enum extent extent) {
  plan.what = what;
  plan.extent = extent;
  plan.at = k;
  snprintf(plan.where, sizeof plan.where, "nothing");
  atomic_store(&plan.count, 0);
  atomic_store(&plan.struck, false);
  atomic_store(&plan.over, false);
  atomic_store(&plan.rank, rank);
}

void inject_rest(void) { atomic_store(&plan.over, true); }

unsigned inject_end(void) {
  atomic_store(&plan.rank, -1);
  return atomic_load(&plan.count);
}

bool inject_struck(void) { return atomic_load(&plan.struck); }
const char *inject_where(void) { return plan.where; }
long inject_blocks(void) { return atomic_load(&blocks); }

#define FAILS(what) fails(what, __func__, __builtin_return_address(0))

/* ------------------------------------------------------------------------------------- memory --- */

void *__real_malloc(size_t n);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *p, size_t n);
void *__real_aligned_alloc(size_t alignment, size_t n);
void __real_free(void *p);
void *__wrap_malloc(size_t n);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *p, size_t n);
void *__wrap_aligned_alloc(size_t alignment, size_t n);
void __wrap_free(void *p);

static void *counted(void *p) {
  if (p) atomic_fetch_add(&blocks, 1);
  return p;
}

void *__wrap_malloc(size_t n) {
  if (FAILS(MEMORY)) return NULL;
  return counted(__real_malloc(n));
}

void *__wrap_calloc(size_t n, size_t size) {
  if (FAILS(MEMORY)) return NULL;
  return counted(__real_calloc(n, size));
}

void *__wrap_realloc(void *p, size_t n) {
  if (FAILS(MEMORY)) return NULL;
  return p ? __real_realloc(p, n) : counted(__real_realloc(p, n));
}

void *__wrap_aligned_alloc(size_t alignment, size_t n) {
  if (FAILS(MEMORY)) return NULL;
  return counted(__real_aligned_alloc(alignment, n));
}

void __wrap_free(void *p) {
  if (p) atomic_fetch_sub(&blocks, 1);
  __real_free(p);
}

/* libuv aborts where its table of watched descriptors cannot grow: that cannot be tested. */
static void *uv_realloc_that_works(void *p, size_t n) {
  return p ? __real_realloc(p, n) : counted(__real_realloc(p, n));
}

/* What OpenSSL keeps is its own matter. */
static void *ssl_malloc(size_t n, const char *file, int line) {
  (void)file, (void)line;
  return FAILS(MEMORY) ? NULL : __real_malloc(n);
}

static void *ssl_realloc(void *p, size_t n, const char *file, int line) {
  (void)file, (void)line;
  return FAILS(MEMORY) ? NULL : __real_realloc(p, n);
}

static void ssl_free(void *p, const char *file, int line) {
  (void)file, (void)line;
  __real_free(p);
}

void inject_open(void) {
  uv_replace_allocator(__wrap_malloc, uv_realloc_that_works, __wrap_calloc, __wrap_free);
  CRYPTO_set_mem_functions(ssl_malloc, ssl_realloc, ssl_free);
}

int __real_getaddrinfo(const char *node, const char *service, const struct addrinfo *hints,
                       struct addrinfo **out);
int __wrap_getaddrinfo(const char *node, const char *service, const struct addrinfo *hints,
                       struct addrinfo **out);
int __real_getifaddrs(struct ifaddrs **out);
int __wrap_getifaddrs(struct ifaddrs **out);

int __wrap_getaddrinfo(const char *node, const char *service, const struct addrinfo *hints,
                       struct addrinfo **out) {
  if (FAILS(MEMORY)) return EAI_MEMORY;
  if (FAILS(DESCRIPTORS)) {
    errno = EMFILE;
    return EAI_SYSTEM;
  }
  return __real_getaddrinfo(node, service, hints, out);
}

int __wrap_getifaddrs(struct ifaddrs **out) {
  if (FAILS(MEMORY)) {
    errno = ENOMEM;
    return -1;
  }
  if (FAILS(DESCRIPTORS)) {
    errno = EMFILE;
    return -1;
  }
  return __real_getifaddrs(out);
}

FILE *__real_fopen(const char *path, const char *mode);
FILE *__wrap_fopen(const char *path, const char *mode);

FILE *__wrap_fopen(const char *path, const char *mode) {
  bool memory = FAILS(MEMORY);
  if (memory || FAILS(DESCRIPTORS)) {
    errno = memory ? ENOMEM : EMFILE;
    return NULL;
  }
  return __real_fopen(path, mode);
}

/* -------------------------------------------------------------------------------- descriptors --- */

/* The next definition of a function, a sanitizer's or the C library's. */
#define NEXT(function) ((__typeof__(&function))(uintptr_t)dlsym(RTLD_NEXT, #function))

#define FAIL_IF(what, error) \
  do {                       \
    if (FAILS(what)) {       \
      errno = (error);       \
      return -1;             \
    }                        \
  } while (0)

int socket(int family, int type, int protocol) {
  FAIL_IF(DESCRIPTORS, EMFILE);
  return NEXT(socket)(family, type, protocol);
}

int accept4(int fd, struct sockaddr *address, socklen_t *len, int flags) {
  FAIL_IF(DESCRIPTORS, EMFILE);
  return NEXT(accept4)(fd, address, len, flags);
}

int eventfd(unsigned value, int flags) {
  FAIL_IF(DESCRIPTORS, EMFILE);
  return NEXT(eventfd)(value, flags);
}

int epoll_create1(int flags) {
  FAIL_IF(DESCRIPTORS, EMFILE);
  return NEXT(epoll_create1)(flags);
}

int timerfd_create(int clock, int flags) {
  FAIL_IF(DESCRIPTORS, EMFILE);
  return NEXT(timerfd_create)(clock, flags);
}

int pipe2(int fds[2], int flags) {
  FAIL_IF(DESCRIPTORS, EMFILE);
  return NEXT(pipe2)(fds, flags);
}

int open(const char *path, int flags, ...) {
  va_list arguments;
  va_start(arguments, flags);
  mode_t mode = flags & O_CREAT ? va_arg(arguments, mode_t) : 0;
  va_end(arguments);
  FAIL_IF(DESCRIPTORS, EMFILE);
  return NEXT(open)(path, flags, mode);
}

/* -------------------------------------------------------------------------------- other calls --- */

int setsockopt(int fd, int level, int name, const void *value, socklen_t len) {
  FAIL_IF(OTHER_CALLS, ENOBUFS);
  return NEXT(setsockopt)(fd, level, name, value, len);
}

int bind(int fd, const struct sockaddr *address, socklen_t len) {
  FAIL_IF(OTHER_CALLS, ENOBUFS);
  return NEXT(bind)(fd, address, len);
}

int listen(int fd, int backlog) {
  FAIL_IF(OTHER_CALLS, ENOBUFS);
  return NEXT(listen)(fd, backlog);
}

int connect(int fd, const struct sockaddr *address, socklen_t len) {
  FAIL_IF(OTHER_CALLS, ENOBUFS);
  return NEXT(connect)(fd, address, len);
}

int getsockname(int fd, struct sockaddr *address, socklen_t *len) {
  FAIL_IF(OTHER_CALLS, ENOBUFS);
  return NEXT(getsockname)(fd, address, len);
}

struct start {
  int rank;
  void *(*main)(void *);
  void *arg;
};

static void *marked(void *arg) {
  struct start s = *(struct start *)arg;
  __real_free(arg);
  my_rank = s.rank;
  return s.main(s.arg);
}

int __real_pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*body)(void *),
                          void *arg);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*body)(void *),
                          void *arg);

int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*body)(void *),
                          void *arg) {
  if (FAILS(OTHER_CALLS)) return EAGAIN;
  struct start *s = __real_malloc(sizeof *s);
  if (!s) return EAGAIN;
  *s = (struct start){my_rank, body, arg};
  int rc = __real_pthread_create(thread, attr, marked, s);
  if (rc) __real_free(s);
  return rc;
}
