//! Messages of Envoy's API that several of its services use, with its field numbers, as far as they are written or read.

use std::collections::BTreeMap;

use prost::{Enumeration, Message, Oneof};

#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub(crate) struct HttpStatus {
    #[prost(int32, tag = "1")]
    pub(crate) code: i32,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct HeaderOption {
    #[prost(message, optional, tag = "1")]
    pub(crate) header: Option<HeaderValue>,
    /// `google.protobuf.BoolValue`. If present, it decides, and not [`HeaderOption::append_action`].
    #[prost(message, optional, tag = "2")]
    pub(crate) append: Option<BoolValue>,
    /// An [`AppendAction`].
    #[prost(int32, tag = "3")]
    pub(crate) append_action: i32,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct HeaderValue {
    #[prost(string, tag = "1")]
    pub(crate) key: String,
    #[prost(string, tag = "2")]
    pub(crate) value: String,
    #[prost(bytes = "vec", tag = "3")]
    pub(crate) raw_value: Vec<u8>,
}

#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub(crate) struct BoolValue {
    #[prost(bool, tag = "1")]
    pub(crate) value: bool,
}

impl HeaderValue {
    /// Returns the value, from whichever field has it.
    pub(crate) fn bytes(&self) -> &[u8] {
        match self.value.as_bytes() {
            [] => &self.raw_value,
            value => value,
        }
    }
}

/// `google.protobuf.Duration`.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub(crate) struct Span {
    #[prost(int64, tag = "1")]
    pub(crate) seconds: i64,
    #[prost(int32, tag = "2")]
    pub(crate) nanos: i32,
}

/// The values of `HeaderAppendAction`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Enumeration)]
#[repr(i32)]
pub(crate) enum AppendAction {
    AppendOrAdd = 0,
    AddIfAbsent = 1,
    OverwriteOrAdd = 2,
    OverwriteIfExists = 3,
}

/// `google.protobuf.Struct`.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Struct {
    #[prost(btree_map = "string, message", tag = "1")]
    pub(crate) fields: BTreeMap<String, Value>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Value {
    #[prost(oneof = "ValueKind", tags = "1, 2, 3, 4, 5, 6")]
    pub(crate) kind: Option<ValueKind>,
}

#[derive(Clone, PartialEq, Oneof)]
pub(crate) enum ValueKind {
    #[prost(int32, tag = "1")]
    Null(i32),
    #[prost(double, tag = "2")]
    Number(f64),
    #[prost(string, tag = "3")]
    Text(String),
    #[prost(bool, tag = "4")]
    Bool(bool),
    #[prost(message, tag = "5")]
    Struct(Struct),
    #[prost(message, tag = "6")]
    List(ListValue),
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct ListValue {
    #[prost(message, repeated, tag = "1")]
    pub(crate) values: Vec<Value>,
}

/// Returns a value as text, with `!` in place of each byte that is not UTF-8.
pub(super) fn value_text(value: &[u8]) -> String {
    let mut text = String::with_capacity(value.len());
    for chunk in value.utf8_chunks() {
        text.push_str(chunk.valid());
        text.extend(chunk.invalid().iter().map(|_| '!'));
    }
    text
}
