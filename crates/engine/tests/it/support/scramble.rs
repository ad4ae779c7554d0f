//! A layer for tests: both sides greet, then each record is its length and bytes that are turned round. It keeps no secret.

use ringmain_engine::{Layer, LayerEvent, LayerFault, LayerStep};

/// What each side says first.
const GREETING: &[u8] = b"scramble";
/// A record of this length announces the end.
const END: u16 = 0;
/// The largest record.
pub(crate) const RECORD: usize = 1000;

pub(crate) struct Scramble {
    key: u8,
    client: bool,
    greeted: bool,
    established: bool,
    /// Calls of `receive` before it was established.
    pub(crate) costly: usize,
}

impl Scramble {
    pub(crate) fn new(client: bool) -> Scramble {
        Scramble {
            key: 0xa5,
            client,
            greeted: false,
            established: false,
            costly: 0,
        }
    }

    fn greet(&mut self, bytes: &[u8], wire: &mut Vec<u8>) -> (usize, LayerEvent) {
        self.costly += 1;
        let Some(greeting) = bytes.get(..GREETING.len()) else {
            return (0, LayerEvent::NeedMore);
        };
        if greeting != GREETING {
            wire.extend_from_slice(b"no");
            return (bytes.len(), LayerEvent::Failed);
        }
        if !self.client {
            wire.extend_from_slice(GREETING);
        }
        self.greeted = true;
        (GREETING.len(), LayerEvent::Nothing)
    }

    fn record(&self, bytes: &mut [u8]) -> (usize, LayerEvent) {
        let Some(head) = bytes.get(..2) else {
            return (0, LayerEvent::NeedMore);
        };
        let length = u16::from_be_bytes([head[0], head[1]]);
        if length == END {
            return (2, LayerEvent::End);
        }
        let end = 2 + usize::from(length);
        if end > 2 + RECORD {
            return (bytes.len(), LayerEvent::Failed);
        }
        let Some(body) = bytes.get_mut(2..end) else {
            return (0, LayerEvent::NeedMore);
        };
        body.iter_mut().for_each(|byte| *byte ^= self.key);
        (end, LayerEvent::Plain(2..end))
    }
}

impl Layer for Scramble {
    fn begin(&mut self, wire: &mut Vec<u8>) {
        if self.client {
            wire.extend_from_slice(GREETING);
        }
    }

    fn receive(&mut self, bytes: &mut [u8], wire: &mut Vec<u8>) -> LayerStep {
        let (consumed, event) = if !self.greeted {
            self.greet(bytes, wire)
        } else if !self.established {
            self.established = true;
            (0, LayerEvent::Established)
        } else {
            self.record(bytes)
        };
        LayerStep { consumed, event }
    }

    fn send(&mut self, plain: &[u8], wire: &mut Vec<u8>) -> Result<(), LayerFault> {
        assert!(self.established, "nothing is sent before");
        for record in plain.chunks(RECORD) {
            wire.extend_from_slice(&(record.len() as u16).to_be_bytes());
            wire.extend(record.iter().map(|byte| byte ^ self.key));
        }
        Ok(())
    }

    fn end(&mut self, wire: &mut Vec<u8>) {
        wire.extend_from_slice(&END.to_be_bytes());
    }

    fn is_costly(&self) -> bool {
        !self.established
    }
}
