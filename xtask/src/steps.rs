//! Commands as data, and how they are run and shown. Knows nothing of which commands there are.

use std::fmt;
use std::path::Path;
use std::process::Command;

/// A command line with its environment, run from the repository's root.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Line {
    /// Variables set for the command.
    pub(crate) env: &'static [(&'static str, &'static str)],
    /// The program, then its arguments.
    pub(crate) words: &'static [&'static str],
}

impl Line {
    /// A command without variables of its own.
    pub(crate) const fn new(words: &'static [&'static str]) -> Line {
        Line { env: &[], words }
    }

    /// Shows and runs the command with `extra` arguments; `Err` says what went wrong.
    pub(crate) fn run(&self, root: &Path, extra: &[&str]) -> Result<(), String> {
        eprintln!(
            "$ {self}{}",
            extra.iter().map(|word| format!(" {word}")).collect::<String>()
        );
        let (program, args) = self.words.split_first().expect("a command has a program");
        let status = Command::new(program)
            .args(args)
            .args(extra)
            .envs(self.env.iter().copied())
            .current_dir(root)
            .status()
            .map_err(|error| format!("`{program}` could not be started: {error}; is it installed?"))?;
        if status.success() {
            Ok(())
        } else {
            Err(format!("`{self}` ended with {status}"))
        }
    }
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, value) in self.env {
            write!(f, "{name}={value} ")?;
        }
        f.write_str(&self.words.join(" "))
    }
}
