//! Cookies in (`Cookie`) and out (`Set-Cookie`), by RFC 6265bis. Knows no session and no signature.

mod set;

#[cfg(test)]
mod tests;

use ringmain_wire::h1::{Fields, Known};

pub use set::{CookieFault, SameSite, SetCookie};

/// The cookies of a request, parsed from its fields on access; nothing is allocated.
///
/// A part without `=` is not a cookie, nor is one that is not UTF-8. Values are returned as sent: quotation marks belong to them,
/// and escapes are the application's own.
#[derive(Clone, Copy, Debug)]
pub struct Cookies<'a> {
    fields: Fields<'a>,
}

impl<'a> Cookies<'a> {
    /// Returns the cookies in `fields`.
    pub(crate) fn new(fields: Fields<'a>) -> Cookies<'a> {
        Cookies { fields }
    }

    /// Returns all names and values in order.
    pub fn iter(&self) -> impl Iterator<Item = (&'a str, &'a str)> + use<'a> {
        self.fields.all_known(Known::Cookie).flat_map(pairs)
    }

    /// Returns the value of the first cookie with this name, case-sensitive. A client that has several with one name sends the one
    /// with the longest path first.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&'a str> {
        self.iter()
            .find(|&(found, _)| found == name)
            .map(|(_, value)| value)
    }
}

/// Returns the cookies of one `Cookie` field.
fn pairs(value: &[u8]) -> impl Iterator<Item = (&str, &str)> {
    value.split(|&byte| byte == b';').filter_map(|piece| {
        let (name, value) = str::from_utf8(piece).ok()?.split_once('=')?;
        let blank = [' ', '\t'];
        Some((name.trim_matches(blank), value.trim_matches(blank)))
    })
}
