/* The WebSocket that the load client speaks: an upgrade, then masked binary messages, which come back unmasked.
 *
 * Needs _GNU_SOURCE of the file that includes it.
 */
#ifndef BENCH_WEBSOCKET_H
#define BENCH_WEBSOCKET_H

#include "socket.h"

/* RFC 6455 1.3: the key of the example and what answers it. */
#define WEBSOCKET_KEY "dGhlIHNhbXBsZSBub25jZQ=="
#define WEBSOCKET_ACCEPT "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="

enum { WEBSOCKET_KEY_BYTES = 4, WEBSOCKET_HEADER_MAX = 4, WEBSOCKET_MESSAGE_MAX = 65535 };

/* One key for all: what it protects against is no concern here, and servers undo any alike. */
static const uint8_t websocket_mask[WEBSOCKET_KEY_BYTES] = {0x37, 0xfa, 0x21, 0x3d};

/* The header, without a mask, of a binary message of `bytes` in one frame. Returns its length. */
static inline size_t websocket_header(uint8_t *out, size_t bytes) {
  out[0] = 0x82;
  if (bytes < 126) {
    out[1] = (uint8_t)bytes;
    return 2;
  }
  out[1] = 126;
  out[2] = (uint8_t)(bytes >> 8);
  out[3] = (uint8_t)bytes;
  return 4;
}

/* Bytes of the message of `bytes` on its way to the server. */
static inline size_t websocket_sent_bytes(size_t bytes) { return (bytes < 126 ? 2 : 4) + WEBSOCKET_KEY_BYTES + bytes; }

/* A client's frame around `payload`. Returns its length. */
static inline size_t websocket_frame(uint8_t *out, const uint8_t *payload, size_t bytes) {
  size_t n = websocket_header(out, bytes);
  out[1] |= 0x80;
  memcpy(out + n, websocket_mask, sizeof websocket_mask);
  n += sizeof websocket_mask;
  for (size_t i = 0; i < bytes; i++) out[n + i] = payload[i] ^ websocket_mask[i % sizeof websocket_mask];
  return n + bytes;
}

/* The request that asks for the upgrade. Returns its length. */
static inline size_t websocket_request(char **out, const char *path, int port) {
  int n = asprintf(out,
                   "GET %s HTTP/1.1\r\nHost: localhost:%d\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                   "Sec-WebSocket-Key: " WEBSOCKET_KEY "\r\nSec-WebSocket-Version: 13\r\n\r\n",
                   path, port);
  if (n < 0) fail("asprintf");
  return (size_t)n;
}

/* Takes the answer to the upgrade from the socket, no byte behind it. 1 when it agrees, 0 while it is not whole, -1
 * for anything else. */
static inline int websocket_agreed(int fd) {
  char text[2048];
  ssize_t n = recv(fd, text, sizeof text - 1, MSG_PEEK | MSG_DONTWAIT);
  if (n < 0 && errno == EAGAIN) return 0;
  if (n <= 0) return -1;
  text[n] = 0;
  char *end = strstr(text, "\r\n\r\n");
  if (!end) return n < (ssize_t)sizeof text - 1 ? 0 : -1;
  end[2] = 0;
  if (strncmp(text, "HTTP/1.1 101 ", 13) || !strstr(text, WEBSOCKET_ACCEPT "\r\n")) return -1;
  size_t head = (size_t)(end + 4 - text);
  return recv(fd, text, head, MSG_DONTWAIT) == (ssize_t)head ? 1 : -1;
}

#endif
