//! What follows the options: sections of the long help and of the man page, from one table.

use std::fmt::Write;

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
    ("/healthz", "200 as long as the process answers"),
    ("/readyz", "200 while it takes requests, 503 from the shutdown on"),
];

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
pub(crate) fn sections() -> &'static [Section] {
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
                    "ringmain --listen :80 --listen unix:/run/web.sock --unix-mode 660",
                    "two addresses",
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

/// What follows the short help.
pub(super) fn short() -> String {
    let (on, off) = style();
    format!(
        "{on}Examples:{off}\n  ringmain                      serve on 127.0.0.1:8080\n  \
         ringmain --listen :80 -w 2    every address, port 80, two workers\n\n\
         All options, paths, signals and exit codes: ringmain --help"
    )
}

/// What follows the long help.
pub(super) fn long() -> String {
    let (on, off) = style();
    let mut out = String::new();
    for section in sections() {
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
fn style() -> (String, String) {
    let header = STYLES.get_header();
    (header.render().to_string(), header.render_reset().to_string())
}
