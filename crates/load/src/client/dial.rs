//! Connections are asked for a few at a time, and again when they are gone.

use ringmain_engine::backend::Time;
use ringmain_engine::{ConnId, Reason};

use super::link::State;
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
            match self.cx.connect(&self.plan.target, source) {
                Ok(id) => {
                    self.cx.conn(id).set_deadline(Some(self.plan.timeout));
                    // Read anew: on loopback it stands before the turn is over.
                    self.links[index as usize].state = State::Dialling(self.cx.clock());
                    self.dialling.push_back((id, index));
                }
                Err(error) => {
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

    /// The link that asked for this connection.
    pub(super) fn dialled(&mut self, id: ConnId) -> Option<u32> {
        let at = self.dialling.iter().position(|(other, _)| *other == id)?;
        self.dialling.remove(at).map(|(_, index)| index)
    }

    /// The link's connection stands.
    pub(super) fn stand(&mut self, index: u32, id: ConnId, now: Time) -> Place {
        let link = &mut self.links[index as usize];
        if let State::Dialling(since) = link.state {
            self.window.connected(self.cx.clock().since(since), now);
        }
        link.state = State::Open(id);
        self.open += 1;
        let life = link.life;
        if self.window.phase == Phase::Dialling && self.waiting.is_empty() && self.dialling.is_empty() {
            self.window.phase = Phase::Ready;
            // The other end goes when the run is over already; then nobody asks any more.
            let _ = self.news.send(News::Standing { now });
        }
        self.use_link(index, now);
        Place { link: index, life }
    }

    /// An attempt came to nothing.
    pub(super) fn dial_failed(&mut self, id: ConnId, reason: Reason) {
        let Some(index) = self.dialled(id) else { return };
        self.links[index as usize].state = State::Waiting;
        self.waiting.push_back(index);
        let kind = match reason {
            Reason::NotConnected(kind) => kind,
            Reason::Deadline => std::io::ErrorKind::TimedOut,
            _ => std::io::ErrorKind::Other,
        };
        self.refused(kind.into());
    }

    fn refused(&mut self, error: std::io::Error) {
        self.hold_dials_until = self.cx.now().after(limits::REDIAL);
        self.window.connect_failed(describe(error.kind()));
        if self.window.phase == Phase::Dialling {
            let _ = self.news.send(News::NotConnected { error });
        }
    }
}

/// What is counted of an attempt that failed.
fn describe(kind: std::io::ErrorKind) -> &'static str {
    use std::io::ErrorKind;
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
