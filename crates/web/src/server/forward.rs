//! Replies of intermediaries: another server's head and body, and tunnels after a switch of protocols.
//!
//! Knows no upstream: the handler supplies all data.

use ringmain_wire::h1::{FieldBlock, Framing, ResponseEncoder, Version};

use super::http2::StreamRef;
use super::response_stream::{self, Outgoing, StreamBody};
use crate::http::error::{Error, Result};
use crate::http::reply::{ContentKind, Reply};
use crate::limits;

impl Reply<'_> {
    /// Turns the reply into another server's: its status, and none of this server's fields (`Date`, `Server`, `Content-Type`) except the
    /// request's id; fields set before are dropped. For asynchronous handlers.
    ///
    /// # Errors
    /// 502 for a status that is not final.
    pub fn forward(&mut self, status: u16) -> Result<&mut FieldBlock> {
        if !(200..=999).contains(&status) {
            return Err(Error::new(
                502,
                format!("expected the status of a final response, found {status}"),
            ));
        }
        self.status = status;
        self.forwarded = true;
        self.fields.clear();
        self.begin(ContentKind::None);
        Ok(self.fields)
    }

    /// Sends the head of a streamed reply now. `framing` is the body's; for an HTTP/1.0 client chunks become a body that ends with
    /// the connection. Without a body the head completes the reply.
    ///
    /// # Errors
    /// The client disconnected, or needs only the head (HEAD): end the handler with `?`. 500 in a handler that is not asynchronous.
    pub async fn send_head(&mut self, framing: Framing) -> Result {
        self.write_head_buffered(framing)?;
        self.flush_buffered()?;
        if self.outgoing.as_ref().is_some_and(Outgoing::is_silent) {
            return Err(Error::head_sent());
        }
        Ok(())
    }

    /// Encodes the head of a streamed reply, with `framing` as for [`Reply::send_head`]. It is sent together with the chunks
    /// [put](Reply::write_buffered) after it, at [`Reply::flush`] or when the handler returns.
    ///
    /// # Errors
    /// 500 in a handler that is not asynchronous.
    pub fn write_head_buffered(&mut self, framing: Framing) -> Result {
        let Some(outgoing) = &mut self.outgoing else {
            return Err(Error::internal(
                "a streamed reply requires an asynchronous handler",
            ));
        };
        match framing {
            Framing::Length(length) => outgoing.length = Some(length),
            Framing::None => outgoing.bodiless = true,
            Framing::Chunked | Framing::UntilClose => {}
        }
        self.start_stream()
    }

    /// Appends a chunk of the body, framed, behind a head that was [put](Reply::write_head_buffered), or bytes of a tunnel. Does not wait: a
    /// handler that puts more than one receipt at a time calls [`Reply::flush`] in between. Dropped where no body is sent (HEAD,
    /// and statuses without content).
    ///
    /// # Errors
    /// The client disconnected. The chunk exceeds the declared length (500, and the connection closes).
    pub fn write_buffered(&mut self, bytes: &[u8]) -> Result {
        let Some(outgoing) = &mut self.outgoing else {
            return Err(Error::internal(
                "a streamed reply requires an asynchronous handler",
            ));
        };
        if let Some(framed) = &mut outgoing.framed {
            self.sent += framed.send_copied(bytes)?;
            return Ok(());
        }
        let out = &mut *outgoing.out;
        let tunnel = outgoing.tunnel;
        if outgoing.forbidden {
            return Ok(());
        }
        if let Some(body) = outgoing.body.as_mut().filter(|_| !tunnel)
            && !body.begin(out, bytes.len() as u64).map_err(Error::internal)?
        {
            return Ok(());
        }
        if bytes.len() <= limits::COPIED_CHUNK_BYTES {
            out.extend_from_slice(bytes);
        } else {
            let conn = outgoing.exchange.conn();
            conn.write(out).map_err(response_stream::disconnected)?;
            out.clear();
            conn.write(bytes).map_err(response_stream::disconnected)?;
        }
        if let Some(body) = outgoing.body.as_mut().filter(|_| !tunnel) {
            body.end(out);
        }
        self.sent += bytes.len() as u64;
        Ok(())
    }

    /// Sets the trailers to be sent when the handler returns (RFC 9110 §6.5), replacing earlier ones. For a streamed reply in
    /// chunks; other replies omit them.
    pub fn set_trailers(&mut self, fields: FieldBlock) {
        if let Some(outgoing) = &mut self.outgoing {
            outgoing.trailers = Some(fields);
        }
    }

    /// Hands over the bytes put so far, and waits while more than [`WRITE_MARK`](ringmain_engine::limits::WRITE_MARK) bytes are
    /// queued for the client.
    ///
    /// # Errors
    /// The client disconnected.
    pub async fn flush(&mut self) -> Result {
        self.flush_buffered()?;
        match &self.outgoing {
            Some(outgoing) => response_stream::wait_for_room(outgoing.exchange).await,
            None => Ok(()),
        }
    }

    fn flush_buffered(&mut self) -> Result {
        let Some(outgoing) = &mut self.outgoing else {
            return Ok(());
        };
        if !outgoing.out.is_empty() {
            let conn = outgoing.exchange.conn();
            conn.write(outgoing.out).map_err(response_stream::disconnected)?;
            outgoing.out.clear();
        }
        Ok(())
    }

    /// Sends an interim response (RFC 9110 §15.2), 100 to 199 except 101; more responses follow. Nothing is sent to an HTTP/1.0
    /// client.
    ///
    /// # Errors
    /// The client disconnected; 500 for another status, once the reply has started, or in a handler that is not asynchronous.
    pub fn send_interim(&mut self, status: u16, fields: &FieldBlock) -> Result {
        let head_started = self.is_streaming();
        let Some(outgoing) = self.outgoing.as_mut().filter(|_| !head_started && status < 200) else {
            return Err(Error::internal(
                "an interim response requires an asynchronous handler and must precede the reply",
            ));
        };
        let exchange = self.request.head.exchange();
        if exchange.version == Version::Http10 {
            return Ok(());
        }
        if status == 100 {
            outgoing.exchange.mark_continue_sent();
        }
        if let Some(stream_ref) = outgoing.exchange.stream_ref() {
            return stream_ref.session.interim(stream_ref.stream, status, fields);
        }
        let out = &mut *outgoing.out;
        let mut head = ResponseEncoder::new(out, status, exchange).map_err(Error::internal)?;
        head.block(fields);
        // An interim response has no body to finish.
        let _ = head.finish(Framing::None).map_err(Error::internal)?;
        self.flush_buffered()
    }

    /// Responds with 101 (over HTTP/2 with 200, to an extended CONNECT) and opens a tunnel: bytes written from here on are sent
    /// unframed, and [`Request::chunk`](crate::Request::chunk) returns the client's bytes as they arrive, until its end. The
    /// connection closes when the handler returns. `protocol` is the value of `Upgrade`.
    ///
    /// # Errors
    /// The client disconnected; 500 if a reply has started, or in a handler that is not asynchronous.
    pub async fn switch_protocols(&mut self, protocol: &[u8]) -> Result {
        self.start_tunnel(protocol)
    }

    /// As [`Reply::switch_protocols`], without `async`.
    ///
    /// # Errors
    /// As [`Reply::switch_protocols`].
    pub fn start_tunnel(&mut self, protocol: &[u8]) -> Result {
        let exchange = self.request.head.exchange();
        let framed = exchange.version == Version::Http2;
        let can_stream = !self.is_streaming() && (!framed || self.request.head.protocol.is_some());
        let Some(outgoing) = self.outgoing.as_ref().filter(|_| can_stream) else {
            return Err(Error::internal(
                "switching protocols requires an asynchronous handler, a reply that has not started, and HTTP/1.1 or an extended CONNECT",
            ));
        };
        if let Some(stream_ref) = outgoing.exchange.stream_ref() {
            return self.start_http2_tunnel(stream_ref);
        }
        let Some(outgoing) = &mut self.outgoing else {
            return Ok(());
        };
        let out = &mut *outgoing.out;
        let mut head = ResponseEncoder::new(out, 101, exchange).map_err(Error::internal)?;
        head.block(self.fields);
        head.switch(protocol).map_err(Error::internal)?;
        self.status = 101;
        outgoing.exchange.start_response();
        outgoing.tunnel = true;
        outgoing.exchange.switch_to_tunnel();
        outgoing
            .exchange
            .conn()
            .write(out)
            .map_err(response_stream::disconnected)?;
        out.clear();
        Ok(())
    }

    /// Opens a tunnel on an HTTP/2 stream, which has no other status for it.
    fn start_http2_tunnel(&mut self, stream_ref: StreamRef) -> Result {
        stream_ref.session.start_tunnel(self, stream_ref.stream)?;
        self.status = 200;
        if let Some(outgoing) = &mut self.outgoing {
            outgoing.exchange.start_response();
            outgoing.exchange.disable_body_rate();
            outgoing.tunnel = true;
            outgoing.framed = Some(StreamBody::tunnel(stream_ref));
        }
        Ok(())
    }

    /// Shuts down this side of a tunnel: FIN behind the bytes put or written. The client's bytes can still be read with
    /// [`Request::chunk`](crate::Request::chunk), until its end or until the handler returns; nothing more can be written.
    ///
    /// # Errors
    /// The client disconnected; 500 without a preceding [switch of protocols](Reply::start_tunnel).
    pub fn shut_down_tunnel(&mut self) -> Result {
        self.flush_buffered()?;
        match &self.outgoing {
            Some(outgoing) if outgoing.tunnel => {
                match &outgoing.framed {
                    Some(framed) => framed.stream_ref.session.end(framed.stream_ref.stream, None),
                    None => outgoing.exchange.shut_down_tunnel(),
                }
                Ok(())
            }
            _ => Err(Error::internal("only a tunnel can be half-closed")),
        }
    }
}
