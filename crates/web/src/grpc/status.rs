//! How a call ends that does not succeed: a code, text for people, and details for programs.

use std::borrow::Cow;
use std::error::Error as StdError;
use std::fmt;

use prost::Message;
use ringmain_wire::grpc::{Code, PeerFault, encode_message, write_binary};
use ringmain_wire::h1::FieldBlock;

use crate::error::Error;

/// What handlers of gRPC return.
pub type Result<T = ()> = std::result::Result<T, Status>;

/// Why a call fails: what its client is told.
///
/// An [`Error`] becomes one by `?`, with the code that fits its status (404: [`NotFound`](Code::NotFound)). Any other error does, too: the
/// client is told [`Internal`](Code::Internal) and nothing else, the text is logged.
pub struct Status {
    code: Code,
    message: Cow<'static, str>,
    details: Vec<Any>,
    /// For the log only.
    source: Option<Box<dyn StdError + Send + Sync>>,
}

/// `google.protobuf.Any`.
#[derive(Clone, PartialEq, Message)]
struct Any {
    #[prost(string, tag = "1")]
    type_url: String,
    #[prost(bytes = "vec", tag = "2")]
    value: Vec<u8>,
}

/// `google.rpc.Status`: what `grpc-status-details-bin` holds.
#[derive(Clone, PartialEq, Message)]
struct Details {
    #[prost(int32, tag = "1")]
    code: i32,
    #[prost(string, tag = "2")]
    message: String,
    #[prost(message, repeated, tag = "3")]
    details: Vec<Any>,
}

impl Status {
    /// A status with one sentence for people: what was expected, what was found, where.
    pub fn new(code: Code, message: impl Into<Cow<'static, str>>) -> Status {
        Status {
            code,
            message: message.into(),
            details: Vec::new(),
            source: None,
        }
    }

    /// [`Internal`](Code::Internal) with a cause that is logged and not shown.
    pub fn internal(cause: impl Into<Box<dyn StdError + Send + Sync>>) -> Status {
        Status {
            source: Some(cause.into()),
            ..Status::new(Code::Internal, "")
        }
    }

    /// Adds a detail for programs, a message of Protobuf with its type (`type.googleapis.com/google.rpc.ErrorInfo`): the client finds all of
    /// them in `grpc-status-details-bin`.
    #[must_use]
    pub fn with_detail(mut self, type_url: impl Into<String>, message: impl Into<Vec<u8>>) -> Status {
        self.details.push(Any {
            type_url: type_url.into(),
            value: message.into(),
        });
        self
    }

    /// The code.
    #[must_use]
    pub fn code(&self) -> Code {
        self.code
    }

    /// What people are told.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.message
    }

    /// What only the log is told.
    #[must_use]
    pub fn cause(&self) -> Option<&(dyn StdError + Send + Sync + 'static)> {
        self.source.as_deref()
    }

    /// What a broken rule of the protocol is to the client. (`From` is for errors of the program.)
    pub(super) fn of_fault(fault: &PeerFault) -> Status {
        Status::new(fault.code(), fault.to_string())
    }

    /// A call that succeeded.
    pub(super) fn ok() -> Status {
        Status::new(Code::Ok, "")
    }

    /// Appends the fields that say it.
    pub(super) fn write(&self, fields: &mut FieldBlock) {
        let mut text = self.code.number().to_string();
        push(fields, "grpc-status", &text);
        if !self.message.is_empty() {
            text.clear();
            encode_message(&mut text, &self.message);
            push(fields, "grpc-message", &text);
        }
        if !self.details.is_empty() {
            let details = Details {
                code: self.code.number().into(),
                message: self.message.clone().into_owned(),
                details: self.details.clone(),
            };
            text.clear();
            write_binary(&mut text, &details.encode_to_vec());
            push(fields, "grpc-status-details-bin", &text);
        }
    }
}

fn push(fields: &mut FieldBlock, name: &str, value: &str) {
    fields
        .push(name, value.as_bytes())
        .expect("digits, percent-encoded text and base64 are values");
}

/// The code of a status of HTTP that the application itself has chosen: what the two have in common (google.rpc.Code).
pub(super) fn code_of(status: u16) -> Code {
    match status {
        400 | 411 | 414 | 415 | 422 | 431 => Code::InvalidArgument,
        401 => Code::Unauthenticated,
        403 => Code::PermissionDenied,
        404 | 410 => Code::NotFound,
        405 | 501 => Code::Unimplemented,
        408 | 504 => Code::DeadlineExceeded,
        409 => Code::Aborted,
        412 => Code::FailedPrecondition,
        413 | 429 => Code::ResourceExhausted,
        416 => Code::OutOfRange,
        499 => Code::Cancelled,
        500 => Code::Internal,
        502 | 503 => Code::Unavailable,
        _ => Code::Unknown,
    }
}

impl From<Error> for Status {
    fn from(error: Error) -> Status {
        if error.is_disconnected() {
            return Status::new(Code::Cancelled, "the client is gone");
        }
        let (code, message) = (code_of(error.status()), error.detail().to_owned());
        Status {
            source: error.into_cause(),
            ..Status::new(code, message)
        }
    }
}

// `Status` is no `std::error::Error` itself, as `Error` is none, and for the same reason.
impl<E: StdError + Send + Sync + 'static> From<E> for Status {
    fn from(error: E) -> Status {
        Status::internal(error)
    }
}

impl fmt::Debug for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.code.name())?;
        if !self.message.is_empty() {
            write!(f, ": {}", self.message)?;
        }
        if let Some(source) = &self.source {
            write!(f, ": {source}")?;
        }
        Ok(())
    }
}
