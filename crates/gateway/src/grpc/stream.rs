//! A call in progress: messages in both directions, independent of each other, then the status.
//!
//! ```text
//! Open ─ first receive ─▶ Started (the response's head) ─ end of the body ─▶ Finished (the status)
//! ```
//!
//! Dropped before it has finished, the call is cancelled: its stream is reset.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::time::Duration;

use prost::Message;
use ringmain_wire::grpc::{Code, ContentType, Dialect, decode_message, write_timeout};
use ringmain_wire::h1::{FieldBlock, FieldTable, Fields, Method};
use ringmain_wire::h2::{Misuse, Request, load_response};

use super::error::{GrpcError, GrpcStatus};
use super::reader::MessageReader;
use super::{GrpcCall, frame};
use crate::fault::Fault;
use crate::limits;
use crate::policy::service_endpoints::ServiceEndpoints;
use crate::upstream::h2::{BodyRefused, H2Stream, StreamError};
use crate::upstream::pool::UpstreamConn;

/// A call.
pub(crate) struct GrpcStream {
    stream: H2Stream,
    reader: RefCell<MessageReader>,
    /// The HTTP status of the response; 0 before its head.
    http_status: Cell<u16>,
    /// The status of the call, if the response's head has it: then the head is all of the response.
    head_status: RefCell<Option<GrpcStatus>>,
}

impl GrpcStream {
    /// Opens a stream at an endpoint and sends the head of the call.
    ///
    /// # Errors
    /// No connection over HTTP/2 can be established, or a limit is reached.
    pub(crate) async fn open(
        endpoints: &mut ServiceEndpoints,
        call: &GrpcCall<'_>,
        fresh: bool,
    ) -> Result<GrpcStream, Fault> {
        let stream = match endpoints.connect(fresh).await? {
            UpstreamConn::H2(stream) => stream,
            UpstreamConn::Http1(_) => return Err(Fault::NoHttp2),
        };
        // At least 1 ms: an expired deadline is not the absence of a deadline.
        let remaining = endpoints.remaining().max(Duration::from_millis(1));
        stream.set_deadline(Some(remaining));
        let mut timeout = String::new();
        if !call.is_stream {
            write_timeout(&mut timeout, remaining);
        }
        let fields = head_fields(&timeout, call.metadata).map_err(|misuse| {
            log::error!(
                "the head of a call to `{}` cannot be written: {misuse}",
                call.path
            );
            Fault::BrokenRule
        })?;
        let request = Request {
            method: Method::Post,
            scheme: stream.scheme(),
            authority: call.host.unwrap_or(&endpoints.endpoint().endpoint.authority),
            path: call.path,
            protocol: None,
        };
        match stream.send_head(&request, &fields, None, false) {
            Ok(()) => {}
            // The limit of streams was higher when this one was reserved.
            Err(Misuse::TooManyStreams) => return Err(Fault::StreamRefused),
            Err(misuse) => {
                log::error!("the head of a call to `{}` cannot be sent: {misuse}", call.path);
                return Err(Fault::BrokenRule);
            }
        }
        Ok(GrpcStream {
            stream,
            reader: RefCell::new(MessageReader::new(call.message_limit)),
            http_status: Cell::new(0),
            head_status: RefCell::default(),
        })
    }

    /// Sends a message, at the rate of flow control.
    ///
    /// # Errors
    /// The service accepts no more of the request; it may have responded all the same.
    pub(crate) async fn send(&self, message: &impl Message) -> Result<(), BodyRefused> {
        self.stream.send_body(&frame(message)?).await
    }

    /// Limits the waits that follow, in place of the deadline of the call.
    pub(crate) fn limit_wait(&self, span: Duration) {
        self.stream.set_deadline(Some(span));
    }

    /// Ends the messages to the service.
    ///
    /// # Errors
    /// The service accepts no more of the request.
    pub(crate) fn finish(&self) -> Result<(), BodyRefused> {
        self.stream.finish_body(&FieldBlock::new())
    }

    /// Returns the next message of the service; `None`: the call has ended, and its status is OK. May be called while a message is
    /// being sent.
    ///
    /// # Errors
    /// The reason that there are no further messages.
    pub(crate) async fn receive<M: Message + Default>(&self) -> Result<Option<M>, GrpcError> {
        if self.http_status.get() == 0 {
            self.receive_head().await?;
        }
        loop {
            let mut fed = Ok((0, false));
            let polled = poll_fn(|context| {
                self.stream.poll_body(context, |bytes| {
                    fed = self.reader.borrow_mut().feed(bytes);
                    fed.as_ref().map_or(bytes.len(), |(consumed, _)| *consumed)
                })
            });
            let polled = polled.await;
            let (_, is_complete) = fed?;
            match polled {
                Ok(Some(_)) if is_complete => return self.reader.borrow_mut().decode().map(Some),
                Ok(Some(_)) => {}
                Ok(None) => {
                    // The status of a failed call is more informative than a message that is cut.
                    self.final_status()?;
                    self.reader.borrow_mut().finish()?;
                    return Ok(None);
                }
                Err(error) => return Err(error.fault_in_body(|| Fault::HeadTimeout).into()),
            }
        }
    }

    /// Returns the HTTP status of the response; 0 before its head.
    pub(crate) fn http_status(&self) -> u16 {
        self.http_status.get()
    }

    async fn receive_head(&self) -> Result<(), GrpcError> {
        loop {
            let stored = poll_fn(|context| self.stream.poll_head(context)).await;
            let stored =
                stored.map_err(|error: StreamError| error.fault_before_head(|| Fault::HeadTimeout))?;
            let mut table = FieldTable::new(&ringmain_wire::h1::Limits {
                fields: limits::RESPONSE_FIELDS,
                ..ringmain_wire::h1::Limits::INTERNET
            });
            let head = load_response(&stored, &mut table).ok_or(Fault::GarbageHead)?;
            if head.is_interim() {
                continue;
            }
            self.http_status.set(head.status);
            let status = status_of(head.fields.get("grpc-status"), head.fields.get("grpc-message"));
            let is_grpc = head.status == 200 && is_grpc(&head.fields);
            if !is_grpc {
                let failed = status.filter(|status| status.code != Code::Ok);
                return Err(GrpcError::Status(failed.unwrap_or_else(|| GrpcStatus {
                    code: Code::of_http(head.status),
                    message: format!("expected gRPC, found HTTP status {}", head.status),
                })));
            }
            *self.head_status.borrow_mut() = status;
            return Ok(());
        }
    }

    /// Returns the status of the call as an error, unless it is OK.
    fn final_status(&self) -> Result<(), GrpcError> {
        let trailers = self.stream.take_trailers().unwrap_or_default();
        let find = |wanted: &str| {
            let mut fields = trailers.iter();
            let found = fields.find(|(name, _)| name.eq_ignore_ascii_case(wanted));
            found.map(|(_, value)| value)
        };
        let status = status_of(find("grpc-status"), find("grpc-message"));
        let status = status.or_else(|| self.head_status.take());
        match status {
            Some(status) if status.code == Code::Ok => Ok(()),
            Some(status) => Err(GrpcError::Status(status)),
            None => Err(GrpcError::Status(GrpcStatus {
                code: Code::Unknown,
                message: "the response has no grpc-status".to_owned(),
            })),
        }
    }
}

impl std::fmt::Debug for GrpcStream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "GrpcStream({:?})", self.stream)
    }
}

/// Returns the fields of a call's head. An empty `timeout` is none.
fn head_fields(timeout: &str, metadata: &FieldBlock) -> Result<FieldBlock, ringmain_wire::h1::Misuse> {
    let mut fields = FieldBlock::new();
    fields.push("te", b"trailers")?;
    if !timeout.is_empty() {
        fields.push("grpc-timeout", timeout.as_bytes())?;
    }
    fields.push("content-type", b"application/grpc")?;
    fields.push("user-agent", b"ringmain")?;
    fields.append(metadata);
    Ok(fields)
}

/// Reads a status from its fields; `None`: there is none.
fn status_of(code: Option<&[u8]>, message: Option<&[u8]>) -> Option<GrpcStatus> {
    let code = Code::parse(code?);
    let message = message.unwrap_or_default();
    let message = &message[..message.len().min(limits::GRPC_MESSAGE_BYTES)];
    Some(GrpcStatus {
        code,
        message: decode_message(message).into_owned(),
    })
}

fn is_grpc(fields: &Fields<'_>) -> bool {
    let found = fields.get("content-type").and_then(ContentType::parse);
    found.is_some_and(|found| found.dialect == Dialect::Grpc && found.is_proto())
}
