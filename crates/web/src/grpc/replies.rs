//! Replies of a call that has several.

use std::marker::PhantomData;

use bytes::Bytes;
use prost::Message;
use ringmain_wire::grpc::{Dialect, encode_text};

use super::call::Call;
use super::status::Result;
use crate::http::reply::Reply;

/// Sends a handler's replies, each as soon as it is ready.
pub struct Replies<'a, 'r, T> {
    call: &'a Call<'a>,
    reply: &'a mut Reply<'r>,
    frame: Vec<u8>,
    text: Vec<u8>,
    kind: PhantomData<fn(&T)>,
}

impl<'a, 'r, T: Message> Replies<'a, 'r, T> {
    pub(super) fn new(call: &'a Call<'a>, reply: &'a mut Reply<'r>) -> Replies<'a, 'r, T> {
        Replies {
            call,
            reply,
            frame: Vec::new(),
            text: Vec::new(),
            kind: PhantomData,
        }
    }

    /// Sends a reply; the first one sends the head. Waits while too much is queued for the client.
    ///
    /// # Errors
    /// The client disconnected: end the handler with `?`.
    pub async fn send(&mut self, message: &T) -> Result {
        self.begin()?;
        self.frame.clear();
        let coder = &self.call.request().worker.grpc;
        coder
            .borrow_mut()
            .encode(message, self.call.outgoing, &mut self.frame)?;
        let bytes = if self.call.content.dialect == Dialect::WebText {
            self.text.clear();
            encode_text(&mut self.text, &self.frame);
            &self.text
        } else {
            &self.frame
        };
        self.reply.write(bytes).await?;
        Ok(())
    }

    /// Sends the head now, for a client that waits for it before the first reply.
    ///
    /// # Errors
    /// As [`Replies::send`].
    pub async fn open(&mut self) -> Result {
        self.begin()?;
        if !self.reply.is_streaming() {
            self.reply.send_head(crate::Framing::Chunked).await?;
        }
        Ok(())
    }

    /// Starts replies of unlimited duration: the head is sent now. When the client shuts down its side on HTTP/1.1, where this is
    /// detectable, the handler is dropped at its current await. It must end by itself when the process shuts down
    /// ([`Cx::draining`](ringmain_engine::Cx::draining)), so that its client receives a status.
    ///
    /// # Errors
    /// As [`Replies::send`].
    pub async fn stream_without_rate_limit(&mut self) -> Result {
        self.open().await?;
        self.reply.set_ended_by_handler();
        Ok(())
    }

    /// Sends replies that are already encoded, each behind its prefix ([`Slot`](ringmain_wire::grpc::Slot)) and not compressed: for
    /// data sent to many clients.
    ///
    /// # Errors
    /// As [`Replies::send`].
    pub async fn send_encoded(&mut self, frames: Bytes) -> Result {
        self.begin()?;
        if self.call.content.dialect == Dialect::WebText {
            self.text.clear();
            encode_text(&mut self.text, &frames);
            self.reply.write(&self.text).await?;
            self.text.clear();
            self.text.shrink_to(0);
        } else {
            self.reply.write_bytes(frames).await?;
        }
        Ok(())
    }

    fn begin(&mut self) -> Result {
        if !self.reply.is_streaming() {
            self.call.write_head(self.reply)?;
        }
        Ok(())
    }
}

impl<T> std::fmt::Debug for Replies<'_, '_, T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Replies to {:?}", self.call)
    }
}
