//! Reads interval logs: those of [`super::Writer`], of HdrHistogram's own tools and of other load generators.
//!
//! Knows lines and what their times count from; [`super::encoded`] knows the histogram in a line.

use std::time::Duration;

use hdrhistogram::serialization::interval_log::{IntervalLogHistogram, IntervalLogIterator, LogEntry};

use super::encoded;
use super::{Problem, RecordError, Recorded, Tagged};
use crate::limits;

/// HdrHistogram's tools take a line's time for one that counts from `StartTime`, if it is so much smaller.
const YEAR: Duration = Duration::from_hours(365 * 24);

/// Bytes of a wrong line that an error shows.
const SHOWN: usize = 80;

/// Reads one file, called `name` in errors, and adds up the lines of each tag. Comments are skipped, lines may end as on
/// Windows, and times count from `BaseTime`, `StartTime` or the Unix epoch, as in HdrHistogram's tools.
///
/// # Errors
///
/// The first [`Problem`], with its line.
pub fn read(name: &str, bytes: &[u8]) -> Result<Recorded, RecordError> {
    let error = |line, problem| RecordError {
        name: name.to_owned(),
        line,
        problem,
    };
    if bytes.len() > limits::RECORD_BYTES {
        return Err(error(None, Problem::TooLong(bytes.len())));
    }
    let mut file = File::default();
    for (index, line) in bytes.split_inclusive(|byte| *byte == b'\n').enumerate() {
        file.line(line)
            .map_err(|problem| error(Some(index + 1), problem))?;
    }
    if file.recorded.tags.is_empty() {
        return Err(error(None, Problem::Empty));
    }
    Ok(file.recorded)
}

#[derive(Default)]
struct File {
    start: Option<Duration>,
    base: Option<Duration>,
    recorded: Recorded,
}

impl File {
    /// One line, with its end. Alone, so that a wrong one cannot take others with it.
    fn line(&mut self, line: &[u8]) -> Result<(), Problem> {
        if line.trim_ascii().is_empty() {
            return Ok(());
        }
        match IntervalLogIterator::new(line).next() {
            // A comment or the names of the columns.
            None => Ok(()),
            Some(Ok(LogEntry::StartTime(time))) => {
                self.start = Some(time);
                Ok(())
            }
            Some(Ok(LogEntry::BaseTime(time))) => {
                self.base = Some(time);
                Ok(())
            }
            Some(Ok(LogEntry::Interval(interval))) => self.interval(&interval),
            Some(Err(_)) if !line.ends_with(b"\n") => self.last(line),
            Some(Err(_)) => Err(Problem::Line(shown(line))),
        }
    }

    /// The last line of a file that does not end it. A whole one is taken all the same: not every writer ends it.
    fn last(&mut self, line: &[u8]) -> Result<(), Problem> {
        let mut ended = line.to_vec();
        ended.push(b'\n');
        match self.line(&ended) {
            Err(Problem::Histogram(_) | Problem::Line(_)) => Err(Problem::Cut),
            other => other,
        }
    }

    fn interval(&mut self, line: &IntervalLogHistogram<'_>) -> Result<(), Problem> {
        let tag = line.tag().map_or("", |tag| tag.as_str());
        if tag.contains(|character: char| character.is_control() || character == ' ') {
            return Err(Problem::Tag(tag.to_owned()));
        }
        let from = self
            .origin(line.start_timestamp())
            .saturating_add(line.start_timestamp());
        let until = from.saturating_add(line.duration());
        let histogram = encoded::decode(line.encoded_histogram())?;
        self.recorded.add(
            tag,
            Tagged {
                histogram,
                lines: 1,
                from,
                until,
            },
        )
    }

    fn origin(&self, time: Duration) -> Duration {
        match (self.base, self.start) {
            (Some(base), _) => base,
            (None, Some(start)) if time.saturating_add(YEAR) < start => start,
            _ => Duration::ZERO,
        }
    }
}

fn shown(line: &[u8]) -> String {
    let line = line.trim_ascii_end();
    let text = String::from_utf8_lossy(&line[..line.len().min(SHOWN)]);
    if line.len() > SHOWN {
        format!("{text}…")
    } else {
        text.into_owned()
    }
}
