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

use crate::http::{Open, guarded, ready};
use crate::stream::{Framing, Stream, limit_silence};

/// As clients are generated that know Centrifugo's.
const SERVICE: &str = "centrifugal.centrifugo.unistream.CentrifugoUniStream";

/// What pages of other hosts say in a call (`CORS` of gRPC-Web).
const SAID: &str = "Content-Type, X-Grpc-Web, X-User-Agent, Grpc-Timeout";

/// What those may read of the answer, beside its body.
const READ: &str = "Grpc-Status, Grpc-Message";

pub(crate) fn serve(app: App) -> App {
    app.group("", |group| {
        let service = Service::new(SERVICE)
            .message_limit(MESSAGE_BYTES as u32)
            .server_streaming("Consume", consume);
        guarded(group)
            .after(|request, reply| {
                if request.header("origin").is_some() {
                    reply.header("Access-Control-Expose-Headers", READ)?;
                }
                Ok(())
            })
            .on("OPTIONS", &format!("/{SERVICE}/Consume"), preflight)
            .grpc(service)
    })
}

fn preflight(_: &Request<'_>, reply: &mut Reply<'_>) -> ringmain_web::Result {
    reply.header("Access-Control-Allow-Methods", "POST, OPTIONS")?;
    reply.header("Access-Control-Allow-Headers", SAID)?;
    reply.header("Access-Control-Max-Age", "300")?;
    reply.no_content()
}

/// Brings pushes until either side ends the call.
async fn consume(call: &Call<'_>, connect: ConnectRequest, replies: &mut Replies<'_, '_, Push>) -> Result {
    let request = call.request();
    let desk = ready(request)?;
    let handshake = desk.enter()?;
    limit_silence(request, desk);
    let stream = Rc::new(Stream::new(request, Framing::Calls));
    let open = Open::new(request, desk, &stream, true);
    let session = &open.0;
    session.seat.pending.begin(handshake);
    session.join(&connect);
    stream.news().await;
    if let Some(why) = stream.ended()
        && !session.seat.entered.get()
    {
        return Err(status(why));
    }
    // nginx would keep the beginning back.
    call.add_header("x-accel-buffering", "no")?;
    replies.stream_without_rate_limit().await?;
    let mut draining = pin!(request.cx().draining());
    while let Some(bytes) = next(draining.as_mut(), &open, &stream).await {
        replies.send_encoded(Bytes::from(bytes)).await?;
        session.drained();
    }
    Err(status(stream.ended().unwrap_or(Disconnect::SHUTDOWN)))
}

/// What waits for the client; the end of the process is the session's.
async fn next(mut draining: Pin<&mut Draining>, open: &Open, stream: &Stream) -> Option<Vec<u8>> {
    let mut news = pin!(stream.next());
    poll_fn(|context| {
        if stream.ended().is_none() && draining.as_mut().poll(context).is_ready() {
            open.0.seat.disconnect(Disconnect::SHUTDOWN);
        }
        news.as_mut().poll(context)
    })
    .await
}

/// How a call ends whose session was ended: by what its client is to do, with reason and code in words.
fn status(why: Disconnect) -> Status {
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
