//! The slower suites: too long for each change, one command each.

use std::path::Path;
use std::process::ExitCode;

use crate::steps::Line;
use crate::usage_error;

/// One suite.
struct Suite {
    name: &'static str,
    about: &'static str,
    line: Line,
}

const SUITES: &[Suite] = &[
    Suite {
        name: "sim",
        about: "10,000 seeds of the simulation: workers, connections, mail and faults",
        line: Line {
            env: &[("RINGMAIN_SIM_SEEDS", "10000")],
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
    },
    Suite {
        name: "hold",
        about: "80,000 connections held by one process, each answered",
        line: Line::new(&["python3", "bench/hold.py"]),
    },
    Suite {
        name: "bench",
        about: "CPU per echoed message against the bare server and the peers, interleaved pairs",
        line: Line::new(&["python3", "bench/echo.py"]),
    },
    Suite {
        name: "fuzz",
        about: "ten minutes of mutations on each fuzz target",
        line: Line::new(&[
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
        ]),
    },
];

/// Prints name, purpose and command of every suite.
pub(crate) fn list() -> ExitCode {
    for suite in SUITES {
        println!("{:<8}{}\n{:<8}$ {}", suite.name, suite.about, "", suite.line);
    }
    ExitCode::SUCCESS
}

/// Runs one suite; `extra` goes to its command.
pub(crate) fn run(root: &Path, name: &str, extra: &[&str]) -> ExitCode {
    let Some(suite) = SUITES.iter().find(|suite| suite.name == name) else {
        let names: Vec<&str> = SUITES.iter().map(|suite| suite.name).collect();
        return usage_error(&format!(
            "no such suite: `{name}`; there are {}",
            names.join(", ")
        ));
    };
    eprintln!("$ {} {}", suite.line, extra.join(" "));
    match suite.line.run(root, extra) {
        Ok(()) => ExitCode::SUCCESS,
        Err(what) => {
            eprintln!("suite {name}: {what}");
            ExitCode::FAILURE
        }
    }
}
