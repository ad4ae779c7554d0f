//! Connections are asked for a few at a time, opened by what handshakes they need, and asked for again when they are gone.

use std::io;

use ringmain_engine::backend::Time;
use ringmain_engine::{Conn, ConnId, Reason};

use super::link::{Opening, Reading, Stage, State};
use super::secure::{agreed, failure, speaks};
use super::speak::Draws;
use super::websocket::Opened;
use super::window::News;
use super::{Client, Phase, Place};
use crate::limits;

impl Client {
    /// Asks for connections, as many as may be in progress.
    pub(super) fn dial(&mut self) {
        let now = self.cx.now();
        while self.may_dial() && now >= self.hold_dials_until {
            let index = self.waiting.pop_front().expect("one waits");
            let number = self.first + u64::from(index);
            let sources = &self.plan.sources;
            let source = (!sources.is_empty()).then(|| &sources[(number % sources.len() as u64) as usize]);
            match self.cx.connect(self.plan.address(number), source) {
                Ok(id) => {
                    self.cx.conn(id).set_deadline(Some(self.plan.timeout));
                    // Read anew: on loopback it stands before the turn is over.
                    self.links[index as usize].state = State::Dialling(self.cx.clock());
                    self.dialling.push_back((id, index));
                }
                Err(error) => {
                    self.links[index as usize].down.get_or_insert(now);
                    self.waiting.push_front(index);
                    self.refused(error);
                }
            }
        }
    }

    /// Whether a link waits to be dialled and nothing but time is in its way.
    pub(super) fn may_dial(&self) -> bool {
        !self.waiting.is_empty() && self.dialling.len() < limits::DIALS && self.window.dials()
    }

    /// A connection is there; its link stands when it needs no handshake.
    pub(super) fn connected(&mut self, conn: Conn<'_>, now: Time) -> Option<Place> {
        let id = conn.id();
        let (_, index) = *self.dialling.iter().find(|(other, _)| *other == id)?;
        let link = &mut self.links[index as usize];
        let State::Dialling(since) = link.state else {
            return None;
        };
        let clock = self.cx.clock();
        let opening = Opening {
            id,
            connect: clock.since(since),
            stage: Stage::Tls,
            since: clock,
        };
        link.state = State::Opening(opening);
        let place = Place {
            link: index,
            life: link.life,
        };
        match &self.secure {
            Some(secure) => secure.begin(conn, self.cx.wall()),
            None => self.open_protocol(conn, index, opening, now),
        }
        Some(place)
    }

    /// TLS stands.
    pub(super) fn secured(&mut self, conn: Conn<'_>, index: u32, now: Time) {
        let State::Opening(opening) = self.links[index as usize].state else {
            return;
        };
        if let Some(agreed) = agreed(conn) {
            self.window.secured(self.cx.clock().since(opening.since), agreed);
        }
        let http2 = matches!(self.links[index as usize].reading, Reading::Http2(_));
        if http2 && !speaks(conn, b"h2") {
            conn.abort();
            let said = "TLS is established, but the server did not negotiate HTTP/2 (ALPN `h2`): enable it there, or \
                        drop --http2";
            let error = io::Error::new(io::ErrorKind::InvalidData, said);
            return self.opening_failed(index, opening, "TLS: no HTTP/2 negotiated", error);
        }
        self.open_protocol(conn, index, opening, now);
    }

    /// TLS has found a fault, before or after it stood.
    pub(super) fn insecure(&mut self, conn: Conn<'_>, index: u32) {
        let (what, said) = failure(conn);
        match self.links[index as usize].state {
            State::Opening(opening) => {
                let error = io::Error::new(io::ErrorKind::InvalidData, said);
                self.opening_failed(index, opening, what, error);
            }
            _ => {
                self.window.explain(what, || said);
                self.lose(index, what);
            }
        }
    }

    /// Bytes can flow: what is left is the protocol's own handshake, if it has one.
    fn open_protocol(&mut self, conn: Conn<'_>, index: u32, opening: Opening, now: Time) {
        let link = &mut self.links[index as usize];
        let mut draws = Draws {
            random: &mut self.random,
            sequence: &mut self.sequence,
            scratch: &mut self.scratch,
        };
        let Some(stage) = self.speaker.open(link, &self.traffic, &mut draws, now) else {
            return self.stand(conn, index, opening, now);
        };
        link.state = State::Opening(Opening {
            stage,
            since: self.cx.clock(),
            ..opening
        });
        // A refused write ends the connection, and `closed` has the link dialled again.
        let _ = conn.write(&self.scratch);
    }

    /// Takes bytes of a handshake's answer; returns how many were taken, and whether the link stands.
    pub(super) fn handshake(
        &mut self,
        conn: Conn<'_>,
        index: u32,
        opening: Opening,
        bytes: &[u8],
        now: Time,
    ) -> (usize, bool) {
        let link = &mut self.links[index as usize];
        let (taken, opened) = self.speaker.opened(link, &self.traffic, now, bytes);
        match opened {
            Opened::More => {
                self.flush(index, conn);
                (taken, false)
            }
            Opened::Open { deflated } => {
                let span = self.cx.clock().since(opening.since);
                self.window.opened(span, deflated);
                self.allow(index);
                self.stand(conn, index, opening, now);
                self.flush(index, conn);
                (taken, true)
            }
            Opened::Refused(what, said) => {
                conn.abort();
                self.speaker.drop_unwritten();
                // What a server says of its own accord it will say again.
                let error = io::Error::new(io::ErrorKind::InvalidData, said);
                self.opening_failed(index, opening, what, error);
                self.dial();
                self.set_alarm();
                (bytes.len(), false)
            }
        }
    }

    /// The link's connection can take requests.
    fn stand(&mut self, conn: Conn<'_>, index: u32, opening: Opening, now: Time) {
        conn.set_deadline(None);
        self.end_dialling(opening.id);
        let link = &mut self.links[index as usize];
        link.state = State::Open(opening.id);
        if let Some(since) = link.down.take() {
            self.window.unconnected(since, now);
        }
        self.window.connected(opening.connect, now);
        self.open += 1;
        if self.window.phase == Phase::Dialling && self.waiting.is_empty() && self.dialling.is_empty() {
            self.window.phase = Phase::Ready;
            // The other end goes when the run is over already; then nobody asks any more.
            let _ = self.news.send(News::Standing { now });
        }
        self.use_link(index, now);
    }

    /// The attempt is over, for better or worse.
    fn end_dialling(&mut self, id: ConnId) -> Option<u32> {
        let at = self.dialling.iter().position(|(other, _)| *other == id)?;
        self.dialling.remove(at).map(|(_, index)| index)
    }

    /// An attempt came to nothing.
    pub(super) fn dial_failed(&mut self, id: ConnId, reason: Reason) {
        let Some(index) = self.end_dialling(id) else {
            return;
        };
        let link = &mut self.links[index as usize];
        if let State::Dialling(since) | State::Opening(Opening { since, .. }) = link.state {
            link.down.get_or_insert(since);
        }
        link.state = State::Waiting;
        self.waiting.push_back(index);
        let kind = match reason {
            Reason::NotConnected(kind) => kind,
            Reason::Deadline => io::ErrorKind::TimedOut,
            _ => io::ErrorKind::Other,
        };
        self.refused(kind.into());
    }

    /// A connection is of no use, for its handshake failed: `what` is counted, the error shown of the first.
    pub(super) fn opening_failed(
        &mut self,
        index: u32,
        opening: Opening,
        what: &'static str,
        error: io::Error,
    ) {
        self.end_dialling(opening.id);
        self.links[index as usize].down.get_or_insert(opening.since);
        self.end_life(index);
        self.waiting.push_back(index);
        self.window.handshake_failed(what, &error);
        self.hold_dials(error);
    }

    fn refused(&mut self, error: io::Error) {
        self.window.connect_failed(describe(error.kind()));
        self.hold_dials(error);
    }

    fn hold_dials(&mut self, error: io::Error) {
        self.hold_dials_until = self.cx.now().after(limits::REDIAL);
        if self.window.phase == Phase::Dialling {
            let _ = self.news.send(News::NotConnected { error });
        }
    }
}

/// What is counted of an attempt that failed.
fn describe(kind: io::ErrorKind) -> &'static str {
    use io::ErrorKind;
    match kind {
        ErrorKind::ConnectionRefused => "refused",
        ErrorKind::TimedOut => "timed out",
        ErrorKind::ConnectionReset => "reset",
        ErrorKind::HostUnreachable | ErrorKind::NetworkUnreachable => "unreachable",
        ErrorKind::AddrNotAvailable | ErrorKind::AddrInUse => "no local port left",
        ErrorKind::NotFound => "no such socket",
        ErrorKind::PermissionDenied => "not permitted",
        ErrorKind::WouldBlock => "listen queue full",
        _ => "failed",
    }
}
