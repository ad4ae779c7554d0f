//! `POST /api/publish` of a push server, one connection, requests behind one another without waiting for answers.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use ringmain_engine::Addr;
use ringmain_load::target::Target;
use serde_json::Value;

use crate::bench::place::addresses;
use crate::limits::{FEED_ANSWER, FEED_REQUESTS};

/// A connection.
pub(super) struct Http {
    stream: Stream,
    /// What is the same of all heads, before the length.
    head: String,
    out: Vec<u8>,
    /// The ends of requests in `out`, the first last.
    ends: std::collections::VecDeque<usize>,
    received: Vec<u8>,
    /// Requests without an answer.
    asked: usize,
    refused: u64,
    last_refusal: String,
}

enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Stream {
    fn open(addr: &Addr) -> io::Result<Stream> {
        Ok(match addr {
            Addr::Inet(addr) => {
                let stream = TcpStream::connect_timeout(addr, Duration::from_secs(5))?;
                stream.set_nodelay(true)?;
                Stream::Tcp(stream)
            }
            Addr::Unix(path) => Stream::Unix(UnixStream::connect(path)?),
            Addr::Abstract(_) => return Err(io::ErrorKind::Unsupported.into()),
        })
    }

    fn limit(&self, within: Duration) -> io::Result<()> {
        match self {
            Stream::Tcp(stream) => {
                stream.set_read_timeout(Some(within))?;
                stream.set_write_timeout(Some(within))
            }
            Stream::Unix(stream) => {
                stream.set_read_timeout(Some(within))?;
                stream.set_write_timeout(Some(within))
            }
        }
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Stream::Tcp(stream) => stream.write(bytes),
            Stream::Unix(stream) => stream.write(bytes),
        }
    }

    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Tcp(stream) => stream.read(bytes),
            Stream::Unix(stream) => stream.read(bytes),
        }
    }
}

impl Http {
    pub(super) fn connect(url: &Target, api_key: Option<&str>) -> Result<Http, String> {
        let addrs = addresses(&url.place).map_err(|_| "the host's address cannot be found".to_owned())?;
        let mut outcome = Err("the host has no address".to_owned());
        for addr in &addrs {
            outcome = Stream::open(addr).map_err(|error| error.to_string());
            if outcome.is_ok() {
                break;
            }
        }
        let key = api_key.map_or_else(String::new, |key| format!("X-API-Key: {key}\r\n"));
        Ok(Http {
            stream: outcome?,
            head: format!(
                "POST {} HTTP/1.1\r\nHost: {}\r\n{key}Content-Type: application/json\r\nContent-Length: ",
                url.path, url.host
            ),
            out: Vec::new(),
            ends: std::collections::VecDeque::new(),
            received: Vec::new(),
            asked: 0,
            refused: 0,
            last_refusal: String::new(),
        })
    }

    pub(super) fn put(&mut self, channel: &str, json: &str) {
        let body = format!(r#"{{"channel":{},"data":{json}}}"#, Value::from(channel));
        let head = format!("{}{}\r\n\r\n", self.head, body.len());
        self.out.extend_from_slice(head.as_bytes());
        self.out.extend_from_slice(body.as_bytes());
        self.ends.push_back(self.out.len());
    }

    /// Bytes that were not sent, and a byte for each answer that has not come.
    pub(super) fn waiting(&self) -> usize {
        self.out.len() + self.asked
    }

    pub(super) fn refused(&self) -> Option<(u64, String)> {
        (self.refused > 0).then(|| (self.refused, self.last_refusal.clone()))
    }

    /// Sends as many as may wait for an answer, and hears those that come; waits for so long at most for either.
    pub(super) fn carry_on(&mut self, within: Duration) -> Result<(), String> {
        self.stream.limit(within).map_err(|error| error.to_string())?;
        let may = FEED_REQUESTS.saturating_sub(self.asked).min(self.ends.len());
        if let Some(end) = may.checked_sub(1).and_then(|last| self.ends.get(last).copied()) {
            match self.stream.write(&self.out[..end]) {
                Ok(0) => return Err("the server has closed the connection".to_owned()),
                Ok(sent) => self.sent(sent),
                Err(error) if is_time(&error) => {}
                Err(error) => return Err(error.to_string()),
            }
        }
        if self.asked == 0 {
            return Ok(());
        }
        let mut chunk = [0; 16 << 10];
        match self.stream.read(&mut chunk) {
            Ok(0) => return Err("the server has closed the connection".to_owned()),
            Ok(read) => self.received.extend_from_slice(&chunk[..read]),
            Err(error) if is_time(&error) => {}
            Err(error) => return Err(error.to_string()),
        }
        let mut used = 0;
        while self.asked > 0
            && let Some((status, refusal, length)) = answer(&self.received[used..])?
        {
            used += length;
            self.asked -= 1;
            if let Some(refusal) = refusal {
                self.refused += 1;
                self.last_refusal = format!("{status} {refusal}");
            }
        }
        self.received.drain(..used);
        Ok(())
    }

    fn sent(&mut self, sent: usize) {
        self.out.drain(..sent);
        while self.ends.front().is_some_and(|end| *end <= sent) {
            self.ends.pop_front();
            self.asked += 1;
        }
        for end in &mut self.ends {
            *end -= sent;
        }
    }
}

fn is_time(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut | io::ErrorKind::Interrupted
    )
}

/// The first answer: its status, what is wrong if it was refused, and its length. `None`: it is not all there.
fn answer(bytes: &[u8]) -> Result<Option<(u16, Option<String>, usize)>, String> {
    const UNKNOWN: &str = "expected an answer of HTTP/1.1 with a Content-Length, found something else";
    let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") else {
        return match bytes.len() > FEED_ANSWER {
            true => Err(UNKNOWN.to_owned()),
            false => Ok(None),
        };
    };
    let head = str::from_utf8(&bytes[..end]).map_err(|_| UNKNOWN)?;
    let mut lines = head.split("\r\n");
    let status = lines.next().and_then(|line| line.strip_prefix("HTTP/1.1 "));
    let status: u16 = status
        .and_then(|line| line.get(..3))
        .and_then(|digits| digits.parse().ok())
        .ok_or(UNKNOWN)?;
    let length = lines.find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length")
            .then(|| value.trim().parse::<usize>().ok())?
    });
    let length = length.filter(|length| *length <= FEED_ANSWER).ok_or(UNKNOWN)?;
    let end = end + 4;
    let Some(body) = bytes.get(end..end + length) else {
        return Ok(None);
    };
    let refusal = match serde_json::from_slice::<Value>(body) {
        // As Centrifugo does it: 200, and an error within.
        Ok(body) if status == 200 => body.get("error").map(ToString::to_string),
        _ if status == 200 => None,
        Ok(body) => Some(body["detail"].as_str().unwrap_or_default().to_owned()),
        Err(_) => Some(String::new()),
    };
    Ok(Some((status, refusal, end + length)))
}

#[cfg(test)]
mod tests;
