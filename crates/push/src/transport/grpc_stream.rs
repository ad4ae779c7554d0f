//! Clients that only listen, by gRPC and gRPC-Web: the service that Centrifugo has for them, with its one method.
//!
//! A session like those of `http.rs`; what differs is how it ends, which is a status.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::rc::Rc;

use bytes::Bytes;
use ringmain_engine::Draining;
use ringmain_hub::limits::MESSAGE_BYTES;
use ringmain_hub::protocol::{ConnectRequest, Disconnect, Push};
use ringmain_web::grpc::{Call, Code, Replies, Result, Service, Status};
use ringmain_web::{App, Reply, Request};

use crate::transport::http::{SessionGuard, accepting_worker, with_cors};
use crate::transport::http_stream::{Framing, HttpStream, limit_unacknowledged};

/// As clients are generated that know Centrifugo's.
const SERVICE: &str = "centrifugal.centrifugo.unistream.CentrifugoUniStream";

/// What pages of other hosts say in a call (`CORS` of gRPC-Web).
const SAID: &str = "Content-Type, X-Grpc-Web, X-User-Agent, Grpc-Timeout";

/// What those may read of the answer, beside its body.
const READ: &str = "Grpc-Status, Grpc-Message";

pub(crate) fn add_routes(app: App) -> App {
    app.group("", |group| {
        let service = Service::new(SERVICE)
            .message_limit(MESSAGE_BYTES as u32)
            .server_streaming("Consume", handle_consume);
        with_cors(group)
            .after(|request, reply| {
                if request.header("origin").is_some() {
                    reply.header("Access-Control-Expose-Headers", READ)?;
                }
                Ok(())
            })
            .on("OPTIONS", &format!("/{SERVICE}/Consume"), answer_preflight)
            .grpc(service)
    })
}

fn answer_preflight(_: &Request<'_>, reply: &mut Reply<'_>) -> ringmain_web::Result {
    reply.header("Access-Control-Allow-Methods", "POST, OPTIONS")?;
    reply.header("Access-Control-Allow-Headers", SAID)?;
    reply.header("Access-Control-Max-Age", "300")?;
    reply.no_content()
}

/// Brings pushes until either side ends the call.
async fn handle_consume(
    call: &Call<'_>,
    connect: ConnectRequest,
    replies: &mut Replies<'_, '_, Push>,
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
    if let Some(why) = stream.disconnect_reason()
        && !session.client.has_connected.get()
    {
        return Err(disconnect_status(why));
    }
    // nginx would keep the beginning back.
    call.add_header("x-accel-buffering", "no")?;
    replies.live().await?;
    let mut draining = pin!(request.cx().draining());
    while let Some(bytes) = next_chunk(draining.as_mut(), &open, &stream).await {
        replies.send_written(Bytes::from(bytes)).await?;
        session.on_drained();
    }
    Err(disconnect_status(
        stream.disconnect_reason().unwrap_or(Disconnect::SHUTDOWN),
    ))
}

/// What waits for the client; the end of the process is the session's.
async fn next_chunk(
    mut draining: Pin<&mut Draining>,
    open: &SessionGuard,
    stream: &HttpStream,
) -> Option<Vec<u8>> {
    let mut news = pin!(stream.next_chunk());
    poll_fn(|context| {
        if stream.disconnect_reason().is_none() && draining.as_mut().poll(context).is_ready() {
            open.0.client.disconnect(Disconnect::SHUTDOWN);
        }
        news.as_mut().poll(context)
    })
    .await
}

/// How a call ends whose session was ended: by what its client is to do, with reason and code in words.
fn disconnect_status(why: Disconnect) -> Status {
    let code = match why {
        Disconnect::INVALID_TOKEN | Disconnect::EXPIRED => Code::Unauthenticated,
        Disconnect::PERMISSION_DENIED | Disconnect::FORCED => Code::PermissionDenied,
        Disconnect::CONNECTION_LIMIT | Disconnect::CHANNEL_LIMIT => Code::ResourceExhausted,
        Disconnect::BAD_REQUEST => Code::InvalidArgument,
        // To be asked again later.
        why if why.should_reconnect() => Code::Unavailable,
        _ => Code::FailedPrecondition,
    };
    let Disconnect { code: number, reason } = why;
    Status::new(code, format!("{reason} (code {number})"))
}
