//! The outputs of results: standard output, or files, which are opened before the load so that an invalid path wastes no run.

use std::fs;
use std::io::{self, IsTerminal, Write};
use std::path::PathBuf;
use std::time::Duration;

use ringmain_load::figures::Figures;
use ringmain_load::record::{Head, Writer};
use ringmain_load::report::text::Style;
use ringmain_load::report::{Interval, Remark};
use ringmain_load::run::Session;

use crate::args::bench::Results;
use crate::args::bench::values::File;
use crate::error::CliError;

/// The destination of a result.
#[derive(Debug)]
pub(crate) enum Sink {
    StandardOutput,
    File(PathBuf, fs::File),
}

impl Sink {
    /// Opens the file; an existing one is truncated when the result is written.
    ///
    /// # Errors
    /// Fails if the file cannot be created or opened.
    pub(crate) fn open(option: &str, file: &File) -> Result<Sink, CliError> {
        let File::Path(path) = file else {
            return Ok(Sink::StandardOutput);
        };
        let opened = fs::OpenOptions::new()
            .create(true)
            .write(true)
            .truncate(false)
            .open(path);
        match opened {
            Ok(opened) => Ok(Sink::File(path.clone(), opened)),
            Err(error) => Err(CliError::Usage(format!(
                "{option}: cannot write {}: {error}",
                path.display()
            ))),
        }
    }

    /// Writes the result.
    ///
    /// # Errors
    /// Fails if the file cannot be written.
    pub(crate) fn write(self, text: &str) -> Result<(), CliError> {
        let Sink::File(path, mut file) = self else {
            return to_standard_output(text);
        };
        truncate_file(&file)
            .and_then(|()| file.write_all(text.as_bytes()))
            .map_err(|error| CliError::Other(format!("cannot write {}: {error}", path.display())))
    }
}

/// Truncates a regular file.
fn truncate_file(file: &fs::File) -> io::Result<()> {
    if file.metadata()?.is_file() {
        file.set_len(0)?;
    }
    Ok(())
}

/// The destinations of the results of a run.
#[derive(Debug)]
pub(super) struct Sinks {
    json: Option<Sink>,
    html: Option<Sink>,
    /// Print the summary: no other result goes to standard output.
    summary: bool,
    quiet: bool,
}

impl Sinks {
    /// Opens the files.
    pub(super) fn open(results: &Results, histograms: Option<&File>) -> Result<Sinks, CliError> {
        let open = |option: &str, file: &Option<File>| {
            file.as_ref().map(|file| Sink::open(option, file)).transpose()
        };
        let files = [results.json.as_ref(), results.html.as_ref(), histograms];
        Ok(Sinks {
            json: open("--json", &results.json)?,
            html: open("--html", &results.html)?,
            summary: !files.into_iter().flatten().any(File::is_standard_output),
            quiet: results.quiet,
        })
    }

    /// Opens the JSON file of a result without page and histograms.
    pub(super) fn json(json: Option<&File>, quiet: bool) -> Result<Sinks, CliError> {
        Ok(Sinks {
            json: json.map(|file| Sink::open("--json", file)).transpose()?,
            html: None,
            summary: !json.is_some_and(File::is_standard_output),
            quiet,
        })
    }

    /// Writes only the JSON document, of a run without a summary.
    pub(super) fn write_json(self, json: impl FnOnce() -> String) -> Result<(), CliError> {
        self.json.map_or(Ok(()), |sink| sink.write(&json()))
    }

    /// Writes the outputs of one result. Without a summary the warnings are printed to standard error.
    pub(super) fn write(
        self,
        remarks: &[Remark],
        summary: impl FnOnce() -> String,
        json: impl FnOnce() -> String,
        html: impl FnOnce() -> String,
    ) -> Result<(), CliError> {
        if self.summary {
            to_standard_output(&summary())?;
        } else if !self.quiet {
            for remark in remarks {
                to_standard_error(&format!("{}: {}", remark.severity.word(), remark.message));
            }
        }
        if let Some(sink) = self.json {
            sink.write(&json())?;
        }
        if let Some(sink) = self.html {
            sink.write(&html())?;
        }
        Ok(())
    }
}

/// A histogram log, written during the measurement.
pub(super) struct Histograms {
    sink: Option<Sink>,
    writer: Option<Writer<Box<dyn Write>>>,
    /// Start of the file, since the Unix epoch, and of the round, since the start of the file.
    began: Duration,
    round: Duration,
    failed: String,
}

impl Histograms {
    /// Opens the file, if there is one.
    pub(super) fn open(file: Option<&File>) -> Result<Histograms, CliError> {
        let sink = file.map(|file| Sink::open("--hlog", file)).transpose()?;
        Ok(Histograms {
            sink,
            ..Histograms::without_file()
        })
    }

    /// Returns a log without a file.
    pub(super) fn without_file() -> Histograms {
        Histograms {
            sink: None,
            writer: None,
            began: Duration::ZERO,
            round: Duration::ZERO,
            failed: String::new(),
        }
    }

    /// Writes the head, before the first round.
    pub(super) fn write_head(&mut self, session: &Session) -> Result<(), CliError> {
        let Some(sink) = self.sink.take() else {
            return Ok(());
        };
        self.began = ringmain_sys::clock::realtime();
        let head = Head {
            target: &session.plan().target.to_string(),
            engine: session.engine(),
            rate: session.plan().pace.rate(),
            began: self.began,
        };
        let (path, output): (String, Box<dyn Write>) = match sink {
            Sink::StandardOutput => ("standard output".into(), Box::new(io::stdout())),
            Sink::File(path, file) => {
                let path = path.display().to_string();
                truncate_file(&file)
                    .map_err(|error| CliError::Other(format!("cannot write {path}: {error}")))?;
                (path, Box::new(file))
            }
        };
        self.failed = format!("cannot write {path}");
        let writer = Writer::new(output, &head);
        self.writer = Some(writer.map_err(|error| CliError::Other(format!("{}: {error}", self.failed)))?);
        Ok(())
    }

    /// Records the start of the measurement.
    pub(super) fn mark_round_start(&mut self) {
        self.round = ringmain_sys::clock::realtime().saturating_sub(self.began);
    }

    /// Writes one interval.
    pub(super) fn write_interval(&mut self, interval: &Interval, figures: &Figures) -> Result<(), CliError> {
        let Some(writer) = &mut self.writer else {
            return Ok(());
        };
        let start = self.round + interval.until.saturating_sub(interval.length);
        writer
            .interval(start, interval.length, figures)
            .map_err(|error| CliError::Other(format!("{}: {error}", self.failed)))
    }
}

/// Prints a message.
pub(crate) fn to_standard_error(text: &str) {
    // A broken standard error cannot be reported.
    let _ = writeln!(io::stderr(), "{text}");
}

/// As [`crate::print_output`], with a final line feed.
pub(crate) fn to_standard_output(text: &str) -> Result<(), CliError> {
    crate::print_output(|out| {
        out.write_all(text.as_bytes())?;
        if text.ends_with('\n') {
            Ok(())
        } else {
            out.write_all(b"\n")
        }
    })
}

/// Returns the style of text on standard output.
pub(crate) fn terminal_style() -> Style {
    let colour = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    if colour && io::stdout().is_terminal() {
        Style::Terminal
    } else {
        Style::Plain
    }
}
