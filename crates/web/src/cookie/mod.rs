//! Cookies in (`Cookie`) and out (`Set-Cookie`), by RFC 6265bis. Knows no session and no signature.

mod set;

#[cfg(test)]
mod tests;

use ringmain_wire::h1::{Fields, Known};

pub use set::{CookieFault, SameSite, SetCookie};

/// The cookies of a request, read from its fields as they are asked for; nothing is allocated.
///
/// A piece without `=` is no cookie, nor is one that is not UTF-8. Values are as the client sent them: quotation
/// marks belong to them, escapes are the application's own.
#[derive(Clone, Copy, Debug)]
pub struct Cookies<'a> {
    fields: Fields<'a>,
}

impl<'a> Cookies<'a> {
    /// The cookies that `fields` hold.
    pub(crate) fn new(fields: Fields<'a>) -> Cookies<'a> {
        Cookies { fields }
    }

    /// All names and values in their order.
    pub fn iter(&self) -> impl Iterator<Item = (&'a str, &'a str)> + use<'a> {
        self.fields.all_known(Known::Cookie).flat_map(pairs)
    }

    /// The value of the first cookie of that name, case-sensitive. When a client has several of one name it sends the
    /// one with the longest path first.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&'a str> {
        self.iter()
            .find(|&(found, _)| found == name)
            .map(|(_, value)| value)
    }
}

/// The cookies of one `Cookie` field.
fn pairs(value: &[u8]) -> impl Iterator<Item = (&str, &str)> {
    value.split(|&byte| byte == b';').filter_map(|piece| {
        let (name, value) = str::from_utf8(piece).ok()?.split_once('=')?;
        let blank = [' ', '\t'];
        Some((name.trim_matches(blank), value.trim_matches(blank)))
    })
}
