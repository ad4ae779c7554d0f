//! Replies of intermediaries: another server's head and body, and tunnels after a switch of protocols.
//!
//! Knows no upstream: the handler brings what it says.

use ringmain_wire::h1::{FieldBlock, Framing, ResponseEncoder, Version};

use super::http2::Line;
use super::stream::{self, Framed, Outgoing};
use crate::error::{Error, Result};
use crate::limits;
use crate::reply::Reply;

impl Reply<'_> {
    /// Makes the reply another server's: its status, no field of our own (`Date`, `Server`, `Content-Type`) but for the
    /// request's id; fields set before are dropped. For asynchronous handlers.
    ///
    /// # Errors
    /// 502 for a status that no final answer has.
    pub fn forward(&mut self, status: u16) -> Result<&mut FieldBlock> {
        if !(200..=999).contains(&status) {
            return Err(Error::new(
                502,
                format!("expected the status of a final answer, found {status}"),
            ));
        }
        self.status = status;
        self.forwarded = true;
        self.fields.clear();
        self.body.clear();
        Ok(self.fields)
    }

    /// Sends the head of a streamed reply now, framed as said: chunks become a body until the connection closes for an
    /// HTTP/1.0 client. Without a body the reply is complete with it.
    ///
    /// # Errors
    /// The client is gone, or needs only the head (HEAD): end the handler by `?`. 500 in a handler that is not asynchronous.
    pub async fn send_head(&mut self, framing: Framing) -> Result {
        self.put_head(framing)?;
        self.flush_put()?;
        if self.outgoing.as_ref().is_some_and(Outgoing::is_silent) {
            return Err(Error::head_sent());
        }
        Ok(())
    }

    /// Encodes the head of a streamed reply, framed as [`Reply::send_head`] says. It leaves with what is [put](Reply::put)
    /// behind it, at [`Reply::flush`] or when the handler returns.
    ///
    /// # Errors
    /// 500 in a handler that is not asynchronous, and for a body that the status cannot have.
    pub fn put_head(&mut self, framing: Framing) -> Result {
        let Some(outgoing) = &mut self.outgoing else {
            return Err(Error::internal("a reply in pieces needs an asynchronous handler"));
        };
        match framing {
            Framing::Length(length) => outgoing.length = Some(length),
            Framing::None => outgoing.bodiless = true,
            Framing::Chunked | Framing::UntilClose => {}
        }
        self.begin_stream()
    }

    /// Appends a piece of the body behind a head that was [put](Reply::put_head), framed, or bytes of a tunnel. Waits for nothing: whoever puts
    /// more than a receipt at a time calls [`Reply::flush`] in between. Where no body is sent (HEAD) it is dropped.
    ///
    /// # Errors
    /// The client is gone. The piece exceeds the declared length (500, and the connection closes).
    pub fn put(&mut self, bytes: &[u8]) -> Result {
        let Some(outgoing) = &mut self.outgoing else {
            return Err(Error::internal("a reply in pieces needs an asynchronous handler"));
        };
        if let Some(framed) = &mut outgoing.framed {
            self.sent += framed.put(bytes)?;
            return Ok(());
        }
        let out = &mut *outgoing.out;
        let tunnel = outgoing.tunnel;
        if let Some(body) = outgoing.body.as_mut().filter(|_| !tunnel)
            && !body.begin(out, bytes.len() as u64).map_err(Error::internal)?
        {
            return Ok(());
        }
        if bytes.len() <= limits::GATHERED_PIECE {
            out.extend_from_slice(bytes);
        } else {
            let conn = outgoing.exchange.conn();
            conn.write(out).map_err(stream::gone)?;
            out.clear();
            conn.write(bytes).map_err(stream::gone)?;
        }
        if let Some(body) = outgoing.body.as_mut().filter(|_| !tunnel) {
            body.end(out);
        }
        self.sent += bytes.len() as u64;
        Ok(())
    }

    /// Has these fields follow the body when the handler returns (RFC 9110 §6.5), in place of such as were told before. For a
    /// streamed reply in chunks; another one goes without them.
    pub fn put_trailers(&mut self, fields: FieldBlock) {
        if let Some(outgoing) = &mut self.outgoing {
            outgoing.trailers = Some(fields);
        }
    }

    /// Hands over what was put, and waits while the client does not take it ([`WRITE_MARK`](ringmain_engine::limits::WRITE_MARK)).
    ///
    /// # Errors
    /// The client is gone.
    pub async fn flush(&mut self) -> Result {
        self.flush_put()?;
        match &self.outgoing {
            Some(outgoing) => stream::taken(outgoing.exchange).await,
            None => Ok(()),
        }
    }

    fn flush_put(&mut self) -> Result {
        let Some(outgoing) = &mut self.outgoing else {
            return Ok(());
        };
        if !outgoing.out.is_empty() {
            let conn = outgoing.exchange.conn();
            conn.write(outgoing.out).map_err(stream::gone)?;
            outgoing.out.clear();
        }
        Ok(())
    }

    /// Sends an interim answer (RFC 9110 §15.2), 100 to 199 but 101; others follow. Nothing is sent to an HTTP/1.0 client.
    ///
    /// # Errors
    /// The client is gone; 500 for another status, once the reply has begun, or in a handler that is not asynchronous.
    pub fn interim(&mut self, status: u16, fields: &FieldBlock) -> Result {
        let begun = self.is_streaming();
        let Some(outgoing) = self.outgoing.as_mut().filter(|_| !begun && status < 200) else {
            return Err(Error::internal(
                "an interim answer needs an asynchronous handler, before its reply",
            ));
        };
        let exchange = self.request.head.exchange();
        if exchange.version == Version::Http10 {
            return Ok(());
        }
        if status == 100 {
            outgoing.exchange.invites();
        }
        if let Some(line) = outgoing.exchange.line() {
            return line.session.interim(line.stream, status, fields);
        }
        let out = &mut *outgoing.out;
        let mut head = ResponseEncoder::new(out, status, exchange).map_err(Error::internal)?;
        head.block(fields);
        // An interim answer has no body to be finished.
        let _ = head.finish(Framing::None).map_err(Error::internal)?;
        self.flush_put()
    }

    /// Answers 101 (200 over HTTP/2, to an extended CONNECT): what is written from here on goes out as it is, and [`Request::chunk`](crate::Request::chunk) gives what the
    /// client sends as it comes, until its end. The connection closes when the handler returns. `protocol` is the value of `Upgrade`.
    ///
    /// # Errors
    /// The client is gone; 500 if a reply has begun, or in a handler that is not asynchronous.
    pub async fn switch_protocols(&mut self, protocol: &[u8]) -> Result {
        self.begin_tunnel(protocol)
    }

    /// As [`Reply::switch_protocols`], in one step.
    ///
    /// # Errors
    /// As there.
    pub fn begin_tunnel(&mut self, protocol: &[u8]) -> Result {
        let exchange = self.request.head.exchange();
        let framed = exchange.version == Version::Http2;
        let can = !self.is_streaming() && (!framed || self.request.head.protocol.is_some());
        let Some(outgoing) = self.outgoing.as_ref().filter(|_| can) else {
            return Err(Error::internal(
                "a switch of protocols needs an asynchronous handler, before its reply, and HTTP/1.1 or an extended CONNECT",
            ));
        };
        if let Some(line) = outgoing.exchange.line() {
            return self.begin_framed_tunnel(line);
        }
        let Some(outgoing) = &mut self.outgoing else {
            return Ok(());
        };
        let out = &mut *outgoing.out;
        let mut head = ResponseEncoder::new(out, 101, exchange).map_err(Error::internal)?;
        head.block(self.fields);
        head.switch(protocol).map_err(Error::internal)?;
        self.status = 101;
        outgoing.exchange.answers();
        outgoing.tunnel = true;
        outgoing.exchange.become_tunnel();
        outgoing.exchange.conn().write(out).map_err(stream::gone)?;
        out.clear();
        Ok(())
    }

    /// The same on a stream of HTTP/2, which has no other status for it.
    fn begin_framed_tunnel(&mut self, line: Line) -> Result {
        line.session.begin_tunnel(self, line.stream)?;
        self.status = 200;
        if let Some(outgoing) = &mut self.outgoing {
            outgoing.exchange.answers();
            outgoing.exchange.wait_patiently();
            outgoing.tunnel = true;
            outgoing.framed = Some(Framed::tunnel(line));
        }
        Ok(())
    }

    /// Ends this side of a tunnel: FIN behind what was put or written. What the client still sends is read as before, by
    /// [`Request::chunk`](crate::Request::chunk), until its end or until the handler returns; nothing can be written any more.
    ///
    /// # Errors
    /// The client is gone; 500 where no [switch of protocols](Reply::begin_tunnel) came before.
    pub fn end_tunnel(&mut self) -> Result {
        self.flush_put()?;
        match &self.outgoing {
            Some(outgoing) if outgoing.tunnel => {
                match &outgoing.framed {
                    Some(framed) => framed.line.session.end(framed.line.stream, None),
                    None => outgoing.exchange.end_half(),
                }
                Ok(())
            }
            _ => Err(Error::internal("only a tunnel can be ended on one side")),
        }
    }
}
