//! The decision of an authorization service, read from its response. Pure.
//!
//! A response that denies is a denial, whatever else it has. A response that allows is valid as a whole or a failure: no request is
//! forwarded with a part of the changes that the service demands.

use ringmain_wire::h1::FieldBlock;
use serde_json::{Map, Number, Value as Json};

use super::super::header_change::HeaderChange;
use super::messages::{
    CheckResponse, DeniedResponse, HeaderOption, HttpResponse, OkResponse, QueryParameter, RpcStatus, Struct,
    Value, ValueKind,
};
use crate::limits;

/// A decision.
#[derive(Debug, PartialEq)]
pub(super) enum Decision {
    Allowed(Box<Changes>),
    Denied(Denial, Metadata),
    /// The service has failed. With the response for the client, if it has one; 0 is no status.
    Failed(String, Option<Denial>),
}

/// The changes to an allowed request.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Changes {
    pub(super) headers: Vec<HeaderChange>,
    pub(super) removed: Vec<String>,
    pub(super) response: Vec<HeaderChange>,
    pub(super) query_set: Vec<QueryParameter>,
    pub(super) query_removed: Vec<String>,
    pub(super) metadata: Metadata,
}

/// The response to a refused request.
#[derive(Debug, PartialEq)]
pub(super) struct Denial {
    pub(super) status: u16,
    pub(super) fields: FieldBlock,
    pub(super) body: Vec<u8>,
}

/// Dynamic metadata.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Metadata(Option<Struct>);

/// The status of a denial that names none, or one that is not a final status.
const FORBIDDEN: u16 = 403;

/// Reads the decision of a response.
pub(super) fn decide(response: CheckResponse) -> Decision {
    let CheckResponse {
        status,
        http_response,
        dynamic_metadata,
    } = response;
    let is_ok = |status: &RpcStatus| status.code == 0;
    let allows = status.as_ref().is_none_or(is_ok);
    match http_response {
        Some(HttpResponse::Error(error)) => {
            let denial = denial(error, 0);
            Decision::Failed("the service reports an error".to_owned(), Some(denial))
        }
        Some(HttpResponse::Denied(denied)) => {
            Decision::Denied(denial(denied, FORBIDDEN), Metadata(dynamic_metadata))
        }
        _ if !allows => Decision::Denied(
            denial(DeniedResponse::default(), FORBIDDEN),
            Metadata(dynamic_metadata),
        ),
        Some(HttpResponse::Ok(mut ok)) => {
            // The deprecated place takes precedence.
            let metadata = ok.dynamic_metadata.take().or(dynamic_metadata);
            match changes(ok) {
                Ok(changes) => Decision::Allowed(Box::new(Changes {
                    metadata: Metadata(metadata),
                    ..changes
                })),
                Err(reason) => Decision::Failed(reason, None),
            }
        }
        None if status.is_some() => Decision::Allowed(Box::new(Changes {
            metadata: Metadata(dynamic_metadata),
            ..Changes::default()
        })),
        None => Decision::Failed("expected a status, found an empty response".to_owned(), None),
    }
}

/// Reads the changes to an allowed request.
fn changes(ok: OkResponse) -> Result<Changes, String> {
    let count = ok.headers.len()
        + ok.headers_to_remove.len()
        + ok.response_headers.len()
        + ok.query_to_set.len()
        + ok.query_to_remove.len();
    if count > limits::AUTHZ_CHANGES {
        return Err(format!(
            "expected at most {} changes, found {count}",
            limits::AUTHZ_CHANGES
        ));
    }
    let parse = |options: Vec<HeaderOption>, parse: fn(HeaderOption) -> Result<HeaderChange, String>| {
        options.into_iter().map(parse).collect::<Result<Vec<_>, _>>()
    };
    Ok(Changes {
        headers: parse(ok.headers, HeaderChange::for_request)?,
        removed: ok.headers_to_remove,
        response: parse(ok.response_headers, HeaderChange::for_response)?,
        query_set: ok.query_to_set,
        query_removed: ok.query_to_remove,
        metadata: Metadata::default(),
    })
}

/// Reads the response to a refused request, which is sent without the headers that are invalid.
fn denial(denied: DeniedResponse, default_status: u16) -> Denial {
    let status = denied.status.map(|status| status.code).unwrap_or_default();
    let status = u16::try_from(status)
        .ok()
        .filter(|status| (200..=599).contains(status));
    let status = status.unwrap_or(default_status);
    let mut fields = FieldBlock::new();
    for option in denied.headers.into_iter().take(limits::AUTHZ_CHANGES) {
        match HeaderChange::for_response(option) {
            Ok(change) => change.apply(&mut fields),
            Err(reason) => log::debug!("a denial is sent without {reason}"),
        }
    }
    let has_content = !matches!(status, 204 | 205 | 304);
    let body = if has_content {
        denied.body.into_bytes()
    } else {
        Vec::new()
    };
    let has_type = || {
        fields
            .iter()
            .any(|(name, _)| name.eq_ignore_ascii_case("content-type"))
    };
    if !body.is_empty() && !has_type() {
        // Browsers would guess the type. Name and value are valid.
        let _ = fields.push("content-type", b"text/plain");
    }
    Denial { status, fields, body }
}

impl Metadata {
    /// Returns a text of the first level.
    pub(super) fn text(&self, key: &str) -> Option<&str> {
        match &self.0.as_ref()?.fields.get(key)?.kind {
            Some(ValueKind::Text(text)) => Some(text),
            _ => None,
        }
    }

    /// Returns the metadata as JSON for the access log; `None`: there is none, or its text exceeds the limit.
    pub(super) fn log_text(&self) -> Option<String> {
        let metadata = self.0.as_ref().filter(|metadata| !metadata.fields.is_empty())?;
        let text = Json::Object(to_json(metadata)).to_string();
        (text.len() <= limits::AUTHZ_METADATA_BYTES).then_some(text)
    }
}

fn to_json(metadata: &Struct) -> Map<String, Json> {
    let fields = metadata.fields.iter();
    fields
        .map(|(name, value)| (name.clone(), value_to_json(value)))
        .collect()
}

fn value_to_json(value: &Value) -> Json {
    match &value.kind {
        None | Some(ValueKind::Null(_)) => Json::Null,
        // Infinity and NaN have no JSON.
        Some(ValueKind::Number(number)) => Number::from_f64(*number).map_or(Json::Null, Json::Number),
        Some(ValueKind::Text(text)) => Json::String(text.clone()),
        Some(ValueKind::Bool(value)) => Json::Bool(*value),
        Some(ValueKind::Struct(nested)) => Json::Object(to_json(nested)),
        Some(ValueKind::List(list)) => Json::Array(list.values.iter().map(value_to_json).collect()),
    }
}

#[cfg(test)]
mod tests;
