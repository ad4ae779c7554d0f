//! Assembles messages from the pieces of a body. Pure: any cut of the body gives the same messages.

use prost::Message;
use ringmain_wire::grpc::{Decoder, Event, FaultKind, Found, Frame, Limits, PeerFault};

use super::error::GrpcError;
use crate::limits;

/// The reader of one body.
pub(super) struct MessageReader {
    decoder: Decoder,
    /// The message that is being received. Grows with the received bytes, not with the announced length.
    message: Vec<u8>,
}

impl MessageReader {
    /// Creates a reader for messages of at most `limit` bytes.
    pub(super) fn new(limit: u32) -> MessageReader {
        let limits = Limits {
            message_bytes: limit,
            ..Limits::INTERNET
        };
        MessageReader {
            decoder: Decoder::new(&limits),
            message: Vec::new(),
        }
    }

    /// Reads up to the end of a message. Returns the number of bytes consumed, and whether the message is complete: then
    /// [`MessageReader::decode`] returns it.
    ///
    /// # Errors
    /// The body is invalid, or the message exceeds the limit.
    pub(super) fn feed(&mut self, bytes: &[u8]) -> Result<(usize, bool), PeerFault> {
        let mut consumed = 0;
        loop {
            let at = consumed;
            let step = self.decoder.decode(&bytes[at..])?;
            consumed += step.consumed;
            match step.event {
                Event::Begin { frame, .. } => {
                    self.message.clear();
                    // No encoding is offered to the service.
                    if frame == (Frame::Message { compressed: true }) {
                        return Err(PeerFault {
                            kind: FaultKind::NotEncoded,
                            at: at as u64,
                            found: Found::This,
                        });
                    }
                }
                Event::Data(data) => self.message.extend_from_slice(data),
                Event::End => return Ok((consumed, true)),
                Event::NeedMore => return Ok((consumed, false)),
            }
        }
    }

    /// Decodes the complete message.
    ///
    /// # Errors
    /// It is not of this type.
    pub(super) fn decode<M: Message + Default>(&mut self) -> Result<M, GrpcError> {
        let decoded = M::decode(&self.message[..]).map_err(GrpcError::Undecodable);
        self.message.clear();
        self.message.shrink_to(limits::GRPC_MESSAGE_KEPT);
        decoded
    }

    /// Checks that the body does not end within a message.
    ///
    /// # Errors
    /// It does.
    pub(super) fn finish(&mut self) -> Result<(), PeerFault> {
        self.decoder.end_of_input()
    }
}
