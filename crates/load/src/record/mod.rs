//! Histograms in files: the interval log (`.hlog`) of HdrHistogram, which its own tools and other load generators read
//! and write. Nothing is lost on the way, so merged files say what one file of all would have said.
//!
//! Owns the form of the lines and what merging means. Knows neither rounds nor where files are.

mod encoded;
mod read;
#[cfg(test)]
mod tests;
mod write;

use std::collections::BTreeMap;
use std::time::Duration;

use hdrhistogram::Histogram;

pub use read::read;
pub use write::{CONNECT, Head, RESPONSE, SERVICE, Writer};

use crate::limits;

/// What one or more files hold.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Recorded {
    /// By tag; lines without one are under the empty name.
    pub tags: BTreeMap<String, Tagged>,
}

/// All lines of one tag.
#[derive(Clone, Debug, PartialEq)]
pub struct Tagged {
    /// The sum of all. Values are in the file's unit: nanoseconds in files that [`Writer`] has written.
    pub histogram: Histogram<u64>,
    /// How many lines.
    pub lines: u64,
    /// When the first of them began, since the Unix epoch (or since whatever the file counts from, if it does not say).
    pub from: Duration,
    /// When the last of them ended.
    pub until: Duration,
}

/// Why a file's histograms cannot be had.
#[derive(Debug, thiserror::Error)]
#[error("{}{}: {problem}", name, line.map(|line| format!(":{line}")).unwrap_or_default())]
pub struct RecordError {
    /// The file, as the caller named it.
    pub name: String,
    /// Counted from one; `None` if it is about the whole.
    pub line: Option<usize>,
    /// What is wrong.
    pub problem: Problem,
}

/// What is wrong with a file of histograms.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// Longer than [`limits::RECORD_BYTES`].
    #[error("the file has {0} bytes; at most {max} are read. Split it: merging its parts gives the same", max = limits::RECORD_BYTES)]
    TooLong(usize),
    /// No line holds a histogram.
    #[error(
        "no histogram in it: expected lines of HdrHistogram's interval log, such as \
         \"Tag=service,0.000,1.000,2.5,HISTFAAAA…\""
    )]
    Empty,
    /// A line that is neither a comment nor a histogram.
    #[error(
        "expected \"[Tag=name,]start,length,longest,histogram\" with times such as 1.000 and the histogram in base64, \
         found {0:?}"
    )]
    Line(String),
    /// The last line has no end: whoever wrote it was stopped.
    #[error("the last line is cut off: its writer was stopped. Remove the line to use the others")]
    Cut,
    /// A tag that could not be written again.
    #[error("the tag {0:?} has a space or control character in it; HdrHistogram forbids them")]
    Tag(String),
    /// The line's histogram cannot be decoded.
    #[error("the histogram cannot be decoded: {0}. The line is damaged, or of another version than 2")]
    Histogram(String),
    /// More tags than [`limits::RECORD_TAGS`].
    #[error("more than {max} different tags", max = limits::RECORD_TAGS)]
    Tags,
    /// The counters need more than [`limits::RECORD_MEMORY`].
    #[error(
        "the histograms need more than {} MiB of memory; record fewer digits or fewer tags",
        limits::RECORD_MEMORY >> 20
    )]
    Memory,
    /// Counts that no file of measurements has.
    #[error("the counts exceed 64 bits: a line is damaged")]
    Count,
}

/// The union of what files hold: each tag's histogram counts what all of them count. Of equal resolution, nothing is
/// changed or lost; of different ones, the finest is kept.
///
/// # Errors
///
/// [`Problem::Tags`], [`Problem::Memory`] and [`Problem::Count`], without the name of a file.
pub fn merge(files: impl IntoIterator<Item = Recorded>) -> Result<Recorded, Problem> {
    let mut all = Recorded::default();
    for file in files {
        for (tag, tagged) in file.tags {
            all.add(&tag, tagged)?;
        }
    }
    Ok(all)
}

impl Recorded {
    /// When the first line of any tag began; zero if there is none.
    #[must_use]
    pub fn from(&self) -> Duration {
        self.tags
            .values()
            .map(|tagged| tagged.from)
            .min()
            .unwrap_or_default()
    }

    fn add(&mut self, tag: &str, more: Tagged) -> Result<(), Problem> {
        match self.tags.get_mut(tag) {
            Some(tagged) => {
                unite(&mut tagged.histogram, more.histogram)?;
                tagged.lines += more.lines;
                tagged.from = tagged.from.min(more.from);
                tagged.until = tagged.until.max(more.until);
            }
            None => {
                self.tags.insert(tag.to_owned(), more);
            }
        }
        if self.tags.len() > limits::RECORD_TAGS {
            return Err(Problem::Tags);
        }
        let counters: usize = self
            .tags
            .values()
            .map(|tagged| tagged.histogram.distinct_values())
            .sum();
        if counters.saturating_mul(size_of::<u64>()) > limits::RECORD_MEMORY {
            return Err(Problem::Memory);
        }
        Ok(())
    }
}

fn unite(into: &mut Histogram<u64>, from: Histogram<u64>) -> Result<(), Problem> {
    if into.len().checked_add(from.len()).is_none() {
        return Err(Problem::Count);
    }
    if into.sigfig() == from.sigfig() && into.low() == from.low() && into.high() == from.high() {
        return into.add(&from).map_err(|_| Problem::Count);
    }
    let (low, high) = (into.low().min(from.low()), into.high().max(from.high()));
    let finest = Histogram::new_with_bounds(low, high, into.sigfig().max(from.sigfig()));
    let mut finest = finest.expect("the one of more digits can have its own lower bound, or a smaller one");
    finest
        .add(&*into)
        .and_then(|()| finest.add(&from))
        .expect("it reaches as far as both");
    *into = finest;
    Ok(())
}
