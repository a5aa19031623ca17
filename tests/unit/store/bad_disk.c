/* A disk that fails when told to: preloaded into a process, it answers for files whose path holds
   $BAD_DISK. While the file $BAD_DISK_NOW says "full", writes fail with ENOSPC; "torn": a write
   does its first half, then the process is killed; "sync": syncs fail with EIO. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

static int told(int fd, const char *what) {
  char link[64], path[4096], now[16] = "";
  const char *ours = getenv("BAD_DISK"), *file = getenv("BAD_DISK_NOW");
  if (!ours || !file) return 0;
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  ssize_t n = readlink(link, path, sizeof path - 1);
  if (n < 0) return 0;
  path[n] = 0;
  if (!strstr(path, ours)) return 0;
  int saved = errno, from = open(file, O_RDONLY);
  if (from >= 0) {
    n = read(from, now, sizeof now - 1);
    close(from);
  }
  errno = saved;
  return strcmp(now, what) == 0;
}

ssize_t pwrite64(int fd, const void *from, size_t n, off64_t at) {
  static ssize_t (*real)(int, const void *, size_t, off64_t);
  if (!real) real = dlsym(RTLD_NEXT, "pwrite64");
  if (told(fd, "full")) {
    errno = ENOSPC;
    return -1;
  }
  if (told(fd, "torn")) {
    real(fd, from, n / 2, at);
    raise(SIGKILL);
  }
  return real(fd, from, n, at);
}

ssize_t pwrite(int fd, const void *from, size_t n, off_t at) { return pwrite64(fd, from, n, at); }

static int sync_by(const char *name, int fd) {
  int (*real)(int) = dlsym(RTLD_NEXT, name);
  if (told(fd, "sync")) {
    errno = EIO;
    return -1;
  }
  return real(fd);
}

int fsync(int fd) { return sync_by("fsync", fd); }

int fdatasync(int fd) { return sync_by("fdatasync", fd); }
