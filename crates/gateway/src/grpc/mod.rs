//! A gRPC client for calls of the gateway's own to external services, over the pools of its upstreams.
//!
//! ```text
//! call ─▶ GrpcStream::open ─ head ─▶ send … finish ─▶ receive … ─▶ the status in trailers
//!            ▲                                           │
//!            └── once, if the endpoint has refused the stream before it processed anything
//! ```
//!
//! Owns calls from their head to their status: deadlines, limits of messages, the reason of a failure. Knows no service and decides
//! nothing about requests of clients.

mod error;
mod reader;
mod stream;
#[cfg(test)]
mod tests;

use std::rc::Rc;
use std::sync::Arc;

use prost::Message;
use ringmain_engine::backend::Time;
use ringmain_wire::grpc::Slot;
use ringmain_wire::h1::FieldBlock;

pub(crate) use self::error::GrpcError;
pub(crate) use self::stream::GrpcStream;
use crate::fault::Fault;
use crate::gateway::Worker;
use crate::policy::service_endpoints::ServiceEndpoints;
use crate::upstream::UpstreamState;
use crate::upstream::h2::BodyRefused;

/// A call, without its messages.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GrpcCall<'a> {
    /// `/package.Service/Method`.
    pub(crate) path: &'a str,
    /// `None`: the endpoint's own host.
    pub(crate) host: Option<&'a str>,
    /// Further fields of the head.
    pub(crate) metadata: &'a FieldBlock,
    /// The deadline, of which the service is informed by `grpc-timeout`.
    pub(crate) until: Time,
    /// The deadline is that of the first message, and unknown to the service: the caller limits each wait.
    pub(crate) is_stream: bool,
    /// The limit of a received message in bytes; a longer one is an error.
    pub(crate) message_limit: u32,
    /// The call may go to an endpoint that is ejected or fails its health check if there is no other.
    pub(crate) ignore_health: bool,
}

/// Makes a unary call. Continues with the endpoints not yet tried as long as no connection can be established, and repeats the call
/// once if the endpoint has refused its stream. A call that an endpoint may have processed is not repeated.
///
/// # Errors
/// The status of the call if it is not OK, or the fault of the last attempt.
pub(crate) async fn call<Q: Message, R: Message + Default>(
    worker: &Rc<Worker>,
    upstream: &Arc<UpstreamState>,
    call: &GrpcCall<'_>,
    request: &Q,
) -> Result<R, GrpcError> {
    let mut endpoints = ServiceEndpoints::new(worker, upstream, call.until, call.ignore_health).await?;
    let mut fresh = false;
    loop {
        match exchange(&mut endpoints, call, fresh, request).await {
            Err(GrpcError::Fault(Fault::StreamRefused)) if !fresh => fresh = true,
            result => return result,
        }
    }
}

/// Makes one attempt of a unary call.
async fn exchange<Q: Message, R: Message + Default>(
    endpoints: &mut ServiceEndpoints,
    call: &GrpcCall<'_>,
    fresh: bool,
    request: &Q,
) -> Result<R, GrpcError> {
    let stream = GrpcStream::open(endpoints, call, fresh).await?;
    let result = async {
        // If the service accepts no more of the request, its status is more informative.
        if stream.send(request).await.is_ok() {
            let _ = stream.finish();
        }
        let response = stream.receive().await?.ok_or(GrpcError::MessageCount)?;
        match stream.receive::<R>().await? {
            None => Ok(response),
            Some(_) => Err(GrpcError::MessageCount),
        }
    };
    let result = result.await;
    match &result {
        Err(GrpcError::Fault(fault)) => endpoints.pool().count_fault(*fault),
        _ => endpoints.pool().count_response(stream.http_status()),
    }
    result
}

/// Encodes a message with its length in front.
///
/// # Errors
/// The message is longer than 4 GiB.
fn frame(message: &impl Message) -> Result<Vec<u8>, BodyRefused> {
    let mut framed = Vec::with_capacity(message.encoded_len() + ringmain_wire::grpc::PREFIX_BYTES);
    let slot = Slot::open(&mut framed);
    let encoded = message.encode(&mut framed);
    let closed = slot.close(&mut framed, false);
    if encoded.is_err() || closed.is_err() {
        log::error!("a message of a gRPC call cannot be encoded");
        return Err(BodyRefused);
    }
    Ok(framed)
}
