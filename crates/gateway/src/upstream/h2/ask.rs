//! A request of which nothing is passed on: asked by a stream, its answer told as it comes.

use std::future::poll_fn;

use ringmain_wire::h1::{FieldBlock, FieldTable, Framing, Method, ResponseHead};
use ringmain_wire::h2::{Request, load_response};

use super::Lost;
use super::channel::{Channel, Refused};

/// What is asked.
pub(crate) struct Asked<'a> {
    pub(crate) method: Method<'a>,
    /// Path and query.
    pub(crate) target: &'a str,
    pub(crate) authority: &'a str,
    pub(crate) fields: &'a FieldBlock,
    /// `None`: there is none, and nothing says how long it is.
    pub(crate) body: Option<&'a [u8]>,
}

/// What has come of its answer.
pub(crate) enum Heard<'a> {
    /// Its head, which is no interim one.
    Head(&'a ResponseHead<'a>),
    /// Part of its body.
    Body(&'a [u8]),
}

/// Asks, and tells `hear` what comes until it wants no more (`false`) or all was there.
///
/// # Errors
/// Why there is no more, and whether a head was there.
pub(crate) async fn ask(
    channel: &Channel,
    asked: &Asked<'_>,
    table: &mut FieldTable,
    mut hear: impl FnMut(Heard<'_>) -> bool,
) -> Result<(), (Lost, bool)> {
    let request = Request {
        method: asked.method,
        scheme: channel.scheme(),
        authority: asked.authority,
        path: asked.target,
        protocol: None,
    };
    let length = asked.body.map(|body| body.len() as u64);
    let body = asked.body.unwrap_or_default();
    let sent = channel.request(&request, asked.fields, length, body.is_empty());
    if let Err(misuse) = sent {
        log::debug!("a request by HTTP/2 cannot be sent: {misuse}");
        return Err((Lost::Refused, false));
    }
    if !body.is_empty() && channel.send(body).await != Err(Refused) {
        // That it is not taken is told better by what is answered.
        let _ = channel.finish(&FieldBlock::new());
    }
    loop {
        let stored = poll_fn(|context| channel.poll_head(context)).await;
        let stored = stored.map_err(|lost| (lost, false))?;
        let head = load_response(&stored, table).ok_or((Lost::Garbage(None), false))?;
        if head.is_interim() {
            continue;
        }
        let is_bare = head.framing == Framing::None;
        if is_bare {
            channel.ends_with_head();
        }
        if !hear(Heard::Head(&head)) || is_bare {
            return Ok(());
        }
        break;
    }
    loop {
        let mut wants = true;
        let taken = poll_fn(|context| {
            channel.poll_body(context, |bytes| {
                wants = hear(Heard::Body(bytes));
                bytes.len()
            })
        });
        match taken.await.map_err(|lost| (lost, true))? {
            Some(_) if wants => {}
            _ => return Ok(()),
        }
    }
}
