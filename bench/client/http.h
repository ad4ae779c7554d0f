/* The HTTP/1.1 that the load clients speak: one GET, and the answer that it must bring.
 *
 * The first answer is read with care and kept. Later ones must be the same bytes, but for
 * the value of Date: a server whose answers differ in anything else is found out.
 * Needs <sys/ioctl.h> and _GNU_SOURCE of the file that includes it.
 */
#ifndef BENCH_HTTP_H
#define BENCH_HTTP_H

#include "socket.h"

#include <sys/ioctl.h>

/* Of a Date's 29 characters the ones that may differ: all but " GMT". */
enum { DATE_CHANGES = 25 };

typedef struct {
  const uint8_t *bytes;
  uint32_t length;
  uint32_t date; /* where the value of Date begins; `length` if there is none */
} http_answer;

/* GET `path`, with the header fields of TechEmpower's load script. Returns its length. */
static inline size_t http_request(char **out, const char *path, int port) {
  int n = asprintf(out,
                   "GET %s HTTP/1.1\r\nHost: localhost:%d\r\nAccept: application/json,text/html;q=0.9,"
                   "application/xhtml+xml;q=0.9,application/xml;q=0.8,*/*;q=0.7\r\nConnection: keep-alive\r\n\r\n",
                   path, port);
  if (n < 0) fail("asprintf");
  return (size_t)n;
}

/* Finds a header field's value within [text, end); NULL if there is none. `name` ends with ':'. */
static inline const char *http_field(const char *text, const char *end, const char *name) {
  size_t n = strlen(name);
  for (const char *line = memmem(text, (size_t)(end - text), "\r\n", 2); line && line + 2 + n < end;
       line = memmem(line + 2, (size_t)(end - line - 2), "\r\n", 2))
    if (!strncasecmp(line + 2, name, n)) return line + 2 + n + strspn(line + 2 + n, " ");
  return NULL;
}

/* Bytes of the whole response whose head begins at `text`, once the head is there: 0 before, -1
 * for what is no response with a Content-Length. */
static inline long http_response_bytes(const char *text, size_t n) {
  const char *end = memmem(text, n, "\r\n\r\n", 4);
  if (!end) return n >= 9 && memcmp(text, "HTTP/1.1 ", 9) ? -1 : 0;
  const char *length = http_field(text, end + 2, "Content-Length:");
  if (memcmp(text, "HTTP/1.1 ", 9) || !length) return -1;
  return (long)(end + 4 - text) + strtol(length, NULL, 10);
}

/* Asks once on a connection of its own, waits for the whole answer and keeps it. Anything but a
 * 200 with a Content-Length ends the process. */
static inline http_answer learn_http_answer(const char *request, size_t request_bytes, int port, source_range sources) {
  static char text[1 << 16];
  int fd = dial(port, sources, 0), blocking = 0;
  struct timeval limit = {3, 0};
  if (fd < 0) fail("connect");
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
  /* The one exchange outside the loop: blocking, and the dial may still be under way. */
  if (ioctl(fd, FIONBIO, &blocking)) fail("ioctl");
  if (send(fd, request, request_bytes, MSG_NOSIGNAL) != (ssize_t)request_bytes) fail("first request");
  for (size_t got = 0;;) {
    ssize_t n = recv(fd, text + got, sizeof text - 1 - got, 0);
    if (n <= 0) fail("first answer");
    got += (size_t)n;
    text[got] = 0;
    long total = http_response_bytes(text, got);
    if (total < 0 || (total && memcmp(text + 9, "200", 3)) || total >= (long)sizeof text || (total && got > (size_t)total)) {
      fprintf(stderr, "first answer: expected status 200, a Content-Length and that many bytes, found: %.200s\n", text);
      exit(2);
    }
    if (!total || got < (size_t)total) continue;
    close(fd);
    const char *date = http_field(text, text + got, "Date:");
    return (http_answer){(uint8_t *)text, (uint32_t)got, date ? (uint32_t)(date - text) : (uint32_t)got};
  }
}

/* Whether these are the bytes at `offset` of such answers, one behind the other. */
static inline int http_answer_matches(const http_answer *answer, size_t offset, const uint8_t *bytes, size_t n) {
  const uint32_t date_end = answer->date < answer->length ? answer->date + DATE_CHANGES : answer->length;
  for (size_t i = 0; i < n;) {
    uint32_t at = (uint32_t)((offset + i) % answer->length);
    if (at >= answer->date && at < date_end) {
      i += date_end - at;
      continue;
    }
    size_t same = (at < answer->date ? answer->date : answer->length) - at;
    if (same > n - i) same = n - i;
    if (memcmp(bytes + i, answer->bytes + at, same)) return 0;
    i += same;
  }
  return 1;
}

#endif
