//! Errors of hooks, and of the framework before a call begins, as clients of gRPC read them.

use std::borrow::Cow;

use ringmain_wire::grpc::Dialect;
use ringmain_wire::h1::FieldBlock;
use serde::Deserialize;

use super::serve::{content_type, end_web};
use super::status::{Status, code_for};
use crate::http::reply::{ContentKind, Reply};
use crate::http::request::Request;

/// The part of problem details for people.
#[derive(Deserialize)]
struct Problem<'a> {
    #[serde(borrow, default)]
    detail: Cow<'a, str>,
}

/// Converts problem details into a gRPC status, with the fields of the error; runs as an `after` hook.
pub(super) fn translate(request: &Request<'_>, reply: &mut Reply<'_>) -> crate::Result {
    if reply.kind != ContentKind::Problem || reply.is_streaming() {
        return Ok(());
    }
    let Ok(content) = content_type(request) else {
        return Ok(());
    };
    let problem: Problem<'_> = serde_json::from_slice(reply.body)?;
    let status = Status::new(code_for(reply.status), problem.detail.into_owned());
    let mut fields = FieldBlock::new();
    status.write(&mut fields);
    reply.body().clear();
    reply.header("Content-Type", content.of_answer())?;
    reply.status(200);
    if content.dialect == Dialect::Grpc {
        reply.add_headers(&fields);
        return Ok(());
    }
    end_web(content.dialect, reply, &fields)
}
