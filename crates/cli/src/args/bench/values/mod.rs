//! The syntax of values of `ringmain bench`: rates, lists of CPUs and statuses, headers, source addresses.
//!
//! Each parser describes the expected value; clap adds the actual one and the option.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ringmain_engine::Addr;
use ringmain_load::limits;

use crate::args::values::{Time, number_in_range, time_in_range};
use crate::limits::{CPU_MAX, SOURCES_MAX, TIME_MAX};

#[cfg(test)]
mod tests;

/// Parses requests per second: `200`, `2.5k`, `1m`.
pub(crate) fn parse_request_rate(text: &str) -> Result<f64, String> {
    let (number, factor) = match text.char_indices().last() {
        Some((end, 'k' | 'K')) => (&text[..end], 1e3),
        Some((end, 'm' | 'M')) => (&text[..end], 1e6),
        _ => (text, 1.0),
    };
    // Other forms of numbers (`inf`, `1e3`) are more likely mistakes.
    let is_plain = number.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    let rate = number
        .parse::<f64>()
        .ok()
        .filter(|_| is_plain)
        .map(|number| number * factor);
    rate.filter(|rate| *rate > 0.0 && *rate <= limits::RATE)
        .ok_or_else(|| {
            format!(
                "expected requests per second, more than 0 and at most {}m, such as 200, 2.5k or 1m",
                limits::RATE / 1e6
            )
        })
}

/// Bytes decoded from text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Bytes(pub(crate) Vec<u8>);

/// Parses bytes of two hexadecimal digits each: `0a05`.
pub(crate) fn parse_hex(text: &str) -> Result<Bytes, String> {
    let digits = text.bytes().map(|digit| char::from(digit).to_digit(16));
    let digits: Option<Vec<u32>> = digits.collect();
    let digits = digits.filter(|digits| digits.len().is_multiple_of(2));
    let digits = digits.ok_or("expected two hexadecimal digits for each byte, such as 0a05776f726c64")?;
    let bytes = digits.chunks(2).map(|pair| (pair[0] * 16 + pair[1]) as u8);
    Ok(Bytes(bytes.collect()))
}

/// Parses bytes in padded base64 (RFC 4648 §4).
pub(crate) fn parse_base64(text: &str) -> Result<Bytes, String> {
    let decoded = STANDARD.decode(text);
    decoded
        .map(Bytes)
        .map_err(|error| format!("expected base64 with its padding: {error}"))
}

/// A process to kill, and the time from the start of the measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct KillAt {
    pub(crate) pid: u32,
    pub(crate) after: Time,
}

impl fmt::Display for KillAt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.pid, self.after)
    }
}

/// Parses a process and a time: `4711@3s`.
pub(crate) fn parse_kill_at(text: &str) -> Result<KillAt, String> {
    let expected = || "expected a process ID, @ and a time, such as 4711@3s".to_owned();
    let (pid, after) = text.split_once('@').ok_or_else(expected)?;
    let pid = number_in_range(1..=u32::MAX)(pid).map_err(|_| expected())?;
    let after = time_in_range(Duration::ZERO..=TIME_MAX)(after)?;
    Ok(KillAt { pid, after })
}

/// Parses the number of a run: 8 hexadecimal digits.
pub(crate) fn parse_run_number(text: &str) -> Result<u32, String> {
    let is_hex = text.len() == 8 && text.bytes().all(|digit| digit.is_ascii_hexdigit());
    let number = is_hex.then(|| u32::from_str_radix(text, 16).ok()).flatten();
    number.ok_or_else(|| "expected 8 hexadecimal digits, such as 0000002a".to_owned())
}

/// Parses a list of CPUs in the kernel's format: `0-3,8`.
pub(crate) fn parse_cpus(text: &str) -> Result<Vec<usize>, String> {
    let part = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = (parse_digits(first)?, parse_digits(last)?);
        (first <= last && last <= CPU_MAX).then_some(first..=last)
    };
    let ranges: Option<Vec<RangeInclusive<usize>>> = text.split(',').map(part).collect();
    let mut cpus: Vec<usize> = ranges
        .ok_or_else(|| format!("expected CPUs from 0 to {CPU_MAX}, such as 0-3,8"))?
        .into_iter()
        .flatten()
        .collect();
    let count = cpus.len();
    cpus.sort_unstable();
    cpus.dedup();
    if cpus.len() < count {
        return Err("expected each CPU once".into());
    }
    Ok(cpus)
}

fn parse_digits(text: &str) -> Option<usize> {
    let all = text.bytes().all(|byte| byte.is_ascii_digit());
    all.then(|| text.parse().ok()).flatten()
}

/// Parses source addresses: one, or the first and the last of a range.
pub(crate) fn parse_sources(text: &str) -> Result<Vec<Addr>, String> {
    let expected =
        || "expected an IP address of this host, or a range such as 127.0.0.1-127.0.0.9".to_owned();
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let first: IpAddr = first.parse().map_err(|_| expected())?;
    let last: IpAddr = last.parse().map_err(|_| expected())?;
    let addrs: Vec<IpAddr> = match (first, last) {
        (IpAddr::V4(first), IpAddr::V4(last)) => {
            address_range(u32::from(first).into(), u32::from(last).into())?
                .map(|bits| Ipv4Addr::from(bits as u32).into())
                .collect()
        }
        (IpAddr::V6(first), IpAddr::V6(last)) => address_range(first.into(), last.into())?
            .map(|bits| Ipv6Addr::from(bits).into())
            .collect(),
        _ => return Err("expected a range of one family, both IPv4 or both IPv6".into()),
    };
    Ok(addrs
        .into_iter()
        .map(|ip| SocketAddr::new(ip, 0).into())
        .collect())
}

fn address_range(first: u128, last: u128) -> Result<RangeInclusive<u128>, String> {
    if first > last || last - first >= SOURCES_MAX {
        return Err(format!(
            "expected a range of at most {SOURCES_MAX} addresses, the lowest first"
        ));
    }
    Ok(first..=last)
}

/// A header's name and value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Header(pub(crate) String, pub(crate) String);

impl FromStr for Header {
    type Err = String;

    fn from_str(text: &str) -> Result<Header, String> {
        let (name, value) = text
            .split_once(':')
            .ok_or("expected NAME: VALUE, such as 'Accept: text/html'")?;
        Ok(Header(name.trim_end().into(), value.trim().into()))
    }
}

/// Expected status codes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Statuses(pub(crate) Vec<RangeInclusive<u16>>);

impl FromStr for Statuses {
    type Err = String;

    fn from_str(text: &str) -> Result<Statuses, String> {
        let status = |text: &str| {
            parse_digits(text)
                .and_then(|n| u16::try_from(n).ok())
                .filter(|n| (100..=599).contains(n))
        };
        let part = |part: &str| {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let (first, last) = (status(first)?, status(last)?);
            (first <= last).then_some(first..=last)
        };
        let ranges: Option<Vec<_>> = text.split(',').map(part).collect();
        ranges
            .map(Statuses)
            .ok_or_else(|| "expected status codes from 100 to 599, such as 200 or 200-299,404".into())
    }
}

/// The destination of a result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum File {
    /// To standard output.
    StandardOutput,
    /// To this file, which is overwritten.
    Path(PathBuf),
}

impl File {
    pub(crate) fn is_standard_output(&self) -> bool {
        *self == File::StandardOutput
    }
}

impl FromStr for File {
    type Err = String;

    fn from_str(text: &str) -> Result<File, String> {
        match text {
            "" => Err("expected a file's path, or - for standard output".into()),
            "-" => Ok(File::StandardOutput),
            path => Ok(File::Path(path.into())),
        }
    }
}

/// A target with a name, `NAME=VALUE`; or a value for a target of that name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Named(pub(crate) String, pub(crate) String);

impl FromStr for Named {
    type Err = String;

    fn from_str(text: &str) -> Result<Named, String> {
        let is_name = |name: &str| {
            let known = |c: char| c.is_alphanumeric() || matches!(c, '-' | '_' | '.' | '+');
            !name.is_empty() && name.len() <= 40 && name.chars().all(known)
        };
        match text.split_once('=') {
            Some((name, value)) if is_name(name) && !value.is_empty() => Ok(Named(name.into(), value.into())),
            _ => Err(
                "expected a name of up to 40 letters, digits and -_.+, then = and its value, such as \
                      old=http://127.0.0.1:8080/"
                    .into(),
            ),
        }
    }
}
