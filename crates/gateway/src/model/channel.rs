//! Channel names that are derived from records, and the bounds of the names that a source can produce.

mod bound;

use std::sync::Arc;

pub use self::bound::{CHANNEL_BOUNDS, ChannelBound, SubjectPattern};

/// A channel name with placeholders for parts of a record: `prices:{key}`, `{subject}`, `{2..}`, `{header:channel}`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChannelTemplate(Vec<Part>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    Text(Arc<str>),
    /// `{key}`
    Key,
    /// `{topic}`, `{subject}`, `{stream}`, `{channel}`: the name of the topic, subject, stream or channel.
    Subject,
    /// `{2}`; 0-based here.
    Word(usize),
    /// `{2..}`; 0-based here.
    From(usize),
    /// `{header:NAME}`
    Header(Arc<str>),
}

/// The parts of a record that a template reads.
pub trait RecordParts {
    /// Returns the key.
    fn key(&self) -> Option<&[u8]>;
    /// Returns the name of the topic, subject, stream or channel.
    fn subject(&self) -> &str;
    /// Returns the value of a header or field.
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
    /// Names of the placeholder for the topic, subject, stream or channel of a record.
    const SUBJECTS: [&str; 4] = ["subject", "topic", "stream", "channel"];

    /// Creates a template that consists of the subject.
    #[must_use]
    pub fn subject() -> ChannelTemplate {
        ChannelTemplate(vec![Part::Subject])
    }

    /// Creates a template that consists of the key.
    #[must_use]
    pub fn key() -> ChannelTemplate {
        ChannelTemplate(vec![Part::Key])
    }

    /// Creates a template that consists of a header.
    #[must_use]
    pub fn header(name: &str) -> ChannelTemplate {
        ChannelTemplate(vec![Part::Header(name.into())])
    }

    /// Parses a template: `{key}` is replaced by the key, `{topic}`, `{subject}`, `{stream}` and `{channel}` by the name of the topic,
    /// subject, stream or channel, `{2}` by the second word of that name (words are separated by dots), `{2..}` by all words from the
    /// second on, `{header:NAME}` by a header.
    ///
    /// # Errors
    /// The text is empty, has unbalanced braces or an unknown placeholder. The message is `expected …, found …`.
    pub fn parse(text: &str) -> Result<ChannelTemplate, String> {
        let invalid = || {
            Err(format!(
                "expected a channel's name with `{{key}}`, `{{subject}}`, `{{2}}`, `{{2..}}` or `{{header:NAME}}` in it, found `{text}`"
            ))
        };
        let (mut parts, mut rest) = (Vec::new(), text);
        while let Some((before, behind)) = rest.split_once('{') {
            let Some((name, after)) = behind.split_once('}') else {
                return invalid();
            };
            if !before.is_empty() {
                parts.push(Part::Text(before.into()));
            }
            let Some(part) = Part::parse(name) else {
                return invalid();
            };
            parts.push(part);
            rest = after;
        }
        if rest.contains('}') || text.is_empty() {
            return invalid();
        }
        if !rest.is_empty() {
            parts.push(Part::Text(rest.into()));
        }
        Ok(ChannelTemplate(parts))
    }

    /// Returns the common namespace of this template's channels. `None`: they have none, or it depends on the record.
    #[must_use]
    pub fn namespace(&self) -> Option<&str> {
        let Some(Part::Text(text)) = self.0.first() else {
            return None;
        };
        let (name, _) = text.strip_prefix('$').unwrap_or(text).split_once(':')?;
        (!name.is_empty()).then_some(name)
    }

    /// Returns whether the template reads nothing but the subject, and so suits brokers without keys and headers.
    #[must_use]
    pub fn reads_subject_only(&self) -> bool {
        !self
            .0
            .iter()
            .any(|part| matches!(part, Part::Key | Part::Header(_)))
    }

    /// Returns whether the template reads a header.
    #[must_use]
    pub fn has_header(&self) -> bool {
        self.0.iter().any(|part| matches!(part, Part::Header(_)))
    }

    /// Returns the bounds of the channel names of records from these topics, subjects, streams or channels: at most [`CHANNEL_BOUNDS`].
    /// Empty: no record has a channel.
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
            // Reads every part: a subject that lacks one has no channel.
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
        Some(if is_open {
            Part::From(index)
        } else {
            Part::Word(index)
        })
    }
}

#[cfg(test)]
mod tests;
