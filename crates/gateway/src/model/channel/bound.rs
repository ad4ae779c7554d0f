//! Bounds of the channels that a source feeds, so that a gap of the source affects no others.

use std::sync::Arc;

use ringmain_push::ThreadPublisher;

/// Limit of the bounds of one source. Beyond it they become one prefix, the longest that they share.
pub const CHANNEL_BOUNDS: usize = 64;

/// A set of channel names that a source can feed.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ChannelBound {
    /// This channel.
    Name(String),
    /// All channels whose names begin with this text.
    Prefix(String),
}

impl ChannelBound {
    /// Any channel.
    pub const ANY: ChannelBound = ChannelBound::Prefix(String::new());

    /// Returns the text that all names of this bound begin with.
    #[must_use]
    pub fn prefix(&self) -> &str {
        match self {
            ChannelBound::Name(text) | ChannelBound::Prefix(text) => text,
        }
    }

    /// Reports to workers that publications may be missing in these channels, after those already received. For a prefix, channels that
    /// only other sources have fed are excepted.
    pub fn interrupt(&self, inlet: &ThreadPublisher) {
        match self {
            ChannelBound::Name(name) => inlet.report_dropped(&Arc::from(&**name)),
            ChannelBound::Prefix(prefix) => inlet.report_interrupted(prefix),
        }
    }

    /// Appends a part of the name. After an incomplete part nothing more is known.
    pub(super) fn append(&mut self, text: &str, is_whole: bool) {
        if let ChannelBound::Name(known) = self {
            *known += text;
            if !is_whole {
                *self = ChannelBound::Prefix(std::mem::take(known));
            }
        }
    }

    fn covers(&self, other: &ChannelBound) -> bool {
        match self {
            ChannelBound::Name(_) => self == other,
            ChannelBound::Prefix(prefix) => other.prefix().starts_with(&**prefix),
        }
    }
}

/// Removes bounds that others cover, and applies the limit.
pub(super) fn limited(bounds: Vec<ChannelBound>) -> Vec<ChannelBound> {
    let mut kept: Vec<ChannelBound> = Vec::new();
    for bound in bounds {
        if !kept.iter().any(|other| other.covers(&bound)) {
            kept.retain(|other| !bound.covers(other));
            kept.push(bound);
        }
    }
    if kept.len() <= CHANNEL_BOUNDS {
        return kept;
    }
    let mut texts = kept.iter().map(ChannelBound::prefix);
    let first = texts.next().unwrap_or_default();
    let common = texts.fold(first, |common, text| {
        let same = common.chars().zip(text.chars()).take_while(|(a, b)| a == b);
        &common[..same.map(|(a, _)| a.len_utf8()).sum()]
    });
    vec![ChannelBound::Prefix(common.to_owned())]
}

/// Topics, subjects, streams or channels of a broker that a source reads, as words separated by dots.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SubjectPattern {
    words: Vec<Word>,
    /// Set if any words may follow.
    is_open: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Word {
    Known(Arc<str>),
    /// Begins with this text; the rest is unknown.
    Begins(Arc<str>),
    /// Any word.
    Any,
}

impl SubjectPattern {
    /// Creates a pattern of one name.
    #[must_use]
    pub fn name(name: &str) -> SubjectPattern {
        SubjectPattern {
            words: name.split('.').map(|word| Word::Known(word.into())).collect(),
            is_open: false,
        }
    }

    /// Creates a pattern of every name.
    #[must_use]
    pub fn any() -> SubjectPattern {
        SubjectPattern {
            words: Vec::new(),
            is_open: true,
        }
    }

    /// Creates a pattern from a NATS filter: `*` is any word, a final `>` is one or more words.
    #[must_use]
    pub fn nats(filter: &str) -> SubjectPattern {
        let (words, is_open) = match filter.strip_suffix('>') {
            Some(rest) if rest.is_empty() || rest.ends_with('.') => (rest.trim_end_matches('.'), true),
            _ => (filter, false),
        };
        let words = words.split('.').filter(|word| !word.is_empty());
        let words = words.map(|word| match word {
            "*" => Word::Any,
            word => Word::Known(word.into()),
        });
        SubjectPattern {
            words: words.collect(),
            is_open,
        }
    }

    /// Creates a pattern from a `PSUBSCRIBE` pattern of Redis. Its text is known up to the first special character.
    #[must_use]
    pub fn glob(pattern: &str) -> SubjectPattern {
        let Some(end) = pattern.find(['*', '?', '[', '\\']) else {
            return SubjectPattern::name(pattern);
        };
        let mut pattern = SubjectPattern::name(&pattern[..end]);
        if let Some(Word::Known(prefix)) = pattern.words.pop() {
            pattern.words.push(Word::Begins(prefix));
        }
        pattern.is_open = true;
        pattern
    }

    /// Returns whether the pattern matches this name. Of a glob, only the text before its first special character counts.
    #[must_use]
    pub fn matches(&self, name: &str) -> bool {
        let mut words = name.split('.');
        for pattern in &self.words {
            let covers_word = match (pattern, words.next()) {
                (_, None) => false,
                (Word::Any, Some(_)) => true,
                (Word::Known(known), Some(word)) => **known == *word,
                (Word::Begins(prefix), Some(word)) => return word.starts_with(&**prefix),
            };
            if !covers_word {
                return false;
            }
        }
        if self.is_open {
            // `>` matches at least one word.
            words.next().is_some()
        } else {
            words.next().is_none()
        }
    }

    /// Returns the text of up to `count` words from the index `from` on, up to the first unknown word, and whether the text is complete.
    /// `None`: there is no such word.
    pub(super) fn words(&self, from: usize, count: usize) -> Option<(String, bool)> {
        let words = self.words.get(from..).unwrap_or_default();
        if words.is_empty() {
            return self.is_open.then(|| (String::new(), false));
        }
        let mut text = String::new();
        for (at, word) in words.iter().take(count).enumerate() {
            if at > 0 {
                text.push('.');
            }
            match word {
                Word::Known(word) => text += word,
                Word::Begins(prefix) => return Some((text + prefix, false)),
                Word::Any => return Some((text, false)),
            }
        }
        let is_whole = count <= words.len() || !self.is_open;
        if !is_whole {
            // At least one more word follows.
            text.push('.');
        }
        Some((text, is_whole))
    }
}
