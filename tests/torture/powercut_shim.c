/* Records what a process does to the files of one folder, for tests/torture/powercut_record.py.
 *
 * Loaded with LD_PRELOAD. Rule: an operation and its record are made under one lock, over threads and processes, so
 * the record's order is the order in which the kernel saw them; what cannot be replayed is recorded as '!', never
 * passed over.
 *
 * VODA_POWERCUT_FOLDER: absolute path of the folder. VODA_POWERCUT_JOURNAL: file that the records are appended to.
 * A record: kind (1 byte), inode, offset or size (8 bytes each), lengths of path and data (4 bytes each), both.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))
#define NAME_BYTES (2 * PATH_MAX)

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static int journal = -1;
static char folder[PATH_MAX];

__attribute__((constructor)) static void begin(void) {
  const char *where = getenv("VODA_POWERCUT_FOLDER"), *file = getenv("VODA_POWERCUT_JOURNAL");
  if (!where || !file || strlen(where) >= sizeof folder) return;
  /* Past the system calls below: the journal's own writes are not recorded. */
  journal = (int)syscall(SYS_openat, AT_FDCWD, file, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
  if (journal >= 0) strcpy(folder, where);
}

static void lock(void) {
  pthread_mutex_lock(&mutex);
  if (journal >= 0) flock(journal, LOCK_EX);
}

static void unlock(void) {
  int kept = errno;
  if (journal >= 0) flock(journal, LOCK_UN);
  pthread_mutex_unlock(&mutex);
  errno = kept;
}

static int is_watched(const char *path) {
  size_t length = strlen(folder);
  return length && !strncmp(path, folder, length) && (path[length] == '/' || !path[length]);
}

/* Put the absolute path of an open file into `path`; return whether it lies in the folder. */
static int path_of(int fd, char *path) {
  char link[64];
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  ssize_t length = readlink(link, path, NAME_BYTES - 1);
  if (length < 0) length = 0;
  path[length] = 0;
  return is_watched(path);
}

static int path_at(int at, const char *name, char *path) {
  path[0] = 0;
  if (name[0] == '/') {
    if (strlen(name) < NAME_BYTES) strcpy(path, name);
  } else {
    if (at != AT_FDCWD) path_of(at, path);
    else if (!getcwd(path, PATH_MAX)) path[0] = 0;
    if (strlen(path) + strlen(name) + 2 < NAME_BYTES) strcat(strcat(path, "/"), name);
  }
  return is_watched(path);
}

static void note(char kind, uint64_t inode, uint64_t offset, const char *path, const void *data, size_t bytes) {
  int kept = errno;
  uint32_t lengths[2] = {(uint32_t)strlen(path), (uint32_t)bytes};
  char head[25];
  head[0] = kind;
  memcpy(head + 1, &inode, 8);
  memcpy(head + 9, &offset, 8);
  memcpy(head + 17, lengths, 8);
  struct iovec parts[3] = {{head, sizeof head}, {(void *)path, lengths[0]}, {(void *)data, bytes}};
  ssize_t wanted = (ssize_t)(sizeof head + lengths[0] + bytes);
  if (syscall(SYS_writev, journal, parts, 3) != wanted) {
    static const char said[] = "powercut shim: the journal cannot be written\n";
    syscall(SYS_write, 2, said, sizeof said - 1);
    _exit(99);
  }
  errno = kept;
}

static uint64_t inode_of(int fd) {
  struct stat found;
  return fstat(fd, &found) ? 0 : found.st_ino;
}

/* ---- opening */

static int opened(int at, const char *name, int flags, mode_t mode) {
  char path[NAME_BYTES];
  int watched = path_at(at, name, path);
  if (!watched || !(flags & (O_CREAT | O_TRUNC))) return (int)syscall(SYS_openat, at, name, flags, mode);
  lock();
  struct stat before;
  int is_new = lstat(path, &before) != 0;
  int fd = (int)syscall(SYS_openat, at, name, flags, mode);
  if (fd >= 0 && is_new) note('C', inode_of(fd), 0, path, "", 0);
  else if (fd >= 0 && (flags & O_TRUNC)) note('T', inode_of(fd), 0, path, "", 0);
  unlock();
  return fd;
}

#define MODE(flags)                              \
  mode_t mode = 0;                               \
  if ((flags) & (O_CREAT | O_TMPFILE)) {         \
    va_list more;                                \
    va_start(more, flags);                       \
    mode = va_arg(more, mode_t);                 \
    va_end(more);                                \
  }

int open(const char *name, int flags, ...) { MODE(flags) return opened(AT_FDCWD, name, flags, mode); }
int open64(const char *name, int flags, ...) { MODE(flags) return opened(AT_FDCWD, name, flags, mode); }
int openat(int at, const char *name, int flags, ...) { MODE(flags) return opened(at, name, flags, mode); }
int openat64(int at, const char *name, int flags, ...) { MODE(flags) return opened(at, name, flags, mode); }

/* ---- contents */

ssize_t write(int fd, const void *data, size_t bytes) {
  char path[NAME_BYTES];
  if (!path_of(fd, path)) return syscall(SYS_write, fd, data, bytes);
  lock();
  ssize_t done = syscall(SYS_write, fd, data, bytes);
  /* Where the file stands after it; so it is for O_APPEND too. */
  if (done > 0) note('W', inode_of(fd), (uint64_t)(lseek(fd, 0, SEEK_CUR) - done), path, data, (size_t)done);
  unlock();
  return done;
}

static ssize_t written_at(int fd, const void *data, size_t bytes, off_t offset) {
  char path[NAME_BYTES];
  if (!path_of(fd, path)) return syscall(SYS_pwrite64, fd, data, bytes, offset);
  lock();
  ssize_t done = syscall(SYS_pwrite64, fd, data, bytes, offset);
  if (done > 0) note('W', inode_of(fd), (uint64_t)offset, path, data, (size_t)done);
  unlock();
  return done;
}

ssize_t pwrite(int fd, const void *data, size_t bytes, off_t offset) { return written_at(fd, data, bytes, offset); }
ssize_t pwrite64(int fd, const void *data, size_t bytes, off_t offset) { return written_at(fd, data, bytes, offset); }

static int cut_to(int fd, off_t size) {
  char path[NAME_BYTES];
  if (!path_of(fd, path)) return (int)syscall(SYS_ftruncate, fd, size);
  lock();
  int failed = (int)syscall(SYS_ftruncate, fd, size);
  if (!failed) note('T', inode_of(fd), (uint64_t)size, path, "", 0);
  unlock();
  return failed;
}

int ftruncate(int fd, off_t size) { return cut_to(fd, size); }
int ftruncate64(int fd, off_t size) { return cut_to(fd, size); }

/* ---- flushing */

static int synced(int fd, long call) {
  char path[NAME_BYTES];
  struct stat found;
  if (!path_of(fd, path) || fstat(fd, &found)) return (int)syscall(call, fd);
  lock();
  int failed = (int)syscall(call, fd);
  if (!failed) note(S_ISDIR(found.st_mode) ? 'D' : 'S', found.st_ino, 0, path, "", 0);
  unlock();
  return failed;
}

int fsync(int fd) { return synced(fd, SYS_fsync); }
int fdatasync(int fd) { return synced(fd, SYS_fdatasync); }

/* ---- names */

int linkat(int from_at, const char *from, int to_at, const char *to, int flags) {
  char path[NAME_BYTES];
  if (!path_at(to_at, to, path)) return (int)syscall(SYS_linkat, from_at, from, to_at, to, flags);
  lock();
  int failed = (int)syscall(SYS_linkat, from_at, from, to_at, to, flags);
  struct stat found;
  if (!failed && !lstat(path, &found)) note('L', found.st_ino, 0, path, "", 0);
  unlock();
  return failed;
}

int link(const char *from, const char *to) { return linkat(AT_FDCWD, from, AT_FDCWD, to, 0); }

int unlinkat(int at, const char *name, int flags) {
  char path[NAME_BYTES];
  if (!path_at(at, name, path)) return (int)syscall(SYS_unlinkat, at, name, flags);
  lock();
  int failed = (int)syscall(SYS_unlinkat, at, name, flags);
  if (!failed) note('U', 0, 0, path, "", 0);
  unlock();
  return failed;
}

int unlink(const char *name) { return unlinkat(AT_FDCWD, name, 0); }
int rmdir(const char *name) { return unlinkat(AT_FDCWD, name, AT_REMOVEDIR); }

int renameat(int from_at, const char *from, int to_at, const char *to) {
  char path[NAME_BYTES], target[NAME_BYTES];
  int watched = path_at(from_at, from, path) | path_at(to_at, to, target);
  if (!watched) return (int)syscall(SYS_renameat2, from_at, from, to_at, to, 0);
  lock();
  int failed = (int)syscall(SYS_renameat2, from_at, from, to_at, to, 0);
  if (!failed) note('R', 0, 0, path, target, strlen(target));
  unlock();
  return failed;
}

int rename(const char *from, const char *to) { return renameat(AT_FDCWD, from, AT_FDCWD, to); }

int mkdirat(int at, const char *name, mode_t mode) {
  char path[NAME_BYTES];
  if (!path_at(at, name, path)) return (int)syscall(SYS_mkdirat, at, name, mode);
  lock();
  int failed = (int)syscall(SYS_mkdirat, at, name, mode);
  if (!failed) note('M', 0, 0, path, "", 0);
  unlock();
  return failed;
}

int mkdir(const char *name, mode_t mode) { return mkdirat(AT_FDCWD, name, mode); }

/* ---- what the rebuilder cannot replay */

static void refuse(int fd, const char *call) {
  char path[NAME_BYTES];
  if (!path_of(fd, path)) return;
  lock();
  note('!', 0, 0, path, call, strlen(call));
  unlock();
}

static void *mapped(void *at, size_t bytes, int access, int flags, int fd, off_t offset) {
  char path[NAME_BYTES];
  /* SQLite's index of its journal is made anew after a crash, so nobody needs to know what is in it. */
  if (fd >= 0 && (access & PROT_WRITE) && (flags & MAP_SHARED) && path_of(fd, path)) {
    size_t length = strlen(path);
    if (length < 4 || strcmp(path + length - 4, "-shm")) refuse(fd, "mmap");
  }
  return (void *)syscall(SYS_mmap, at, bytes, access, flags, fd, offset);
}

void *mmap(void *at, size_t bytes, int access, int flags, int fd, off_t offset) {
  return mapped(at, bytes, access, flags, fd, offset);
}
void *mmap64(void *at, size_t bytes, int access, int flags, int fd, off_t offset) {
  return mapped(at, bytes, access, flags, fd, offset);
}

ssize_t writev(int fd, const struct iovec *parts, int count) {
  refuse(fd, "writev");
  return syscall(SYS_writev, fd, parts, count);
}
ssize_t pwritev(int fd, const struct iovec *parts, int count, off_t offset) {
  refuse(fd, "pwritev");
  return REAL(pwritev)(fd, parts, count, offset);
}
ssize_t pwritev64(int fd, const struct iovec *parts, int count, off_t offset) {
  refuse(fd, "pwritev64");
  return REAL(pwritev64)(fd, parts, count, offset);
}
int fallocate(int fd, int mode, off_t offset, off_t bytes) {
  refuse(fd, "fallocate");
  return (int)syscall(SYS_fallocate, fd, mode, offset, bytes);
}
int fallocate64(int fd, int mode, off_t offset, off_t bytes) { return fallocate(fd, mode, offset, bytes); }
int posix_fallocate(int fd, off_t offset, off_t bytes) {
  refuse(fd, "posix_fallocate");
  return REAL(posix_fallocate)(fd, offset, bytes);
}
int posix_fallocate64(int fd, off_t offset, off_t bytes) { return posix_fallocate(fd, offset, bytes); }
ssize_t copy_file_range(int in, off_t *from, int out, off_t *to, size_t bytes, unsigned flags) {
  refuse(out, "copy_file_range");
  return syscall(SYS_copy_file_range, in, from, out, to, bytes, flags);
}
