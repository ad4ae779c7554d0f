//! The messages of `grpc.reflection.v1`.

use prost::{Message, Oneof};

/// `ServerReflectionRequest`.
#[derive(Clone, PartialEq, Message)]
pub(super) struct ReflectionRequest {
    #[prost(string, tag = "1")]
    pub(super) host: String,
    #[prost(oneof = "MessageRequest", tags = "3, 4, 5, 6, 7")]
    pub(super) question: Option<MessageRequest>,
}

#[derive(Clone, PartialEq, Oneof)]
pub(super) enum MessageRequest {
    #[prost(string, tag = "3")]
    FileByFilename(String),
    #[prost(string, tag = "4")]
    FileContainingSymbol(String),
    #[prost(message, tag = "5")]
    FileContainingExtension(ExtensionRequest),
    #[prost(string, tag = "6")]
    AllExtensionNumbersOfType(String),
    #[prost(string, tag = "7")]
    ListServices(String),
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct ExtensionRequest {
    #[prost(string, tag = "1")]
    pub(super) containing_type: String,
    #[prost(int32, tag = "2")]
    pub(super) extension_number: i32,
}

/// `ServerReflectionResponse`.
#[derive(Clone, PartialEq, Message)]
pub(super) struct ReflectionResponse {
    #[prost(string, tag = "1")]
    pub(super) valid_host: String,
    #[prost(message, optional, tag = "2")]
    pub(super) original_request: Option<ReflectionRequest>,
    #[prost(oneof = "MessageResponse", tags = "4, 5, 6, 7")]
    pub(super) answer: Option<MessageResponse>,
}

#[derive(Clone, PartialEq, Oneof)]
pub(super) enum MessageResponse {
    #[prost(message, tag = "4")]
    FileDescriptors(FileDescriptors),
    #[prost(message, tag = "5")]
    ExtensionNumbers(ExtensionNumbers),
    #[prost(message, tag = "6")]
    Services(Services),
    #[prost(message, tag = "7")]
    Error(ErrorResponse),
}

/// `FileDescriptorResponse`.
#[derive(Clone, PartialEq, Message)]
pub(super) struct FileDescriptors {
    #[prost(bytes = "vec", repeated, tag = "1")]
    pub(super) file_descriptor_proto: Vec<Vec<u8>>,
}

/// `ExtensionNumberResponse`.
#[derive(Clone, PartialEq, Message)]
pub(super) struct ExtensionNumbers {
    #[prost(string, tag = "1")]
    pub(super) base_type_name: String,
    #[prost(int32, repeated, tag = "2")]
    pub(super) extension_number: Vec<i32>,
}

/// `ListServiceResponse`.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Services {
    #[prost(message, repeated, tag = "1")]
    pub(super) service: Vec<ServiceName>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct ServiceName {
    #[prost(string, tag = "1")]
    pub(super) name: String,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct ErrorResponse {
    #[prost(int32, tag = "1")]
    pub(super) error_code: i32,
    #[prost(string, tag = "2")]
    pub(super) error_message: String,
}
