//! A request of the gateway's own on a stream: its response is passed to a callback as it arrives.

use std::future::poll_fn;

use ringmain_wire::h1::{FieldBlock, FieldTable, Framing, Method, ResponseHead};
use ringmain_wire::h2::{Request, load_response};

use super::StreamError;
use super::stream::{BodyRefused, H2Stream};

/// The request.
pub(crate) struct H2Request<'a> {
    pub(crate) method: Method<'a>,
    /// Path and query.
    pub(crate) target: &'a str,
    pub(crate) authority: &'a str,
    pub(crate) fields: &'a FieldBlock,
    /// `None`: the request has no body and no Content-Length.
    pub(crate) body: Option<&'a [u8]>,
}

/// A received part of the response.
pub(crate) enum H2ResponsePart<'a> {
    /// The final head.
    Head(&'a ResponseHead<'a>),
    /// Part of the body.
    Body(&'a [u8]),
}

/// Sends a request, and calls `on_part` with each part of the response until it returns `false` or the response is complete.
///
/// # Errors
/// The reason that the response is incomplete, and whether its head was received.
pub(crate) async fn send_request(
    channel: &H2Stream,
    asked: &H2Request<'_>,
    table: &mut FieldTable,
    mut on_part: impl FnMut(H2ResponsePart<'_>) -> bool,
) -> Result<(), (StreamError, bool)> {
    let request = Request {
        method: asked.method,
        scheme: channel.scheme(),
        authority: asked.authority,
        path: asked.target,
        protocol: None,
    };
    let length = asked.body.map(|body| body.len() as u64);
    let body = asked.body.unwrap_or_default();
    let sent = channel.send_head(&request, asked.fields, length, body.is_empty());
    if let Err(misuse) = sent {
        log::debug!("a request cannot be sent over HTTP/2: {misuse}");
        return Err((StreamError::Refused, false));
    }
    if !body.is_empty() && channel.send_body(body).await != Err(BodyRefused) {
        // If the endpoint does not accept the body, its response is more informative.
        let _ = channel.finish_body(&FieldBlock::new());
    }
    loop {
        let stored = poll_fn(|context| channel.poll_head(context)).await;
        let stored = stored.map_err(|error| (error, false))?;
        let head = load_response(&stored, table).ok_or((StreamError::ProtocolViolation(None), false))?;
        if head.is_interim() {
            continue;
        }
        let is_bodiless = head.framing == Framing::None;
        if is_bodiless {
            channel.mark_bodiless();
        }
        if !on_part(H2ResponsePart::Head(&head)) || is_bodiless {
            return Ok(());
        }
        break;
    }
    loop {
        let mut accepts_more = true;
        let polled = poll_fn(|context| {
            channel.poll_body(context, |bytes| {
                accepts_more = on_part(H2ResponsePart::Body(bytes));
                bytes.len()
            })
        });
        match polled.await.map_err(|error| (error, true))? {
            Some(_) if accepts_more => {}
            _ => return Ok(()),
        }
    }
}
