//! What follows the options: sections of the long help and of the man page, from one table.

use std::fmt::Write;
use std::sync::LazyLock;

use ringmain_tune::catalogue::{Accept, Id};

use super::STYLES;

/// A heading with its lines.
pub(crate) struct Section {
    pub(crate) title: &'static str,
    pub(crate) lines: Lines,
}

/// What a section holds.
pub(crate) enum Lines {
    /// Terms and what they mean.
    Terms(&'static [(&'static str, &'static str)]),
    /// What to type, with a word on what it does.
    Commands(&'static [(&'static str, &'static str)]),
}

/// What `ringmain run` serves.
pub(crate) const PATHS: &[(&str, &str)] = &[
    (
        "/",
        "a welcome page that shows the server live; this list to curl",
    ),
    ("/live", "the figures of that page, an event each second"),
    ("/json", "a JSON object, serialised anew for each request"),
    ("/plaintext", "13 bytes of text"),
    ("/echo", "the request's body and content type, for every method"),
    ("/ws", "a WebSocket: every message comes back"),
    ("/ticker", "a page with prices that move, pushed to it"),
    ("/healthz", "200 as long as the process answers"),
    ("/readyz", "200 while it takes requests, 503 from the shutdown on"),
];

/// What follows the help of `check`.
pub(super) const CHECK: &str = "\
Exit codes: 0 right, 1 wrong (what is not wrong would be served), 2 wrong command line or no such file.
All keys: docs/config.md";

/// What follows the help of `explain`.
pub(super) const EXPLAIN: &str = "\
Examples:
  ringmain explain shop.yaml POST https://shop.example:8443/cart?id=1 -H 'content-type: application/json'
  ringmain explain shop.yaml --sni mail.shop.example     a connection of TLS that is passed through
  ringmain explain shop.yaml --listener :5433            a connection of TCP

Exit codes: 0 a rule or a stream takes it, 1 none does or the file is wrong, 2 wrong command line or no such file.";

/// What follows the help of `completions`.
pub(super) const COMPLETIONS: &str = "\
Where the script belongs:
  bash  ringmain completions bash > ~/.local/share/bash-completion/completions/ringmain
  zsh   ringmain completions zsh > \"${fpath[1]}/_ringmain\"
  fish  ringmain completions fish > ~/.config/fish/completions/ringmain.fish";

/// What follows the help of `man`.
pub(super) const MAN: &str = "\
Read it at once, or install it:
  ringmain man | man -l -
  ringmain man > ~/.local/share/man/man1/ringmain.1";

/// All of them, in their order.
pub(crate) fn run_sections() -> &'static [Section] {
    &[
        Section {
            title: "Paths served",
            lines: Lines::Terms(PATHS),
        },
        Section {
            title: "Signals",
            lines: Lines::Terms(&[
                (
                    "SIGTERM, SIGINT",
                    "accept no more, finish what is open (--grace); twice: end",
                ),
                ("SIGQUIT", "end at once"),
                (
                    "SIGHUP",
                    "read configuration and certificates anew, reopen the log",
                ),
                ("SIGUSR1", "open the access log anew, after it was moved away"),
                (
                    "SIGUSR2",
                    "a new process takes the listeners over; no client is refused",
                ),
            ]),
        },
        Section {
            title: "Exit codes",
            lines: Lines::Terms(&[
                ("0", "ended by a signal"),
                ("1", "failed"),
                ("2", "wrong command line"),
            ]),
        },
        Section {
            title: "Examples",
            lines: Lines::Commands(&[
                (
                    "ringmain",
                    "serve on 127.0.0.1:8080, the engine and workers chosen by themselves",
                ),
                (
                    "ringmain run proxy.yaml",
                    "a reverse proxy or another gateway, as the file says (docs/gateway.md)",
                ),
                (
                    "ringmain --listen :80 --listen unix:/run/web.sock --unix-mode 660",
                    "two addresses",
                ),
                (
                    "ringmain --cert site.pem --key site.key --listen :443 --redirect-http :80",
                    "HTTPS, and clients of http are sent there",
                ),
                (
                    "ringmain --access-log - --access-log-format json | jq .status",
                    "watch the requests",
                ),
                (
                    "ringmain --engine epoll --workers 1 --stats 1s",
                    "one worker without io_uring, counters each second",
                ),
                (
                    "ringmain --echo --max-connections 80000",
                    "every byte comes back, on 127.0.0.1:7000",
                ),
            ]),
        },
    ]
}

/// What follows the help of `bench compare`.
pub(super) const COMPARE: &str = "\
Example, two builds on ports of their own, each kept off the client's CPUs:
  ringmain bench compare -c 64 old=:8081/json new=:8082/json --server-cpus 0-1 \\
      --server old='./old --port 8081' --server new='./new --port 8082'

Rounds are taken in turn (AB BA AB …). A difference is only called one if chance does not explain it.";

/// What follows the help of `bench push`.
pub(super) const PUSH: &str = "\
Examples, on a server whose programs publish with the key K:
  ringmain bench push ws://127.0.0.1:8000 --clients 100 --channels 10 --rate 100 --api-key K
  ringmain bench push ws://127.0.0.1:8000 -c 80000 --channels 1000 -r 1k --api-key K \\
      --source 127.0.0.1-127.0.0.4 --server-pid PID
  ringmain bench push ws://127.0.0.1:8000 -c 2000 --channels 5000 --each 50 -r 100k --prefix market: \\
      --conflated 200ms --slow 5% --api-key K
  ringmain bench push http://127.0.0.1:8000/connection/uni_sse --api-key K
  ringmain bench push ws://a:8000 ws://b:8000 ws://c:8000 -c 3000 --channels 100 -r 1k --prefix kept: --api-key K \\
      --publish http://a:8000/api/publish --kill-server PID@3s
  ringmain bench push ws://a:8000 ws://b:8000 -c 2000 --channels 100 --prefix kept: --listen-only=0000002a
  ringmain bench push ws://127.0.0.1:8000 -c 500 --channels 5000 --each 10 -r 20k \\
      --publish-to kafka://127.0.0.1:9092/prices --plain-consumer

Publications leave when they are due, whether or not answers come, and latencies count from then.";

/// What follows the help of `feed`.
pub(super) const FEED: &str = "\
Examples:
  ringmain feed                                   20 shares, 1,000 trades a second, a line of JSON each
  ringmain feed nats://127.0.0.1:4222 -r 20k      the same to subjects market.SYMBOL of a NATS
  ringmain feed http://127.0.0.1:8080 --api-key K to channels market:SYMBOL of a push server
  ringmain feed --symbols 5000 --seed 1 -d 10s    the same trades each time

Trades leave when they are due, whether or not the receiver keeps up: what it does not take within a second is left out. A
connection that is lost is made again. Ctrl-C ends it, and the last line says what became of all trades. A user and a
password for a NATS stand in the URL (nats://USER:PASSWORD@HOST), a token in their place (nats://TOKEN@HOST).

Exit codes: 0 published, 1 nothing was taken or it was refused, 2 wrong command line.";

/// What follows the help of `profile`.
pub(super) const PROFILE: &str = "\
Examples:
  ringmain profile --pid $(pidof nginx) --svg nginx.svg      ten seconds of a server under load
  ringmain profile --svg out.svg -- ./program --option       a program from its start to its end
  ringmain profile -p 42 -d 30s --folded before.folded       stacks to compare with later ones
  ringmain profile diff before.folded after.folded --svg difference.svg

The kernel's part needs root, CAP_PERFMON, or kernel.perf_event_paranoid of 1 or less; what is missing is said. The guide:
docs/profile.md

Exit codes: 0 done, 1 failed, 2 wrong command line.";

/// What follows the help of `profile diff`.
pub(super) const PROFILE_DIFF: &str = "\
Example, the same load before and after a change:
  ringmain profile -p 42 --folded before.folded      # then the change, and the same with after.folded
  ringmain profile diff before.folded after.folded --svg difference.svg";

/// What follows the help of `bench merge`.
pub(super) const MERGE: &str = "\
Example, the same load from two hosts:
  ringmain bench -r 20k --hlog a.hlog http://server/    # and b.hlog on the other one
  ringmain bench merge a.hlog b.hlog";

/// The sections of `ringmain bench`.
pub(crate) fn bench_sections() -> &'static [Section] {
    &[
        Section {
            title: "Exit codes",
            lines: Lines::Terms(&[
                ("0", "done, and every threshold kept"),
                ("1", "failed, interrupted, or a threshold missed"),
                ("2", "wrong command line or scenario"),
            ]),
        },
        Section {
            title: "Examples",
            lines: Lines::Commands(&[
                (
                    "ringmain bench :8080/json",
                    "64 connections, three rounds of ten seconds: how much it answers (closed loop)",
                ),
                (
                    "ringmain bench -r 5k -c 256 http://10.0.0.2/ --threshold 'p99<20ms'",
                    "how long users wait at 5,000 requests a second (open loop); exit code 1 beyond the limit",
                ),
                (
                    "ringmain bench --find-max --slo 'p99<5ms' -c 256 :8080/",
                    "the highest rate that is kept",
                ),
                (
                    "ringmain bench :8080/ --server './app --port 8080' --server-cpus 0 --cpus 1",
                    "start the server, keep it and the client apart, measure its CPU time and memory",
                ),
                (
                    "ringmain bench compare old=:8081/ new=:8082/",
                    "which of two is better, and whether that is proven",
                ),
                (
                    "ringmain bench --http2 --streams 100 -c 32 :8080/json",
                    "HTTP/2, a hundred requests in flight on each of 32 connections",
                ),
                (
                    "ringmain bench --grpc --data-file hello.bin http://127.0.0.1:50051/helloworld.Greeter/SayHello",
                    "calls of gRPC, each with the message in the file",
                ),
                (
                    "ringmain bench --echo 512 tcp://127.0.0.1:7000",
                    "an echo server, messages of 512 bytes",
                ),
                (
                    "ringmain bench --echo 512 ws://127.0.0.1:8080/ws",
                    "the same over WebSocket",
                ),
                (
                    "ringmain bench --ca dev.pem --reconnect-every 1 https://localhost:8443/json",
                    "a handshake for each request, resumed where the server allows it (--no-resume: each in full)",
                ),
            ]),
        },
    ]
}

/// What follows the help of `tune apply`.
pub(super) const TUNE_APPLY: &str = "\
Each setting is written to the journal before it is changed, and read again after it.
What can go wrong has one outcome:
  a write is refused, or does not take    its step is taken back, the others stand; exit code 1
  the journal's disk is full or read-only this run is taken back; exit code 1
  it is killed at any point               ringmain tune revert takes back all that was begun;
                                          the next apply takes it over
  the host restarts                       nothing is left of it: ringmain tune export keeps settings";

/// What follows the help of `tune revert`.
pub(super) const TUNE_REVERT: &str = "\
What somebody else has changed since is left alone, said, and kept in the journal (exit code 1),
unless --force or --forget. After a restart nothing is written: what was applied is gone, and the
journal is closed.";

/// What follows the help of `tune export`.
pub(super) const TUNE_EXPORT: &str = "\
Where it belongs:
  ringmain tune export --as sysctl > /etc/sysctl.d/90-ringmain.conf
  ringmain tune export --as systemd > /etc/systemd/system/ringmain-tune.service
  ringmain tune export --as kubernetes --image registry.example/ringmain:1 | kubectl apply -f -
  ringmain tune export --as seccomp > ringmain.json
  docker run --security-opt seccomp=ringmain.json …";

/// What follows the help of `tune measure`.
pub(super) const TUNE_MEASURE: &str = "\
Example, from another host's view the best; on one host keep client and server apart:
  ringmain tune measure http://10.0.0.2/json -c 256 --interface eth0 --html ladder.html

Each step is measured with those kept before it, in pairs of rounds without and with it; which of
them is first a coin says. What helps beyond noise twice in a row is kept, the rest is taken back at
once. By chance alone at most one step in a thousand is kept.
ringmain tune revert takes back what is kept.";

/// What stands after the options of `tune`.
pub(crate) fn tune_sections() -> &'static [Section] {
    &TUNE
}

/// Names and titles of the steps, and what is accepted, as the catalogue has them.
static STEPS: LazyLock<Vec<(&str, &str)>> =
    LazyLock::new(|| Id::ALL.iter().map(|id| (id.name(), id.step().title)).collect());
static ACCEPTED: LazyLock<Vec<(&str, &str)>> =
    LazyLock::new(|| Accept::ALL.map(|one| (one.name(), one.meaning())).into());

static TUNE: LazyLock<Vec<Section>> = LazyLock::new(|| {
    vec![
        Section {
            title: "Steps",
            lines: Lines::Terms(&STEPS),
        },
        Section {
            title: "What --accept takes",
            lines: Lines::Terms(&ACCEPTED),
        },
        Section {
            title: "Statuses",
            lines: Lines::Terms(&[
                ("good", "it is as it should be"),
                ("change", "apply changes it"),
                ("by hand", "somebody has to do it; the report says what"),
                (
                    "held",
                    "it weakens the host or can drop packets: only with --accept",
                ),
                ("optional", "seldom worth it: only with --step"),
                ("leave", "better left alone on this host, and why"),
                (
                    "no reach",
                    "it would be changed, but cannot be from here (container, namespace, rights)",
                ),
                ("absent", "there is no such thing here"),
                ("unknown", "it cannot be told; nothing is guessed"),
            ]),
        },
        Section {
            title: "Exit codes",
            lines: Lines::Terms(&[
                ("0", "done"),
                ("1", "failed, or something is not as it should be"),
                ("2", "wrong command line"),
            ]),
        },
        Section {
            title: "Examples",
            lines: Lines::Commands(&[
                (
                    "ringmain tune --port 8080",
                    "audit this host for the service on that port; changes nothing",
                ),
                ("ringmain tune --explain irq-affinity", "one step in full"),
                (
                    "ringmain tune plan --profile latency",
                    "every write that would be done",
                ),
                (
                    "ringmain tune apply --step xps --step irq-affinity",
                    "these two and nothing else",
                ),
                ("ringmain tune revert", "all as it was before"),
                (
                    "ringmain tune locality --port 8080",
                    "queue, interrupt, CPU, worker, drawn",
                ),
                (
                    "ringmain tune snapshot > a.json; ringmain tune diff a.json",
                    "what has changed since",
                ),
            ]),
        },
    ]
});

/// What follows the short help of `tune`.
pub(super) fn tune_short_help() -> String {
    let (on, off) = header_style();
    format!(
        "{on}Examples:{off}\n  ringmain tune --port 8080     what this host costs the service there\n  \
         ringmain tune plan            every write that would be done\n  \
         ringmain tune apply           do them; ringmain tune revert takes them back\n\n\
         All options, statuses and exit codes: ringmain tune --help. The guide: docs/tune.md"
    )
}

/// What follows the long help of `tune`.
pub(super) fn tune_long_help() -> String {
    render_sections(tune_sections())
}

/// What follows the short help of `bench`.
pub(super) fn bench_short_help() -> String {
    let (on, off) = header_style();
    format!(
        "{on}Examples:{off}\n  ringmain bench :8080/json             how much it answers (closed loop)\n  \
         ringmain bench -r 5k -c 256 :8080/    how long users wait at 5,000/s (open loop)\n\n\
         All options, exit codes and more examples: ringmain bench --help. The guide: docs/bench.md"
    )
}

/// What follows the long help of `bench`.
pub(super) fn bench_long_help() -> String {
    render_sections(bench_sections())
}

/// What follows the short help.
pub(super) fn run_short_help() -> String {
    let (on, off) = header_style();
    format!(
        "{on}Examples:{off}\n  ringmain                      serve on 127.0.0.1:8080\n  \
         ringmain run proxy.yaml       a gateway as the file says\n  \
         ringmain --listen :80 -w 2    every address, port 80, two workers\n\n\
         All options, paths, signals and exit codes: ringmain --help"
    )
}

/// What follows the long help.
pub(super) fn run_long_help() -> String {
    render_sections(run_sections())
}

fn render_sections(sections: &[Section]) -> String {
    let (on, off) = header_style();
    let mut out = String::new();
    for section in sections {
        if !out.is_empty() {
            out.push('\n');
        }
        // Writing to a string cannot fail.
        let _ = writeln!(out, "{on}{}:{off}", section.title);
        match section.lines {
            Lines::Terms(terms) => {
                let width = terms.iter().map(|(term, _)| term.len()).max().unwrap_or(0);
                for (term, meaning) in terms {
                    let _ = writeln!(out, "  {term:width$}  {meaning}");
                }
            }
            Lines::Commands(commands) => {
                for (command, meaning) in commands {
                    let _ = writeln!(out, "  {command}\n      {meaning}");
                }
            }
        }
    }
    out.truncate(out.trim_end().len());
    out
}

/// Headings look as clap's own; it takes the colours away where nobody can see them.
fn header_style() -> (String, String) {
    let header = STYLES.get_header();
    (header.render().to_string(), header.render_reset().to_string())
}
