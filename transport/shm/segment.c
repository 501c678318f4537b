/*
 * segment.c - makes the shared memory of a link and passes it to the other end; see segment.h.
 *
 * Thread: the driving thread.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../../src/fork.h"
#include "../../src/status.h"
#include "segment.h"

struct note { /* what goes over the socket with the descriptor; both ends are on one host, so in its byte order */
  uint32_t magic, cells, piece, bytes;
};

static const struct note own = {0x47595348u /* "GYSH" */, SHM_CELLS, SHM_PIECE,
                                sizeof(struct shm_segment)};

union control {
  struct cmsghdr header;
  char room[CMSG_SPACE(sizeof(int))];
};

static gyre_status map(int fd, struct shm_segment **out) {
  void *at = mmap(NULL, sizeof **out, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, 0);
  if (at == MAP_FAILED)
    return gy_fail_errno(GYRE_ERR_SYS, errno, "cannot map %zu bytes of shared memory", sizeof **out);
  madvise(at, sizeof **out, MADV_DONTFORK); /* a child has no business in it, and must not keep it */
  *out = at;
  return GYRE_OK;
}

/* A descriptor, or -1 with the text. */
static int allocate(void) {
  int fd = memfd_create("gyre", MFD_CLOEXEC | MFD_ALLOW_SEALING), failed;
  if (fd < 0) {
    gy_fail_errno(GYRE_ERR_SYS, errno, "cannot make shared memory%s", gy_errno_advice(errno));
    return -1;
  }
  failed = posix_fallocate(fd, 0, sizeof(struct shm_segment));
  if (!failed && fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)) failed = errno;
  if (!failed) return fd;
  close(fd);
  gy_fail_errno(GYRE_ERR_SYS, failed,
                "cannot have %zu bytes of shared memory for a link; GYRE_TRANSPORTS=tcp needs none",
                sizeof(struct shm_segment));
  return -1;
}

static gyre_status pass(int socket, int fd) {
  struct note note = own;
  union control control = {0};
  struct iovec iov = {&note, sizeof note};
  struct msghdr msg = {
      .msg_iov = &iov, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
  struct cmsghdr *c = CMSG_FIRSTHDR(&msg);
  *c = (struct cmsghdr){
      .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(sizeof fd)};
  memcpy(CMSG_DATA(c), &fd, sizeof fd);
  ssize_t n;
  do { n = sendmsg(socket, &msg, MSG_NOSIGNAL | MSG_DONTWAIT); } while (n < 0 && errno == EINTR);
  if (n == (ssize_t)sizeof note) return GYRE_OK;
  if (n < 0 && (errno == EPIPE || errno == ECONNRESET)) return GYRE_ERR_PEER_LOST;
  return gy_fail_errno(GYRE_ERR_SYS, n < 0 ? errno : EMSGSIZE,
                       "cannot pass shared memory to the peer");
}

gyre_status gy_shm_make(int socket, struct shm_segment **out) {
  struct shm_segment *s;
  gyre_status st = GYRE_ERR_SYS;
  gy_fork_hold(); /* no child is to have the descriptor */
  int fd = allocate();
  if (fd < 0) goto release_fork;
  st = map(fd, &s);
  if (st) goto close_fd;
  st = pass(socket, fd);
  if (st) gy_shm_unmap(s);
  else *out = s;
close_fd:
  close(fd);
release_fork:
  gy_fork_release();
  return st;
}

static gyre_status refuse(int fd, const char *why) {
  if (fd >= 0) close(fd);
  return gy_fail(GYRE_ERR_PROTO, "what came in place of shared memory is none: %s", why);
}

/* Its size must be what it is, and stay so. */
static gyre_status check(int fd, const struct note *note) {
  struct stat st;
  if (memcmp(note, &own, sizeof own)) return refuse(fd, "another layout");
  if (fd < 0) return refuse(fd, "no descriptor");
  int seals = fcntl(fd, F_GET_SEALS);
  if (fstat(fd, &st) || st.st_size != (off_t)sizeof(struct shm_segment))
    return refuse(fd, "another size");
  if (seals < 0 || !(seals & F_SEAL_SHRINK)) return refuse(fd, "its size is not sealed");
  return GYRE_OK;
}

gyre_status gy_shm_take(int socket, struct shm_segment **out) {
  struct note note;
  union control control = {0};
  struct iovec iov = {&note, sizeof note};
  struct msghdr msg = {
      .msg_iov = &iov, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
  int fd = -1;
  ssize_t n;
  gy_fork_hold();
  do {
    n = recvmsg(socket, &msg, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  } while (n < 0 && errno == EINTR);
  int failed = errno;
  const struct cmsghdr *c = n >= 0 ? CMSG_FIRSTHDR(&msg) : NULL;
  if (c && c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS)
    memcpy(&fd, CMSG_DATA(c), sizeof fd);
  gyre_status st;
  if (n < 0 && (failed == EAGAIN || failed == EWOULDBLOCK)) st = GYRE_IN_PROGRESS;
  else if (n <= 0) st = GYRE_ERR_PEER_LOST;
  else if (n != (ssize_t)sizeof note) st = refuse(fd, "a part of a note");
  else if (msg.msg_flags & MSG_CTRUNC && fd < 0)
    st = gy_fail_errno(GYRE_ERR_SYS, EMFILE, "cannot take shared memory%s", gy_errno_advice(EMFILE));
  else st = check(fd, &note);
  if (!st) {
    st = map(fd, out);
    close(fd);
  }
  gy_fork_release();
  return st;
}

void gy_shm_unmap(struct shm_segment *s) { munmap(s, sizeof *s); }
