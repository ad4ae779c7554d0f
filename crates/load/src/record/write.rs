//! Writes interval logs, line by line.
//!
//! Knows the tags of our own files and the comments at their head. What it writes, [`super::read`] reads.

use std::io::{self, Write};
use std::time::{Duration, SystemTime};

use hdrhistogram::Histogram;
use hdrhistogram::serialization::V2DeflateSerializer;
use hdrhistogram::serialization::interval_log::{IntervalLogWriterBuilder, IntervalLogWriterError, Tag};

use crate::figures::Figures;

/// The tag of service times.
pub const SERVICE: &str = "service";

/// The tag of response times.
pub const RESPONSE: &str = "response";

/// The tag of times to connect.
pub const CONNECT: &str = "connect";

const FORMAT: &str = "[Histogram log format version 1.3]";

const COLUMNS: &str = r#""StartTimestamp","Interval_Length","Interval_Max","Interval_Compressed_Histogram""#;

/// What the head of a file says.
#[derive(Clone, Debug)]
pub struct Head<'a> {
    /// What the load goes to.
    pub target: &'a str,
    /// The engine that the client runs on.
    pub engine: &'a str,
    /// Requests a second asked for; `None` in a closed loop.
    pub rate: Option<f64>,
    /// When measuring began, since the Unix epoch; the times of lines count from it.
    pub began: Duration,
}

/// Writes one file. Each line is whole when the call returns, if the output has no buffer of its own: of a run that is
/// killed all finished intervals are there.
pub struct Writer<W: Write> {
    output: W,
    serializer: V2DeflateSerializer,
}

impl<W: Write> Writer<W> {
    /// Writes the head.
    ///
    /// # Errors
    ///
    /// The output's.
    pub fn new(mut output: W, head: &Head<'_>) -> io::Result<Writer<W>> {
        let mut serializer = V2DeflateSerializer::new();
        let began = SystemTime::UNIX_EPOCH + head.began;
        let rate = head
            .rate
            .map_or_else(|| "closed loop".to_owned(), |rate| format!("{rate} requests/s"));
        let what = format!("target {}, engine {}, {rate}", head.target, head.engine);
        // A line's end in a name would end the comment.
        let what = what.replace(char::is_control, " ");
        IntervalLogWriterBuilder::new()
            .add_comment(FORMAT)
            .add_comment(&format!("[ringmain bench {}: {what}]", env!("CARGO_PKG_VERSION")))
            .add_comment("[Values and Interval_Max are in nanoseconds]")
            .with_start_time(began)
            .with_base_time(began)
            .begin_log_with(&mut output, &mut serializer)?;
        writeln!(output, "{COLUMNS}")?;
        Ok(Writer { output, serializer })
    }

    /// Writes what one interval has seen that began so long after [`Head::began`]: a line each of service, response and
    /// connect times, but none of those that are empty.
    ///
    /// # Errors
    ///
    /// The output's.
    pub fn interval(&mut self, start: Duration, length: Duration, figures: &Figures) -> io::Result<()> {
        let kinds = [
            (SERVICE, &figures.service),
            (RESPONSE, &figures.response),
            (CONNECT, &figures.connect),
        ];
        for (tag, latency) in kinds {
            if latency.count() > 0 {
                self.line(tag, start, length, latency.histogram())?;
            }
        }
        Ok(())
    }

    /// Writes one histogram. An empty tag is left out.
    ///
    /// # Errors
    ///
    /// The output's; `InvalidInput` if the tag has a comma, a space or a line's end in it.
    pub fn line(
        &mut self,
        tag: &str,
        start: Duration,
        length: Duration,
        histogram: &Histogram<u64>,
    ) -> io::Result<()> {
        let tag = match Tag::new(tag) {
            Some(_) if tag.is_empty() => None,
            Some(tag) => Some(tag),
            None => {
                return Err(io::Error::new(
                    io::ErrorKind::InvalidInput,
                    format!("{tag:?} cannot be a tag"),
                ));
            }
        };
        // Lines come one by one and rarely; the builder borrows both parts and without a head writes nothing itself.
        let Writer { output, serializer } = self;
        let mut lines = IntervalLogWriterBuilder::new().begin_log_with(output, serializer)?;
        lines
            .write_histogram(histogram, start, length, tag)
            .map_err(|error| match error {
                IntervalLogWriterError::IoError(error) => error,
                IntervalLogWriterError::SerializeError(error) => io::Error::other(error),
            })
    }

    /// Flushes and gives the output back.
    ///
    /// # Errors
    ///
    /// The output's.
    pub fn finish(mut self) -> io::Result<W> {
        self.output.flush()?;
        Ok(self.output)
    }
}
