//! TLS as the engine's [`Layer`]: a session and the counters of its handshake. Owns no settings.

use std::sync::Arc;
use std::time::Duration;

use ringmain_engine::{Layer, LayerEvent, LayerFault, LayerStep};
use ringmain_wire::tls::{Event, Facts, Fault, FaultKind, Session};

use crate::acceptor::Admission;
use crate::counters::Counters;

/// The TLS layer of one connection.
#[derive(Debug)]
pub struct Tls {
    session: Session,
    counters: Arc<Counters>,
    /// `None` for a connection to a server.
    admission: Option<Admission>,
}

impl Tls {
    pub(crate) fn new(session: Session, counters: &Arc<Counters>) -> Self {
        counters.started.add();
        Self {
            session,
            counters: counters.clone(),
            admission: None,
        }
    }

    pub(crate) fn accepted(session: Session, counters: &Arc<Counters>, admission: Admission) -> Self {
        Self {
            admission: Some(admission),
            ..Self::new(session, counters)
        }
    }

    /// Returns whether the acceptor's current settings admit this connection.
    ///
    /// `None` means that a reload has changed the requirements on clients since the last check: call [`Tls::recheck_admission`]. A
    /// connection to a server is always admitted.
    #[must_use]
    pub fn admitted(&self) -> Option<bool> {
        self.admission
            .as_ref()
            .map_or(Some(true), Admission::cached_outcome)
    }

    /// Checks the connection against the acceptor's current settings; `now` is the time since the Unix epoch.
    ///
    /// Returns `false` if the settings require a client certificate, a version or a cipher suite that the handshake did not provide, or if
    /// the client's certificate is not valid under the current authorities. Verifies the certificate again.
    pub fn recheck_admission(&mut self, now: Duration) -> bool {
        let Self {
            session, admission, ..
        } = self;
        admission
            .as_mut()
            .is_none_or(|admission| admission.recheck_admission(session.facts(), now))
    }

    /// Returns the negotiated parameters, or `None` before the handshake is complete.
    #[must_use]
    pub fn facts(&self) -> Option<&Facts> {
        self.session.facts()
    }

    /// Returns the error that ended the session, or `None`.
    #[must_use]
    pub fn fault(&self) -> Option<&Fault> {
        self.session.fault()
    }

    /// Returns the session.
    #[must_use]
    pub fn session(&self) -> &Session {
        &self.session
    }
}

impl Layer for Tls {
    fn receive(&mut self, bytes: &mut [u8], wire: &mut Vec<u8>) -> LayerStep {
        let handshaking = self.session.is_handshaking();
        let step = self.session.receive(bytes, wire);
        let event = match step.event {
            Event::Nothing => LayerEvent::Nothing,
            Event::NeedMore => LayerEvent::NeedMore,
            Event::Plain(range) => LayerEvent::Plain(range),
            Event::End => LayerEvent::End,
            Event::Established => {
                self.counters.finished.add();
                if self.session.facts().is_some_and(|facts| facts.resumed) {
                    self.counters.resumed.add();
                }
                LayerEvent::Established
            }
            Event::Failed => {
                if handshaking {
                    self.counters.failed.add();
                }
                match self.session.fault() {
                    Some(fault) if fault.kind == FaultKind::PlainHttp => LayerEvent::Refused,
                    _ => LayerEvent::Failed,
                }
            }
        };
        LayerStep {
            consumed: step.consumed,
            event,
        }
    }

    fn send(&mut self, plain: &[u8], wire: &mut Vec<u8>) -> Result<(), LayerFault> {
        self.session.send(plain, wire).map_err(|_| LayerFault)
    }

    fn begin(&mut self, wire: &mut Vec<u8>) {
        self.session.begin(wire);
    }

    fn end(&mut self, wire: &mut Vec<u8>) {
        self.session.close(wire);
    }

    fn is_costly(&self) -> bool {
        self.session.is_handshaking()
    }
}
