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

/// Sends a request, and calls `hear` with each part of the response until it returns `false` or the response is complete.
///
/// # Errors
/// The reason that the response is incomplete, and whether its head was received.
pub(crate) async fn send_request(
    channel: &H2Stream,
    asked: &H2Request<'_>,
    table: &mut FieldTable,
    mut hear: impl FnMut(H2ResponsePart<'_>) -> bool,
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
        let stored = stored.map_err(|lost| (lost, false))?;
        let head = load_response(&stored, table).ok_or((StreamError::ProtocolViolation(None), false))?;
        if head.is_interim() {
            continue;
        }
        let is_bare = head.framing == Framing::None;
        if is_bare {
            channel.mark_bodiless();
        }
        if !hear(H2ResponsePart::Head(&head)) || is_bare {
            return Ok(());
        }
        break;
    }
    loop {
        let mut wants = true;
        let taken = poll_fn(|context| {
            channel.poll_body(context, |bytes| {
                wants = hear(H2ResponsePart::Body(bytes));
                bytes.len()
            })
        });
        match taken.await.map_err(|lost| (lost, true))? {
            Some(_) if wants => {}
            _ => return Ok(()),
        }
    }
}
