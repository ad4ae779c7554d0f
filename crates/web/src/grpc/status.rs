//! The status of a failed call: a code, a message for people, and details for programs.

use std::borrow::Cow;
use std::error::Error as StdError;
use std::fmt;

use prost::Message;
use ringmain_wire::grpc::{Code, PeerFault, encode_message, write_binary};
use ringmain_wire::h1::FieldBlock;

use crate::http::client_text::decimal;
use crate::http::error::Error;

/// The result of gRPC handlers.
pub type Result<T = ()> = std::result::Result<T, Status>;

/// The error of a call, as sent to its client.
///
/// An [`Error`] converts into one with `?`, with the code that matches its status (404: [`NotFound`](Code::NotFound)). So does any
/// other error: the client receives [`Internal`](Code::Internal) without a message, and the text is logged.
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

/// `google.rpc.Status`, the content of `grpc-status-details-bin`.
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
    /// Returns a status with one sentence for people: the expected value, the value found, and its location.
    pub fn new(code: Code, message: impl Into<Cow<'static, str>>) -> Status {
        Status {
            code,
            message: message.into(),
            details: Vec::new(),
            source: None,
        }
    }

    /// Returns [`Internal`](Code::Internal) with a cause that is logged and not sent.
    pub fn internal(cause: impl Into<Box<dyn StdError + Send + Sync>>) -> Status {
        Status {
            source: Some(cause.into()),
            ..Status::new(Code::Internal, "")
        }
    }

    /// Adds a detail for programs, a Protobuf message with its type (`type.googleapis.com/google.rpc.ErrorInfo`): the client
    /// receives all details in `grpc-status-details-bin`.
    #[must_use]
    pub fn with_detail(mut self, type_url: impl Into<String>, message: impl Into<Vec<u8>>) -> Status {
        self.details.push(Any {
            type_url: type_url.into(),
            value: message.into(),
        });
        self
    }

    /// Returns the code.
    #[must_use]
    pub fn code(&self) -> Code {
        self.code
    }

    /// Returns the message for people.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.message
    }

    /// Returns the cause, which only the log contains.
    #[must_use]
    pub fn cause(&self) -> Option<&(dyn StdError + Send + Sync + 'static)> {
        self.source.as_deref()
    }

    /// Converts a protocol violation of the client. (`From` is for errors of the program.)
    pub(super) fn from_fault(fault: &PeerFault) -> Status {
        Status::new(fault.code(), fault.to_string())
    }

    /// Returns the status of a successful call.
    pub(super) fn ok() -> Status {
        Status::new(Code::Ok, "")
    }

    /// Appends the fields of the status.
    pub(super) fn write(&self, fields: &mut FieldBlock) {
        let mut digits = [0; 20];
        let number = decimal(&mut digits, self.code.number().into());
        fields.push("grpc-status", number).expect("digits are a value");
        let mut text = String::new();
        if !self.message.is_empty() {
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
        .expect("percent-encoded text and base64 are values");
}

/// Returns the code for an HTTP status that the application has set, by the mapping of google.rpc.Code.
pub(super) fn code_for(status: u16) -> Code {
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
            return Status::new(Code::Cancelled, "client disconnected");
        }
        let (code, message) = (code_for(error.status()), error.detail().to_owned());
        Status {
            source: error.into_cause(),
            ..Status::new(code, message)
        }
    }
}

// `Status` does not implement `std::error::Error`, for the same reason as `Error`.
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
