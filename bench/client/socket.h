/* What the two load clients share: the clock, source addresses, non-blocking
 * dials, and the message patterns that tell one connection's bytes from another's.
 *
 * Knows nothing of schedules, histograms or process groups.
 */
#ifndef BENCH_SOCKET_H
#define BENCH_SOCKET_H

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#ifndef IP_BIND_ADDRESS_NO_PORT
#define IP_BIND_ADDRESS_NO_PORT 24
#endif

/* Connections being established at one time: far below the listen queue of any
 * server under test, so that no SYN is dropped and set-up runs at the server's pace. */
enum { DIALS_IN_PROGRESS = 256 };

/* Prints what failed and why, and ends the process with the code for "could not measure". */
static inline void fail(const char *what) {
  fprintf(stderr, "%s: %s\n", what, strerror(errno));
  exit(2);
}

static inline uint64_t now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* A whole number within [low, high], or an error that names the flag. */
static inline long number(const char *flag, const char *text, long low, long high) {
  char *end;
  errno = 0;
  long v = strtol(text, &end, 10);
  if (errno || *end || end == text || v < low || v > high) {
    fprintf(stderr, "%s: expected a number from %ld to %ld, found \"%s\"\n", flag, low, high, text);
    exit(2);
  }
  return v;
}

/* Seconds above or equal to zero, or an error that names the flag. */
static inline double seconds(const char *flag, const char *text) {
  char *end;
  double v = strtod(text, &end);
  if (*end || end == text || !(v >= 0 && v <= 86400)) {
    fprintf(stderr, "%s: expected seconds from 0 to 86400, found \"%s\"\n", flag, text);
    exit(2);
  }
  return v;
}

/* Consecutive IPv4 source addresses. One source address has about 28,000 ephemeral
 * ports towards one server port. count 0 leaves the choice to the kernel. */
typedef struct {
  uint32_t first; /* host byte order */
  uint32_t count;
} source_range;

/* "127.0.0.2" or "127.0.0.2-127.0.0.5". */
static inline source_range parse_sources(const char *text) {
  char first[16], last[16];
  struct in_addr a, b;
  const char *dash = strchr(text, '-');
  size_t n = dash ? (size_t)(dash - text) : strlen(text);
  snprintf(first, sizeof first, "%.*s", (int)n, text);
  snprintf(last, sizeof last, "%s", dash ? dash + 1 : first);
  if (n >= sizeof first || inet_pton(AF_INET, first, &a) != 1 || inet_pton(AF_INET, last, &b) != 1 ||
      ntohl(b.s_addr) < ntohl(a.s_addr)) {
    fprintf(stderr, "-s: expected ADDRESS or FIRST-LAST, such as 127.0.0.2-127.0.0.5, found \"%s\"\n", text);
    exit(2);
  }
  return (source_range){ntohl(a.s_addr), ntohl(b.s_addr) - ntohl(a.s_addr) + 1};
}

/* Starts a connection to 127.0.0.1:port from the source address that `index` picks.
 * Returns the descriptor, connected or about to be, or -1 with errno set. */
static inline int dial(int port, source_range sources, uint32_t index) {
  int one = 1;
  int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (fd < 0) return -1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  if (sources.count) {
    struct sockaddr_in from = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(sources.first + index % sources.count)};
    /* The port is chosen at connect, per destination, not once for the whole address. */
    setsockopt(fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &one, sizeof one);
    if (bind(fd, (struct sockaddr *)&from, sizeof from)) goto failed;
  }
  if (connect(fd, (struct sockaddr *)&to, sizeof to) == 0 || errno == EINPROGRESS) return fd;
failed:;
  int saved = errno;
  close(fd);
  errno = saved;
  return -1;
}

/* The outcome of a dial, once the socket is writable: 0 or an errno. */
static inline int dial_error(int fd) {
  int e = 0;
  socklen_t n = sizeof e;
  return getsockopt(fd, SOL_SOCKET, SO_ERROR, &e, &n) ? errno : e;
}

/* Raises the soft descriptor limit to the hard one and checks that `wanted` connections fit. */
static inline void need_descriptors(long wanted) {
  struct rlimit l;
  if (getrlimit(RLIMIT_NOFILE, &l)) fail("getrlimit");
  l.rlim_cur = l.rlim_max;
  setrlimit(RLIMIT_NOFILE, &l);
  if ((rlim_t)wanted + 16 > l.rlim_max) {
    fprintf(stderr, "%ld connections need %ld descriptors, the limit is %lu: use more processes or raise ulimit -n\n",
            wanted, wanted + 16, (unsigned long)l.rlim_max);
    exit(2);
  }
}

/* Byte `i` of the message that connection `id` sends as number `sequence`. Every byte
 * depends on all three, so bytes of another connection, of an earlier message or at
 * another offset do not pass for these. */
static inline void fill_pattern(uint8_t *out, size_t len, uint64_t id, uint64_t sequence) {
  uint64_t x = (id + 1) * 0x9e3779b97f4a7c15u ^ (sequence + 1) * 0xd1342543de82ef95u;
  for (size_t i = 0; i < len; i += 8) {
    uint64_t z = (x += 0x9e3779b97f4a7c15u);
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    z ^= z >> 31;
    memcpy(out + i, &z, len - i < 8 ? len - i : 8);
  }
}

#endif
