//! The client's messages, read one after another on request of the handler.

use std::marker::PhantomData;

use bytes::{Buf, Bytes};
use prost::Message;
use ringmain_wire::grpc::{Code, Decoder, Dialect, Event, Frame, Limits, TextDecoder};

use super::call::Call;
use super::status::{Result, Status};
use crate::limits;

/// The messages of a client. Apart from a bounded buffer, bytes are received only as the handler requests messages.
pub struct Messages<'a, T> {
    call: &'a Call<'a>,
    limits: Limits,
    decoder: Decoder,
    text: Option<TextDecoder>,
    /// Body bytes not decoded yet.
    rest: Bytes,
    /// The incomplete message, if it does not arrive at once.
    message: Vec<u8>,
    announced: usize,
    compressed: bool,
    kind: PhantomData<fn() -> T>,
}

impl<'a, T: Message + Default> Messages<'a, T> {
    pub(super) fn new(call: &'a Call<'a>) -> Messages<'a, T> {
        Messages {
            call,
            limits: call.limits,
            decoder: Decoder::new(&call.limits),
            text: (call.content.dialect == Dialect::WebText).then(TextDecoder::new),
            rest: Bytes::new(),
            message: Vec::new(),
            announced: 0,
            compressed: false,
            kind: PhantomData,
        }
    }

    /// Lowers the limit on a message of this call in bytes, both as received and after inflation. Applies from the next message. A higher
    /// limit than that of the [service](super::Service::message_limit) has no effect.
    pub fn limit_message_bytes(&mut self, bytes: u32) {
        self.limits.message_bytes = bytes.min(self.limits.message_bytes);
        self.decoder.set_limits(&self.limits);
    }

    /// Waits for the next message; `None` after the last. Dropping the future loses nothing.
    ///
    /// # Errors
    /// The client's data is not gRPC, not of this type, or too long; or the client disconnected: end the handler with `?`.
    pub async fn next(&mut self) -> Result<Option<T>> {
        loop {
            let step = self
                .decoder
                .decode(&self.rest)
                .map_err(|fault| Status::from_fault(&fault))?;
            let consumed = step.consumed;
            match step.event {
                Event::Begin { frame, bytes } => {
                    self.compressed = frame == Frame::Message { compressed: true };
                    self.announced = bytes as usize;
                    self.message.clear();
                }
                Event::Data(data) if data.len() == self.announced => {
                    // The whole message is in this buffer: it is decoded in place, and its end needs no event.
                    let message = self.read(data);
                    self.rest.advance(consumed);
                    let end = self.decoder.decode(&self.rest).map(|step| step.event);
                    debug_assert_eq!(end, Ok(Event::End));
                    return message.map(Some);
                }
                Event::Data(data) => {
                    // Grows with the received bytes, not with the announced length.
                    if self.message.is_empty() {
                        self.message.reserve(limits::SCRATCH_BYTES.min(self.announced));
                    }
                    self.message.extend_from_slice(data);
                }
                Event::End => {
                    let message = self.read(&self.message);
                    self.rest.advance(consumed);
                    self.message.shrink_to(limits::SCRATCH_BYTES);
                    return message.map(Some);
                }
                Event::NeedMore => {
                    self.rest.advance(consumed);
                    if !self.receive().await? {
                        return Ok(None);
                    }
                    continue;
                }
            }
            self.rest.advance(consumed);
        }
    }

    /// Returns the only message of a unary request.
    pub(super) async fn only(mut self) -> Result<T> {
        let unlike = |reason| Status::new(Code::Unimplemented, reason);
        let message = self.next().await?;
        let message = message.ok_or_else(|| unlike("expected one message, found none"))?;
        match self.next().await? {
            None => Ok(message),
            Some(_) => Err(unlike("expected one message, found more")),
        }
    }

    /// Receives more of the body. `false`: it has ended.
    async fn receive(&mut self) -> Result<bool> {
        while self.rest.is_empty() {
            let Some(piece) = self.call.request().chunk().await? else {
                let text = self.text.as_mut().map_or(Ok(()), TextDecoder::end_of_input);
                let finished = text.and_then(|()| self.decoder.end_of_input());
                return finished
                    .map(|()| false)
                    .map_err(|fault| Status::from_fault(&fault));
            };
            self.rest = match &mut self.text {
                None => piece,
                Some(text) => {
                    let mut bytes = Vec::with_capacity(piece.len() / 4 * 3 + 3);
                    let decoded = text.decode(&piece, &mut bytes);
                    decoded.map_err(|fault| Status::from_fault(&fault))?;
                    bytes.into()
                }
            };
        }
        Ok(true)
    }

    /// Decodes a message, inflating it if it is compressed.
    fn read(&self, bytes: &[u8]) -> Result<T> {
        let read = |bytes: &[u8]| {
            T::decode(bytes).map_err(|error| {
                let reason = format!("expected a message of this method's type: {error}");
                Status::new(Code::Internal, reason)
            })
        };
        if !self.compressed {
            return read(bytes);
        }
        let limit = self.limits.message_bytes as usize;
        let coder = &self.call.request().worker.grpc;
        let result = coder.borrow_mut().inflate(self.call.incoming, bytes, limit, read);
        result.map_err(|fault| Status::from_fault(&fault))?
    }
}

impl<T> std::fmt::Debug for Messages<'_, T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Messages of {:?}", self.call)
    }
}
