//! The client's messages, one after the other, as the handler asks for them.

use std::marker::PhantomData;

use bytes::{Buf, Bytes};
use prost::Message;
use ringmain_wire::grpc::{Code, Decoder, Dialect, Event, Frame, TextDecoder};

use super::call::Call;
use super::status::{Result, Status};
use crate::limits;

/// The messages of a client. Nothing more is received from it than a handler has asked for, but for a bounded rest.
pub struct Messages<'a, T> {
    call: &'a Call<'a>,
    decoder: Decoder,
    text: Option<TextDecoder>,
    /// Of the body, not looked at yet.
    rest: Bytes,
    /// The message that is coming in.
    message: Vec<u8>,
    compressed: bool,
    kind: PhantomData<fn() -> T>,
}

impl<'a, T: Message + Default> Messages<'a, T> {
    pub(super) fn new(call: &'a Call<'a>) -> Messages<'a, T> {
        Messages {
            call,
            decoder: Decoder::new(&call.settings.limits),
            text: (call.content.dialect == Dialect::WebText).then(TextDecoder::new),
            rest: Bytes::new(),
            message: Vec::new(),
            compressed: false,
            kind: PhantomData,
        }
    }

    /// The next message; `None` after the last. Waits while nothing has arrived. Nothing is lost if it is dropped meanwhile.
    ///
    /// # Errors
    /// What the client sends is not gRPC, not of this type, or too long; or it is gone: end the handler by `?`.
    pub async fn next(&mut self) -> Result<Option<T>> {
        loop {
            let step = self
                .decoder
                .decode(&self.rest)
                .map_err(|fault| Status::of_fault(&fault))?;
            let consumed = step.consumed;
            match step.event {
                Event::Begin { frame, bytes } => {
                    self.compressed = frame == Frame::Message { compressed: true };
                    self.message.clear();
                    // Grows with what comes, not with what was announced.
                    let usual = limits::SCRATCH_BYTES.min(bytes as usize);
                    self.message.reserve(usual);
                }
                Event::Data(data) => self.message.extend_from_slice(data),
                Event::End => {
                    let message = self.decode();
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

    /// The only message of a call that has one.
    pub(super) async fn only(mut self) -> Result<T> {
        let unlike = |what| Status::new(Code::Unimplemented, what);
        let message = self.next().await?;
        let message = message.ok_or_else(|| unlike("expected one message, found none"))?;
        match self.next().await? {
            None => Ok(message),
            Some(_) => Err(unlike("expected one message, found more")),
        }
    }

    /// Takes more of the body. `false`: there is none.
    async fn receive(&mut self) -> Result<bool> {
        while self.rest.is_empty() {
            let Some(piece) = self.call.request().chunk().await? else {
                let text = self.text.as_mut().map_or(Ok(()), TextDecoder::end_of_input);
                let ended = text.and_then(|()| self.decoder.end_of_input());
                return ended.map(|()| false).map_err(|fault| Status::of_fault(&fault));
            };
            self.rest = match &mut self.text {
                None => piece,
                Some(text) => {
                    let mut bytes = Vec::with_capacity(piece.len() / 4 * 3 + 3);
                    let decoded = text.decode(&piece, &mut bytes);
                    decoded.map_err(|fault| Status::of_fault(&fault))?;
                    bytes.into()
                }
            };
        }
        Ok(true)
    }

    fn decode(&self) -> Result<T> {
        let read = |bytes: &[u8]| {
            T::decode(bytes).map_err(|error| {
                let what = format!("expected a message of this method's type: {error}");
                Status::new(Code::Internal, what)
            })
        };
        if !self.compressed {
            return read(&self.message);
        }
        let limit = self.call.settings.limits.message_bytes as usize;
        let coder = &self.call.request().local.grpc;
        let shown = coder
            .borrow_mut()
            .inflate(self.call.incoming, &self.message, limit, read);
        shown.map_err(|fault| Status::of_fault(&fault))?
    }
}

impl<T> std::fmt::Debug for Messages<'_, T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Messages of {:?}", self.call)
    }
}
