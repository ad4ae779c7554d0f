//! The engine's layer: a session, and what is counted of it. Owns no settings.

use std::sync::Arc;
use std::time::Duration;

use ringmain_engine::{Layer, LayerEvent, LayerFault, LayerStep};
use ringmain_wire::tls::{Event, Facts, Fault, FaultKind, Session};

use crate::acceptor::Admission;
use crate::counters::Counters;

/// TLS of one connection: what [`Layer`] asks for.
#[derive(Debug)]
pub struct Tls {
    session: Session,
    counters: Arc<Counters>,
    /// Of a connection that was accepted.
    admission: Option<Admission>,
}

impl Tls {
    pub(crate) fn new(session: Session, counters: &Arc<Counters>) -> Self {
        counters.begun.add();
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

    /// Returns whether the current settings of its acceptor admit this connection. `None`: a reload has changed the demands on clients since
    /// it was judged, and [`Tls::judge`] is to be called. A connection that was not accepted is always admitted.
    #[must_use]
    pub fn admitted(&self) -> Option<bool> {
        self.admission.as_ref().map_or(Some(true), Admission::outcome)
    }

    /// Judges the connection by the settings that its acceptor has now: `false` if they demand a certificate of clients, a version or a
    /// suite that its handshake did not have, or have other authorities, by which its certificate is not valid. `now` is wall time since
    /// 1970. Verifies the certificate again.
    pub fn judge(&mut self, now: Duration) -> bool {
        let Self {
            session, admission, ..
        } = self;
        admission
            .as_mut()
            .is_none_or(|admission| admission.judge(session.facts(), now))
    }

    /// What was agreed on; `None` before the handshake is over.
    #[must_use]
    pub fn facts(&self) -> Option<&Facts> {
        self.session.facts()
    }

    /// Why it failed; `None` if it has not.
    #[must_use]
    pub fn fault(&self) -> Option<&Fault> {
        self.session.fault()
    }

    /// The session.
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
