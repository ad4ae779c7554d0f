//! The slower suites: too long for each change, one command each.

use std::path::Path;
use std::process::ExitCode;

use crate::steps::Line;
use crate::usage_error;

/// One suite: its commands run in turn, the last one takes further arguments.
struct Suite {
    name: &'static str,
    about: &'static str,
    lines: &'static [Line],
}

const SUITES: &[Suite] = &[
    Suite {
        name: "sim",
        about: "10,000 seeds in the simulated world, of the contract alone, of the real workers, and of HTTP applications and the load generator on them",
        lines: &[
            Line {
                env: SEEDS,
                words: &[
                    "cargo",
                    "test",
                    "--release",
                    "-p",
                    "ringmain-engine",
                    "--lib",
                    "backend::sim",
                ],
            },
            Line {
                env: SEEDS,
                words: &[
                    "cargo",
                    "test",
                    "--release",
                    "-p",
                    "ringmain-engine",
                    "--test",
                    "sim",
                    "--",
                    "--nocapture",
                ],
            },
            Line {
                env: SEEDS,
                words: &[
                    "cargo",
                    "test",
                    "--release",
                    "-p",
                    "ringmain-web",
                    "--test",
                    "sim",
                ],
            },
            Line {
                env: SEEDS,
                words: &[
                    "cargo",
                    "test",
                    "--release",
                    "-p",
                    "ringmain-load",
                    "--lib",
                    "client::sim_tests",
                ],
            },
        ],
    },
    Suite {
        name: "hold",
        about: "80,000 echo connections held by one process under a limit of 20,000 descriptors, each answered",
        lines: &[Line::new(&["bench/build.sh", "client"]), RELEASE, HOLD],
    },
    Suite {
        name: "bench",
        about: "CPU per echoed message against the bare server and the peers, interleaved pairs",
        lines: &[
            Line::new(&["bench/build.sh"]),
            RELEASE,
            Line::new(&["python3", "bench/echo.py"]),
        ],
    },
    Suite {
        name: "http",
        about: "CPU per HTTP request against bare servers, frameworks and servers, interleaved pairs: forty minutes",
        lines: &[
            Line::new(&["bench/build.sh", "http"]),
            RELEASE,
            Line::new(&["python3", "bench/http.py"]),
        ],
    },
    Suite {
        name: "client",
        about: "`ringmain bench` against wrk and the lean client: throughput, CPU per request, stalls; ten minutes, needs wrk",
        lines: &[
            Line::new(&["bench/build.sh", "client", "floor", "go"]),
            RELEASE,
            Line::new(&["python3", "bench/client.py"]),
        ],
    },
    Suite {
        name: "hold-http",
        about: "80,000 HTTP connections held by one process, each answered twice; memory of an idle one",
        lines: &[Line::new(&["bench/build.sh", "client"]), RELEASE, HOLD_HTTP],
    },
    Suite {
        name: "tools",
        about: "curl, wrk, h2load and slowhttptest in each mode against the server with its default limits; one minute",
        lines: &[RELEASE, TOOLS],
    },
    Suite {
        name: "overload",
        about: "goodput at three times the load that an application carries, and recovery from it",
        lines: &[Line::new(&["bench/build.sh", "client"]), REPORT, OVERLOAD],
    },
    Suite {
        name: "fuzz",
        about: "ten minutes of mutations on each fuzz target",
        lines: &[FUZZ],
    },
    Suite {
        name: "hours",
        about: "one CPU-hour of libFuzzer on each codec's target (needs g++), until a quarter of an hour adds no coverage",
        lines: &[
            Line::new(&["fuzz/hour.sh", "h1_request"]),
            Line::new(&["fuzz/hour.sh", "h1_response"]),
            Line::new(&["fuzz/hour.sh", "h1_encode"]),
            Line::new(&["fuzz/hour.sh", "ws_frames"]),
        ],
    },
];

/// All tests of the simulation read it; `SIM_SEED=n` runs one seed.
const SEEDS: &[(&str, &str)] = &[("SIM_SEEDS", "10000")];

const RELEASE: Line = Line::new(&["cargo", "build", "--release"]);

const HOLD: Line = Line::new(&[
    "python3",
    "bench/hold.py",
    "--connections",
    "80000",
    "--",
    "target/release/ringmain",
    "run",
    "--echo",
    "--listen",
    "127.0.0.1:$PORT",
]);

const HOLD_HTTP: Line = Line::new(&[
    "python3",
    "bench/hold.py",
    "--http",
    "/json",
    "--connections",
    "80000",
    "--",
    "target/release/ringmain",
    "run",
    "--listen",
    "127.0.0.1:$PORT",
    "--max-connections",
    "80000",
    // All ask at once: late answers are wanted here, not refusals.
    "--patience",
    "1h",
]);

const REPORT: Line = Line::new(&["cargo", "build", "--release", "--example", "report"]);

const OVERLOAD: Line = Line::new(&[
    "python3",
    "bench/overload.py",
    "--share",
    "1",
    "--path",
    "/report?measurements=40000",
    "--",
    "target/release/examples/report",
    "127.0.0.1:$PORT",
]);

const TOOLS: Line = Line::new(&[
    "python3",
    "bench/tools.py",
    "--",
    "target/release/ringmain",
    "run",
    "--listen",
    "127.0.0.1:$PORT",
]);

const FUZZ: Line = Line::new(&[
    "cargo",
    "run",
    "--release",
    "--manifest-path",
    "fuzz/Cargo.toml",
    "--bin",
    "smoke",
    "--",
    "--seconds",
    "600",
]);

/// Prints name, purpose and commands of every suite.
pub(crate) fn list() -> ExitCode {
    for suite in SUITES {
        println!("{:<10}{}", suite.name, suite.about);
        suite.lines.iter().for_each(|line| println!("{:<10}$ {line}", ""));
    }
    ExitCode::SUCCESS
}

/// Runs one suite; `extra` goes to its last command.
pub(crate) fn run(root: &Path, name: &str, extra: &[&str]) -> ExitCode {
    let Some(suite) = SUITES.iter().find(|suite| suite.name == name) else {
        let names: Vec<&str> = SUITES.iter().map(|suite| suite.name).collect();
        return usage_error(&format!(
            "no such suite: `{name}`; there are {}",
            names.join(", ")
        ));
    };
    for (index, line) in suite.lines.iter().enumerate() {
        let extra = if index + 1 == suite.lines.len() {
            extra
        } else {
            &[]
        };
        if let Err(what) = line.run(root, extra) {
            eprintln!("suite {name}: {what}");
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}
