//! Requests as somebody wrote them, by flags or in a file: plain data, not checked yet.
//!
//! [`Traffic`](super::Traffic) is compiled from them. Knows no flag and no file.

use std::ops::RangeInclusive;
use std::time::Duration;

use bytes::Bytes;

/// A flow: steps that one connection takes one after the other.
#[derive(Clone, Debug)]
pub struct FlowDraft {
    /// What reports call it.
    pub name: String,
    /// How often it is chosen, relative to the other flows; at least 1.
    pub weight: u32,
    /// At least one.
    pub steps: Vec<StepDraft>,
}

/// One request of a flow, and what is made of its answer.
#[derive(Clone, Debug)]
pub struct StepDraft {
    /// What reports call it; empty: method and target.
    pub name: String,
    /// What is sent and expected.
    pub request: Request,
    /// Think time before it is sent.
    pub pause: Option<Duration>,
    /// What is kept of the answer for later steps.
    pub captures: Vec<Capture>,
}

/// A request and what is expected of its answer. Target, header values and body may hold tokens, see
/// the module `template`.
#[derive(Clone, Debug)]
pub struct Request {
    /// The method, in the case it is sent in.
    pub method: String,
    /// Path and query, beginning with `/` or with a captured value.
    pub target: String,
    /// The target's `host` or `host:port`. A header of the name `Host` overrides it.
    pub host: String,
    /// Names and values, in the order they are sent in.
    pub headers: Vec<(String, String)>,
    /// The content.
    pub body: Body,
    /// What makes an answer right.
    pub expect: Expect,
}

impl Request {
    /// `GET target`, without headers of its own, answered by any status from 200 to 399.
    #[must_use]
    pub fn get(target: &str, host: &str) -> Request {
        Request {
            method: "GET".to_owned(),
            target: target.to_owned(),
            host: host.to_owned(),
            headers: Vec::new(),
            body: Body::None,
            expect: Expect::default(),
        }
    }
}

/// The content of a request.
#[derive(Clone, Debug, Default)]
pub enum Body {
    /// None. POST, PUT and PATCH say that its length is 0.
    #[default]
    None,
    /// Text with tokens. A captured value stands in it as it is.
    Text(String),
    /// A JSON document with tokens in its strings. A captured value is escaped as a part of a string is.
    Json(String),
    /// These bytes; no token is looked for.
    Bytes(Bytes),
}

/// What makes an answer right.
#[derive(Clone, Debug, Default)]
pub struct Expect {
    /// The statuses that are right; empty: 200 to 399.
    pub statuses: Vec<RangeInclusive<u16>>,
    /// What must hold besides, all of it.
    pub checks: Vec<Check>,
}

/// Something that must hold for an answer.
#[derive(Clone, Debug)]
pub enum Check {
    /// One of the fields of that name must pass.
    Header {
        /// In any case.
        name: String,
        /// What its value must be.
        test: Test,
    },
    /// The body must pass.
    Body(Test),
    /// The body must be JSON, with this value at a place.
    Json {
        /// The place (RFC 6901); empty is the whole document.
        pointer: String,
        /// The value there.
        equals: serde_json::Value,
    },
}

/// What a text must be.
#[derive(Clone, Debug)]
pub enum Test {
    /// It holds this somewhere.
    Contains(String),
    /// It is this, byte for byte.
    Equals(String),
}

/// Something of an answer that later steps use as `{{value:NAME}}`. An answer without it is not what was expected.
#[derive(Clone, Debug)]
pub struct Capture {
    /// Letters, digits, `-` and `_`.
    pub name: String,
    /// Where it stands.
    pub from: Source,
}

/// Where a value stands in an answer.
#[derive(Clone, Debug)]
pub enum Source {
    /// The first field of that name.
    Header(String),
    /// The string, number or boolean at that place of the JSON body (RFC 6901).
    Json(String),
    /// The text of the body between the first `before` and the next `after`.
    Between {
        /// What stands before it.
        before: String,
        /// What stands behind it.
        after: String,
    },
}
