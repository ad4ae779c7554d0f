//! Names in messages: labels, and pointers to labels further in front (RFC 1035 §4.1.4).

use super::{BadName, NAME_BYTES};

/// Appends a name.
pub(super) fn write(name: &str, out: &mut Vec<u8>) -> Result<(), BadName> {
    let start = out.len();
    let name = name.strip_suffix('.').unwrap_or(name);
    for label in name.split('.') {
        if label.is_empty() || label.len() > 63 {
            return Err(BadName);
        }
        out.push(label.len() as u8);
        out.extend_from_slice(label.as_bytes());
    }
    out.push(0);
    if out.len() - start > NAME_BYTES {
        return Err(BadName);
    }
    Ok(())
}

/// A name as a message has it: its labels, however they are spread.
#[derive(Clone, Copy)]
pub(super) struct Name<'m> {
    message: &'m [u8],
    at: usize,
}

impl<'m> Name<'m> {
    /// The name at `at`, and where what follows it begins. Each pointer leads further to the front, so there is no circle.
    pub(super) fn read(message: &'m [u8], at: usize) -> Option<(Name<'m>, usize)> {
        let name = Name { message, at };
        let mut end = None;
        let mut here = at;
        let mut bytes = 0;
        loop {
            match *message.get(here)? {
                0 => return Some((name, end.unwrap_or(here + 1))),
                length @ 1..64 => {
                    here += 1 + usize::from(length);
                    bytes += 1 + usize::from(length);
                    if bytes >= NAME_BYTES || here > message.len() {
                        return None;
                    }
                }
                high @ 192.. => {
                    let to = usize::from(high & 63) << 8 | usize::from(*message.get(here + 1)?);
                    end.get_or_insert(here + 2);
                    if to >= here {
                        return None;
                    }
                    here = to;
                    // Pointers without labels between them cost nothing else.
                    bytes += 1;
                    if bytes >= NAME_BYTES {
                        return None;
                    }
                }
                _ => return None,
            }
        }
    }

    fn labels(self) -> impl Iterator<Item = &'m [u8]> {
        let mut here = self.at;
        std::iter::from_fn(move || {
            loop {
                match self.message[here] {
                    0 => return None,
                    length @ 1..64 => {
                        let label = &self.message[here + 1..][..usize::from(length)];
                        here += 1 + usize::from(length);
                        return Some(label);
                    }
                    high => here = usize::from(high & 63) << 8 | usize::from(self.message[here + 1]),
                }
            }
        })
    }

    /// Whether it is the same one, in any case.
    pub(super) fn is(self, other: Name<'_>) -> bool {
        self.labels()
            .map(<[u8]>::to_ascii_lowercase)
            .eq(other.labels().map(<[u8]>::to_ascii_lowercase))
    }

    /// Whether it is the one that this text writes, in any case.
    pub(super) fn is_text(self, text: &str) -> bool {
        let text = text.strip_suffix('.').unwrap_or(text);
        let mut labels = self.labels();
        text.split('.').all(|part| {
            labels
                .next()
                .is_some_and(|label| label.eq_ignore_ascii_case(part.as_bytes()))
        }) && labels.next().is_none()
    }
}
