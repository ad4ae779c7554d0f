//! `POST /api/publish` of a push server over one connection, with pipelined requests. The encoding is that of `ringmain bench push`
//! (`ringmain_load::push::exchange`); this module owns the socket and the requests in flight.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;

use ringmain_engine::Addr;
use ringmain_load::push::exchange::{Reading, fault, write_head};
use ringmain_load::push::{Form, Publishing};
use ringmain_wire::h1::{FieldTable, Limits};
use serde_json::Value;

use super::sink::SinkError;
use crate::limits::{FEED_CONNECT, FEED_IN_FLIGHT};

/// A connection to a push server.
pub(super) struct Http {
    stream: Stream,
    publishing: Publishing,
    out: Vec<u8>,
    /// End offsets of the queued requests, from the first byte of the connection.
    ends: VecDeque<u64>,
    /// Bytes sent.
    sent: u64,
    table: FieldTable,
    reading: Reading,
    received: Vec<u8>,
    /// Requests sent without a response.
    in_flight: usize,
    /// Refused requests since the last call of [`Http::take_refusals`], and the error of the last one.
    refused: Option<(u64, String)>,
}

enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Stream {
    fn open(addr: &Addr) -> io::Result<Stream> {
        Ok(match addr {
            Addr::Inet(addr) => {
                let stream = TcpStream::connect_timeout(addr, FEED_CONNECT)?;
                stream.set_nodelay(true)?;
                stream.set_nonblocking(true)?;
                Stream::Tcp(stream)
            }
            Addr::Unix(path) => Stream::unix(UnixStream::connect(path)?)?,
            Addr::Abstract(name) => {
                use std::os::linux::net::SocketAddrExt;
                let addr = std::os::unix::net::SocketAddr::from_abstract_name(name)?;
                Stream::unix(UnixStream::connect_addr(&addr)?)?
            }
        })
    }

    fn unix(stream: UnixStream) -> io::Result<Stream> {
        stream.set_nonblocking(true)?;
        Ok(Stream::Unix(stream))
    }

    /// Returns `None` if the socket is not writable.
    fn write(&mut self, bytes: &[u8]) -> io::Result<Option<usize>> {
        nonblocking_result(match self {
            Stream::Tcp(stream) => stream.write(bytes),
            Stream::Unix(stream) => stream.write(bytes),
        })
    }

    fn read(&mut self, bytes: &mut [u8]) -> io::Result<Option<usize>> {
        nonblocking_result(match self {
            Stream::Tcp(stream) => stream.read(bytes),
            Stream::Unix(stream) => stream.read(bytes),
        })
    }
}

fn nonblocking_result(outcome: io::Result<usize>) -> io::Result<Option<usize>> {
    match outcome {
        Ok(count) => Ok(Some(count)),
        Err(error)
            if matches!(
                error.kind(),
                io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
            ) =>
        {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

impl Http {
    /// Connects to the first address that accepts the connection.
    pub(super) fn connect(addrs: &[Addr], host: &str, path: &str, key: Option<&str>) -> io::Result<Http> {
        let mut outcome = Err(io::Error::other("the host has no address"));
        for addr in addrs {
            outcome = Stream::open(addr).map(|stream| (addr.clone(), stream));
            if outcome.is_ok() {
                break;
            }
        }
        let (target, stream) = outcome?;
        Ok(Http {
            stream,
            publishing: Publishing {
                target,
                tls: None,
                host: host.to_owned(),
                path: path.to_owned(),
                api_key: key.map(str::to_owned),
                form: Form::Api,
                connections: 1,
            },
            out: Vec::new(),
            ends: VecDeque::new(),
            sent: 0,
            table: FieldTable::new(&Limits::INTERNET),
            reading: Reading::default(),
            received: Vec::new(),
            in_flight: 0,
            refused: None,
        })
    }

    pub(super) fn queue_trade(&mut self, channel: &str, json: &str) -> Result<(), SinkError> {
        let body = format!(r#"{{"channel":{},"data":{json}}}"#, Value::from(channel));
        write_head(&mut self.out, &self.publishing, body.len() as u64)
            .map_err(|misuse| SinkError::Refused(misuse.to_string()))?;
        self.out.extend_from_slice(body.as_bytes());
        self.ends.push_back(self.sent + self.out.len() as u64);
        Ok(())
    }

    /// Returns the number of bytes that are not sent yet.
    pub(super) fn queued_bytes(&self) -> usize {
        self.out.len()
    }

    /// Returns the number of requests without a response.
    pub(super) fn unconfirmed(&self) -> u64 {
        (self.ends.len() + self.in_flight) as u64
    }

    pub(super) fn take_refusals(&mut self) -> Option<(u64, String)> {
        self.refused.take()
    }

    /// Sends requests up to the limit in flight, and reads the available responses. Does not block.
    pub(super) fn drive(&mut self) -> Result<(), SinkError> {
        let failed = |error: io::Error| SinkError::Lost(error.to_string());
        let may = FEED_IN_FLIGHT.saturating_sub(self.in_flight).min(self.ends.len());
        if let Some(end) = may.checked_sub(1).and_then(|last| self.ends.get(last).copied()) {
            let bytes = &self.out[..(end - self.sent) as usize];
            let written = self.stream.write(bytes).map_err(failed)?.unwrap_or(0);
            self.out.drain(..written);
            self.sent += written as u64;
            while self.ends.pop_front_if(|end| *end <= self.sent).is_some() {
                self.in_flight += 1;
            }
        }
        let mut chunk = [0; 16 << 10];
        while let Some(read) = self.stream.read(&mut chunk).map_err(failed)? {
            if read == 0 {
                return Err(SinkError::Lost("the server has closed the connection".to_owned()));
            }
            self.read_responses(&chunk[..read])?;
        }
        Ok(())
    }

    fn read_responses(&mut self, bytes: &[u8]) -> Result<(), SinkError> {
        self.received.extend_from_slice(bytes);
        let mut at = 0;
        while at < self.received.len() {
            if self.in_flight == 0 {
                let what = "the server sent a response without a request";
                return Err(SinkError::Lost(what.to_owned()));
            }
            let taken = self.reading.take(&mut self.table, &self.received[at..]);
            let (taken, status) = taken.map_err(|what| SinkError::Refused(what.to_owned()))?;
            at += taken;
            let Some(status) = status else {
                break;
            };
            self.in_flight -= 1;
            self.on_response(status)?;
        }
        self.received.drain(..at);
        Ok(())
    }

    /// Handles a complete response.
    fn on_response(&mut self, status: u16) -> Result<(), SinkError> {
        let what = fault(Form::Api, status, &self.reading.kept);
        self.reading.kept.clear();
        let Some(what) = what else {
            return Ok(());
        };
        match refusal_hint(status) {
            Some(hint) => Err(SinkError::Refused(format!("{what}; {hint}"))),
            None => {
                let count = self.refused.take().map_or(0, |(count, _)| count);
                self.refused = Some((count + 1, what));
                Ok(())
            }
        }
    }
}

/// Returns advice for a status that every request would receive.
fn refusal_hint(status: u16) -> Option<&'static str> {
    match status {
        401 | 403 => Some("pass the API key with --api-key"),
        404 | 405 => Some("no such endpoint: check that the server API is enabled, and the path"),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
