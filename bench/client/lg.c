/* lg: a lean load client, one thread, epoll, for raw echo, HTTP/1.1 and WebSocket echo.
 *
 * So lean (one recv and one send a message, nothing parsed after the first answer, whole
 * contents compared only of a sample) that the server under test is nearly always the limit. Options are in usage() below; the
 * figures that it prints are explained in ../README.md.
 *
 * Knows nothing of the server process: CPU time and memory are the caller's to sample,
 * at the line BEGIN and at the line of figures.
 */
#define _GNU_SOURCE
#include "http.h"
#include "websocket.h"

#include <sys/epoll.h>
#include <sys/prctl.h>

/* After a failed dial nothing is dialled for this long: a server that refuses is not hammered. */
#define REDIAL_NS 10000000ull
/* A fixed-rate message that leaves later than this after its time has missed the schedule. */
#define LATE_NS 1000000ull
/* The longest that set-up may take. */
#define SETUP_NS 60000000000ull
/* A connection that has waited this long for its answer when the run ends is silent. */
#define SILENT_NS 1000000000ull
#define NEVER UINT64_MAX

/* WAITING -> DIALLING -> (UPGRADING ->) IDLE <-> BUSY -> WAITING */
typedef enum { WAITING, DIALLING, UPGRADING, IDLE, BUSY } state;

typedef struct connection {
  int fd;
  uint32_t id;
  state state;
  uint32_t want;      /* bytes of the answer still to come */
  uint32_t served;    /* messages answered on this TCP connection */
  uint32_t verified;  /* every byte of the answer on its way is compared; the echo request carries a pattern of its own */
  uint64_t messages;  /* messages sent so far, over all TCP connections */
  uint64_t due;       /* fixed rate: messages that should have been sent by now */
  uint64_t sent_ns;
  uint64_t intended_ns;
  struct connection *next_waiting;
} connection;

static struct {
  int port, connections, depth, echo_bytes, websocket_bytes, reconnect_after, verify_every;
  double rate, duration, warmup;
  const char *path;
  source_range sources;
} opt = {.port = 8080, .connections = 64, .depth = 1, .verify_every = 16, .duration = 5, .warmup = 2, .path = "/"};

/* Latency histogram over nanoseconds, resolution 1/64. */
enum { SUB = 64, BUCKETS = 64 * SUB };
typedef struct {
  uint64_t bucket[BUCKETS], total, max;
} histogram;

static struct {
  uint64_t answered, lost, mismatched, reconnects, connect_errors, late, waits;
  histogram from_send, from_schedule;
} figures;

static struct {
  int epoll, dialling, live, measuring, dial_errno;
  uint64_t start_ns, begin_ns, end_ns, hold_dials_until;
  uint64_t scheduled; /* fixed rate: messages whose time has come */
  connection *all, *waiting_head, *waiting_tail;
} run;

static uint8_t *request; /* what a message without a pattern looks like, `depth` times */
static uint8_t *pattern; /* scratch, request_bytes long */
static uint8_t *frame;   /* WebSocket: scratch, as long */
static size_t request_bytes;
static char *upgrade; /* WebSocket: the request before all messages */
static size_t upgrade_bytes;
static uint32_t answer_bytes; /* of one batch of `depth` messages */
static http_answer answer;    /* to one HTTP request */
static uint8_t received[1 << 18];

static void usage(void) {
  fputs("lg -p PORT (-e BYTES | -W BYTES [-r PATH] | -r PATH) [options]\n"
        "  -p PORT     server on 127.0.0.1\n"
        "  -e BYTES    echo messages of BYTES bytes\n"
        "  -W BYTES    WebSocket at PATH: binary messages of BYTES bytes, which come back\n"
        "  -r PATH     HTTP/1.1: GET PATH (default, with /)\n"
        "  -c N        connections (64)\n"
        "  -d SECONDS  measuring time (5)\n"
        "  -w SECONDS  warm-up before it (2)\n"
        "  -P N        messages a batch, sent at once (1)\n"
        "  -R RATE     fixed rate: messages a second over all connections, open loop; without it\n"
        "              each connection sends as soon as it has its answer\n"
        "  -n K        close and reconnect after K messages\n"
        "  -s FROM-TO  source addresses, such as 127.0.0.2-127.0.0.5\n"
        "  -k K        verify the whole content of one answer in K on each connection (16)\n"
        "exit code: 0 measured (errors are in the figures), 2 could not measure\n",
        stderr);
  exit(2);
}

static void parse_options(int argc, char **argv) {
  int o;
  char *end;
  while ((o = getopt(argc, argv, "p:e:W:r:c:d:w:P:R:n:s:k:")) != -1) switch (o) {
    case 'p': opt.port = (int)number("-p", optarg, 1, 65535); break;
    case 'e': opt.echo_bytes = (int)number("-e", optarg, 1, 65536); break;
    case 'W': opt.websocket_bytes = (int)number("-W", optarg, 1, WEBSOCKET_MESSAGE_MAX); break;
    case 'r': opt.path = optarg; break;
    case 'c': opt.connections = (int)number("-c", optarg, 1, 1000000); break;
    case 'd': opt.duration = seconds("-d", optarg); break;
    case 'w': opt.warmup = seconds("-w", optarg); break;
    case 'P': opt.depth = (int)number("-P", optarg, 1, 1024); break;
    case 'R':
      opt.rate = strtod(optarg, &end);
      if (*end || !(opt.rate >= 1 && opt.rate <= 1e8)) {
        fprintf(stderr, "-R: expected messages a second from 1 to 1e8, found \"%s\"\n", optarg);
        exit(2);
      }
      break;
    case 'n': opt.reconnect_after = (int)number("-n", optarg, 1, 1000000000); break;
    case 's': opt.sources = parse_sources(optarg); break;
    case 'k': opt.verify_every = (int)number("-k", optarg, 1, 1000000000); break;
    default: usage();
  }
  if (optind != argc) usage();
  if (opt.websocket_bytes && (opt.echo_bytes || opt.depth > 1)) {
    fputs("-W excludes -e and -P: its messages go one at a time\n", stderr);
    exit(2);
  }
  if (opt.rate > 0 && opt.depth > 1) {
    fputs("-R and -P exclude each other: a fixed rate times single messages\n", stderr);
    exit(2);
  }
}

static void histogram_add(histogram *h, uint64_t v, uint32_t n) {
  int i = (int)v;
  if (v >= SUB) {
    int e = 63 - __builtin_clzll(v);
    i = (e - 5) * SUB + (int)(v >> (e - 6) & (SUB - 1));
  }
  h->bucket[i] += n;
  h->total += n;
  if (v > h->max) h->max = v;
}

/* The lower edge, in microseconds, of the bucket that holds the q-th part of all values. */
static double quantile_us(const histogram *h, double q) {
  uint64_t seen = 0, rank = (uint64_t)(q * (double)h->total);
  for (int i = 0; i < BUCKETS; i++) {
    seen += h->bucket[i];
    if (seen <= rank) continue;
    int e = i / SUB + 5;
    return (i < SUB ? (double)i : (double)((1ull << e) + ((uint64_t)(i % SUB) << (e - 6)))) / 1000;
  }
  return 0;
}

/* ---- connections: WAITING, dialled a few at a time, watched by epoll ---- */

static void enqueue_waiting(connection *c) {
  c->state = WAITING;
  c->fd = -1;
  c->next_waiting = NULL;
  if (run.waiting_tail) run.waiting_tail->next_waiting = c; else run.waiting_head = c;
  run.waiting_tail = c;
}

static void watch(connection *c, int operation, uint32_t events) {
  struct epoll_event ev = {.events = events, .data.ptr = c};
  if (epoll_ctl(run.epoll, operation, c->fd, &ev)) fail("epoll_ctl");
}

static void dial_failed(connection *c, int error, uint64_t now) {
  figures.connect_errors++;
  run.dial_errno = error;
  run.hold_dials_until = now + REDIAL_NS;
  enqueue_waiting(c);
}

static void start_dials(uint64_t now) {
  while (run.waiting_head && run.dialling < DIALS_IN_PROGRESS && now >= run.hold_dials_until) {
    connection *c = run.waiting_head;
    run.waiting_head = c->next_waiting;
    if (!run.waiting_head) run.waiting_tail = NULL;
    c->fd = dial(opt.port, opt.sources, c->id);
    if (c->fd < 0) {
      dial_failed(c, errno, now);
      continue;
    }
    c->state = DIALLING;
    run.dialling++;
    watch(c, EPOLL_CTL_ADD, EPOLLOUT);
  }
}

/* Closing takes the descriptor out of the epoll set. */
static void hang_up(connection *c) {
  close(c->fd);
  run.live--;
  enqueue_waiting(c);
}

static void lose(connection *c) {
  figures.lost++;
  hang_up(c);
}

/* ---- messages ---- */

static uint64_t due_time(const connection *c, uint64_t message) {
  double number = (double)message * opt.connections + c->id;
  return run.start_ns + (uint64_t)(number * 1e9 / opt.rate);
}

/* Spread over the connections, so that not all of them are verified in one turn. */
static int is_verified(const connection *c) { return (c->messages + c->id) % (uint64_t)opt.verify_every == 0; }

/* What a message with a pattern of its own looks like; for HTTP, the request, which has none. */
static const uint8_t *patterned(const connection *c) {
  if (!opt.echo_bytes && !opt.websocket_bytes) return request;
  fill_pattern(pattern, opt.echo_bytes ? request_bytes : (size_t)opt.websocket_bytes, c->id, c->messages);
  if (opt.echo_bytes) return pattern;
  websocket_frame(frame, pattern, (size_t)opt.websocket_bytes);
  return frame;
}

static void send_message(connection *c, uint64_t now) {
  c->verified = (uint32_t)is_verified(c);
  const uint8_t *bytes = c->verified ? patterned(c) : request;
  c->sent_ns = now;
  if (opt.rate > 0) {
    c->intended_ns = due_time(c, c->messages);
    if (now > c->intended_ns + LATE_NS) figures.late++;
  }
  c->messages++;
  c->want = answer_bytes;
  c->state = BUSY;
  /* One batch at a time is under way: a socket buffer that cannot take it is a failure. */
  if (send(c->fd, bytes, request_bytes, MSG_NOSIGNAL) != (ssize_t)request_bytes) lose(c);
}

/* An HTTP answer: its status and its last byte always, everything of a sample. The length is
 * checked by the caller, since each answer must end exactly where the first one did. */
static int http_is_right(const connection *c, const uint8_t *bytes, size_t n) {
  uint32_t offset = answer_bytes - c->want;
  if (c->verified) return http_answer_matches(&answer, offset, bytes, n);
  if (offset == 0 && n >= 12 && memcmp(bytes + 9, "200", 3)) return 0;
  return n < c->want || bytes[n - 1] == answer.bytes[answer.length - 1];
}

/* A WebSocket message that came back: its header always, then as an echo. */
static int websocket_is_right(const connection *c, const uint8_t *bytes, size_t n) {
  uint8_t header[WEBSOCKET_HEADER_MAX];
  size_t length = websocket_header(header, (size_t)opt.websocket_bytes), offset = answer_bytes - c->want;
  size_t of_header = offset < length ? (length - offset < n ? length - offset : n) : 0;
  if (of_header && memcmp(bytes, header + offset, of_header)) return 0;
  bytes += of_header, n -= of_header, offset += of_header;
  if (!n) return 1;
  if (!c->verified) return bytes[0] == 'x' && bytes[n - 1] == 'x';
  fill_pattern(pattern, (size_t)opt.websocket_bytes, c->id, c->messages - 1);
  return !memcmp(bytes, pattern + (offset - length), n);
}

/* Whether `n` bytes at the answer's offset are those that were sent, or that HTTP asks for. */
static int content_is_right(const connection *c, const uint8_t *bytes, size_t n) {
  if (opt.websocket_bytes) return websocket_is_right(c, bytes, n);
  if (!opt.echo_bytes) return http_is_right(c, bytes, n);
  if (!c->verified) return bytes[0] == 'x' && bytes[n - 1] == 'x';
  fill_pattern(pattern, request_bytes, c->id, c->messages - 1);
  return !memcmp(bytes, pattern + (answer_bytes - c->want), n);
}

static void sent_or_idle(connection *c, uint64_t now) {
  c->state = IDLE;
  if (opt.rate == 0 || c->messages < c->due) send_message(c, now);
}

static void answered(connection *c) {
  uint64_t now = now_ns();
  histogram_add(&figures.from_send, now - c->sent_ns, (uint32_t)opt.depth);
  if (opt.rate > 0) histogram_add(&figures.from_schedule, now - c->intended_ns, 1);
  figures.answered += (uint64_t)opt.depth;
  c->served += (uint32_t)opt.depth;
  if (opt.reconnect_after && c->served >= (uint32_t)opt.reconnect_after) {
    figures.reconnects++;
    hang_up(c);
    start_dials(now);
  } else {
    sent_or_idle(c, now);
  }
}

static void on_readable(connection *c) {
  ssize_t n = recv(c->fd, received, sizeof received, 0);
  if (n < 0 && errno == EAGAIN) return;
  if (n <= 0) {
    lose(c);
    return;
  }
  if (c->state != BUSY || (size_t)n > c->want || !content_is_right(c, received, (size_t)n)) {
    figures.mismatched++;
    hang_up(c); /* what follows on this connection could not be told apart any more */
    return;
  }
  c->want -= (uint32_t)n;
  if (!c->want) answered(c);
}

static void dial_ended_badly(connection *c, int error, uint64_t now) {
  run.dialling--;
  close(c->fd);
  dial_failed(c, error, now);
}

/* Messages start only once all connections stand. */
static void stands(connection *c, uint64_t now) {
  run.dialling--;
  run.live++;
  c->served = 0;
  c->state = IDLE;
  if (run.start_ns) sent_or_idle(c, now);
}

/* The end of a dial. A WebSocket is asked for first. */
static void on_dialled(connection *c, uint64_t now) {
  int error = dial_error(c->fd);
  if (!error && upgrade && send(c->fd, upgrade, upgrade_bytes, MSG_NOSIGNAL) != (ssize_t)upgrade_bytes) error = EPROTO;
  if (error) {
    dial_ended_badly(c, error, now);
    return;
  }
  watch(c, EPOLL_CTL_MOD, EPOLLIN);
  c->sent_ns = now;
  if (upgrade) c->state = UPGRADING; else stands(c, now);
}

static void on_upgrade(connection *c, uint64_t now) {
  int agreed = websocket_agreed(c->fd);
  if (agreed < 0) dial_ended_badly(c, EPROTO, now);
  if (agreed > 0) stands(c, now);
}

/* ---- the fixed rate: message m of the run belongs to connection m % connections ---- */

static uint64_t next_due(void) {
  if (opt.rate == 0) return NEVER;
  return run.start_ns + (uint64_t)((double)run.scheduled * 1e9 / opt.rate);
}

static void send_due(uint64_t now) {
  while (next_due() <= now) {
    connection *c = &run.all[run.scheduled++ % (uint64_t)opt.connections];
    c->due++;
    if (c->state == IDLE) send_message(c, now);
  }
}

/* ---- the loop ---- */

static void handle_events(uint64_t until) {
  static struct epoll_event events[1024];
  uint64_t now = now_ns(), wait = until > now ? until - now : 0;
  struct timespec timeout = {.tv_sec = (time_t)(wait / 1000000000u), .tv_nsec = (long)(wait % 1000000000u)};
  int n = epoll_pwait2(run.epoll, events, 1024, &timeout, NULL);
  if (n < 0 && errno != EINTR) fail("epoll_pwait2");
  figures.waits++;
  if (n > 0) now = now_ns();
  for (int i = 0; i < n; i++) {
    connection *c = events[i].data.ptr;
    if (c->state == DIALLING) on_dialled(c, now);
    else if (c->state == UPGRADING) on_upgrade(c, now);
    else on_readable(c);
  }
}

static void connect_all(void) {
  uint64_t deadline = now_ns() + SETUP_NS;
  while (run.live < opt.connections) {
    uint64_t now = now_ns();
    start_dials(now);
    handle_events(now + REDIAL_NS);
    if (!figures.connect_errors && !figures.lost && now < deadline) continue;
    fprintf(stderr, "set-up: %d of %d connections to 127.0.0.1:%d stand, %lu lost again, last failure: %s\n", run.live,
            opt.connections, opt.port, (unsigned long)figures.lost, run.dial_errno ? strerror(run.dial_errno) : "none, but too slow");
    exit(2);
  }
}

static double cpu_seconds(void) {
  struct rusage u;
  getrusage(RUSAGE_SELF, &u);
  return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) + (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1e6;
}

/* Connections whose answer is overdue by a second: a server that stops answering makes no other error. */
static int silent(uint64_t now) {
  int n = 0;
  for (int i = 0; i < opt.connections; i++) n += run.all[i].state >= UPGRADING && run.all[i].state != IDLE && now - run.all[i].sent_ns > SILENT_NS;
  return n;
}

static uint64_t unsent(void) {
  uint64_t n = 0;
  for (int i = 0; i < opt.connections && opt.rate > 0; i++) n += run.all[i].due - run.all[i].messages;
  return n;
}

static void report(double elapsed, double cpu) {
  const histogram *h = &figures.from_send;
  printf("rps=%.0f n=%lu secs=%.3f p50_us=%.1f p99_us=%.1f p999_us=%.1f max_us=%.1f", (double)figures.answered / elapsed,
         (unsigned long)figures.answered, elapsed, quantile_us(h, .5), quantile_us(h, .99), quantile_us(h, .999), (double)h->max / 1000);
  if (opt.rate > 0) {
    h = &figures.from_schedule;
    printf(" sched_p50_us=%.1f sched_p99_us=%.1f sched_p999_us=%.1f sched_max_us=%.1f missed=%lu unsent=%lu", quantile_us(h, .5),
           quantile_us(h, .99), quantile_us(h, .999), (double)h->max / 1000, (unsigned long)figures.late, (unsigned long)unsent());
  }
  unsigned long overdue = (unsigned long)silent(now_ns());
  printf(" errs=%lu lost=%lu mismatched=%lu connect_errs=%lu silent=%lu reconnects=%lu live=%d cpu=%.3f batch=%.1f\n",
         (unsigned long)(figures.lost + figures.mismatched + figures.connect_errors) + overdue, (unsigned long)figures.lost,
         (unsigned long)figures.mismatched, (unsigned long)figures.connect_errors, overdue, (unsigned long)figures.reconnects, run.live, cpu,
         (double)figures.answered / opt.depth / (double)(figures.waits ? figures.waits : 1));
}

static void measure(void) {
  double cpu = 0;
  uint64_t now = now_ns(), second = 1000000000u;
  run.start_ns = now;
  run.begin_ns = now + (uint64_t)(opt.warmup * 1e9);
  run.end_ns = NEVER;
  for (int i = 0; i < opt.connections && opt.rate == 0; i++) send_message(&run.all[i], now_ns());
  while (now < run.end_ns) {
    if (!run.measuring && now >= run.begin_ns) {
      run.measuring = 1;
      run.begin_ns = now;
      run.end_ns = now + (uint64_t)(opt.duration * 1e9);
      /* Errors of the warm-up stay in the count: a wrong byte is a wrong byte. */
      uint64_t lost = figures.lost, mismatched = figures.mismatched, connect_errors = figures.connect_errors;
      memset(&figures, 0, sizeof figures);
      figures.lost = lost, figures.mismatched = mismatched, figures.connect_errors = connect_errors;
      cpu = cpu_seconds();
      puts("BEGIN");
      fflush(stdout);
    }
    send_due(now);
    start_dials(now);
    uint64_t until = next_due(), mark = run.measuring ? run.end_ns : run.begin_ns;
    if (mark < until) until = mark;
    if (run.waiting_head && now + REDIAL_NS < until) until = now + REDIAL_NS;
    handle_events(until < now + second ? until : now + second);
    now = now_ns();
  }
  report((double)(now - run.begin_ns) / 1e9, cpu_seconds() - cpu);
}

/* ---- what is sent ---- */

static void prepare_request(void) {
  char *one = NULL;
  size_t bytes = (size_t)(opt.echo_bytes + opt.websocket_bytes); /* one of them is 0 */
  if (bytes) {
    one = malloc(bytes);
    if (!one) fail("malloc");
    memset(one, 'x', bytes);
  } else {
    bytes = http_request(&one, opt.path, opt.port);
    answer = learn_http_answer(one, bytes, opt.port, opt.sources);
  }
  answer_bytes = (uint32_t)((opt.echo_bytes ? bytes : answer.length) * (size_t)opt.depth);
  request_bytes = opt.websocket_bytes ? websocket_sent_bytes(bytes) : bytes * (size_t)opt.depth;
  request = malloc(request_bytes);
  pattern = malloc(request_bytes);
  frame = malloc(request_bytes);
  if (!request || !pattern || !frame) fail("malloc");
  if (opt.websocket_bytes) {
    upgrade_bytes = websocket_request(&upgrade, opt.path, opt.port);
    answer_bytes = (uint32_t)(websocket_frame(request, (uint8_t *)one, bytes) - WEBSOCKET_KEY_BYTES);
  } else {
    for (int i = 0; i < opt.depth; i++) memcpy(request + (size_t)i * bytes, one, bytes);
  }
  free(one);
}

int main(int argc, char **argv) {
  parse_options(argc, argv);
  need_descriptors(opt.connections);
  prctl(PR_SET_TIMERSLACK, 1000); /* nanoseconds: the schedule is kept to a microsecond, not to fifty */
  run.epoll = epoll_create1(EPOLL_CLOEXEC);
  run.all = calloc((size_t)opt.connections, sizeof *run.all);
  if (run.epoll < 0 || !run.all) fail("set-up");
  prepare_request();
  for (int i = 0; i < opt.connections; i++) {
    run.all[i].id = (uint32_t)i;
    enqueue_waiting(&run.all[i]);
  }
  connect_all();
  measure();
  fflush(stdout);
  usleep(20000); /* the caller samples the server now, before it has to close these connections */
  return 0;
}
