//! Content negotiation: the representation that a client prefers by its `Accept` (RFC 9110 §12.5.1).
//!
//! Pure.

use crate::http::media_type;

/// A client's preference for a media type: its quality in thousandths, and the specificity of the matching range.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Preference {
    quality: u16,
    specificity: u8,
}

/// Returns the offer that the values of `Accept` prefer: the highest quality, then the most specific range, then the first offer.
/// `None` if all are unacceptable (`q=0`, or not listed). Without any value the first.
pub(crate) fn preferred<'o, 'v>(
    values: impl Iterator<Item = &'v [u8]> + Clone,
    offers: &[&'o str],
) -> Option<&'o str> {
    if values.clone().next().is_none() {
        return offers.first().copied();
    }
    let mut best = None;
    for offer in offers {
        let best_quality = preference(values.clone(), offer);
        if best_quality.quality > 0 && best.is_none_or(|(before, _)| best_quality > before) {
            best = Some((best_quality, *offer));
        }
    }
    best.map(|(_, offer)| offer)
}

/// Returns the preference by the most specific range that covers the type; the other ranges are ignored.
fn preference<'v>(values: impl Iterator<Item = &'v [u8]>, offer: &str) -> Preference {
    let mut best_quality = Preference::default();
    for range in values.flat_map(|value| value.split(|&byte| byte == b',')) {
        let specificity = specificity(media_type::essence(range), offer);
        if specificity > best_quality.specificity {
            best_quality = Preference {
                quality: quality(range),
                specificity,
            };
        }
    }
    best_quality
}

/// Returns 3 for the type itself, 2 for `text/*`, 1 for `*/*`, 0 for another type.
fn specificity(range: &[u8], offer: &str) -> u8 {
    if range.eq_ignore_ascii_case(offer.as_bytes()) {
        return 3;
    }
    match range {
        b"*/*" => 1,
        [kind @ .., b'/', b'*'] => {
            let media_type = offer.split('/').next().unwrap_or_default();
            if kind.eq_ignore_ascii_case(media_type.as_bytes()) {
                2
            } else {
                0
            }
        }
        _ => 0,
    }
}

/// Returns the weight of a range in thousandths (RFC 9110 §12.4.2): 1000 without one, 0 for an invalid one.
fn quality(range: &[u8]) -> u16 {
    for parameter in range.split(|&byte| byte == b';').skip(1) {
        let parameter = parameter.trim_ascii();
        if let [b'q' | b'Q', b'=', weight @ ..] = parameter {
            return match weight {
                [b'0'] => 0,
                [b'1'] => 1000,
                [b'0', b'.', digits @ ..] => thousandths(digits),
                [b'1', b'.', digits @ ..] if digits.iter().all(|&digit| digit == b'0') => 1000,
                _ => 0,
            };
        }
    }
    1000
}

fn thousandths(digits: &[u8]) -> u16 {
    if digits.len() > 3 || !digits.iter().all(u8::is_ascii_digit) {
        return 0;
    }
    let read = digits
        .iter()
        .fold(0, |sum, digit| sum * 10 + u16::from(digit - b'0'));
    read * 10_u16.pow(3 - digits.len() as u32)
}

#[cfg(test)]
mod tests;
