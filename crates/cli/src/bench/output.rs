//! Where results go: standard output, or files, which are made before the load so that a wrong path costs no run.

use std::fs;
use std::io::{self, IsTerminal, Write};
use std::path::PathBuf;

use ringmain_load::report::text::Style;

use crate::args::bench::values::File;
use crate::failure::Failure;

/// A place for one result.
#[derive(Debug)]
pub(super) enum Sink {
    StandardOutput,
    File(PathBuf, fs::File),
}

impl Sink {
    /// Opens it; an existing file is emptied when the result is there.
    pub(super) fn open(option: &str, file: &File) -> Result<Sink, Failure> {
        let File::Path(path) = file else {
            return Ok(Sink::StandardOutput);
        };
        let opened = fs::OpenOptions::new().create(true).write(true).truncate(false).open(path);
        match opened {
            Ok(opened) => Ok(Sink::File(path.clone(), opened)),
            Err(error) => Err(Failure::Usage(format!("{option}: cannot write {}: {error}", path.display()))),
        }
    }

    /// Writes the result.
    pub(super) fn write(self, text: &str) -> Result<(), Failure> {
        let Sink::File(path, mut file) = self else {
            return to_standard_output(text);
        };
        file.set_len(0)
            .and_then(|()| file.write_all(text.as_bytes()))
            .map_err(|error| Failure::Other(format!("cannot write {}: {error}", path.display())))
    }
}

/// As [`crate::print`].
pub(super) fn to_standard_output(text: &str) -> Result<(), Failure> {
    crate::print(|out| {
        out.write_all(text.as_bytes())?;
        if text.ends_with('\n') { Ok(()) } else { out.write_all(b"\n") }
    })
}

/// How text on standard output is dressed.
pub(super) fn style() -> Style {
    let colour = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    if colour && io::stdout().is_terminal() { Style::Terminal } else { Style::Plain }
}
