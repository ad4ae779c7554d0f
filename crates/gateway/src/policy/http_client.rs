//! Requests of the gateway's own to upstreams, by their pools, caps and health: for keys, authorization and the push proxy.

use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;

use ringmain_engine::backend::Time;
use ringmain_wire::h1::{
    BodyDecoder, BodyEvent, FieldBlock, FieldTable, Framing, HeadScanner, Limits, Method, Parsed,
    RequestEncoder, ResponseHead, parse_response,
};

use super::service_endpoints::ServiceEndpoints;
use crate::fault::Fault;
use crate::gateway::Worker;
use crate::limits;
use crate::upstream::h2::{self, H2Request, H2ResponsePart, H2Stream};
use crate::upstream::pool::{PoolEndpoint, PooledConnection, SelectedEndpoint, UpstreamConn, UpstreamPool};
use crate::upstream::{RequestPermit, UpstreamState};

/// A request of the gateway's own.
pub(crate) struct ServiceRequest<'a> {
    pub(crate) method: Method<'a>,
    /// Path and query.
    pub(crate) target: &'a str,
    /// `None`: the endpoint's own host.
    pub(crate) host: Option<&'a str>,
    pub(crate) fields: &'a FieldBlock,
    /// Empty: no body.
    pub(crate) body: &'a [u8],
    /// The request is idempotent (RFC 9110 §9.2.2): it may be resent after the connection was closed.
    pub(crate) may_retry: bool,
    /// The limit of the response's body in bytes; a longer response is an error.
    pub(crate) response_limit: u64,
    /// The deadline.
    pub(crate) until: Time,
    /// The request may go to an endpoint that is ejected or fails its health check if there is no other.
    pub(crate) ignore_health: bool,
}

impl ServiceRequest<'_> {
    /// Returns whether there is a body, if only an empty one.
    fn has_content(&self) -> bool {
        !self.body.is_empty() || matches!(self.method, Method::Post | Method::Put | Method::Patch)
    }
}

/// The response.
#[derive(Debug, Default)]
pub(crate) struct ServiceResponse {
    pub(crate) status: u16,
    /// The fields, without those that frame the message.
    pub(crate) fields: FieldBlock,
    pub(crate) body: Vec<u8>,
}

/// A call that failed.
#[derive(Debug)]
pub(crate) struct ServiceError {
    pub(crate) fault: Fault,
    /// The head of the response without its body, if it was received.
    pub(crate) head: Option<ServiceResponse>,
}

impl From<Fault> for ServiceError {
    fn from(fault: Fault) -> ServiceError {
        ServiceError { fault, head: None }
    }
}

impl std::fmt::Display for ServiceError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.fault.fmt(f)
    }
}

/// Sends a request and reads its response. Continues with the endpoints not yet tried as long as no connection can be
/// established; resends an idempotent request once, on a new connection, if a pooled one was closed.
///
/// # Errors
/// The fault of the last attempt, or of a limit of the upstream.
pub(crate) async fn send_request(
    worker: &Rc<Worker>,
    shared: &Arc<UpstreamState>,
    call: &ServiceRequest<'_>,
) -> Result<ServiceResponse, ServiceError> {
    let mut endpoints = ServiceEndpoints::new(worker, shared, call.until, call.ignore_health).await?;
    let mut fresh = false;
    loop {
        let conn = endpoints.connect(fresh).await?;
        let (pool, endpoint) = (endpoints.pool(), endpoints.endpoint());
        let was_pooled = conn.requests_before() > 0;
        let result = match conn {
            UpstreamConn::Http1(pooled) => exchange_http1(worker, pool, endpoint, pooled, call).await,
            UpstreamConn::H2(channel) => exchange_h2(worker, endpoint, &channel, call).await,
        };
        match &result {
            Ok(response) => pool.count_response(response.status),
            Err(error) => pool.count_fault(error.fault),
        }
        match result {
            Err(ServiceError {
                fault: Fault::ClosedBeforeHead | Fault::ResetBeforeHead,
                ..
            }) if was_pooled && !fresh && call.may_retry => fresh = true,
            Err(ServiceError {
                fault: Fault::StreamRefused,
                ..
            }) if !fresh => fresh = true,
            outcome => return outcome,
        }
    }
}

async fn exchange_http1(
    worker: &Rc<Worker>,
    pool: &Rc<UpstreamPool>,
    endpoint: &Rc<PoolEndpoint>,
    conn: PooledConnection,
    call: &ServiceRequest<'_>,
) -> Result<ServiceResponse, ServiceError> {
    let mut out = Vec::new();
    write_request(call, &endpoint.endpoint.authority, &mut out)?;
    let stream = &conn.stream;
    // At least 1 ms: an expired deadline is not the absence of a deadline.
    let remaining = call
        .until
        .since(worker.cx.now())
        .max(std::time::Duration::from_millis(1));
    stream.set_deadline(Some(remaining));
    let mut reader = ServiceResponseReader::new(call.method, call.response_limit);
    if stream.write_all(&out).await.is_err() {
        return Err(Fault::ResetBeforeHead.into());
    }
    if let Err(fault) = receive_response(worker, &conn, &mut reader).await {
        let head = reader.has_started.then_some(reader.response);
        return Err(ServiceError { fault, head });
    }
    if reader.keep_alive {
        pool.release(endpoint, conn);
        worker.start_sweeping();
    }
    Ok(reader.response)
}

/// Reads a whole response over HTTP/1.1.
async fn receive_response(
    worker: &Rc<Worker>,
    conn: &PooledConnection,
    reader: &mut ServiceResponseReader<'_>,
) -> Result<(), Fault> {
    let stream = &conn.stream;
    while !reader.is_finished {
        let mut fault = None;
        let received = poll_fn(|context| {
            stream.poll_received(context, |bytes| match reader.feed(bytes, worker) {
                Ok(consumed) => consumed,
                Err(reason) => {
                    fault = Some(reason);
                    bytes.len()
                }
            })
        })
        .await;
        match (received, fault) {
            (_, Some(fault)) => return Err(fault),
            (Ok(count), None) if count > 0 => {}
            (Ok(_), None) if reader.has_started => return Err(Fault::BodyCut),
            (Ok(_), None) => return Err(Fault::ClosedBeforeHead),
            (Err(error), None) if error.kind() == std::io::ErrorKind::TimedOut => {
                return Err(Fault::HeadTimeout);
            }
            (Err(_), None) if reader.has_started => return Err(Fault::BodyCut),
            (Err(_), None) => return Err(Fault::ResetBeforeHead),
        }
    }
    Ok(())
}

/// Sends a request and reads its response over HTTP/2.
async fn exchange_h2(
    worker: &Rc<Worker>,
    endpoint: &Rc<PoolEndpoint>,
    channel: &H2Stream,
    call: &ServiceRequest<'_>,
) -> Result<ServiceResponse, ServiceError> {
    let remaining = call.until.since(worker.cx.now());
    channel.set_deadline(Some(remaining.max(std::time::Duration::from_millis(1))));
    let has_content = call.has_content();
    let request = H2Request {
        method: call.method,
        target: call.target,
        authority: call.host.unwrap_or(&endpoint.endpoint.authority),
        fields: call.fields,
        body: has_content.then_some(call.body),
    };
    let mut table = FieldTable::new(&worker.scratch.borrow().limits);
    let mut response = ServiceResponse::default();
    let mut within_limit = true;
    let heard = h2::send_request(channel, &request, &mut table, |heard| {
        match heard {
            H2ResponsePart::Head(head) => {
                response.status = head.status;
                response.fields = response_fields(head);
            }
            H2ResponsePart::Body(bytes) => {
                within_limit = (response.body.len() + bytes.len()) as u64 <= call.response_limit;
                response
                    .body
                    .extend_from_slice(if within_limit { bytes } else { &[] });
            }
        }
        within_limit
    });
    let fault = match heard.await {
        Ok(()) if within_limit => return Ok(response),
        Ok(()) => Fault::ResponseTooLarge,
        Err((error, false)) => error.fault_before_head(|| Fault::HeadTimeout),
        Err((error, true)) => error.fault_in_body(|| Fault::HeadTimeout),
    };
    let head = (response.status != 0).then_some(response);
    Err(ServiceError { fault, head })
}

/// Returns the fields of a response, without those that frame the message.
fn response_fields(head: &ResponseHead<'_>) -> FieldBlock {
    let mut block = FieldBlock::new();
    for (_, field) in head.fields.iter_known() {
        // Fields that frame the message are refused, as intended.
        let name = str::from_utf8(field.name).unwrap_or_default();
        let _ = block.push(name, field.value);
    }
    block
}

fn write_request(call: &ServiceRequest<'_>, authority: &str, out: &mut Vec<u8>) -> Result<(), Fault> {
    let host = call.host.unwrap_or(authority);
    let misuse = |misuse| {
        log::error!("a request of the gateway's own cannot be written: {misuse}");
        Fault::BrokenRule
    };
    let mut head = RequestEncoder::new(out, call.method, call.target, host).map_err(misuse)?;
    head.block(call.fields);
    // A method that usually has content declares an empty one (RFC 9110 §8.6).
    let framing = if call.has_content() {
        Framing::Length(call.body.len() as u64)
    } else {
        Framing::None
    };
    let mut body = head.finish(framing, true).map_err(misuse)?;
    if !call.body.is_empty() {
        body.data(out, call.body).map_err(misuse)?;
    }
    body.finish(out).map_err(misuse)
}

struct ServiceResponseReader<'m> {
    scanner: HeadScanner,
    method: Method<'m>,
    limit: u64,
    body: Option<BodyDecoder>,
    keep_alive: bool,
    is_finished: bool,
    response: ServiceResponse,
    /// The head was received.
    has_started: bool,
}

impl<'m> ServiceResponseReader<'m> {
    fn new(method: Method<'m>, limit: u64) -> ServiceResponseReader<'m> {
        ServiceResponseReader {
            scanner: HeadScanner::new(),
            method,
            limit,
            body: None,
            keep_alive: false,
            is_finished: false,
            response: ServiceResponse::default(),
            has_started: false,
        }
    }

    /// Processes received bytes. Returns the number consumed.
    fn feed(&mut self, bytes: &[u8], worker: &Worker) -> Result<usize, Fault> {
        let mut consumed = 0;
        while self.body.is_none() {
            let scratch = &mut *worker.scratch.borrow_mut();
            let limits = Limits {
                body_bytes: Some(self.limit),
                ..scratch.limits
            };
            let rest = &bytes[consumed..];
            match parse_response(rest, self.method, &limits, &mut self.scanner, &mut scratch.table) {
                Ok(Parsed::Complete { head, .. }) if head.switches => return Err(Fault::SwitchUnasked),
                Ok(Parsed::Complete { head, bytes }) => {
                    consumed += bytes;
                    if head.is_interim() {
                        continue;
                    }
                    self.has_started = true;
                    self.keep_alive = head.keep_alive;
                    self.response.status = head.status;
                    self.response.fields = response_fields(&head);
                    let decoder = BodyDecoder::new(head.framing, &limits);
                    self.body = Some(decoder.map_err(|_| Fault::ResponseTooLarge)?);
                }
                Ok(Parsed::Partial) => return Ok(consumed),
                Err(_) => return Err(Fault::GarbageHead),
            }
        }
        let Some(decoder) = self.body.as_mut() else {
            return Ok(consumed);
        };
        loop {
            let step = decoder.decode(&bytes[consumed..]);
            let step = step.map_err(|_| Fault::GarbageBody)?;
            consumed += step.consumed;
            let more = match step.event {
                BodyEvent::Data(data) => {
                    self.response.body.extend_from_slice(data);
                    true
                }
                BodyEvent::Trailers(_) => true,
                _ => false,
            };
            if self.response.body.len() as u64 > self.limit {
                return Err(Fault::ResponseTooLarge);
            }
            self.is_finished = decoder.is_over();
            if more && !self.is_finished {
                continue;
            }
            self.keep_alive &= consumed == bytes.len();
            return Ok(consumed);
        }
    }
}

/// Reads the response to a request whose client has left, within small limits, so that the connection is pooled again. A client
/// that resets its requests would otherwise cost the endpoint a connection for each of these.
pub(crate) fn drain_abandoned(
    worker: &Rc<Worker>,
    pool: Rc<UpstreamPool>,
    admitted: RequestPermit,
    selected: SelectedEndpoint,
    conn: PooledConnection,
    method: Method<'static>,
) {
    let count = worker.abandoned_responses.get();
    if count >= limits::ABANDONED_RESPONSES {
        return;
    }
    worker.abandoned_responses.set(count + 1);
    let counted = AbandonedGuard(Rc::clone(worker));
    let finish = async move {
        let worker = &counted.0;
        conn.stream.set_deadline(Some(limits::ABANDONED_TIME));
        let mut reader = ServiceResponseReader::new(method, limits::ABANDONED_BYTES);
        let received = receive_response(worker, &conn, &mut reader).await;
        if received.is_ok() && reader.keep_alive {
            pool.release(&selected.endpoint, conn);
            worker.start_sweeping();
        }
        drop((admitted, selected));
    };
    // Without room for a task the connection is closed.
    let _ = worker.cx.spawn(finish);
}

/// Counts a response that is read for no client.
struct AbandonedGuard(Rc<Worker>);

impl Drop for AbandonedGuard {
    fn drop(&mut self) {
        self.0
            .abandoned_responses
            .set(self.0.abandoned_responses.get() - 1);
    }
}
