//! Messages of a NATS that are published in channels.

use std::sync::Arc;

use super::{Certificate, Secret};

/// A consumer: what it hears, and where that is published. Core NATS: what is published while nobody listens is not heard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Nats {
    /// Where it listens, and as whom.
    pub access: NatsAccess,
    /// Subjects that it listens to, perhaps with `*` and `>`.
    pub subjects: Vec<Arc<str>>,
    /// The channel that a message is published in, by its subject.
    pub channel: NatsChannel,
    /// Whether the process counts as ready only while this delivers.
    pub readiness: bool,
}

/// A NATS and how it is signed in there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NatsAccess {
    /// Servers of one cluster, at least one: each is tried when the one before cannot be reached.
    pub servers: Vec<NatsServer>,
    /// Who signs in.
    pub login: NatsLogin,
    /// What TLS is about. `None`: as [`NatsTls::default`], where a server wants TLS.
    pub tls: Option<NatsTls>,
}

/// A server of NATS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NatsServer {
    /// A name, or an address without brackets.
    pub host: Arc<str>,
    /// Its port; 4222 as a rule.
    pub port: u16,
    /// Nothing but its greeting is heard, and nothing said, without TLS.
    pub tls: bool,
}

/// Who signs in to a NATS.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum NatsLogin {
    /// Nobody says who it is.
    #[default]
    Nobody,
    /// A user with a password.
    User {
        /// Its name.
        user: Arc<str>,
        /// Its password.
        password: Secret,
    },
    /// Whoever has a token.
    Token(Secret),
    /// A file of credentials: a JWT and the seed of its key (NKey), or a seed alone.
    Credentials(Secret),
}

/// TLS towards a NATS. Without authorities those that this system trusts vouch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NatsTls {
    /// The name that certificates must be for. `None`: the server's host.
    pub server_name: Option<Arc<str>>,
    /// Authorities that vouch, in PEM.
    pub authorities: Option<Arc<[u8]>>,
    /// What is shown if a certificate is asked for.
    pub certificate: Option<Arc<Certificate>>,
}

/// A channel's name with parts of a subject in it. `prices:{2..}` makes `prices:eu.a` of `market.eu.a`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NatsChannel(Vec<Part>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    Text(Arc<str>),
    /// `{subject}`
    Subject,
    /// `{2}`, from 0 here.
    Word(usize),
    /// `{2..}`, from 0 here.
    From(usize),
}

impl NatsChannel {
    /// The subject itself.
    #[must_use]
    pub fn subject() -> NatsChannel {
        NatsChannel(vec![Part::Subject])
    }

    /// Reads one: `{subject}` stands for the subject, `{2}` for its second word, `{2..}` for all of its words from the second on.
    ///
    /// # Errors
    /// What is wrong, as `expected …, found …`.
    pub fn parse(text: &str) -> Result<NatsChannel, String> {
        let wrong = || {
            Err(format!(
                "expected a channel's name with `{{subject}}`, `{{1}}` or `{{2..}}` in it, found `{text}`"
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
        Ok(NatsChannel(parts))
    }

    /// The texts that the channels of these subjects begin with: as much as is known without a message.
    #[must_use]
    pub fn prefixes(&self, subjects: &[Arc<str>]) -> Vec<String> {
        let of_subjects = |from: usize, words: usize| {
            let subjects = subjects.iter();
            subjects
                .map(|subject| known_words(subject, from, words))
                .collect()
        };
        match self.0.first() {
            Some(Part::Text(text)) => vec![text.to_string()],
            Some(Part::Subject) => of_subjects(0, usize::MAX),
            Some(Part::From(index)) => of_subjects(*index, usize::MAX),
            Some(Part::Word(index)) => of_subjects(*index, 1),
            None => Vec::new(),
        }
    }

    /// The channel of a subject. `None`: the subject has too few words.
    #[must_use]
    pub fn of(&self, subject: &str) -> Option<String> {
        let mut channel = String::with_capacity(subject.len() + 16);
        for part in &self.0 {
            match part {
                Part::Text(text) => channel += text,
                Part::Subject => channel += subject,
                Part::Word(index) => channel += subject.split('.').nth(*index)?,
                Part::From(0) => channel += subject,
                Part::From(index) => {
                    let (at, _) = subject.match_indices('.').nth(index - 1)?;
                    channel += &subject[at + 1..];
                }
            }
        }
        Some(channel)
    }
}

/// The words of a subject from this one on, up to the first that may be any; with a dot behind them if more may follow.
fn known_words(subject: &str, from: usize, words: usize) -> String {
    let mut known = String::new();
    for (at, word) in subject.split('.').skip(from).take(words).enumerate() {
        if at > 0 {
            known.push('.');
        }
        if matches!(word, "*" | ">") {
            break;
        }
        known += word;
    }
    known
}

impl Part {
    fn parse(name: &str) -> Option<Part> {
        if name == "subject" {
            return Some(Part::Subject);
        }
        let (digits, from) = match name.strip_suffix("..") {
            Some(digits) => (digits, true),
            None => (name, false),
        };
        let is_number = digits.bytes().all(|byte| byte.is_ascii_digit());
        let number: usize = digits.parse().ok().filter(|_| is_number)?;
        let index = number.checked_sub(1)?;
        Some(if from {
            Part::From(index)
        } else {
            Part::Word(index)
        })
    }
}
