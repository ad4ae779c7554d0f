//! Sessions without a WebSocket: streamed responses carry the server's messages, requests beside them the client's.
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

use crate::app_proxy::ProxyClient;
use crate::client::commands::CommandHandler;
use crate::limits;
use crate::transport::Transport;
use crate::transport::event_id;
use crate::transport::http_stream::{Framing, HttpStream, limit_unacknowledged};
use crate::transport::session_name::SessionName;
use crate::worker::connect_limiter::{Handshake, reconnect_after};
use crate::worker::worker_slot::{origin_checked_worker, request_worker};
use crate::worker::{EmulatedMessage, PushWorker, RemoteEmulation};

pub(crate) fn add_routes(app: App) -> App {
    app.group("/connection", |group| {
        with_cors(group)
            .body_limit(limits::MESSAGE_BYTES_MAX as u64)
            .post_streamed("/http_stream", serve_http_stream)
            .get_async("/sse", serve_sse)
            .post_streamed("/sse", serve_sse)
            .post_streamed("/uni_http_stream", serve_uni_http_stream)
            .get_async("/uni_sse", serve_uni_sse)
            .post_streamed("/uni_sse", serve_uni_sse)
            .on("OPTIONS", "/http_stream", answer_preflight)
            .on("OPTIONS", "/sse", answer_preflight)
            .on("OPTIONS", "/uni_http_stream", answer_preflight)
            .on("OPTIONS", "/uni_sse", answer_preflight)
    })
    .group("/emulation", |group| {
        with_cors(group)
            .body_limit(limits::EMULATION_BYTES)
            .post_streamed("", serve_emulation)
            .on("OPTIONS", "", answer_preflight)
    })
}

/// Restricts a group to allowed origins, and lets pages of other origins read it (Fetch §3.2).
pub(crate) fn with_cors(group: Group) -> Group {
    group
        .before(|request, _| origin_checked_worker(request).map(|_| Flow::Continue))
        .after(|request, reply| {
            if let Some(origin) = request.header("origin")
                && origin_checked_worker(request).is_ok()
            {
                reply.header("Access-Control-Allow-Origin", origin)?;
            }
            reply.add_header("Vary", "Origin")?;
            Ok(())
        })
}

fn answer_preflight(_: &Request<'_>, reply: &mut Reply<'_>) -> Result {
    reply.header("Access-Control-Allow-Methods", "GET, POST, OPTIONS")?;
    reply.header("Access-Control-Allow-Headers", "Content-Type")?;
    reply.header("Access-Control-Max-Age", "300")?;
    reply.no_content()
}

async fn serve_http_stream(request: &Request<'_>, reply: &mut Reply<'_>) -> Result {
    let framing = match request_format(request) {
        Format::Json => Framing::NdJson,
        Format::Protobuf => Framing::LengthPrefixed,
    };
    let message = read_message(request).await?;
    serve_bidirectional(request, reply, framing, message).await
}

async fn serve_sse(request: &Request<'_>, reply: &mut Reply<'_>) -> Result {
    let message = match request.method() {
        Method::Post => read_message(request).await?,
        _ => query_connect(request)?.ok_or_else(|| {
            Error::bad_request("expected a connect command in the query, as `cf_connect`, found none")
        })?,
    };
    serve_bidirectional(request, reply, Framing::Sse, message).await
}

async fn serve_uni_http_stream(request: &Request<'_>, reply: &mut Reply<'_>) -> Result {
    let connect = parse_connect(&read_message(request).await?)?;
    serve_unidirectional(request, reply, Framing::NdJson, &connect).await
}

async fn serve_uni_sse(request: &Request<'_>, reply: &mut Reply<'_>) -> Result {
    let mut connect = match request.method() {
        Method::Post => parse_connect(&read_message(request).await?)?,
        // A plain `EventSource` need not send a request.
        _ => match query_connect(request)? {
            Some(payload) => parse_connect(&payload)?,
            None => ConnectRequest::default(),
        },
    };
    if let Some(id) = request.header("last-event-id") {
        event_id::resume_connect(id, &mut connect);
    }
    serve_unidirectional(request, reply, Framing::Sse, &connect).await
}

/// Serves a session whose client sends its commands to [`serve_emulation`].
async fn serve_bidirectional(
    request: &Request<'_>,
    reply: &mut Reply<'_>,
    framing: Framing,
    message: Bytes,
) -> Result {
    let mut commands = parse_commands(framing.format(), message)?;
    if let (Framing::Sse, Some(id)) = (framing, request.header("last-event-id")) {
        event_id::resume_commands(id, &mut commands);
    }
    let worker = request_worker(request)?;
    let handshake = match admit(request, worker) {
        Err(busy) => return retry_later(request, reply, framing, busy),
        Ok(handshake) => handshake,
    };
    let stream = Rc::new(HttpStream::new(request, framing));
    limit_unacknowledged(request, worker);
    stream.start_response(reply).await?;
    if let Some(positions) = &mut *stream.positions.borrow_mut() {
        positions.expect_replies(&commands);
    }
    let open = SessionGuard::new(request, worker, &stream, false);
    open.0.client.pending.start_handshake(handshake);
    open.0.execute_all(commands.into_iter().map(Ok));
    if !open.0.client.has_connected() && !open.0.client.is_connecting() {
        // The client was notified of the reason, and has no other way to retry.
        stream.finish(Disconnect::BAD_REQUEST, b"");
    }
    stream.run_session(&open.0, reply).await
}

/// Serves a unidirectional session. A client that is refused permanently receives a status, since `EventSource` reconnects whatever the
/// last event is.
async fn serve_unidirectional(
    request: &Request<'_>,
    reply: &mut Reply<'_>,
    framing: Framing,
    connect: &ConnectRequest,
) -> Result {
    let worker = request_worker(request)?;
    let stream = Rc::new(HttpStream::new(request, framing));
    if request.method() == Method::Head {
        return stream.start_response(reply).await;
    }
    let handshake = match admit(request, worker) {
        Err(busy) => return retry_later(request, reply, framing, busy),
        Ok(handshake) => handshake,
    };
    limit_unacknowledged(request, worker);
    let open = SessionGuard::new(request, worker, &stream, true);
    open.0.client.pending.start_handshake(handshake);
    open.0.connect_unidirectional(connect);
    stream.wait_readable().await;
    if let Some(disconnect) = stream.disconnect_reason()
        && !open.0.client.has_connected()
        && (!disconnect.should_reconnect() || disconnect == Disconnect::EXPIRED)
    {
        return Err(rejection_error(disconnect));
    }
    stream.start_response(reply).await?;
    stream.run_session(&open.0, reply).await
}

/// A session that is closed together with the task of its response.
pub(crate) struct SessionGuard(pub(crate) CommandHandler);

impl SessionGuard {
    pub(crate) fn new(
        request: &Request<'_>,
        worker: &PushWorker,
        stream: &Rc<HttpStream>,
        unidirectional: bool,
    ) -> SessionGuard {
        let transport = Transport::Stream(Rc::clone(stream));
        let proxy_client = ProxyClient::from_request(request);
        SessionGuard(CommandHandler::new(
            worker,
            stream.format(),
            unidirectional,
            transport,
            proxy_client,
        ))
    }
}

impl Drop for SessionGuard {
    fn drop(&mut self) {
        self.0.on_closed();
    }
}

/// Receives the commands of [`serve_bidirectional`] sessions, and forwards them to the worker with the session.
async fn serve_emulation(request: &Request<'_>, reply: &mut Reply<'_>) -> Result {
    let worker = request_worker(request)?;
    let format = request_format(request);
    let limit = worker.options().message_bytes;
    // JSON may escape each byte of a string, and adds names.
    let body = read_body(request, 2 * limit + limits::SESSION_NAMES_BYTES).await?;
    let read = format.read(&body);
    let emulation = read.map_err(|error| malformed_error("`session`, `node` and `data`", &error))?;
    forward_emulated(worker, format, emulation).await?;
    // The client of a session that has ended is notified by the end of its stream.
    reply.no_content()
}

/// Forwards commands to the worker with their session, on this node or on another one.
///
/// # Errors
/// As the status of a response to `/emulation`: 400, 404, 413 or 503.
pub(crate) async fn forward_emulated(
    worker: &PushWorker,
    format: Format,
    emulation: EmulationRequest,
) -> Result {
    let EmulationRequest { node, session, data } = emulation;
    let limit = worker.options().message_bytes;
    let is_local = node == **worker.node();
    if !is_local && !worker.is_clustered() {
        return Err(unknown_node());
    }
    let Some(name) = SessionName::parse(&session) else {
        return Err(Error::bad_request(
            "expected the `session` of a connect reply, found something else",
        ));
    };
    let data = match format {
        Format::Protobuf => data,
        Format::Json => serde_json::from_slice::<String>(&data)
            .map_err(|error| {
                malformed_error(
                    "`data` to be a text: commands as they would be sent on a WebSocket",
                    &error,
                )
            })?
            .into(),
    };
    if data.len() > limit {
        return Err(too_large(limit));
    }
    let emulated = EmulatedMessage {
        secret: name.secret,
        format,
        data,
    };
    let outcome = if !is_local {
        // The rest of the limit of a call is for the names beside the message.
        let limit = limits::CLUSTER_CALL_BYTES - 1024;
        if emulated.data.len() > limit {
            return Err(too_large(limit));
        }
        worker.emulate_remotely(node, name.worker, emulated).await
    } else if worker.forward_emulated(name.worker, emulated) {
        RemoteEmulation::Passed
    } else {
        RemoteEmulation::Busy
    };
    let problem = match outcome {
        RemoteEmulation::Passed => None,
        RemoteEmulation::UnknownNode => return Err(unknown_node()),
        RemoteEmulation::Busy => Some(
            "server overloaded: too many commands are queued between workers or nodes; reconnect a little later",
        ),
        RemoteEmulation::Late => Some(
            "a node of the cluster has not responded: the commands may have been executed or not; reconnect",
        ),
    };
    match problem {
        Some(problem) => Err(Error::new(503, problem).with_header("Retry-After", "1")),
        None => Ok(()),
    }
}

fn unknown_node() -> Error {
    Error::not_found(
        "expected the `node` of this server's connect reply, found another one: the server was restarted, or is a different one; reconnect",
    )
}

fn admit(request: &Request<'_>, worker: &PushWorker) -> Result<Handshake> {
    accepting_worker(request)?;
    worker.admit_connection()
}

/// Requests the client to reconnect later. `EventSource` stops permanently at any status but 200, so it receives an empty stream.
fn retry_later(request: &Request<'_>, reply: &mut Reply<'_>, framing: Framing, busy: Error) -> Result {
    if framing != Framing::Sse || request.method() != Method::Get || busy.status() != 503 {
        return Err(busy);
    }
    let mut body = Vec::new();
    let after = reconnect_after(request.cx());
    // Without text it cannot be invalid.
    let _ = Event::new().retry(Duration::from_secs(after)).write(&mut body);
    reply.header("Cache-Control", "no-store")?;
    reply.bytes("text/event-stream", body)
}

/// Returns the worker, unless the process drains.
pub(crate) fn accepting_worker<'r>(request: &Request<'r>) -> Result<&'r PushWorker> {
    if request.cx().is_draining() {
        return Err(Error::new(503, "the server is shutting down").with_header("Retry-After", "1"));
    }
    request_worker(request)
}

/// Returns the format, as declared by the SDKs.
fn request_format(request: &Request<'_>) -> Format {
    let content_type = request.header("content-type").unwrap_or_default();
    let essence = content_type.split(';').next().unwrap_or_default().trim();
    if essence.eq_ignore_ascii_case("application/octet-stream") {
        Format::Protobuf
    } else {
        Format::Json
    }
}

/// Reads a client's message.
async fn read_message(request: &Request<'_>) -> Result<Bytes> {
    read_body(request, request_worker(request)?.options().message_bytes).await
}

/// Reads a body.
///
/// # Errors
/// 413 for more than `limit` bytes.
pub(crate) async fn read_body(request: &Request<'_>, limit: usize) -> Result<Bytes> {
    let mut body = Vec::new();
    while let Some(piece) = request.chunk().await? {
        if body.len() + piece.len() > limit {
            return Err(too_large(limit));
        }
        body.extend_from_slice(&piece);
    }
    Ok(body.into())
}

fn too_large(limit: usize) -> Error {
    Error::new(413, format!("expected at most {limit} bytes, found more"))
}

/// Returns the connect command in the query.
fn query_connect(request: &Request<'_>) -> Result<Option<Bytes>> {
    let payload = request.query()?.get("cf_connect").map(Cow::into_owned);
    Ok(payload.filter(|payload| !payload.is_empty()).map(Bytes::from))
}

/// Parses a message that starts with a connect command.
fn parse_commands(format: Format, message: Bytes) -> Result<Vec<Command>> {
    let commands: std::result::Result<Vec<Command>, _> = Commands::new(format, message).collect();
    let commands = commands.map_err(|error| Error::bad_request(truncate(&error.to_string()).to_owned()))?;
    match commands.first() {
        Some(first) if first.connect.is_some() && first.id > 0 => Ok(commands),
        Some(_) => Err(Error::bad_request(
            "expected a connect command with an `id` first, found another one",
        )),
        None => Err(Error::bad_request("expected a connect command, found nothing")),
    }
}

fn parse_connect(message: &Bytes) -> Result<ConnectRequest> {
    let read = Format::Json.read(message);
    read.map_err(|error| malformed_error("a connect request", &error))
}

fn malformed_error(expected: &str, error: &dyn std::fmt::Display) -> Error {
    Error::bad_request(format!("expected {expected}: {}", truncate(&error.to_string())))
}

/// Limits the text of an error, which may repeat the input.
fn truncate(text: &str) -> &str {
    &text[..text.floor_char_boundary(ERROR_TEXT_BYTES)]
}

fn rejection_error(disconnect: Disconnect) -> Error {
    let status = match disconnect {
        Disconnect::INVALID_TOKEN | Disconnect::EXPIRED => 401,
        Disconnect::PERMISSION_DENIED => 403,
        _ => 400,
    };
    let Disconnect { code, reason } = disconnect;
    Error::new(
        status,
        format!("connect request rejected: {reason} (code {code})"),
    )
}
