//! The reason that a call failed.

use std::fmt;

use ringmain_wire::grpc::{Code, PeerFault};

use crate::fault::{Fault, FaultSide};

/// The status of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct GrpcStatus {
    pub(crate) code: Code,
    /// Text for people; often empty.
    pub(crate) message: String,
}

/// A call that failed.
#[derive(Debug)]
pub(crate) enum GrpcError {
    /// No response was received, or none of gRPC.
    Fault(Fault),
    /// The service, or a proxy before it, has ended the call with this status, which is not OK.
    Status(GrpcStatus),
    /// The framing of messages is invalid, or a message exceeds the limit.
    Framing(PeerFault),
    /// A message is not of the method's type.
    Undecodable(prost::DecodeError),
    /// There is no message where there must be one, or more than one.
    MessageCount,
}

impl GrpcError {
    /// Returns whether the service has failed, rather than a limit or the configuration of the gateway, or the call for its content: a client
    /// can cause that, for example by a message that is too long for the service.
    pub(crate) fn is_of_service(&self) -> bool {
        match self {
            GrpcError::Fault(fault) => fault.side() == FaultSide::Upstream,
            GrpcError::Status(status) => !matches!(
                status.code,
                Code::InvalidArgument | Code::FailedPrecondition | Code::OutOfRange | Code::ResourceExhausted
            ),
            _ => true,
        }
    }
}

impl From<Fault> for GrpcError {
    fn from(fault: Fault) -> GrpcError {
        GrpcError::Fault(fault)
    }
}

impl From<PeerFault> for GrpcError {
    fn from(fault: PeerFault) -> GrpcError {
        GrpcError::Framing(fault)
    }
}

impl fmt::Display for GrpcError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            GrpcError::Fault(fault) => fault.fmt(f),
            GrpcError::Status(GrpcStatus { code, message }) => {
                write!(f, "status {} `{}`", code.name(), message.escape_debug())
            }
            GrpcError::Framing(fault) => fault.fmt(f),
            GrpcError::Undecodable(error) => error.fmt(f),
            GrpcError::MessageCount => f.write_str("expected exactly one message"),
        }
    }
}
