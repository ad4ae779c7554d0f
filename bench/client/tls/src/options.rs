//! The command line of `tl`.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

pub(crate) const USAGE: &str = "tl -p PORT -m keep|full|resumed [options]
  -p PORT     server on 127.0.0.1
  -m MODE     keep: connections are kept; full, resumed: one GET a connection, each with a handshake of that kind
  -r PATH     what is asked for (/)
  -c N        connections at one time (64)
  -d SECONDS  measuring time (5)
  -w SECONDS  warm-up before it (2)
  -s FROM-TO  source addresses, such as 127.0.0.2-127.0.0.5
exit code: 0 measured (errors are in the figures), 2 could not measure";

/// What becomes of a connection and of the tickets that the server sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    Keep,
    Full,
    Resumed,
}

#[derive(Debug)]
pub(crate) struct Options {
    pub(crate) port: u16,
    pub(crate) mode: Mode,
    pub(crate) connections: usize,
    pub(crate) duration: Duration,
    pub(crate) warmup: Duration,
    /// First address and how many.
    sources: Option<(u32, u32)>,
    /// The bytes of a GET.
    pub(crate) request: Vec<u8>,
}

impl Options {
    /// `Err`: what is wrong with them.
    pub(crate) fn from_arguments() -> Result<Self, String> {
        let (mut port, mut mode, mut path, mut connections) = (None, None, "/".to_owned(), 64);
        let (mut duration, mut warmup, mut sources) = (Duration::from_secs(5), Duration::from_secs(2), None);
        let mut arguments = std::env::args().skip(1);
        while let Some(flag) = arguments.next() {
            let value = arguments.next().ok_or(USAGE)?;
            match flag.as_str() {
                "-p" => port = Some(number(&flag, &value, 65_535)? as u16),
                "-m" => mode = Some(mode_of(&value)?),
                "-r" => path = value,
                "-c" => connections = number(&flag, &value, 100_000)? as usize,
                "-d" => duration = seconds(&flag, &value)?,
                "-w" => warmup = seconds(&flag, &value)?,
                "-s" => sources = Some(range(&value)?),
                _ => return Err(USAGE.into()),
            }
        }
        let (port, mode) = (port.ok_or(USAGE)?, mode.ok_or(USAGE)?);
        // With handshakes the server closes, as it does for clients that ask once.
        let connection = if mode == Mode::Keep { "keep-alive" } else { "close" };
        let request = format!(
            "GET {path} HTTP/1.1\r\nHost: localhost:{port}\r\nAccept: application/json,text/html;q=0.9,\
             application/xhtml+xml;q=0.9,application/xml;q=0.8,*/*;q=0.7\r\nConnection: {connection}\r\n\r\n"
        );
        Ok(Self {
            port,
            mode,
            connections,
            duration,
            warmup,
            sources,
            request: request.into_bytes(),
        })
    }

    /// Where dial `number` comes from; each address has some 28,000 ports.
    pub(crate) fn source(&self, number: u64) -> Option<SocketAddr> {
        let (first, count) = self.sources?;
        let address = Ipv4Addr::from_bits(first + (number % u64::from(count)) as u32);
        Some(SocketAddr::from((address, 0)))
    }
}

fn mode_of(text: &str) -> Result<Mode, String> {
    match text {
        "keep" => Ok(Mode::Keep),
        "full" => Ok(Mode::Full),
        "resumed" => Ok(Mode::Resumed),
        _ => Err(format!("-m: expected keep, full or resumed, found \"{text}\"")),
    }
}

fn number(flag: &str, text: &str, most: u64) -> Result<u64, String> {
    let found = text.parse().ok().filter(|n| (1..=most).contains(n));
    found.ok_or_else(|| format!("{flag}: expected a number from 1 to {most}, found \"{text}\""))
}

fn seconds(flag: &str, text: &str) -> Result<Duration, String> {
    let found = text
        .parse()
        .ok()
        .and_then(|s| Duration::try_from_secs_f64(s).ok());
    found.ok_or_else(|| format!("{flag}: expected seconds, found \"{text}\""))
}

fn range(text: &str) -> Result<(u32, u32), String> {
    let (from, to) = text.split_once('-').unwrap_or((text, text));
    let found = from
        .parse()
        .ok()
        .zip(to.parse().ok())
        .map(|(from, to): (Ipv4Addr, Ipv4Addr)| (from.to_bits(), to.to_bits()));
    found
        .filter(|(from, to)| from <= to)
        .map(|(from, to)| (from, to - from + 1))
        .ok_or_else(|| {
            format!("-s: expected ADDRESS or FIRST-LAST, such as 127.0.0.2-127.0.0.5, found \"{text}\"")
        })
}
