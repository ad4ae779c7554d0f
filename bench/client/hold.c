/* hold: opens and holds many echo connections, and proves that each of them is answered.
 *
 * One process of the several that ../hold.py runs, because one process cannot have more
 * descriptors than its limit. It is told each step by a line on standard input and answers
 * with one line of key=value pairs:
 *
 *   start      connected=N failed=N closed=N seconds=S            when all dials ended, or time was up
 *   "send"     answered=N wrong=N closed=N silent=N seconds=S     when all answered, or time was up
 *   "end"      (the process ends; so it does when standard input ends)
 *
 * Knows nothing of the server process or of the other clients.
 */
#define _GNU_SOURCE
#include "socket.h"

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
  source_range sources;
} opt = {.port = 8080, .connections = 1000, .bytes = 64, .limit = 60};

static connection *all;
static int epoll;
static uint8_t *expected, *received;

static void usage(void) {
  fputs("hold -p PORT -c CONNECTIONS [-e BYTES] [-i FIRST_ID] [-s FROM-TO] [-t SECONDS_A_STEP]\n", stderr);
  exit(2);
}

static void parse_options(int argc, char **argv) {
  int o;
  while ((o = getopt(argc, argv, "p:c:e:i:s:t:")) != -1) switch (o) {
    case 'p': opt.port = (int)number("-p", optarg, 1, 65535); break;
    case 'c': opt.connections = (int)number("-c", optarg, 1, 1000000); break;
    case 'e': opt.bytes = (int)number("-e", optarg, 8, 65536); break;
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

static void on_readable(connection *c) {
  ssize_t n = recv(c->fd, received, (size_t)opt.bytes + 1, 0);
  if (n < 0 && errno == EAGAIN) return;
  if (n <= 0) {
    give_up(c, CLOSED);
    return;
  }
  fill_pattern(expected, (size_t)opt.bytes, opt.first_id + (uint64_t)(c - all), 0);
  size_t left = (size_t)opt.bytes - c->got;
  if ((size_t)n > left || memcmp(received, expected + c->got, (size_t)n)) {
    give_up(c, WRONG);
    return;
  }
  c->got += (uint32_t)n;
  if (c->got == (uint32_t)opt.bytes) c->state = ANSWERED;
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
    if (c->state != HELD) continue;
    fill_pattern(expected, (size_t)opt.bytes, opt.first_id + (uint64_t)i, 0);
    if (send(c->fd, expected, (size_t)opt.bytes, MSG_NOSIGNAL) != opt.bytes) give_up(c, CLOSED);
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
  expected = malloc((size_t)opt.bytes);
  received = malloc((size_t)opt.bytes + 1);
  if (epoll < 0 || !all || !expected || !received) fail("set-up");
  for (int i = 0; i < opt.connections; i++) all[i].fd = -1;
  connect_all();
  while (fgets(line, sizeof line, stdin) && strcmp(line, "end\n"))
    if (!strcmp(line, "send\n")) send_all();
  return 0;
}
