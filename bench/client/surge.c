/* surge: an open-loop HTTP/1.1 client for rates beyond what a server can do.
 *
 * Requests come due by a schedule of phases, whether or not earlier ones were answered. Each
 * takes an idle connection, or is turned away in the client if there is none (so have as many
 * connections as rate x deadline). A request that is not answered by its deadline is given up:
 * its connection is closed and dialled again, as a client with a timeout does.
 *
 * Prints one line of key=value for each slot of 100 ms, by the time at which requests came due:
 *
 *   at=S due=N prompt=N good=N late=N refused=N failed=N unsent=N
 *
 * good: answered by a 200 within the deadline; prompt: of these, within -H; late: given up or
 * answered after it; refused: a whole answer with another status; failed: the connection was
 * lost, or what came was no such answer; unsent: no connection was idle. The last line, `behind_ms=M
 * cpu=S seconds=S`, is about the client: by how much it once missed its schedule, its CPU time.
 * Knows nothing of the server process.
 */
#define _GNU_SOURCE
#include "http.h"

#include <sys/epoll.h>
#include <sys/prctl.h>

#define SLOT_NS 100000000ull
#define REDIAL_NS 10000000ull
#define SETUP_NS 60000000000ull
enum { PHASES = 16, HEAD_BYTES = 1024 };

typedef enum { WAITING, DIALLING, IDLE, BUSY } state; /* WAITING -> DIALLING -> IDLE <-> BUSY -> WAITING */

typedef struct connection {
  int fd;
  uint32_t id;
  state state;
  long want;       /* bytes of the whole answer, 0 until its head is there */
  long got;        /* bytes of it so far */
  uint64_t due_ns; /* of the request under way */
  struct connection *next, *previous; /* in the one list that its state belongs to */
  char head[HEAD_BYTES];
} connection;

/* Lists keep their order: requests under way are in the order of their deadlines. */
typedef struct {
  connection *first, *last;
} list;

typedef struct {
  uint64_t due, prompt, good, late, refused, failed, unsent;
} slot;

static struct {
  int port, connections;
  const char *path;
  double deadline, prompt;
  source_range sources;
  int phases;
  double rate[PHASES], seconds[PHASES];
} opt = {.port = 8080, .connections = 1000, .path = "/", .deadline = 1, .prompt = 0.25};

static struct {
  int epoll, dialling, live;
  uint64_t start_ns, hold_dials_until;
  uint64_t deadline_ns, prompt_ns;
  list waiting, idle, busy;
  connection *all;
  slot *slots;
  size_t slot_count;
  uint64_t behind_ns;
} run;

static char *request;
static size_t request_bytes;
static char received[1 << 16];

static void usage(void) {
  fputs("surge -p PORT -S RATE:SECONDS[,RATE:SECONDS...] [options]\n"
        "  -r PATH     GET PATH (/)\n"
        "  -c N        connections (1000)\n"
        "  -D SECONDS  deadline of a request, from the time at which it is due (1)\n"
        "  -H SECONDS  an answer within this is prompt (0.25)\n"
        "  -s FROM-TO  source addresses, such as 127.0.0.2-127.0.0.5\n"
        "exit code: 0 measured, 2 could not measure\n",
        stderr);
  exit(2);
}

static void parse_phases(char *text) {
  for (char *one = strtok(text, ","); one; one = strtok(NULL, ",")) {
    char *colon = strchr(one, ':');
    if (!colon || opt.phases == PHASES) usage();
    *colon = 0;
    opt.rate[opt.phases] = (double)number("-S", one, 1, 100000000);
    opt.seconds[opt.phases++] = seconds("-S", colon + 1);
  }
}

static void parse_options(int argc, char **argv) {
  int o;
  while ((o = getopt(argc, argv, "p:r:c:D:H:s:S:")) != -1) switch (o) {
    case 'p': opt.port = (int)number("-p", optarg, 1, 65535); break;
    case 'r': opt.path = optarg; break;
    case 'c': opt.connections = (int)number("-c", optarg, 1, 1000000); break;
    case 'D': opt.deadline = seconds("-D", optarg); break;
    case 'H': opt.prompt = seconds("-H", optarg); break;
    case 's': opt.sources = parse_sources(optarg); break;
    case 'S': parse_phases(optarg); break;
    default: usage();
  }
  if (optind != argc || !opt.phases) usage();
}

static void append(list *l, connection *c) {
  c->next = NULL;
  c->previous = l->last;
  if (l->last) l->last->next = c; else l->first = c;
  l->last = c;
}

static void take_out(list *l, connection *c) {
  if (c->previous) c->previous->next = c->next; else l->first = c->next;
  if (c->next) c->next->previous = c->previous; else l->last = c->previous;
}

/* What is asked before the schedule begins counts in none: the last element is nobody's. */
static slot *slot_of(uint64_t due_ns) {
  return &run.slots[run.start_ns ? (due_ns - run.start_ns) / SLOT_NS : run.slot_count];
}

static void watch(connection *c, int operation, uint32_t events) {
  struct epoll_event ev = {.events = events, .data.ptr = c};
  if (epoll_ctl(run.epoll, operation, c->fd, &ev)) fail("epoll_ctl");
}

/* ---- connections ---- */

static void wait_again(connection *c) {
  c->state = WAITING;
  c->fd = -1;
  append(&run.waiting, c);
}

static void hang_up(connection *c) {
  take_out(c->state == BUSY ? &run.busy : &run.idle, c);
  close(c->fd);
  run.live--;
  wait_again(c);
}

static void start_dials(uint64_t now) {
  while (run.waiting.first && run.dialling < DIALS_IN_PROGRESS && now >= run.hold_dials_until) {
    connection *c = run.waiting.first;
    take_out(&run.waiting, c);
    c->fd = dial(opt.port, opt.sources, c->id);
    if (c->fd < 0) {
      run.hold_dials_until = now + REDIAL_NS;
      wait_again(c);
      continue;
    }
    c->state = DIALLING;
    run.dialling++;
    watch(c, EPOLL_CTL_ADD, EPOLLOUT);
  }
}

static void become_idle(connection *c) {
  c->state = IDLE;
  append(&run.idle, c);
}

static void on_dialled(connection *c, uint64_t now) {
  run.dialling--;
  if (dial_error(c->fd)) {
    close(c->fd);
    run.hold_dials_until = now + REDIAL_NS;
    wait_again(c);
    return;
  }
  run.live++;
  watch(c, EPOLL_CTL_MOD, EPOLLIN);
  become_idle(c);
}

/* ---- requests ---- */

static void send_request(connection *c, uint64_t due_ns) {
  take_out(&run.idle, c);
  c->state = BUSY;
  c->due_ns = due_ns;
  c->want = c->got = 0;
  append(&run.busy, c);
  if (send(c->fd, request, request_bytes, MSG_NOSIGNAL) == (ssize_t)request_bytes) return;
  slot_of(due_ns)->failed++;
  hang_up(c);
}

/* Whether the server ends the connection with this answer, as it may with a refusal. */
static int says_close(const connection *c) {
  const char *end = memmem(c->head, HEAD_BYTES, "\r\n\r\n", 4);
  const char *value = http_field(c->head, end + 2, "Connection:");
  return value && !strncasecmp(value, "close", 5);
}

static void answered(connection *c, uint64_t now) {
  slot *s = slot_of(c->due_ns);
  uint64_t took = now - c->due_ns;
  if (memcmp(c->head + 9, "200", 3)) s->refused++;
  else if (took > run.deadline_ns) s->late++;
  else s->good++, s->prompt += took <= run.prompt_ns;
  if (says_close(c)) {
    hang_up(c);
    return;
  }
  take_out(&run.busy, c);
  become_idle(c);
}

/* Takes `n` bytes of the answer. Returns 0 if they are none. */
static int take_answer(connection *c, const char *bytes, long n) {
  if (!c->want) {
    long room = HEAD_BYTES - c->got, head = n < room ? n : room;
    memcpy(c->head + c->got, bytes, (size_t)head);
    c->want = http_response_bytes(c->head, (size_t)(c->got + head));
    if (c->want < 0 || (!c->want && n >= room)) return 0;
  }
  c->got += n;
  return !c->want || c->got <= c->want;
}

static void on_readable(connection *c, uint64_t now) {
  ssize_t n = recv(c->fd, received, sizeof received, 0);
  if (n < 0 && errno == EAGAIN) return;
  if (c->state == BUSY && (n <= 0 || !take_answer(c, received, n))) {
    slot_of(c->due_ns)->failed++;
    n = 0;
  }
  if (n <= 0 || c->state == IDLE) {
    hang_up(c);
    return;
  }
  if (c->want && c->got == c->want) answered(c, now);
}

static void give_up_overdue(uint64_t now) {
  while (run.busy.first && now - run.busy.first->due_ns > run.deadline_ns) {
    slot_of(run.busy.first->due_ns)->late++;
    hang_up(run.busy.first);
  }
}

/* ---- the schedule ---- */

/* When the next request is due; 0 after the last one. */
static uint64_t next_due(void) {
  static int phase;
  static uint64_t number_in_phase, phase_start;
  if (!phase_start) phase_start = run.start_ns;
  while (phase < opt.phases) {
    uint64_t at = (uint64_t)((double)number_in_phase * 1e9 / opt.rate[phase]);
    uint64_t length = (uint64_t)(opt.seconds[phase] * 1e9);
    if (at < length) {
      number_in_phase++;
      return phase_start + at;
    }
    phase_start += length;
    phase++;
    number_in_phase = 0;
  }
  return 0;
}

static void come_due(uint64_t due_ns, uint64_t now) {
  slot *s = slot_of(due_ns);
  s->due++;
  if (now - due_ns > run.behind_ns) run.behind_ns = now - due_ns;
  /* A client that has fallen behind by a whole deadline must not send what nobody waits for. */
  if (!run.idle.first || now - due_ns > run.deadline_ns) s->unsent++;
  else send_request(run.idle.first, due_ns);
}

static void handle_events(uint64_t until) {
  static struct epoll_event events[1024];
  uint64_t now = now_ns(), wait = until > now ? until - now : 0;
  struct timespec timeout = {.tv_sec = (time_t)(wait / 1000000000u), .tv_nsec = (long)(wait % 1000000000u)};
  int n = epoll_pwait2(run.epoll, events, 1024, &timeout, NULL);
  if (n < 0 && errno != EINTR) fail("epoll_pwait2");
  now = now_ns();
  for (int i = 0; i < n; i++) {
    connection *c = events[i].data.ptr;
    if (c->state == DIALLING) on_dialled(c, now); else on_readable(c, now);
  }
}

static void set_up_until(int (*done)(void), uint64_t begun, const char *what) {
  while (!done()) {
    start_dials(now_ns());
    handle_events(now_ns() + REDIAL_NS);
    if (now_ns() - begun < SETUP_NS) continue;
    fprintf(stderr, "set-up: too slow: not all of %d connections to 127.0.0.1:%d %s\n", opt.connections, opt.port, what);
    exit(2);
  }
}

static int all_stand(void) { return run.live == opt.connections; }
static int none_busy(void) { return !run.busy.first; }

/* The kernel completes handshakes that the server has not heard of. Only an answer on each
 * connection shows that the server has nothing left to do before the schedule begins. */
static void connect_all(void) {
  uint64_t begun = now_ns();
  set_up_until(all_stand, begun, "stand");
  for (int i = 0; i < opt.connections; i++)
    if (run.all[i].state == IDLE) send_request(&run.all[i], now_ns());
  set_up_until(none_busy, begun, "were answered");
  const slot *s = &run.slots[run.slot_count];
  /* All at once may be more than the server answers in time: a refusal shows as well that the connection stands. */
  if (s->failed) {
    fprintf(stderr, "set-up: of %d connections %lu were lost: does the server take that many?\n", opt.connections,
            (unsigned long)s->failed);
    exit(2);
  }
}

static void follow_schedule(void) {
  uint64_t now = now_ns(), due = 0;
  run.start_ns = now;
  due = next_due();
  while (due || run.busy.first) {
    for (; due && due <= now; due = next_due()) come_due(due, now);
    give_up_overdue(now);
    start_dials(now);
    uint64_t until = now + REDIAL_NS;
    if (due && due < until) until = due;
    handle_events(until);
    now = now_ns();
  }
}

static void report(void) {
  for (size_t i = 0; i < run.slot_count; i++) {
    const slot *s = &run.slots[i];
    printf("at=%.1f due=%lu prompt=%lu good=%lu late=%lu refused=%lu failed=%lu unsent=%lu\n", (double)i * SLOT_NS / 1e9,
           (unsigned long)s->due, (unsigned long)s->prompt, (unsigned long)s->good, (unsigned long)s->late,
           (unsigned long)s->refused, (unsigned long)s->failed, (unsigned long)s->unsent);
  }
  struct rusage u;
  getrusage(RUSAGE_SELF, &u);
  printf("behind_ms=%.1f cpu=%.3f seconds=%.3f\n", (double)run.behind_ns / 1e6,
         (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) + (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1e6,
         (double)(now_ns() - run.start_ns) / 1e9);
}

int main(int argc, char **argv) {
  double total = 0;
  parse_options(argc, argv);
  need_descriptors(opt.connections);
  prctl(PR_SET_TIMERSLACK, 1000); /* nanoseconds: the schedule is kept to a microsecond, not to fifty */
  for (int i = 0; i < opt.phases; i++) total += opt.seconds[i];
  run.slot_count = (size_t)(total * 1e9 / SLOT_NS + 0.999999);
  run.slots = calloc(run.slot_count + 1, sizeof *run.slots);
  run.deadline_ns = (uint64_t)(opt.deadline * 1e9);
  run.prompt_ns = (uint64_t)(opt.prompt * 1e9);
  run.epoll = epoll_create1(EPOLL_CLOEXEC);
  run.all = calloc((size_t)opt.connections, sizeof *run.all);
  if (run.epoll < 0 || !run.all || !run.slots) fail("set-up");
  request_bytes = http_request(&request, opt.path, opt.port);
  for (int i = 0; i < opt.connections; i++) {
    run.all[i].id = (uint32_t)i;
    wait_again(&run.all[i]);
  }
  connect_all();
  follow_schedule();
  report();
  return 0;
}
