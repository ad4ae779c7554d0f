/* fanout: subscribers and a publisher of a push server; how long deliveries take and what they cost the server.
 *
 * Subscribers are spread over processes, which share their counts with this one. It publishes on a schedule, whether or not
 * earlier publications arrived. A publication's latency counts from the time at which it was due, so a late publisher is not
 * hidden, except for PUBLISHER_LATE_NS, which is the machine's. Two protocols (-m):
 *
 *   ws    WebSocket at /connection/websocket, Centrifuge's JSON protocol, one channel a client; publications are lines
 *         "CHANNEL JSON" in the body of POST /pub
 *   raw   TCP: a client sends the number of its channel, 4 bytes, receives them back, then messages of 210 bytes; the publisher sends
 *         4 bytes of channel (all ones: every client) and those 210 bytes to the port -P
 *
 * Prints a line of key=value for each part: connected, idle, and one for each rate. Rates (-r) are publications a second
 * of the one channel, or, with -C CHANNELS, deliveries a second over all of them. With one channel, last_ms is the time
 * until the last client has a publication, the median over publications. The search ends at the first rate that is far
 * from being kept.
 */
#define _GNU_SOURCE
#include "websocket.h"

#include <math.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>

enum {
  RATES = 64,
  PROCESSES = 64,
  CHANNELS = 65536,
  SEQUENCES = 4096,   /* publications whose last delivery is followed, in one channel */
  DIALS = 128,        /* of one process, until they are subscribed */
  MESSAGE = 200,      /* bytes of JSON of a publication */
  RAW_MESSAGE = 210,
  STAMP = 30,         /* digits: 19 of nanoseconds, 2 of the rate's number, 9 of the sequence */
  SUB = 32,           /* buckets of a histogram in each power of two */
  BUCKETS = 34 * SUB,
  RECEIVED = 1 << 20,
  SOURCE_CLIENTS = 8000,
};

#define BUCKET_NS 128
#define TICK_NS 1000000ull
#define PUBLISHER_LATE_NS 2000000ull
#define CONNECT_NS 120000000000ull
#define TAIL_NS 5000000000ull
#define PAUSE_US 300000
#define BROKEN_MS 1500.0

static struct {
  int port, publish_port, clients, processes, channels, rates;
  double rate[RATES], seconds, idle, settle;
  long nap_us;
  pid_t server;
  int raw;
} opt = {.port = 8000, .clients = 1000, .processes = 1, .seconds = 5, .idle = 2, .settle = 2, .nap_us = 100};

/* One process of subscribers counts here. */
typedef struct {
  uint64_t subscribed, failed, lost_connections, pings, missed, doubled;
  uint64_t received[RATES], longest_ns[RATES], histogram[RATES][BUCKETS];
} counts;

static struct shared {
  volatile int stop;
  uint64_t last_ns[SEQUENCES]; /* the latest delivery of each publication of the one channel */
  uint32_t deliveries[SEQUENCES];
  counts of[PROCESSES];
} *shared;

/* ---- histogram: buckets of equal width up to SUB, then SUB in each power of two ---- */

static int bucket_of(uint64_t ns) {
  uint64_t v = ns / BUCKET_NS;
  if (v < SUB) return (int)v;
  int power = 63 - __builtin_clzll(v); /* at least 5 */
  int found = (power - 4) * SUB + (int)(v >> (power - 5) & (SUB - 1));
  return found < BUCKETS ? found : BUCKETS - 1;
}

static double bucket_middle_ms(int bucket) {
  if (bucket < SUB) return (bucket + 0.5) * BUCKET_NS / 1e6;
  double width = ldexp(BUCKET_NS, bucket / SUB - 1);
  return (SUB + bucket % SUB + 0.5) * width / 1e6;
}

/* ---- subscribers ---- */

typedef enum { DIALLING, UPGRADING, JOINING, SUBSCRIBED } state;

typedef struct {
  int fd;
  state state;
  uint32_t channel, sequence, kept;
  uint8_t *rest; /* of `kept` bytes: the begin of a message whose end has not arrived */
} client;

static counts *own;
static int epoll, joining;
static uint8_t received[RECEIVED];

static void channel_name(char *out, uint32_t channel) {
  if (opt.channels) sprintf(out, "s%05u", channel);
  else strcpy(out, "all");
}

static void watch(client *c, int operation, uint32_t events) {
  struct epoll_event e = {.events = events, .data.ptr = c};
  if (epoll_ctl(epoll, operation, c->fd, &e)) fail("epoll_ctl");
}

static void give_up(client *c) {
  if (c->state != SUBSCRIBED) joining--;
  close(c->fd);
  c->fd = -1;
  own->lost_connections++;
}

static void subscribed(client *c) {
  c->state = SUBSCRIBED;
  joining--;
  __atomic_add_fetch(&own->subscribed, 1, __ATOMIC_RELEASE);
}

static void send_text(client *c, int opcode, const char *text, size_t bytes) {
  uint8_t frame[256 + 16];
  if (bytes > 256) return;
  size_t n = websocket_frame(frame, (const uint8_t *)text, bytes);
  frame[0] = (uint8_t)(0x80 | opcode);
  if (send(c->fd, frame, n, MSG_NOSIGNAL | MSG_DONTWAIT) != (ssize_t)n) own->failed++;
}

static uint64_t digits(const uint8_t *text, int count) {
  uint64_t v = 0;
  for (int i = 0; i < count; i++) v = v * 10 + (uint64_t)(text[i] - '0');
  return v;
}

/* Counts a publication by its stamp. */
static void deliver(client *c, const uint8_t *stamp, uint64_t now) {
  uint64_t at = digits(stamp, 19), rate = digits(stamp + 19, 2);
  uint32_t sequence = (uint32_t)digits(stamp + 21, 9);
  if (rate >= RATES) return;
  uint64_t took = now > at ? now - at : 0;
  own->received[rate]++;
  own->histogram[rate][bucket_of(took)]++;
  if (took > own->longest_ns[rate]) own->longest_ns[rate] = took;
  if (sequence <= c->sequence) {
    own->doubled++;
    return;
  }
  if (c->sequence && sequence != c->sequence + 1) own->missed += sequence - c->sequence - 1;
  c->sequence = sequence;
  if (opt.channels || sequence >= SEQUENCES) return;
  uint64_t last = __atomic_load_n(&shared->last_ns[sequence], __ATOMIC_RELAXED);
  while (last < took && !__atomic_compare_exchange_n(&shared->last_ns[sequence], &last, took, 1, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
  }
  __atomic_add_fetch(&shared->deliveries[sequence], 1, __ATOMIC_RELEASE);
}

/* A text frame holds one message a line: replies, publications, and {} for a ping. */
static void take_lines(client *c, const uint8_t *text, size_t bytes, uint64_t now) {
  const uint8_t *end = text + bytes;
  while (text < end) {
    const uint8_t *line_end = memchr(text, '\n', (size_t)(end - text));
    if (!line_end) line_end = end;
    size_t line = (size_t)(line_end - text);
    const uint8_t *stamp = memmem(text, line, "\"at\":\"", 6);
    if (stamp && line_end - stamp >= 6 + STAMP) {
      deliver(c, stamp + 6, now);
    } else if (line == 2 && text[0] == '{') {
      own->pings++;
      send_text(c, 1, "{}", 2);
    } else if (c->state == JOINING && memmem(text, line, "\"id\":2", 6)) {
      if (memmem(text, line, "\"error\"", 7)) {
        fprintf(stderr, "refused: %.*s\n", (int)line, text);
        own->failed++;
      }
      subscribed(c);
    }
    text = line_end + 1;
  }
}

/* Takes whole messages; in raw mode the first four bytes confirm the subscription. Returns the bytes used; the client may be given up. */
static size_t take(client *c, const uint8_t *data, size_t bytes, uint64_t now) {
  size_t used = 0;
  if (opt.raw) {
    if (c->state == JOINING && bytes >= 4) {
      subscribed(c);
      used = 4;
    }
    for (; bytes - used >= RAW_MESSAGE; used += RAW_MESSAGE) deliver(c, data + used, now);
    return used;
  }
  while (bytes - used >= 2) {
    const uint8_t *f = data + used;
    size_t head = 2;
    uint64_t length = f[1] & 127;
    int more = length == 126 ? 2 : length == 127 ? 8 : 0;
    if (bytes - used < head + (size_t)more) break;
    if (more) length = 0;
    for (int i = 0; i < more; i++) length = length << 8 | f[head++];
    if (bytes - used - head < length) break;
    used += head + length;
    switch (f[0] & 15) {
      case 8: give_up(c); return bytes;
      case 9: send_text(c, 10, (const char *)f + head, length); break;
      case 0: case 1: case 2: take_lines(c, f + head, length, now); break;
      default: break;
    }
  }
  return used;
}

static void receive(client *c) {
  if (c->kept) memcpy(received, c->rest, c->kept);
  ssize_t n = recv(c->fd, received + c->kept, sizeof received - c->kept, MSG_DONTWAIT);
  if (n < 0 && errno == EAGAIN) return;
  if (n <= 0) {
    give_up(c);
    return;
  }
  size_t whole = c->kept + (size_t)n, used = take(c, received, whole, now_ns());
  if (c->fd < 0) return;
  c->kept = (uint32_t)(whole - used);
  if (!c->kept) {
    free(c->rest);
    c->rest = NULL;
    return;
  }
  c->rest = realloc(c->rest, c->kept);
  if (!c->rest) fail("realloc");
  memcpy(c->rest, received + used, c->kept);
}

static void on_dialled(client *c) {
  int error = dial_error(c->fd);
  if (error) {
    fprintf(stderr, "connect: %s\n", strerror(error));
    give_up(c);
    return;
  }
  watch(c, EPOLL_CTL_MOD, EPOLLIN);
  if (opt.raw) {
    if (send(c->fd, &c->channel, 4, MSG_NOSIGNAL) != 4) give_up(c);
    else c->state = JOINING;
    return;
  }
  char *request;
  size_t n = websocket_request(&request, "/connection/websocket", opt.port);
  if (send(c->fd, request, n, MSG_NOSIGNAL) != (ssize_t)n) give_up(c);
  else c->state = UPGRADING;
  free(request);
}

static void on_upgrade(client *c) {
  int agreed = websocket_agreed(c->fd);
  if (!agreed) return;
  if (agreed < 0) {
    give_up(c);
    return;
  }
  char name[16], text[160];
  channel_name(name, c->channel);
  int n = sprintf(text, "{\"id\":1,\"connect\":{}}\n{\"id\":2,\"subscribe\":{\"channel\":\"%s\"}}", name);
  send_text(c, 1, text, (size_t)n);
  c->state = JOINING;
}

/* The clients [first, end) in this process, until it is stopped. */
static void subscribe(int process, int first, int end) {
  own = &shared->of[process];
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  prctl(PR_SET_TIMERSLACK, 1000);
  need_descriptors(end - first);
  client *all = calloc((size_t)(end - first), sizeof *all);
  epoll = epoll_create1(EPOLL_CLOEXEC);
  if (epoll < 0 || !all) fail("subscribers");
  struct epoll_event events[512];
  source_range sources = {0x7f000002, (uint32_t)(opt.clients / SOURCE_CLIENTS + 1)};
  int next = first;
  while (!shared->stop) {
    for (int begun = 0; next < end && joining < DIALS && begun < SUB; begun++, next++) {
      client *c = &all[next - first];
      c->channel = opt.channels ? (uint32_t)(next % opt.channels) : 0;
      c->fd = dial(opt.port, sources, (uint32_t)next);
      if (c->fd < 0) fail("dial");
      joining++;
      watch(c, EPOLL_CTL_ADD, EPOLLOUT);
    }
    int n = epoll_wait(epoll, events, 512, opt.nap_us ? 0 : 100);
    if (!n && opt.nap_us && (next == end || joining >= DIALS)) {
      /* Asleep in epoll_wait, each delivery would wake it: on a virtual machine the server pays that interrupt. */
      struct timespec nap = {0, opt.nap_us * 1000};
      nanosleep(&nap, NULL);
    }
    for (int i = 0; i < n; i++) {
      client *c = events[i].data.ptr;
      if (c->state == DIALLING) on_dialled(c);
      else if (c->state == UPGRADING) on_upgrade(c);
      else receive(c);
    }
  }
  _exit(0);
}

/* ---- measuring ---- */

#define SUM(field) sum(offsetof(counts, field))
static uint64_t sum(size_t offset) {
  uint64_t total = 0;
  for (int i = 0; i < opt.processes; i++) total += __atomic_load_n((uint64_t *)((char *)&shared->of[i] + offset), __ATOMIC_ACQUIRE);
  return total;
}

static double server_cpu(void) {
  clockid_t clock;
  struct timespec t;
  if (!opt.server || clock_getcpuclockid(opt.server, &clock) || clock_gettime(clock, &t)) return 0;
  return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static long server_rss(void) {
  char path[64], line[256];
  long kib = 0;
  snprintf(path, sizeof path, "/proc/%d/status", opt.server);
  FILE *f = opt.server ? fopen(path, "r") : NULL;
  while (f && fgets(line, sizeof line, f)) sscanf(line, "VmRSS: %ld", &kib);
  if (f) fclose(f);
  return kib * 1024;
}

static uint64_t received_of(int rate) {
  uint64_t total = 0;
  for (int i = 0; i < opt.processes; i++) total += __atomic_load_n(&shared->of[i].received[rate], __ATOMIC_ACQUIRE);
  return total;
}

static double quantile_ms(int rate, double q) {
  double total = (double)received_of(rate), below = 0;
  for (int b = 0; b < BUCKETS && total > 0; b++) {
    for (int i = 0; i < opt.processes; i++) below += (double)shared->of[i].histogram[rate][b];
    if (below >= q * total) return bucket_middle_ms(b);
  }
  return 0;
}

static int by_value(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static void connect_all(void) {
  long rss = server_rss();
  double cpu = server_cpu();
  uint64_t begun = now_ns();
  for (int i = 0; i < opt.processes; i++) {
    int first = (int)((long)opt.clients * i / opt.processes), end = (int)((long)opt.clients * (i + 1) / opt.processes);
    pid_t child = fork();
    if (child < 0) fail("fork");
    if (!child) subscribe(i, first, end);
  }
  while (SUM(subscribed) + SUM(lost_connections) < (uint64_t)opt.clients && now_ns() - begun < CONNECT_NS) usleep(2000);
  double took = (double)(now_ns() - begun) / 1e9;
  double used = server_cpu() - cpu;
  usleep((useconds_t)(opt.settle * 1e6));
  printf("connected clients=%d subscribed=%lu failed=%lu seconds=%.2f cpu_us=%.1f memory_bytes=%.0f\n", opt.clients,
         (unsigned long)SUM(subscribed), (unsigned long)(SUM(failed) + SUM(lost_connections)), took, used / opt.clients * 1e6,
         (double)(server_rss() - rss) / opt.clients);
  fflush(stdout);
  if (SUM(subscribed) < (uint64_t)opt.clients) exit(2);
}

static void stay_idle(void) {
  double cpu = server_cpu();
  uint64_t pings = SUM(pings);
  usleep((useconds_t)(opt.idle * 1e6));
  printf("idle seconds=%.1f cpu_us_per_client_second=%.3f pings=%lu\n", opt.idle, (server_cpu() - cpu) / opt.idle / opt.clients * 1e6,
         (unsigned long)(SUM(pings) - pings));
  fflush(stdout);
}

/* ---- publishing ---- */

static int publisher;
static uint32_t *sequences, next_channel;
static char body[1 << 22], post[(1 << 22) + 256];

static void discard_responses(void) {
  char unread[1 << 16];
  while (recv(publisher, unread, sizeof unread, MSG_DONTWAIT) > 0) {
  }
}

static void send_all(const char *data, size_t bytes) {
  while (bytes) {
    ssize_t n = send(publisher, data, bytes, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n < 0 && errno != EAGAIN) fail("publish");
    if (n < 0) {
      discard_responses();
      usleep(200);
      continue;
    }
    data += n;
    bytes -= (size_t)n;
  }
}

/* Appends one publication. Returns its bytes. */
static size_t append(char *out, int rate, uint64_t stamp, uint32_t channel) {
  char text[RAW_MESSAGE + 1], name[16];
  sequences[channel]++;
  if (opt.raw) {
    uint32_t number = opt.channels ? channel : UINT32_MAX;
    int n = sprintf(text, "%019lu%02d%09u", (unsigned long)stamp, rate, sequences[channel]);
    memset(text + n, '.', (size_t)(RAW_MESSAGE - n));
    memcpy(out, &number, 4);
    memcpy(out + 4, text, RAW_MESSAGE);
    return 4 + RAW_MESSAGE;
  }
  int n = sprintf(text, "{\"at\":\"%019lu%02d%09u\",\"pad\":\"", (unsigned long)stamp, rate, sequences[channel]);
  memset(text + n, '.', (size_t)(MESSAGE - n - 2));
  memcpy(text + MESSAGE - 2, "\"}", 3);
  channel_name(name, channel);
  return (size_t)sprintf(out, "%s %s\n", name, text);
}

/* Publishes everything that is due at one tick by one request. */
static void publish(int rate, uint64_t count, uint64_t due, double *expected, uint64_t *late_ns) {
  uint64_t now = now_ns(), late = now > due ? now - due : 0;
  uint64_t stamp = late > PUBLISHER_LATE_NS ? due + PUBLISHER_LATE_NS : now;
  if (late > *late_ns) *late_ns = late;
  size_t bytes = 0;
  for (uint64_t i = 0; i < count; i++) {
    if (bytes + 512 > sizeof body) {
      fprintf(stderr, "publish: %lu publications of one tick are more than fit into a request\n", (unsigned long)count);
      exit(2);
    }
    uint32_t channel = 0;
    if (opt.channels) {
      /* A prime step, so that neighbours are not published to one after the other. */
      channel = next_channel = (next_channel + 7919) % (uint32_t)opt.channels;
      *expected += opt.clients / opt.channels + ((int)channel < opt.clients % opt.channels);
    } else {
      *expected += opt.clients;
    }
    bytes += append(body + bytes, rate, stamp, channel);
  }
  if (opt.raw) {
    send_all(body, bytes);
    return;
  }
  int head = sprintf(post, "POST /pub HTTP/1.1\r\nHost: localhost:%d\r\nContent-Type: text/plain\r\nContent-Length: %zu\r\n\r\n",
                     opt.port, bytes);
  memcpy(post + head, body, bytes);
  send_all(post, (size_t)head + bytes);
}

static void report_last(uint32_t before) {
  double last[SEQUENCES];
  int found = 0, whole = 0;
  for (uint32_t s = before + 1; s <= sequences[0] && s < SEQUENCES; s++) {
    last[found++] = (double)shared->last_ns[s] / 1e6;
    whole += shared->deliveries[s] == (uint32_t)opt.clients;
  }
  if (!found) return;
  qsort(last, (size_t)found, sizeof *last, by_value);
  printf(" last_ms=%.2f last_least_ms=%.2f last_most_ms=%.2f whole=%d/%d", last[found / 2], last[0], last[found - 1], whole, found);
}

/* Publishes at one rate. Returns whether the server kept it at all. */
static int run_rate(int rate) {
  double a_second = opt.rate[rate] * (opt.channels ? (double)opt.channels / opt.clients : 1);
  uint64_t tick = opt.channels ? TICK_NS : (uint64_t)(1e9 / a_second), wanted = (uint64_t)(a_second * opt.seconds);
  uint64_t sent = 0, late_ns = 0, missed = SUM(missed), doubled = SUM(doubled), lost = SUM(lost_connections);
  uint32_t before = sequences[0];
  double expected = 0, cpu = server_cpu();
  uint64_t begun = now_ns();
  for (uint64_t k = 0; sent < wanted; k++) {
    uint64_t due = begun + k * tick;
    struct timespec until = {(time_t)(due / 1000000000u), (long)(due % 1000000000u)};
    clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL);
    discard_responses();
    uint64_t target = opt.channels ? (uint64_t)(a_second * (double)((k + 1) * tick) / 1e9) : k + 1;
    if (target > wanted) target = wanted;
    if (target > sent) publish(rate, target - sent, due, &expected, &late_ns);
    sent = target;
  }
  uint64_t ended = now_ns();
  while ((double)received_of(rate) < expected && now_ns() - ended < TAIL_NS) {
    discard_responses();
    usleep(1000);
  }
  double used = server_cpu() - cpu, got = (double)received_of(rate);
  printf("rate=%.0f published=%lu expected=%.0f received=%.0f missed=%lu doubled=%lu lost=%lu p50_ms=%.3f p90_ms=%.3f p99_ms=%.3f"
         " p999_ms=%.3f max_ms=%.3f cpu_us=%.3f late_ms=%.1f tail_ms=%.0f",
         opt.rate[rate], (unsigned long)sent, expected, got, (unsigned long)(SUM(missed) - missed),
         (unsigned long)(SUM(doubled) - doubled), (unsigned long)(SUM(lost_connections) - lost), quantile_ms(rate, 0.5),
         quantile_ms(rate, 0.9), quantile_ms(rate, 0.99), quantile_ms(rate, 0.999), quantile_ms(rate, 1), got ? used / got * 1e6 : 0,
         (double)late_ns / 1e6, (double)(now_ns() - ended) / 1e6);
  if (!opt.channels) report_last(before);
  putchar('\n');
  fflush(stdout);
  usleep(PAUSE_US);
  return quantile_ms(rate, 0.99) <= BROKEN_MS && got >= expected * 0.9;
}

static void open_publisher(void) {
  source_range any = {0, 0};
  publisher = dial(opt.raw ? opt.publish_port : opt.port, any, 0);
  struct timespec wait = {0, 100000000};
  nanosleep(&wait, NULL);
  if (publisher < 0 || dial_error(publisher)) fail("publisher");
  sequences = calloc(opt.channels ? (size_t)opt.channels : 1, sizeof *sequences);
  if (!sequences) fail("calloc");
  /* The schedule matters more than the clients beside it on this CPU; without the right it is kept less well. */
  struct sched_param first = {1};
  if (sched_setscheduler(0, SCHED_RR, &first)) fprintf(stderr, "publisher: no real-time priority: %s\n", strerror(errno));
}

/* ---- command line ---- */

static void usage(void) {
  fputs("fanout -m ws|raw -p PORT -r RATE[,RATE...] [options]\n"
        "  -P PORT     where raw publishes\n"
        "  -c N        clients (1000)\n"
        "  -k N        processes of clients (1)\n"
        "  -C N        channels, a client on each in turn (one channel for all)\n"
        "  -d SECONDS  of each rate (5)\n"
        "  -i SECONDS  idle before, measured (2)\n"
        "  -w SECONDS  between the last subscription and the measurements (2)\n"
        "  -z US       nap of a process that has nothing to receive; 0: it sleeps in epoll (100)\n"
        "  -S PID      the server, whose CPU time and memory are measured\n"
        "exit code: 0 measured, 2 could not measure\n",
        stderr);
  exit(2);
}

static void parse_rates(char *text) {
  for (char *one = strtok(text, ","); one; one = strtok(NULL, ",")) {
    if (opt.rates == RATES) usage();
    opt.rate[opt.rates++] = (double)number("-r", one, 1, 100000000);
  }
}

static void parse_options(int argc, char **argv) {
  int o, is_ws = 0;
  while ((o = getopt(argc, argv, "m:p:P:c:k:C:r:d:i:w:z:S:")) != -1) switch (o) {
    case 'm': opt.raw = !strcmp(optarg, "raw"); is_ws = !strcmp(optarg, "ws"); break;
    case 'p': opt.port = (int)number("-p", optarg, 1, 65535); break;
    case 'P': opt.publish_port = (int)number("-P", optarg, 1, 65535); break;
    case 'c': opt.clients = (int)number("-c", optarg, 1, 1000000); break;
    case 'k': opt.processes = (int)number("-k", optarg, 1, PROCESSES); break;
    case 'C': opt.channels = (int)number("-C", optarg, 1, CHANNELS); break;
    case 'r': parse_rates(optarg); break;
    case 'd': opt.seconds = seconds("-d", optarg); break;
    case 'i': opt.idle = seconds("-i", optarg); break;
    case 'w': opt.settle = seconds("-w", optarg); break;
    case 'z': opt.nap_us = number("-z", optarg, 0, 999999); break;
    case 'S': opt.server = (pid_t)number("-S", optarg, 1, 1 << 30); break;
    default: usage();
  }
  if (optind != argc || opt.raw + is_ws != 1 || (opt.raw && !opt.publish_port)) usage();
}

int main(int argc, char **argv) {
  parse_options(argc, argv);
  signal(SIGPIPE, SIG_IGN);
  shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (shared == MAP_FAILED) fail("mmap");
  connect_all();
  if (opt.idle > 0) stay_idle();
  if (opt.rates) open_publisher();
  for (int rate = 0; rate < opt.rates && run_rate(rate); rate++) {
  }
  shared->stop = 1;
  while (wait(NULL) > 0) {
  }
  return 0;
}
