//! The texts after the options: sections of the long help and of the man page, from one table.
//!
//! No line is longer than 100 columns: clap does not wrap these texts.

use std::fmt::Write;
use std::sync::LazyLock;

use ringmain_tune::catalogue::{Accept, Id};

use super::STYLES;

/// A heading with its lines.
pub(crate) struct Section {
    pub(crate) title: &'static str,
    pub(crate) lines: Lines,
}

/// The lines of a section.
pub(crate) enum Lines {
    /// Terms and their meanings.
    Terms(&'static [(&'static str, &'static str)]),
    /// Command lines and their effects.
    Commands(&'static [(&'static str, &'static str)]),
}

/// The paths of the built-in application.
pub(crate) const PATHS: &[(&str, &str)] = &[
    ("/", "dashboard with live metrics; for curl this list"),
    (
        "/live",
        "metrics of the dashboard as server-sent events, one per second",
    ),
    ("/json", "JSON object, serialized for each request"),
    ("/plaintext", "13 bytes of text"),
    ("/echo", "request body and content type, for every method"),
    ("/ws", "WebSocket echo"),
    ("/ticker", "page with simulated prices, pushed to the browser"),
    ("/healthz", "200 while the process responds"),
    ("/readyz", "200 while requests are accepted, 503 during shutdown"),
];

/// The text after the help of `check`.
pub(super) const CHECK: &str = "\
Examples:
  ringmain check ringmain.yaml
  ringmain check - --stdin-filename conf/ringmain.yaml < edited.yaml
  ringmain check --format json ringmain.yaml | jq -r '.[] | \"\\(.line): \\(.message)\"'

With --format json the output is an array, in the order of the file and empty if there is nothing
to report. Each object has file, line and column (from 1), path (JSON pointer), severity (error or
warning) and message; errors also have expected and found. Beyond 100 errors the last object has
only severity and message, which is the number of further errors. Secrets are not shown.

Exit codes:
  0  valid
  1  invalid
  2  wrong command line, or the file cannot be read

All keys: docs/reference/config";

/// The text after the help of `init`.
pub(super) const INIT: &str = "\
Examples:
  ringmain init gateway            ringmain.yaml and its schema, in the current directory
  ringmain init push live          the same for a push server in live/, and public/index.html
  ringmain init app shop           Cargo.toml, src/main.rs with a test, and .gitignore in shop/

If one of the files exists, none is written (exit code 1).";

/// The text after the help of `schema`.
pub(super) const SCHEMA: &str = "\
Completion and validation in editors, with this as the first line of the YAML file:
  # yaml-language-server: $schema=ringmain.schema.json

  ringmain schema > ringmain.schema.json

Guide: docs/how-to/edit-configuration.md";

/// The text after the help of `explain`.
pub(super) const EXPLAIN: &str = "\
Examples:
  ringmain explain shop.yaml POST https://shop.example:8443/cart?id=1 -H 'accept: text/html'
  ringmain explain shop.yaml --sni mail.shop.example     a TLS passthrough connection
  ringmain explain shop.yaml --listener :5433            a TCP passthrough connection
  ringmain explain - GET http://a/ < shop.yaml           a file from standard input

Exit codes:
  0  a rule or a stream matches
  1  none matches, or the file is invalid
  2  wrong command line, or the file cannot be read";

/// The text after the help of `completions`.
pub(super) const COMPLETIONS: &str = "\
Installation:
  bash  ringmain completions bash > ~/.local/share/bash-completion/completions/ringmain
  zsh   ringmain completions zsh > \"${fpath[1]}/_ringmain\"
  fish  ringmain completions fish > ~/.config/fish/completions/ringmain.fish";

/// The text after the help of `man`.
pub(super) const MAN: &str = "\
Show it, or install it:
  ringmain man | man -l -
  ringmain man > ~/.local/share/man/man1/ringmain.1
  ringmain man --dir ~/.local/share/man/man1";

/// Variables with their effects: of the log, and of a service manager (systemd).
const ENVIRONMENT: Section = Section {
    title: "Environment",
    lines: Lines::Terms(&[
        (
            "RINGMAIN_LOG_FORMAT",
            "text or json, unless --log-format is given",
        ),
        (
            "NOTIFY_SOCKET",
            "report start, reloads and shutdown (systemd notify)",
        ),
        ("WATCHDOG_USEC", "send pings while all workers respond (systemd)"),
        ("LISTEN_FDS", "accept on inherited listeners (socket activation)"),
    ]),
};

/// Returns the sections of `ringmain run`.
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
                    "graceful shutdown within --grace; twice: exit immediately",
                ),
                ("SIGQUIT", "exit immediately"),
                (
                    "SIGHUP",
                    "reload configuration and certificates, reopen the access log",
                ),
                ("SIGUSR1", "reopen the access log after log rotation"),
                (
                    "SIGUSR2",
                    "hand the listeners over to a new process without downtime",
                ),
            ]),
        },
        ENVIRONMENT,
        Section {
            title: "Exit codes",
            lines: Lines::Terms(&[
                ("0", "stopped by a signal"),
                ("1", "failed"),
                ("2", "wrong command line or configuration file"),
            ]),
        },
        Section {
            title: "Examples",
            lines: Lines::Commands(&[
                ("ringmain", "serve the built-in application on 127.0.0.1:8080"),
                (
                    "ringmain init gateway",
                    "write ringmain.yaml, a commented configuration to start with",
                ),
                (
                    "ringmain run ringmain.yaml",
                    "run the gateway of this file (docs/how-to/reverse-proxy.md)",
                ),
                (
                    "ringmain --listen :80 --listen unix:/run/web.sock --unix-mode 660",
                    "listen on two addresses",
                ),
                (
                    "ringmain --cert site.pem --key site.key --listen :443 --redirect-http :80",
                    "serve HTTPS, and redirect HTTP clients to it",
                ),
                (
                    "ringmain --access-log - --access-log-format json | jq .status",
                    "filter the access log",
                ),
                (
                    "ringmain --engine epoll --workers 1 --stats 1s",
                    "run one worker on epoll, and log the counters every second",
                ),
                (
                    "ringmain --echo --max-connections 80000",
                    "run a TCP echo server on 127.0.0.1:7000",
                ),
            ]),
        },
    ]
}

/// The text after the help of `bench compare`.
pub(super) const COMPARE: &str = "\
Example, two builds on different ports, on other CPUs than the client:
  ringmain bench compare -c 64 old=:8081/json new=:8082/json --server-cpus 0-1 \\
      --server old='./old --port 8081' --server new='./new --port 8082'

Rounds alternate (AB BA AB …). A difference is reported only if it is statistically significant.";

/// The text after the help of `bench push`.
pub(super) const PUSH: &str = "\
Examples, with the API key in RINGMAIN_API_KEY:
  ringmain bench push ws://127.0.0.1:8000 --clients 100 --channels 10 --rate 100
  ringmain bench push ws://127.0.0.1:8000 -c 80000 --channels 1000 -r 1k \\
      --source 127.0.0.1-127.0.0.4 --server-pid PID
  ringmain bench push ws://127.0.0.1:8000 -c 2000 --channels 5000 --each 50 -r 100k \\
      --prefix market: --conflated 200ms --slow 5%
  ringmain bench push http://127.0.0.1:8000/connection/uni_sse
  ringmain bench push ws://a:8000 ws://b:8000 ws://c:8000 -c 3000 --channels 100 -r 1k \\
      --prefix kept: --publish http://a:8000/api/publish --kill-server PID@3s
  ringmain bench push ws://a:8000 ws://b:8000 -c 2000 --channels 100 --prefix kept: \\
      --listen-only=0000002a
  ringmain bench push ws://127.0.0.1:8000 -c 500 --channels 5000 --each 10 -r 20k \\
      --publish-to kafka://127.0.0.1:9092/prices --plain-consumer

Publications are sent on schedule, independent of the responses; latencies are measured from the
scheduled time.";

/// The text after the help of `feed`.
pub(super) const FEED: &str = "\
Examples:
  ringmain feed                                     20 shares, 1,000 trades per second
  ringmain feed nats://127.0.0.1:4222 -r 20k        to the NATS subjects market.SYMBOL
  ringmain feed http://127.0.0.1:8080 --api-key K   to the channels market:SYMBOL
  ringmain feed --symbols 5000 --seed 1 -d 10s      the same trades on each run

Trades are sent on schedule, independent of the receiver: a trade that it does not accept within a
second is skipped. A lost connection is opened again. The last line reports the number of sent and
skipped trades. The URL has the NATS login (nats://USER:PASSWORD@HOST) or token (nats://TOKEN@HOST).

Exit codes:
  0  published
  1  no trade was delivered, or the receiver refused them
  2  wrong command line";

/// The text after the help of `profile`.
pub(super) const PROFILE: &str = "\
Examples:
  ringmain profile --pid $(pidof nginx) --svg nginx.svg      ten seconds of a server under load
  ringmain profile --svg out.svg -- ./program --option       a program from start to exit
  ringmain profile -p 42 -d 30s --folded before.folded       stacks for a comparison
  ringmain profile diff before.folded after.folded --svg difference.svg

Kernel stacks require root, CAP_PERFMON, or kernel.perf_event_paranoid of 1 or less; a note reports
missing permissions. Guide: docs/profile.md

Exit codes:
  0  done
  1  failed
  2  wrong command line";

/// The text after the help of `profile diff`.
pub(super) const PROFILE_DIFF: &str = "\
Example, the same load before and after a change:
  ringmain profile -p 42 --folded before.folded      # after the change: after.folded
  ringmain profile diff before.folded after.folded --svg difference.svg";

/// The text after the help of `bench merge`.
pub(super) const MERGE: &str = "\
Example, the same load from two hosts:
  ringmain bench -r 20k --hlog a.hlog http://server/    # b.hlog on the other host
  ringmain bench merge a.hlog b.hlog";

/// Returns the sections of `ringmain bench`.
pub(crate) fn bench_sections() -> &'static [Section] {
    &[
        Section {
            title: "Exit codes",
            lines: Lines::Terms(&[
                ("0", "done, and all thresholds met"),
                ("1", "failed, interrupted, or a threshold missed"),
                ("2", "wrong command line or scenario"),
            ]),
        },
        Section {
            title: "Examples",
            lines: Lines::Commands(&[
                (
                    "ringmain bench :8080/json",
                    "throughput: closed loop, 64 connections, three rounds of 10 s",
                ),
                (
                    "ringmain bench -r 5k -c 256 http://10.0.0.2/ --threshold 'p99<20ms'",
                    "latency at 5,000 requests per second (open loop); exit code 1 if p99 is too high",
                ),
                (
                    "ringmain bench --find-max --slo 'p99<5ms' -c 256 :8080/",
                    "highest rate that meets the objective",
                ),
                (
                    "ringmain bench :8080/ --server './app --port 8080' --server-cpus 0 --cpus 1",
                    "start the server, pin it and the client, measure its CPU time and memory",
                ),
                (
                    "ringmain bench compare old=:8081/ new=:8082/",
                    "comparison of two servers, with statistical significance",
                ),
                (
                    "ringmain bench --http2 --streams 100 -c 32 :8080/json",
                    "HTTP/2, 100 concurrent streams on each of 32 connections",
                ),
                (
                    "ringmain bench --grpc --data-file hello.bin http://127.0.0.1:50051/helloworld.Greeter/SayHello",
                    "unary gRPC calls, with the message of the file",
                ),
                (
                    "ringmain bench --echo 512 tcp://127.0.0.1:7000",
                    "TCP echo with messages of 512 bytes",
                ),
                (
                    "ringmain bench --echo 512 ws://127.0.0.1:8080/ws",
                    "WebSocket echo with messages of 512 bytes",
                ),
                (
                    "ringmain bench --ca dev.pem --reconnect-every 1 https://localhost:8443/json",
                    "one TLS handshake per request, resumed if possible (--no-resume: full handshakes)",
                ),
            ]),
        },
    ]
}

/// The text after the help of `tune apply`.
pub(super) const TUNE_APPLY: &str = "\
Each setting is written to the journal before it is changed, and read back afterwards.
Failures and their outcome:
  a write fails, or has no effect         the step is reverted, the others remain; exit code 1
  the journal's disk is full or read-only this run is reverted; exit code 1
  the process is killed                   ringmain tune revert reverts all started changes;
                                          the next apply takes them over
  the host restarts                       no change remains: ringmain tune export persists settings";

/// The text after the help of `tune revert`.
pub(super) const TUNE_REVERT: &str = "\
Settings that were changed by others since are reported, and remain unchanged and in the journal
(exit code 1), unless --force or --forget. After a restart of the host no setting is written: the
applied changes are lost, and the journal is closed.";

/// The text after the help of `tune export`.
pub(super) const TUNE_EXPORT: &str = "\
Installation:
  ringmain tune export --as sysctl > /etc/sysctl.d/90-ringmain.conf
  ringmain tune export --as systemd > /etc/systemd/system/ringmain-tune.service
  ringmain tune export --as kubernetes --image registry.example/ringmain:1 | kubectl apply -f -
  ringmain tune export --as seccomp > ringmain.json
  docker run --security-opt seccomp=ringmain.json …";

/// The text after the help of `tune measure`.
pub(super) const TUNE_MEASURE: &str = "\
Example, from another host; on one host pin client and server to different CPUs:
  ringmain tune measure http://10.0.0.2/json -c 256 --interface eth0 --html ladder.html

Each step is measured on top of the steps kept before it, in pairs of rounds without and with it, in
random order. A step with a significant improvement twice in a row is kept, all others are reverted
immediately. At most one step in a thousand is kept by chance.
ringmain tune revert reverts the kept steps.";

/// Returns the sections of `ringmain tune`.
pub(crate) fn tune_sections() -> &'static [Section] {
    &TUNE
}

/// Names and titles of the steps.
static STEPS: LazyLock<Vec<(&str, &str)>> =
    LazyLock::new(|| Id::ALL.iter().map(|id| (id.name(), id.step().title)).collect());
/// Names and meanings of the values of `--accept`.
static ACCEPTED: LazyLock<Vec<(&str, &str)>> =
    LazyLock::new(|| Accept::ALL.map(|one| (one.name(), one.meaning())).into());

static TUNE: LazyLock<Vec<Section>> = LazyLock::new(|| {
    vec![
        Section {
            title: "Steps",
            lines: Lines::Terms(&STEPS),
        },
        Section {
            title: "Values of --accept",
            lines: Lines::Terms(&ACCEPTED),
        },
        Section {
            title: "Statuses",
            lines: Lines::Terms(&[
                ("good", "as recommended"),
                ("change", "apply changes it"),
                ("by hand", "manual change, described in the report"),
                ("held", "weakens security or can drop packets: only with --accept"),
                ("optional", "rarely useful: only with --step"),
                (
                    "leave",
                    "better unchanged on this host; the report has the reason",
                ),
                (
                    "no access",
                    "not changeable from here (container, namespace, permissions)",
                ),
                ("absent", "not present on this host"),
                ("unknown", "cannot be determined"),
            ]),
        },
        Section {
            title: "Exit codes",
            lines: Lines::Terms(&[
                ("0", "done"),
                ("1", "failed, or a setting is not as requested"),
                ("2", "wrong command line"),
            ]),
        },
        Section {
            title: "Examples",
            lines: Lines::Commands(&[
                (
                    "ringmain tune --port 8080",
                    "audit this host for the service on that port, without changes",
                ),
                ("ringmain tune --explain irq-affinity", "description of one step"),
                (
                    "ringmain tune plan --profile latency",
                    "list of the changes that apply would make",
                ),
                (
                    "ringmain tune apply --step xps --step irq-affinity",
                    "apply only these two steps",
                ),
                ("ringmain tune revert", "restore all previous values"),
                (
                    "ringmain tune locality --port 8080",
                    "queue, interrupt, CPU and worker of the packets",
                ),
                (
                    "ringmain tune snapshot > a.json; ringmain tune diff a.json",
                    "changes since the snapshot",
                ),
            ]),
        },
    ]
});

/// Returns the text after the short help of `tune`.
pub(super) fn tune_short_help() -> String {
    let (on, off) = header_style();
    format!(
        "{on}Examples:{off}\n  ringmain tune --port 8080     audit this host for the service on that port\n  \
         ringmain tune plan            list the changes that apply would make\n  \
         ringmain tune apply           make them; ringmain tune revert reverts them\n\n\
         All options, statuses and exit codes: ringmain tune --help. Guide: docs/tune.md"
    )
}

/// Returns the text after the long help of `tune`.
pub(super) fn tune_long_help() -> String {
    render_sections(tune_sections())
}

/// Returns the text after the short help of `bench`.
pub(super) fn bench_short_help() -> String {
    let (on, off) = header_style();
    format!(
        "{on}Examples:{off}\n  ringmain bench :8080/json             throughput (closed loop)\n  \
         ringmain bench -r 5k -c 256 :8080/    latency at 5,000 requests per second (open loop)\n\n\
         All options, exit codes and more examples: ringmain bench --help. Guide: docs/bench.md"
    )
}

/// Returns the text after the long help of `bench`.
pub(super) fn bench_long_help() -> String {
    render_sections(bench_sections())
}

/// Returns the text after the short help of `run`.
pub(super) fn run_short_help() -> String {
    let (on, off) = header_style();
    format!(
        "{on}Examples:{off}\n  ringmain                      serve on 127.0.0.1:8080\n  \
         ringmain run ringmain.yaml    run the gateway of this configuration file\n  \
         ringmain --listen :80 -w 2    two workers on port 80, all addresses\n\n\
         All options, paths, signals and exit codes: ringmain --help"
    )
}

/// Returns the text after the long help of `run`.
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

/// Returns the escape sequences of clap's headings; clap strips them if the output is not a terminal.
fn header_style() -> (String, String) {
    let header = STYLES.get_header();
    (header.render().to_string(), header.render_reset().to_string())
}
