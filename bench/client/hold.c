/* hold: opens and holds many echo or HTTP/1.1 connections, and proves that each of them is answered.
 *
 * One process of the several that ../hold.py runs, because one process cannot have more
 * descriptors than its limit. It is told each step by a line on standard input and answers
 * with one line of key=value pairs:
 *
 *   start      connected=N failed=N closed=N seconds=S            when all dials ended, or time was up
 *   "send"     answered=N wrong=N closed=N silent=N seconds=S     when all answered, or time was up;
 *                                                                 again as often as wanted
 *   "end"      (the process ends; so it does when standard input ends)
 *
 * Knows nothing of the server process or of the other clients.
 */
#define _GNU_SOURCE
#include "http.h"

#include <sys/epoll.h>

/* Without any progress for this long a step is over: longer than the first three SYN retries. */
#define STALL_NS 10000000000ull

typedef enum { NEW, DIALLING, HELD, ANSWERED, FAILED, WRONG, CLOSED } state;

typedef struct {
  int fd;
  state state;
  uint32_t got; /* bytes of the answer so far */
} connection;

static struct {
  int port, connections, bytes;
  uint64_t first_id;
  double limit;
  const char *path; /* NULL: echo */
  source_range sources;
} opt = {.port = 8080, .connections = 1000, .bytes = 64, .limit = 60};

static connection *all;
static int epoll;
static uint8_t *expected, *received;
static char *request;      /* HTTP */
static http_answer answer; /* to it */
static size_t message_bytes, answer_bytes;

static void usage(void) {
  fputs("hold -p PORT -c CONNECTIONS [-e BYTES | -r PATH] [-i FIRST_ID] [-s FROM-TO] [-t SECONDS_A_STEP]\n", stderr);
  exit(2);
}

static void parse_options(int argc, char **argv) {
  int o;
  while ((o = getopt(argc, argv, "p:c:e:r:i:s:t:")) != -1) switch (o) {
    case 'p': opt.port = (int)number("-p", optarg, 1, 65535); break;
    case 'c': opt.connections = (int)number("-c", optarg, 1, 1000000); break;
    case 'e': opt.bytes = (int)number("-e", optarg, 8, 65536); break;
    case 'r': opt.path = optarg; break;
    case 'i': opt.first_id = (uint64_t)number("-i", optarg, 0, 1000000000); break;
    case 's': opt.sources = parse_sources(optarg); break;
    case 't': opt.limit = seconds("-t", optarg); break;
    default: usage();
  }
  if (optind != argc) usage();
}

static int count(state s) {
  int n = 0;
  for (int i = 0; i < opt.connections; i++) n += all[i].state == s;
  return n;
}

static void watch(connection *c, int operation, uint32_t events) {
  struct epoll_event ev = {.events = events, .data.ptr = c};
  if (epoll_ctl(epoll, operation, c->fd, &ev)) fail("epoll_ctl");
}

static void give_up(connection *c, state why) {
  if (c->fd >= 0) close(c->fd);
  c->fd = -1;
  c->state = why;
}

/* Returns 1 if a dial is under way now. */
static int start_dial(connection *c, uint32_t index) {
  c->fd = dial(opt.port, opt.sources, index);
  c->state = c->fd < 0 ? FAILED : DIALLING;
  if (c->fd >= 0) watch(c, EPOLL_CTL_ADD, EPOLLOUT);
  return c->fd >= 0;
}

static void on_dialled(connection *c) {
  if (dial_error(c->fd)) {
    give_up(c, FAILED);
    return;
  }
  c->state = HELD;
  watch(c, EPOLL_CTL_MOD, EPOLLIN);
}

/* What connection `index` sends: a pattern of its own, or the request. */
static const void *message(int index) {
  if (opt.path) return request;
  fill_pattern(expected, message_bytes, opt.first_id + (uint64_t)index, 0);
  return expected;
}

static int is_right(const connection *c, size_t n) {
  if (n > answer_bytes - c->got) return 0;
  if (opt.path) return http_answer_matches(&answer, c->got, received, n);
  return !memcmp(received, (const uint8_t *)message((int)(c - all)) + c->got, n);
}

static void on_readable(connection *c) {
  ssize_t n = recv(c->fd, received, answer_bytes + 1, 0);
  if (n < 0 && errno == EAGAIN) return;
  if (n <= 0) {
    give_up(c, CLOSED);
    return;
  }
  if (c->state != HELD || !is_right(c, (size_t)n)) {
    give_up(c, WRONG);
    return;
  }
  c->got += (uint32_t)n;
  if (c->got == answer_bytes) c->state = ANSWERED;
}

/* One turn. Returns how many connections moved on. */
static int turn(int *dialling) {
  static struct epoll_event events[1024];
  int moved = 0, n = epoll_wait(epoll, events, 1024, 100);
  if (n < 0 && errno != EINTR) fail("epoll_wait");
  for (int i = 0; i < n; i++) {
    connection *c = events[i].data.ptr;
    state before = c->state;
    if (before == DIALLING) on_dialled(c); else on_readable(c);
    moved += c->state != before;
    *dialling -= before == DIALLING;
  }
  return moved;
}

static int time_is_up(uint64_t start, uint64_t progress) {
  uint64_t now = now_ns();
  return now - start > (uint64_t)(opt.limit * 1e9) || now - progress > STALL_NS;
}

static void connect_all(void) {
  uint64_t start = now_ns(), progress = start;
  int next = 0, dialling = 0;
  while (next < opt.connections || dialling) {
    while (next < opt.connections && dialling < DIALS_IN_PROGRESS) {
      dialling += start_dial(&all[next], (uint32_t)next);
      next++;
    }
    if (turn(&dialling)) progress = now_ns();
    if (time_is_up(start, progress)) break;
  }
  for (int i = 0; i < opt.connections; i++)
    if (all[i].state == NEW || all[i].state == DIALLING) give_up(&all[i], FAILED);
  printf("connected=%d failed=%d closed=%d seconds=%.3f\n", count(HELD), count(FAILED), count(CLOSED),
         (double)(now_ns() - start) / 1e9);
  fflush(stdout);
}

/* One message on each held connection, all under way together. */
static void send_all(void) {
  uint64_t start = now_ns(), progress = start;
  int no_dials = 0;
  for (int i = 0; i < opt.connections; i++) {
    connection *c = &all[i];
    if (c->state == ANSWERED) c->state = HELD, c->got = 0;
    if (c->state != HELD) continue;
    if (send(c->fd, message(i), message_bytes, MSG_NOSIGNAL) != (ssize_t)message_bytes) give_up(c, CLOSED);
  }
  while (count(HELD) && !time_is_up(start, progress))
    if (turn(&no_dials)) progress = now_ns();
  printf("answered=%d wrong=%d closed=%d silent=%d seconds=%.3f\n", count(ANSWERED), count(WRONG), count(CLOSED), count(HELD),
         (double)(now_ns() - start) / 1e9);
  fflush(stdout);
}

int main(int argc, char **argv) {
  char line[16];
  parse_options(argc, argv);
  need_descriptors(opt.connections);
  epoll = epoll_create1(EPOLL_CLOEXEC);
  all = calloc((size_t)opt.connections, sizeof *all);
  message_bytes = answer_bytes = (size_t)opt.bytes;
  if (opt.path) {
    message_bytes = http_request(&request, opt.path, opt.port);
    answer = learn_http_answer(request, message_bytes, opt.port, opt.sources);
    answer_bytes = answer.length;
  }
  expected = malloc(message_bytes);
  received = malloc(answer_bytes + 1);
  if (epoll < 0 || !all || !expected || !received) fail("set-up");
  for (int i = 0; i < opt.connections; i++) all[i].fd = -1;
  connect_all();
  while (fgets(line, sizeof line, stdin) && strcmp(line, "end\n"))
    if (!strcmp(line, "send\n")) send_all();
  return 0;
}
