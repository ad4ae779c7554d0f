//! Unidirectional clients over gRPC and gRPC-Web: Centrifugo's service, with its one method.
//!
//! A session like those of `http.rs`, except that a status ends it.

use std::rc::Rc;

use bytes::Bytes;
use ringmain_hub::limits::MESSAGE_BYTES;
use ringmain_hub::protocol::{ConnectRequest, Disconnect, PushMessage};
use ringmain_web::grpc::{Call, Code, Replies, Result, Service, Status};
use ringmain_web::{App, Reply, Request};

use crate::transport::http::{SessionGuard, accepting_worker, with_cors};
use crate::transport::http_stream::{Framing, HttpStream, limit_unacknowledged};

/// The name in clients generated from Centrifugo's definition.
const SERVICE: &str = "centrifugal.centrifugo.unistream.CentrifugoUniStream";

/// Request headers of gRPC-Web that pages of other origins may set (CORS).
const REQUEST_HEADERS: &str = "Content-Type, X-Grpc-Web, X-User-Agent, Grpc-Timeout";

/// Response headers that these pages may read.
const RESPONSE_HEADERS: &str = "Grpc-Status, Grpc-Message";

pub(crate) fn add_routes(app: App) -> App {
    app.group("", |group| {
        let service = Service::new(SERVICE)
            .message_limit(MESSAGE_BYTES as u32)
            .server_streaming("Consume", handle_consume);
        with_cors(group)
            .after(|request, reply| {
                if request.header("origin").is_some() {
                    reply.header("Access-Control-Expose-Headers", RESPONSE_HEADERS)?;
                }
                Ok(())
            })
            .on("OPTIONS", &format!("/{SERVICE}/Consume"), answer_preflight)
            .grpc(service)
    })
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
