//! One call from its head to its status.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use ringmain_engine::Cx;
use ringmain_wire::grpc::{Code, ContentType, Dialect, Encoding, encode_text, write_web_trailers};
use ringmain_wire::h1::{FieldBlock, Known};

use super::call::Call;
use super::service::ServiceSettings;
use super::status::{Result, Status};
use crate::http::client_text;
use crate::http::error::Error;
use crate::http::reply::Reply;
use crate::http::request::Request;
use crate::server::response::panic_text;
use crate::server::task::catch_panics;

/// Runs a handler until the client's deadline, and ends the response with its status.
pub(super) async fn serve(
    settings: &ServiceSettings,
    request: &Request<'_>,
    reply: &mut Reply<'_>,
    handler: impl AsyncFnOnce(&Call<'_>, &mut Reply<'_>) -> Result,
) -> crate::Result {
    let content = content_type(request)?;
    reply.header("Content-Type", content.of_answer())?;
    let mut call = Call::new(request, settings, content);
    let outcome = match call.open() {
        Ok(()) => {
            let call_future = pin!(handler(&call, reply));
            let call_future = catch_panics(call_future, |panic| Status::internal(panic_text(panic)));
            match call.remaining_time() {
                None => call_future.await,
                Some(span) => within(request.cx(), span, call_future).await,
            }
        }
        Err(status) => Err(status),
    };
    let status = outcome.err().unwrap_or_else(Status::ok);
    if status.cause().is_some() {
        log::error!("{request:?}: {status}");
    } else if status.code() != Code::Ok {
        log::debug!("{request:?}: {status}");
    }
    if status.code() == Code::Unimplemented {
        // Lists the supported encodings for a client that used another one.
        reply.header("grpc-accept-encoding", Encoding::ALL)?;
    }
    end(&call, reply, &status)
}

/// Returns the request's content type if it is gRPC with Protobuf.
pub(super) fn content_type<'r>(request: &Request<'r>) -> crate::Result<ContentType<'r>> {
    let found = request.head.fields.known(Known::ContentType);
    let content = found.and_then(ContentType::parse);
    content.filter(ContentType::is_proto).ok_or_else(|| {
        let found = found.map_or_else(|| "none".into(), |found| format!("`{}`", client_text::escape_value(found)));
        let message = format!(
            "expected `Content-Type: application/grpc`, `application/grpc-web` or `application/grpc-web-text`, found {found}"
        );
        Error::new(415, message)
    })
}

async fn within(cx: &Cx, span: Duration, call_future: impl Future<Output = Result>) -> Result {
    let mut call_future = pin!(call_future);
    let mut sleep = pin!(cx.sleep(span));
    poll_fn(|context| match call_future.as_mut().poll(context) {
        Poll::Ready(outcome) => Poll::Ready(outcome),
        Poll::Pending => sleep
            .as_mut()
            .poll(context)
            .map(|()| Err(Status::new(Code::DeadlineExceeded, "deadline exceeded"))),
    })
    .await
}

/// Ends the response: the status follows the replies, or is sent alone.
fn end(call: &Call<'_>, reply: &mut Reply<'_>, status: &Status) -> crate::Result {
    let fields = call.end(status);
    if call.dialect() != Dialect::Grpc {
        if !reply.is_streaming() {
            call.write_head(reply)?;
        }
        return end_web(call.dialect(), reply, &fields);
    }
    let trailers_only = !reply.is_streaming() && reply.body().is_empty() && !call.has_headers();
    if trailers_only {
        // Trailers-Only: there is no body for trailers to follow.
        reply.add_headers(&fields);
    } else {
        if !reply.is_streaming() {
            call.write_head(reply)?;
        }
        reply.set_trailers(fields);
    }
    Ok(())
}

/// Ends a gRPC-Web response with a frame of trailers, also where they could be in the head: a page may see none of the head's
/// fields that its server does not expose (CORS).
pub(super) fn end_web(dialect: Dialect, reply: &mut Reply<'_>, fields: &FieldBlock) -> crate::Result {
    let mut frame = Vec::new();
    let body = if reply.is_streaming() {
        &mut frame
    } else {
        reply.body()
    };
    write_web_trailers(body, fields)?;
    if dialect == Dialect::WebText {
        let mut text = Vec::new();
        encode_text(&mut text, body);
        *body = text;
    }
    if reply.is_streaming() {
        reply.write_buffered(&frame)?;
    }
    Ok(())
}
