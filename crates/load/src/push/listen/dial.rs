//! How clients connect: a few at a time, at a rate if there is one, and again after they were cut off.

use std::io::ErrorKind;
use std::sync::atomic::Ordering;

use ringmain_engine::backend::{SocketOption, Time};
use ringmain_engine::{Conn, ConnId, Reason};
use ringmain_wire::h1::{Framing, Method, Misuse, RequestEncoder};
use ringmain_wire::ws::Opening;

use super::link::{State, Talk};
use super::{How, Listeners, Phase};
use crate::client::{Agreed, agreed, failure};
use crate::limits;
use crate::push::layout::write_name;
use crate::push::plan::{Format, Node, Transport};
use crate::push::speak::{self, Wish};
use crate::push::worker::{News, Place};

/// The subprotocol of messages in Protobuf. JSON needs none.
pub(super) const PROTOBUF: &[&str] = &["centrifuge-protobuf"];

impl Listeners {
    /// Asks for connections, as many as may be in progress.
    pub(super) fn dial(&mut self) {
        let now = self.cx.now();
        while self.later.front().is_some_and(|(at, _)| *at <= now) {
            self.waiting
                .extend(self.later.pop_front().map(|(_, index)| index));
        }
        while self.next_of_waiting().is_some_and(|at| at <= now) {
            let index = self.waiting.pop_front().expect("one waits");
            let number = (self.first + index) as usize;
            let sources = &self.plan.sources;
            let source = (!sources.is_empty()).then(|| &sources[number % sources.len()]);
            let node = self.links[index as usize].node;
            let target = &self.plan.nodes[usize::from(node)].target;
            match self.cx.connect(target, source) {
                Ok(id) => {
                    self.cx.conn(id).set_deadline(Some(self.plan.timeout));
                    self.dialling += 1;
                    let since = self.cx.clock();
                    self.links[index as usize].state = State::Dialling { id, since };
                    self.attempts.push((id, index));
                    if let Some(dials) = &mut self.dials {
                        dials.advance();
                    }
                }
                Err(error) => {
                    self.waiting.push_front(index);
                    self.hold_dials_until = now.after(limits::REDIAL);
                    *self
                        .figures
                        .counts
                        .connect_errors
                        .entry(error.to_string())
                        .or_default() += 1;
                    if self.phase == Phase::Joining {
                        let _ = self.news.send(News::NotConnected {
                            node: Some(node),
                            error,
                        });
                    }
                }
            }
        }
    }

    /// When the next that waits may be dialled, if nothing but time is in its way.
    fn next_of_waiting(&self) -> Option<Time> {
        let may = !self.waiting.is_empty() && self.dialling < limits::DIALS && self.phase != Phase::Over;
        let by_rate = self.dials.as_ref().map_or(Time(0), |dials| dials.next());
        may.then(|| by_rate.max(self.hold_dials_until))
    }

    pub(super) fn next_dial(&self) -> Option<Time> {
        let later = self.later.front().map(|(at, _)| *at);
        let later = later.filter(|_| self.phase != Phase::Over);
        self.next_of_waiting().into_iter().chain(later).min()
    }

    /// Whose attempt this was; it is over.
    fn attempted(&mut self, id: ConnId) -> Option<u32> {
        let at = self.attempts.iter().position(|(other, _)| *other == id)?;
        Some(self.attempts.swap_remove(at).1)
    }

    /// A connection is there: the handshake begins.
    pub(in crate::push) fn connected(&mut self, conn: Conn<'_>) -> Option<Place> {
        let id = conn.id();
        let index = self.attempted(id)?;
        let now = self.cx.clock();
        let link = &mut self.links[index as usize];
        let State::Dialling { since, .. } = link.state else {
            return None;
        };
        link.state = State::Joining { id, since };
        let nonce = self.random.u128(..).to_ne_bytes();
        link.talk = Some(Box::new(Talk::new(nonce, now)));
        let place = Place {
            index,
            life: link.life,
        };
        if link.slow {
            // What the kernel took in for it would be no slow client's to the server.
            let small = SocketOption::ReceiveBuffer(limits::SLOW_RECEIVE_BYTES);
            if conn.set_option(small).is_err() {
                log::debug!("a slow client keeps its receive buffer");
            }
        }
        self.figures.connect.record(now.since(since).as_nanos() as u64);
        let node = usize::from(link.node);
        if let Some(secure) = &self.secure[node] {
            // What is written before it stands waits for it.
            secure.begin(conn, self.cx.wall());
        }
        self.audit_request(index);
        self.scratch.clear();
        let written = match self.plan.transport {
            Transport::WebSocket(format) => opening(&mut self.scratch, &self.plan.nodes[node], nonce, format),
            Transport::Sse => self.write_listening(index),
        };
        match written {
            // A refused write ends the connection, and `closed` comes.
            Ok(()) => drop(conn.write(&self.scratch)),
            Err(misuse) => {
                conn.abort();
                self.end(
                    index,
                    &How::Refused(format!("the request cannot be written: {misuse}")),
                );
                return None;
            }
        }
        Some(place)
    }

    /// TLS stands.
    pub(in crate::push) fn secured(&mut self, conn: Conn<'_>, place: Place) {
        let since = self
            .owner(place)
            .and_then(|index| self.links[index as usize].talk.as_ref());
        let (Some(since), Some(agreed)) = (since.map(|talk| talk.since), agreed(conn)) else {
            return;
        };
        let span = self.cx.clock().since(since);
        self.figures.handshake.record(span.as_nanos() as u64);
        let counts = &mut self.figures.counts;
        let Agreed {
            version,
            suite,
            resumed,
        } = agreed;
        *counts.tls.entry(format!("{version} {suite}")).or_default() += 1;
        counts.tls_resumed += u64::from(resumed);
    }

    /// TLS has found a fault; the connection ends.
    pub(in crate::push) fn insecure(&mut self, conn: Conn<'_>, place: Place) {
        if let Some(index) = self.owner(place) {
            let (what, said) = failure(conn);
            self.hold_dials_until = self.cx.now().after(limits::REDIAL);
            self.end(index, &How::Insecure(what, said));
        }
    }

    /// Leaves the request of one that only listens in the scratch.
    fn write_listening(&mut self, index: u32) -> Result<(), Misuse> {
        let (plan, layout) = (&self.plan, &self.layout);
        let client = self.first + index;
        let channels: Vec<(Vec<u8>, Wish<'_>)> = (0..layout.places())
            .map(|place| {
                let mut name = Vec::new();
                write_name(
                    &mut name,
                    &plan.prefix,
                    layout.channels,
                    layout.channel(client, place),
                );
                (name, self.wish(index, place))
            })
            .collect();
        let mut query = Vec::new();
        speak::listening(&mut query, plan.token.as_deref(), &channels);
        let node = &plan.nodes[usize::from(self.links[index as usize].node)];
        let join = if node.path.contains('?') { '&' } else { '?' };
        let path = format!("{}{join}cf_connect={}", node.path, escaped(&query));
        let mut head = RequestEncoder::new(&mut self.scratch, Method::Get, &path, &node.host)?;
        head.field("Accept", b"text/event-stream")?;
        head.finish(Framing::None, true).map(drop)
    }

    pub(in crate::push) fn not_connected(&mut self, id: ConnId, reason: Reason) {
        let Some(index) = self.attempted(id) else {
            return;
        };
        self.hold_dials_until = self.cx.now().after(limits::REDIAL);
        let kind = match reason {
            Reason::NotConnected(kind) => kind,
            Reason::Deadline => ErrorKind::TimedOut,
            _ => ErrorKind::Other,
        };
        self.end(index, &How::Failed(kind));
    }

    /// All subscriptions of a client stand.
    pub(super) fn stands(&mut self, conn: Conn<'_>, index: u32) {
        let link = &mut self.links[index as usize];
        let State::Joining { id, since } = link.state else {
            return;
        };
        conn.set_deadline(None);
        link.state = State::Live { id };
        self.dialling -= 1;
        self.standing += 1;
        self.gauge.standing.store(self.standing, Ordering::Relaxed);
        let node = usize::from(link.node);
        match (std::mem::replace(&mut link.stood, true), link.outage.take()) {
            (_, Some(number)) => self.is_back(number),
            (true, None) => self.figures.counts.reconnects += 1,
            (false, None) => {
                self.figures.node(node).joined += 1;
                let now = self.cx.clock();
                self.figures.ready.record(now.since(since).as_nanos() as u64);
            }
        }
        if self.phase == Phase::Joining && self.standing as usize == self.links.len() {
            self.phase = Phase::Ready;
            // The other end goes when the run is over already; then nobody asks any more.
            let _ = self.news.send(News::Standing { now: self.cx.now() });
        }
        self.dial();
        self.set_alarm();
    }
}

/// Appends the request that opens a WebSocket.
fn opening(out: &mut Vec<u8>, node: &Node, nonce: [u8; 16], format: Format) -> Result<(), Misuse> {
    let mut head = RequestEncoder::new(out, Method::Get, &node.path, &node.host)?;
    let opening = Opening::new(nonce, protocols(format), None).expect("a name of ours is a token");
    opening.write_fields(&mut head)?;
    head.finish_with_upgrade(Framing::None, b"websocket").map(drop)
}

/// The subprotocols that are asked for.
pub(super) fn protocols(format: Format) -> &'static [&'static str] {
    match format {
        Format::Json => &[],
        Format::Protobuf => PROTOBUF,
    }
}

/// As a value in a query (RFC 3986 §2.1).
fn escaped(text: &[u8]) -> String {
    use std::fmt::Write;
    let mut out = String::with_capacity(text.len() * 2);
    for &byte in text {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => out.push(byte as char),
            // Writing to a text cannot fail.
            _ => drop(write!(out, "%{byte:02X}")),
        }
    }
    out
}

/// What is counted of an attempt that failed.
pub(super) fn failed(kind: ErrorKind) -> &'static str {
    match kind {
        ErrorKind::ConnectionRefused => "refused",
        ErrorKind::TimedOut => "timed out",
        ErrorKind::ConnectionReset => "reset",
        ErrorKind::AddrNotAvailable | ErrorKind::AddrInUse => "no local port left",
        ErrorKind::HostUnreachable | ErrorKind::NetworkUnreachable => "unreachable",
        _ => "failed",
    }
}

/// What is counted of a connection that ended by itself.
pub(super) fn describe(reason: Reason) -> &'static str {
    match reason {
        Reason::Failed(ErrorKind::ConnectionReset) => "reset by the server",
        Reason::Failed(ErrorKind::TimedOut) => "given up by TCP",
        Reason::ReadLimit => "sent more than can be kept",
        _ => "failed",
    }
}
