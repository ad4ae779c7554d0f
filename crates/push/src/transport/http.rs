//! Sessions without a WebSocket: answers that last bring what the server has to say, requests beside them what the client has.
//!
//! Endpoints and bodies are those that Centrifuge's SDKs expect.

use std::borrow::Cow;
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use ringmain_hub::protocol::{Command, Commands, ConnectRequest, Disconnect, EmulationRequest, Format};
use ringmain_web::limits::ERROR_TEXT_BYTES;
use ringmain_web::{App, Error, Flow, Group, Method, Reply, Request, Result};
use ringmain_wire::sse::Event;

use crate::app_proxy::Asker;
use crate::client::commands::Session;
use crate::limits;
use crate::transport::Outlet;
use crate::transport::event_id;
use crate::transport::http_stream::{Framing, Stream, limit_silence};
use crate::transport::session_name::SessionName;
use crate::worker::connect_limiter::{Handshake, come_back_after};
use crate::worker::worker_slot::{allowed, desk_of};
use crate::worker::{Desk, Emulated};

pub(crate) fn serve(app: App) -> App {
    app.group("/connection", |group| {
        guarded(group)
            .body_limit(limits::MESSAGE_BYTES_MOST as u64)
            .post_streamed("/http_stream", http_stream)
            .get_async("/sse", sse)
            .post_streamed("/sse", sse)
            .post_streamed("/uni_http_stream", uni_http_stream)
            .get_async("/uni_sse", uni_sse)
            .post_streamed("/uni_sse", uni_sse)
            .on("OPTIONS", "/http_stream", preflight)
            .on("OPTIONS", "/sse", preflight)
            .on("OPTIONS", "/uni_http_stream", preflight)
            .on("OPTIONS", "/uni_sse", preflight)
    })
    .group("/emulation", |group| {
        guarded(group)
            .body_limit(limits::EMULATION_BYTES)
            .post_streamed("", emulation)
            .on("OPTIONS", "", preflight)
    })
}

/// For pages that may connect alone, and readable for those of them that are another host's (Fetch §3.2).
pub(crate) fn guarded(group: Group) -> Group {
    group
        .before(|request, _| allowed(request).map(|_| Flow::Continue))
        .after(|request, reply| {
            if let Some(origin) = request.header("origin")
                && allowed(request).is_ok()
            {
                reply.header("Access-Control-Allow-Origin", origin)?;
            }
            reply.add_header("Vary", "Origin")?;
            Ok(())
        })
}

fn preflight(_: &Request<'_>, reply: &mut Reply<'_>) -> Result {
    reply.header("Access-Control-Allow-Methods", "GET, POST, OPTIONS")?;
    reply.header("Access-Control-Allow-Headers", "Content-Type")?;
    reply.header("Access-Control-Max-Age", "300")?;
    reply.no_content()
}

async fn http_stream(request: &Request<'_>, reply: &mut Reply<'_>) -> Result {
    let framing = match format_of(request) {
        Format::Json => Framing::Lines,
        Format::Protobuf => Framing::Lengths,
    };
    let message = whole(request).await?;
    talk(request, reply, framing, message).await
}

async fn sse(request: &Request<'_>, reply: &mut Reply<'_>) -> Result {
    let message = match request.method() {
        Method::Post => whole(request).await?,
        _ => asked(request)?.ok_or_else(|| {
            Error::bad_request("expected a connect command in the query, as `cf_connect`, found none")
        })?,
    };
    talk(request, reply, Framing::Events, message).await
}

async fn uni_http_stream(request: &Request<'_>, reply: &mut Reply<'_>) -> Result {
    let connect = connect_request(&whole(request).await?)?;
    listen(request, reply, Framing::Lines, &connect).await
}

async fn uni_sse(request: &Request<'_>, reply: &mut Reply<'_>) -> Result {
    let mut connect = match request.method() {
        Method::Post => connect_request(&whole(request).await?)?,
        // A plain `EventSource` need not say anything.
        _ => match asked(request)? {
            Some(asked) => connect_request(&asked)?,
            None => ConnectRequest::default(),
        },
    };
    if let Some(id) = request.header("last-event-id") {
        event_id::resume(id, &mut connect);
    }
    listen(request, reply, Framing::Events, &connect).await
}

/// A session whose client answers by [`emulation`].
async fn talk(request: &Request<'_>, reply: &mut Reply<'_>, framing: Framing, message: Bytes) -> Result {
    let mut commands = commands(framing.format(), message)?;
    if let (Framing::Events, Some(id)) = (framing, request.header("last-event-id")) {
        event_id::resume_all(id, &mut commands);
    }
    let desk = desk_of(request)?;
    let handshake = match enter(request, desk) {
        Err(busy) => return send_back(request, reply, framing, busy),
        Ok(handshake) => handshake,
    };
    let stream = Rc::new(Stream::new(request, framing));
    limit_silence(request, desk);
    stream.begin(reply).await?;
    if let Some(positions) = &mut *stream.positions.borrow_mut() {
        positions.expect(&commands);
    }
    let open = Open::new(request, desk, &stream, false);
    open.0.seat.pending.begin(handshake);
    open.0.carry_out(commands.into_iter().map(Ok));
    if !open.0.seat.entered.get() && !open.0.seat.is_joining() {
        // It was told why, and has no other way to ask again.
        stream.end(Disconnect::BAD_REQUEST, b"");
    }
    stream.run(&open.0, reply).await
}

/// A session whose client only listens. One that is refused for good is told by a status, for `EventSource` comes back whatever
/// the last event says.
async fn listen(
    request: &Request<'_>,
    reply: &mut Reply<'_>,
    framing: Framing,
    connect: &ConnectRequest,
) -> Result {
    let desk = desk_of(request)?;
    let stream = Rc::new(Stream::new(request, framing));
    if request.method() == Method::Head {
        return stream.begin(reply).await;
    }
    let handshake = match enter(request, desk) {
        Err(busy) => return send_back(request, reply, framing, busy),
        Ok(handshake) => handshake,
    };
    limit_silence(request, desk);
    let open = Open::new(request, desk, &stream, true);
    open.0.seat.pending.begin(handshake);
    open.0.join(connect);
    stream.news().await;
    if let Some(why) = stream.ended()
        && !open.0.seat.entered.get()
        && (!why.should_reconnect() || why == Disconnect::EXPIRED)
    {
        return Err(refused(why));
    }
    stream.begin(reply).await?;
    stream.run(&open.0, reply).await
}

/// A session that is over when its answer's task is.
pub(crate) struct Open(pub(crate) Session);

impl Open {
    pub(crate) fn new(request: &Request<'_>, desk: &Desk, stream: &Rc<Stream>, bare: bool) -> Open {
        let outlet = Outlet::Stream(Rc::clone(stream));
        let asker = Asker::of(request);
        Open(Session::new(desk, stream.format(), bare, outlet, asker))
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.over();
    }
}

/// The other half of [`talk`]: hands commands to the worker that has the session.
async fn emulation(request: &Request<'_>, reply: &mut Reply<'_>) -> Result {
    let desk = desk_of(request)?;
    let format = format_of(request);
    let most = desk.options().message_bytes;
    // Each byte of a text may be escaped, and names are beside it.
    let body = whole_within(request, 2 * most + 1024).await?;
    let read = format.read(&body);
    let EmulationRequest { node, session, data } =
        read.map_err(|broken| malformed("`session`, `node` and `data`", &broken))?;
    if node != *desk.node {
        return Err(Error::not_found(
            "expected the `node` of this server's connect reply, found another: it was started anew, or is another one; connect again",
        ));
    }
    let Some(name) = SessionName::parse(&session) else {
        return Err(Error::bad_request(
            "expected the `session` of a connect reply, found something else",
        ));
    };
    let data = match format {
        Format::Protobuf => data,
        Format::Json => serde_json::from_slice::<String>(&data)
            .map_err(|why| {
                malformed(
                    "`data` to be a text: commands as they would be sent on a WebSocket",
                    &why,
                )
            })?
            .into(),
    };
    if data.len() > most {
        return Err(too_large(most));
    }
    let emulated = Emulated {
        secret: name.secret,
        format,
        data,
    };
    if !desk.emulate(name.worker, emulated) {
        let what = "more commands are on their way between workers than can be carried on; connect again a little later";
        return Err(Error::new(503, what).with_header("Retry-After", "1"));
    }
    // Whoever names a session that is gone is told so by the end of its stream.
    reply.no_content()
}

fn enter(request: &Request<'_>, desk: &Desk) -> Result<Handshake> {
    ready(request)?;
    desk.enter()
}

/// Makes a client reconnect later. `EventSource` gives up permanently at any status but 200, so it gets an empty stream.
fn send_back(request: &Request<'_>, reply: &mut Reply<'_>, framing: Framing, busy: Error) -> Result {
    if framing != Framing::Events || request.method() != Method::Get || busy.status() != 503 {
        return Err(busy);
    }
    let mut body = Vec::new();
    let after = come_back_after(request.cx());
    // Nothing of it can be wrong: it has no text.
    let _ = Event::new().retry(Duration::from_secs(after)).write(&mut body);
    reply.header("Cache-Control", "no-store")?;
    reply.bytes("text/event-stream", body)
}

/// The desk, unless it is about to close.
pub(crate) fn ready<'r>(request: &Request<'r>) -> Result<&'r Desk> {
    if request.cx().is_draining() {
        return Err(Error::new(503, "the server is shutting down").with_header("Retry-After", "1"));
    }
    desk_of(request)
}

/// As the SDKs say it.
fn format_of(request: &Request<'_>) -> Format {
    let said = request.header("content-type").unwrap_or_default();
    let essence = said.split(';').next().unwrap_or_default().trim();
    match essence.eq_ignore_ascii_case("application/octet-stream") {
        true => Format::Protobuf,
        false => Format::Json,
    }
}

/// A client's message.
async fn whole(request: &Request<'_>) -> Result<Bytes> {
    whole_within(request, desk_of(request)?.options().message_bytes).await
}

/// All of a body.
pub(crate) async fn whole_within(request: &Request<'_>, most: usize) -> Result<Bytes> {
    let mut body = Vec::new();
    while let Some(piece) = request.chunk().await? {
        if body.len() + piece.len() > most {
            return Err(too_large(most));
        }
        body.extend_from_slice(&piece);
    }
    Ok(body.into())
}

fn too_large(most: usize) -> Error {
    Error::new(413, format!("expected at most {most} bytes, found more"))
}

/// What the query says.
fn asked(request: &Request<'_>) -> Result<Option<Bytes>> {
    let asked = request.query()?.get("cf_connect").map(Cow::into_owned);
    Ok(asked.filter(|asked| !asked.is_empty()).map(Bytes::from))
}

/// All of a message, which begins with a connect command.
fn commands(format: Format, message: Bytes) -> Result<Vec<Command>> {
    let commands: std::result::Result<Vec<Command>, _> = Commands::new(format, message).collect();
    let commands = commands.map_err(|broken| Error::bad_request(cut(&broken.to_string()).to_owned()))?;
    match commands.first() {
        Some(first) if first.connect.is_some() && first.id > 0 => Ok(commands),
        Some(_) => Err(Error::bad_request(
            "expected a connect command with an `id` first, found another one",
        )),
        None => Err(Error::bad_request("expected a connect command, found nothing")),
    }
}

fn connect_request(message: &Bytes) -> Result<ConnectRequest> {
    let read = Format::Json.read(message);
    read.map_err(|broken| malformed("a connect request", &broken))
}

fn malformed(expected: &str, why: &dyn std::fmt::Display) -> Error {
    Error::bad_request(format!("expected {expected}: {}", cut(&why.to_string())))
}

/// Readers repeat what they have found, at whatever length.
fn cut(text: &str) -> &str {
    &text[..text.floor_char_boundary(ERROR_TEXT_BYTES)]
}

fn refused(why: Disconnect) -> Error {
    let status = match why {
        Disconnect::INVALID_TOKEN | Disconnect::EXPIRED => 401,
        Disconnect::PERMISSION_DENIED => 403,
        _ => 400,
    };
    let Disconnect { code, reason } = why;
    Error::new(
        status,
        format!("this connect request is not let in: {reason} (code {code})"),
    )
}
