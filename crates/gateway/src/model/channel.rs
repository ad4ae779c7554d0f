//! Names of channels that are made of records, and the names that a source can make.

mod bound;

use std::sync::Arc;

pub use self::bound::{CHANNEL_BOUNDS, ChannelBound, SubjectPattern};

/// The name of a channel with parts of a record in it: `prices:{key}`, `{subject}`, `{2..}`, `{header:channel}`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChannelTemplate(Vec<Part>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    Text(Arc<str>),
    /// `{key}`
    Key,
    /// `{topic}`, `{subject}`, `{stream}`, `{channel}`: the name of the topic, subject, stream or channel.
    Subject,
    /// `{2}`, from 0 here.
    Word(usize),
    /// `{2..}`, from 0 here.
    From(usize),
    /// `{header:NAME}`
    Header(Arc<str>),
}

/// The parts of a record that a template reads.
pub trait RecordParts {
    /// The key.
    fn key(&self) -> Option<&[u8]>;
    /// The topic, subject, stream or channel.
    fn subject(&self) -> &str;
    /// A header, or a field.
    fn header(&self, name: &str) -> Option<&[u8]>;
}

/// A record of which only the subject is known.
#[derive(Clone, Copy, Debug)]
pub struct Subject<'s>(pub &'s str);

impl RecordParts for Subject<'_> {
    fn key(&self) -> Option<&[u8]> {
        None
    }

    fn subject(&self) -> &str {
        self.0
    }

    fn header(&self, _: &str) -> Option<&[u8]> {
        None
    }
}

impl ChannelTemplate {
    /// The names of the placeholder for the topic, subject, stream or channel of a record.
    const SUBJECTS: [&str; 4] = ["subject", "topic", "stream", "channel"];

    /// The subject.
    #[must_use]
    pub fn subject() -> ChannelTemplate {
        ChannelTemplate(vec![Part::Subject])
    }

    /// The key.
    #[must_use]
    pub fn key() -> ChannelTemplate {
        ChannelTemplate(vec![Part::Key])
    }

    /// A header.
    #[must_use]
    pub fn header(name: &str) -> ChannelTemplate {
        ChannelTemplate(vec![Part::Header(name.into())])
    }

    /// Reads a template: `{key}` is replaced by the key, `{topic}`, `{subject}`, `{stream}` and `{channel}` by the name of what the record
    /// was published in, `{2}` by the second word of that name (words are separated by dots), `{2..}` by all from the second on,
    /// `{header:NAME}` by a header.
    ///
    /// # Errors
    /// The fault, as `expected …, found …`.
    pub fn parse(text: &str) -> Result<ChannelTemplate, String> {
        let wrong = || {
            Err(format!(
                "expected a channel's name with `{{key}}`, `{{subject}}`, `{{2}}`, `{{2..}}` or `{{header:NAME}}` in it, found `{text}`"
            ))
        };
        let (mut parts, mut rest) = (Vec::new(), text);
        while let Some((before, behind)) = rest.split_once('{') {
            let Some((name, after)) = behind.split_once('}') else {
                return wrong();
            };
            if !before.is_empty() {
                parts.push(Part::Text(before.into()));
            }
            let Some(part) = Part::parse(name) else {
                return wrong();
            };
            parts.push(part);
            rest = after;
        }
        if rest.contains('}') || text.is_empty() {
            return wrong();
        }
        if !rest.is_empty() {
            parts.push(Part::Text(rest.into()));
        }
        Ok(ChannelTemplate(parts))
    }

    /// Returns the namespace of all channels that it makes, if it has one and no record decides it.
    #[must_use]
    pub fn namespace(&self) -> Option<&str> {
        let Some(Part::Text(text)) = self.0.first() else {
            return None;
        };
        let (name, _) = text.strip_prefix('$').unwrap_or(text).split_once(':')?;
        (!name.is_empty()).then_some(name)
    }

    /// Returns whether it reads the subject alone: brokers without keys and headers can be read.
    #[must_use]
    pub fn reads_subject_only(&self) -> bool {
        !self
            .0
            .iter()
            .any(|part| matches!(part, Part::Key | Part::Header(_)))
    }

    /// Returns whether it reads a header.
    #[must_use]
    pub fn has_header(&self) -> bool {
        self.0.iter().any(|part| matches!(part, Part::Header(_)))
    }

    /// The names of the channels of records from these topics, subjects, streams or channels, as far as they are known without a record:
    /// at most [`CHANNEL_BOUNDS`]. None: no record has a channel.
    #[must_use]
    pub fn bounds(&self, subjects: &[SubjectPattern]) -> Vec<ChannelBound> {
        bound::limited(
            subjects
                .iter()
                .filter_map(|subject| self.bound(subject))
                .collect(),
        )
    }

    fn bound(&self, subject: &SubjectPattern) -> Option<ChannelBound> {
        let mut bound = ChannelBound::Name(String::new());
        for part in &self.0 {
            let (text, is_whole) = match part {
                Part::Text(text) => (text.to_string(), true),
                Part::Key | Part::Header(_) => (String::new(), false),
                Part::Subject => subject.words(0, usize::MAX)?,
                Part::From(index) => subject.words(*index, usize::MAX)?,
                Part::Word(index) => subject.words(*index, 1)?,
            };
            // All parts are looked at: a subject that lacks one has no channel.
            bound.append(&text, is_whole);
        }
        Some(bound)
    }

    /// Returns the channel of a record. `None`: the record lacks a part, or a part is not UTF-8.
    #[must_use]
    pub fn channel_of(&self, record: &dyn RecordParts) -> Option<String> {
        let subject = record.subject();
        let mut channel = String::with_capacity(64);
        for part in &self.0 {
            match part {
                Part::Text(text) => channel += text,
                Part::Key => channel += str::from_utf8(record.key()?).ok()?,
                Part::Subject | Part::From(0) => channel += subject,
                Part::Word(index) => channel += subject.split('.').nth(*index)?,
                Part::From(index) => {
                    let (at, _) = subject.match_indices('.').nth(index - 1)?;
                    channel += &subject[at + 1..];
                }
                Part::Header(name) => channel += str::from_utf8(record.header(name)?).ok()?,
            }
        }
        Some(channel)
    }
}

impl Part {
    fn parse(name: &str) -> Option<Part> {
        if name == "key" {
            return Some(Part::Key);
        }
        if ChannelTemplate::SUBJECTS.contains(&name) {
            return Some(Part::Subject);
        }
        if let Some(header) = name.strip_prefix("header:") {
            return (!header.is_empty()).then(|| Part::Header(header.into()));
        }
        let (digits, is_open) = match name.strip_suffix("..") {
            Some(digits) => (digits, true),
            None => (name, false),
        };
        let is_number = digits.bytes().all(|byte| byte.is_ascii_digit());
        let number: usize = digits.parse().ok().filter(|_| is_number)?;
        let index = number.checked_sub(1)?;
        Some(match is_open {
            true => Part::From(index),
            false => Part::Word(index),
        })
    }
}

#[cfg(test)]
mod tests;
