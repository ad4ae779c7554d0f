//! The destination of the access log. Only its own thread calls this, so that it may block.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

pub(super) enum Output {
    File { path: PathBuf, file: File },
    Stdout,
    Stderr,
    Other(Box<dyn Write + Send>),
}

impl Output {
    pub(super) fn file(path: PathBuf) -> io::Result<Output> {
        let file = open(&path).map_err(|error| {
            let text = format!("cannot open the access log `{}`: {error}", path.display());
            io::Error::new(error.kind(), text)
        })?;
        Ok(Output::File { path, file })
    }

    /// Opens the file by its name again; other outputs stay as they are.
    pub(super) fn reopen(&mut self) -> io::Result<()> {
        if let Output::File { path, file } = self {
            *file = open(path)?;
        }
        Ok(())
    }

    pub(super) fn write(&mut self, text: &[u8]) -> io::Result<()> {
        let out: &mut dyn Write = match self {
            Output::File { file, .. } => file,
            Output::Stdout => &mut io::stdout().lock(),
            Output::Stderr => &mut io::stderr().lock(),
            Output::Other(out) => out,
        };
        out.write_all(text)?;
        out.flush()
    }
}

/// For people.
impl fmt::Display for Output {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Output::File { path, .. } => write!(f, "`{}`", path.display()),
            Output::Stdout => f.write_str("standard output"),
            Output::Stderr => f.write_str("standard error"),
            Output::Other(_) => f.write_str("its destination"),
        }
    }
}

fn open(path: &Path) -> io::Result<File> {
    // The log contains client addresses: other users must not read it.
    OpenOptions::new()
        .append(true)
        .create(true)
        .mode(0o640)
        .open(path)
}
