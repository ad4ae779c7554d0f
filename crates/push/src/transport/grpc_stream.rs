//! Clients over gRPC and gRPC-Web: unidirectional ones with Centrifugo's service, and bidirectional ones with the messages of the client
//! protocol.
//!
//! ```text
//! Consume       connect request ─▶ pushes
//! Communicate   commands ─▶ replies        gRPC-Web: one command in the call, which remains open; further ones by Emulate
//! ```
//!
//! Sessions like those of `http.rs`, except that a status ends them.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;

use bytes::Bytes;
use prost::Message;
use ringmain_hub::protocol::{
    Command, ConnectRequest, Disconnect, EmulationRequest, Format, PushMessage, Reply as ClientReply,
};
use ringmain_web::grpc::{Call, Code, Dialect, Messages, Replies, Result, Service, Status};
use ringmain_web::{App, Reply, Request};

use crate::limits::{MESSAGE_BYTES_MAX, SESSION_NAMES_BYTES};
use crate::transport::http::{SessionGuard, accepting_worker, forward_emulated, with_cors};
use crate::transport::http_stream::{Framing, HttpStream, limit_unacknowledged};
use crate::worker::PushWorker;
use crate::worker::worker_slot::request_worker;

/// The name in clients generated from Centrifugo's definition.
const SERVICE: &str = "centrifugal.centrifugo.unistream.CentrifugoUniStream";

/// The service of bidirectional clients, in the package of the protocol's messages.
const CLIENT_SERVICE: &str = "centrifugal.centrifuge.protocol.Centrifuge";

/// The response to emulated commands, whose replies are sent on the stream.
#[derive(Clone, PartialEq, Message)]
struct EmulationResponse {}

/// Request headers of gRPC-Web that pages of other origins may set (CORS).
const REQUEST_HEADERS: &str = "Content-Type, X-Grpc-Web, X-User-Agent, Grpc-Timeout";

/// Response headers that these pages may read.
const RESPONSE_HEADERS: &str = "Grpc-Status, Grpc-Message";

pub(crate) fn add_routes(app: App) -> App {
    app.group("", |group| {
        let service = Service::new(SERVICE)
            .message_limit(MESSAGE_BYTES_MAX as u32)
            .call_message_limit(|request| Ok(message_limit(request_worker(request)?)))
            .server_streaming("Consume", handle_consume);
        with_cors(group)
            .after(|request, reply| {
                if request.header("origin").is_some() {
                    reply.header("Access-Control-Expose-Headers", RESPONSE_HEADERS)?;
                }
                Ok(())
            })
            .on("OPTIONS", &format!("/{SERVICE}/Consume"), answer_preflight)
            .on(
                "OPTIONS",
                &format!("/{CLIENT_SERVICE}/Communicate"),
                answer_preflight,
            )
            .on("OPTIONS", &format!("/{CLIENT_SERVICE}/Emulate"), answer_preflight)
            .grpc(service)
            .grpc(
                Service::new(CLIENT_SERVICE)
                    // A message of `Emulate` has commands, and the names of the session and the node.
                    .message_limit((MESSAGE_BYTES_MAX + SESSION_NAMES_BYTES) as u32)
                    .call_message_limit(|request| {
                        Ok(message_limit(request_worker(request)?) + SESSION_NAMES_BYTES as u32)
                    })
                    .bidi("Communicate", handle_communicate)
                    .unary("Emulate", handle_emulated),
            )
    })
}

/// Returns the size of a client's message, in bytes.
fn message_limit(worker: &PushWorker) -> u32 {
    // The options have at most `MESSAGE_BYTES_MAX`.
    worker.options().message_bytes as u32
}

fn answer_preflight(_: &Request<'_>, reply: &mut Reply<'_>) -> ringmain_web::Result {
    reply.header("Access-Control-Allow-Methods", "POST, OPTIONS")?;
    reply.header("Access-Control-Allow-Headers", REQUEST_HEADERS)?;
    reply.header("Access-Control-Max-Age", "300")?;
    reply.no_content()
}

/// Sends pushes until either side ends the call.
async fn handle_consume(
    call: &Call<'_>,
    connect: ConnectRequest,
    replies: &mut Replies<'_, '_, PushMessage>,
) -> Result {
    let request = call.request();
    let worker = accepting_worker(request)?;
    let handshake = worker.admit_connection()?;
    limit_unacknowledged(request, worker);
    let stream = Rc::new(HttpStream::new(request, Framing::Grpc));
    let open = SessionGuard::new(request, worker, &stream, true);
    let session = &open.0;
    session.client.pending.start_handshake(handshake);
    session.connect_unidirectional(&connect);
    stream.wait_readable().await;
    if let Some(disconnect) = stream.disconnect_reason()
        && !session.client.has_connected()
    {
        return Err(disconnect_status(disconnect));
    }
    // nginx would buffer the start of the response.
    call.add_header("x-accel-buffering", "no")?;
    replies.stream_without_rate_limit().await?;
    // The worker of a process that drains disconnects clients one after the other.
    while let Some(bytes) = stream.next_chunk().await {
        replies.send_encoded(Bytes::from(bytes)).await?;
        session.on_drained();
    }
    Err(disconnect_status(
        stream.disconnect_reason().unwrap_or(Disconnect::SHUTDOWN),
    ))
}

/// Executes commands and sends replies, until either side ends the call.
async fn handle_communicate(
    call: &Call<'_>,
    commands: &mut Messages<'_, Command>,
    replies: &mut Replies<'_, '_, ClientReply>,
) -> Result {
    let request = call.request();
    let worker = accepting_worker(request)?;
    let handshake = worker.admit_connection()?;
    limit_unacknowledged(request, worker);
    let stream = Rc::new(HttpStream::new(request, Framing::Grpc));
    let open = SessionGuard::new(request, worker, &stream, false);
    let session = &open.0;
    session.client.pending.start_handshake(handshake);
    worker.await_connect(Rc::clone(&session.client));
    // nginx would buffer the start of the response.
    call.add_header("x-accel-buffering", "no")?;
    replies.stream_without_rate_limit().await?;
    commands.limit_message_bytes(message_limit(worker));
    let mut commands = Some(commands);
    loop {
        match next_event(commands.as_deref_mut(), &stream).await? {
            SessionEvent::Command(Some(command)) => {
                session.execute_all([Ok(*command)].into_iter());
            }
            // A browser ends its request before it reads the response.
            SessionEvent::Command(None) if call.dialect() != Dialect::Grpc => commands = None,
            SessionEvent::Command(None) => return Ok(()),
            SessionEvent::Output(Some(bytes)) => {
                replies.send_encoded(Bytes::from(bytes)).await?;
                session.on_drained();
            }
            SessionEvent::Output(None) => break,
        }
    }
    Err(disconnect_status(
        stream.disconnect_reason().unwrap_or(Disconnect::SHUTDOWN),
    ))
}

/// An event of a session: a command of its client (`None`: there are no more), or messages to send (`None`: the session has ended).
enum SessionEvent {
    Command(Option<Box<Command>>),
    Output(Option<Vec<u8>>),
}

/// Waits for the next event. Messages to send are first: while a client does not receive them, its commands wait.
async fn next_event(
    commands: Option<&mut Messages<'_, Command>>,
    stream: &HttpStream,
) -> Result<SessionEvent> {
    let mut output = pin!(stream.next_chunk());
    let mut command = pin!(async {
        match commands {
            Some(commands) => commands.next().await,
            None => std::future::pending().await,
        }
    });
    poll_fn(|context| match output.as_mut().poll(context) {
        Poll::Ready(output) => Poll::Ready(Ok(SessionEvent::Output(output))),
        Poll::Pending => {
            let command = command.as_mut().poll(context);
            command.map(|command| Ok(SessionEvent::Command(command?.map(Box::new))))
        }
    })
    .await
}

/// Forwards the commands of a browser, as `/emulation` does.
async fn handle_emulated(call: &Call<'_>, emulation: EmulationRequest) -> Result<EmulationResponse> {
    let worker = request_worker(call.request())?;
    forward_emulated(worker, Format::Protobuf, emulation).await?;
    Ok(EmulationResponse {})
}

/// Returns the status for a disconnected session: its code by the expected reaction of the client, its text with the disconnect's reason
/// and code.
fn disconnect_status(disconnect: Disconnect) -> Status {
    let code = match disconnect {
        Disconnect::INVALID_TOKEN | Disconnect::EXPIRED => Code::Unauthenticated,
        Disconnect::PERMISSION_DENIED | Disconnect::FORCED => Code::PermissionDenied,
        Disconnect::CONNECTION_LIMIT | Disconnect::CHANNEL_LIMIT => Code::ResourceExhausted,
        Disconnect::BAD_REQUEST => Code::InvalidArgument,
        // The client may retry later.
        disconnect if disconnect.should_reconnect() => Code::Unavailable,
        _ => Code::FailedPrecondition,
    };
    let Disconnect { code: number, reason } = disconnect;
    Status::new(code, format!("{reason} (code {number})"))
}
