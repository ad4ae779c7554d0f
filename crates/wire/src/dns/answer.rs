//! What a server answers, as far as it is about addresses.

use std::net::IpAddr;

use super::name::Name;
use super::{ADDRESSES, ALIASES, CLASS_IN, Kind, Question, address};

/// What an answer says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// What it says of the name.
    pub outcome: Outcome,
    /// For how long, in seconds: the least of what its records say; of a name without addresses what its zone says
    /// (RFC 2308 §5), 0 if it says nothing.
    pub ttl: u32,
}

/// What an answer says of a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It has these addresses.
    Addresses(Vec<IpAddr>),
    /// It is there and has no address of that kind.
    Empty,
    /// There is no such name.
    NotFound,
}

/// Why an answer is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AnswerFault {
    /// It answers another question, or is a question itself: to be passed over, the right one may still come.
    #[error("it answers another question")]
    Other,
    /// It is not in the form of a message.
    #[error("it is not in the form of a message")]
    Form,
    /// It did not fit: to be asked again by TCP.
    #[error("it did not fit and is to be asked for by TCP")]
    Truncated,
    /// The server could not or would not answer: its code (RFC 1035 §4.1.1).
    #[error("the server says code {0}")]
    Refused(u8),
}

/// Reads a message as the answer to `question`.
///
/// # Errors
/// [`AnswerFault`].
pub fn parse(message: &[u8], question: &Question<'_>) -> Result<Answer, AnswerFault> {
    let header: &[u8; 12] = message.first_chunk().ok_or(AnswerFault::Form)?;
    let number = |at: usize| u16::from_be_bytes([header[at], header[at + 1]]);
    let (flags, code) = (number(2), header[3] & 15);
    if number(0) != question.id || flags & 0x8000 == 0 {
        return Err(AnswerFault::Other);
    }
    if number(4) != 1 {
        return Err(if code != 0 {
            AnswerFault::Refused(code)
        } else {
            AnswerFault::Form
        });
    }
    let (asked, at) = Name::read(message, 12).ok_or(AnswerFault::Form)?;
    let fixed = message.get(at..at + 4).ok_or(AnswerFault::Form)?;
    let kind = u16::from_be_bytes([fixed[0], fixed[1]]);
    if !asked.is_text(question.name) || kind != question.kind.number() {
        return Err(AnswerFault::Other);
    }
    if flags & 0x0200 != 0 {
        return Err(AnswerFault::Truncated);
    }
    if code != 0 && code != NO_SUCH_NAME {
        return Err(AnswerFault::Refused(code));
    }
    let mut records = Records { message, at: at + 4 };
    let answers = records.collect(number(6))?;
    let authorities = records.collect(number(8))?;
    read(&answers, &authorities, asked, question.kind, code == NO_SUCH_NAME)
}

const NO_SUCH_NAME: u8 = 3;
const CNAME: u16 = 5;
const SOA: u16 = 6;

fn read(
    answers: &[Record<'_>],
    authorities: &[Record<'_>],
    asked: Name<'_>,
    kind: Kind,
    not_found: bool,
) -> Result<Answer, AnswerFault> {
    let mut ttl = u32::MAX;
    let mut name = asked;
    for _ in 0..=ALIASES {
        let own = answers.iter().filter(|record| record.name.is(name));
        let mut addresses = Vec::new();
        for record in own.clone().filter(|record| record.kind == kind.number()) {
            if addresses.len() < ADDRESSES {
                addresses.push(address(kind, record.data).ok_or(AnswerFault::Form)?);
                ttl = ttl.min(record.ttl);
            }
        }
        if !addresses.is_empty() {
            return Ok(Answer {
                outcome: Outcome::Addresses(addresses),
                ttl,
            });
        }
        let mut aliases = own.filter(|record| record.kind == CNAME);
        let Some(alias) = aliases.next() else {
            let outcome = if not_found {
                Outcome::NotFound
            } else {
                Outcome::Empty
            };
            let zone = authorities.iter().find(|record| record.kind == SOA);
            let ttl = zone.map_or(0, |zone| zone.ttl.min(zone.minimum()));
            return Ok(Answer { outcome, ttl });
        };
        ttl = ttl.min(alias.ttl);
        name = Name::read(alias.message, alias.data_at)
            .ok_or(AnswerFault::Form)?
            .0;
    }
    Err(AnswerFault::Form)
}

/// A resource record (RFC 1035 §4.1.3).
struct Record<'m> {
    message: &'m [u8],
    name: Name<'m>,
    kind: u16,
    ttl: u32,
    data_at: usize,
    data: &'m [u8],
}

impl Record<'_> {
    /// Of a start of authority: the last of its numbers.
    fn minimum(&self) -> u32 {
        self.data
            .last_chunk()
            .map_or(0, |bytes| u32::from_be_bytes(*bytes))
    }
}

struct Records<'m> {
    message: &'m [u8],
    at: usize,
}

impl<'m> Records<'m> {
    /// The next so many, those of the internet.
    fn collect(&mut self, count: u16) -> Result<Vec<Record<'m>>, AnswerFault> {
        let mut records = Vec::new();
        for _ in 0..count {
            let (class, record) = self.next().ok_or(AnswerFault::Form)?;
            if class == CLASS_IN {
                records.push(record);
            }
        }
        Ok(records)
    }

    fn next(&mut self) -> Option<(u16, Record<'m>)> {
        let (name, at) = Name::read(self.message, self.at)?;
        let fixed: &[u8; 10] = self.message.get(at..)?.first_chunk()?;
        let number = |at: usize| u16::from_be_bytes([fixed[at], fixed[at + 1]]);
        let ttl = u32::from_be_bytes([fixed[4], fixed[5], fixed[6], fixed[7]]);
        let data_at = at + fixed.len();
        let data = self.message.get(data_at..)?.get(..usize::from(number(8)))?;
        self.at = data_at + data.len();
        let record = Record {
            message: self.message,
            name,
            kind: number(0),
            // RFC 2181 §8: what is negative as a signed number is 0.
            ttl: if ttl > i32::MAX as u32 { 0 } else { ttl },
            data_at,
            data,
        };
        Some((number(2), record))
    }
}
