//! One request that publishes and its answer: what is written, where the answer ends, what is wrong with it.
//!
//! Knows neither time nor connections.

use ringmain_wire::h1::{
    self, BodyDecoder, BodyEvent, FieldTable, Framing, HeadScanner, Method, Misuse, Parsed, RequestEncoder,
    parse_response,
};

use serde::Deserialize;
use serde_json::Value;

use crate::limits;
use crate::push::plan::{Form, Publishing};

/// The answer that is on its way.
#[derive(Debug, Default)]
pub struct Reading {
    scanner: HeadScanner,
    body: Option<(u16, BodyDecoder)>,
    /// The body, as much of it as a message needs: up to [`limits::ANSWER_BYTES`]. Who has looked at it empties it.
    pub kept: Vec<u8>,
}

impl Reading {
    /// Takes bytes of it; returns how many were taken, and its status once it is whole. Then its body is in `kept`. Bytes that are
    /// not taken are given again, with more behind them.
    ///
    /// # Errors
    /// It is no answer of HTTP/1.1: the connection is of no more use.
    pub fn take(
        &mut self,
        table: &mut FieldTable,
        bytes: &[u8],
    ) -> Result<(usize, Option<u16>), &'static str> {
        let internet = &h1::Limits::INTERNET;
        let mut at = 0;
        while self.body.is_none() {
            let parsed = parse_response(&bytes[at..], Method::Post, internet, &mut self.scanner, table);
            match parsed {
                Ok(Parsed::Complete { head, bytes }) => {
                    at += bytes;
                    if !head.is_interim() {
                        let decoder = BodyDecoder::new(head.framing, internet);
                        self.body = Some((head.status, decoder.map_err(|_| "broke HTTP/1.1")?));
                    }
                }
                Ok(Parsed::Partial) => return Ok((at, None)),
                Err(_) => return Err("the server does not speak HTTP/1.1"),
            }
        }
        loop {
            let (status, decoder) = self.body.as_mut().expect("its head was read");
            let step = decoder.decode(&bytes[at..]).map_err(|_| "broke HTTP/1.1")?;
            at += step.consumed;
            match step.event {
                BodyEvent::NeedMore => return Ok((at, None)),
                BodyEvent::Trailers(_) => {}
                BodyEvent::Data(data) => {
                    let room = limits::ANSWER_BYTES.saturating_sub(self.kept.len());
                    self.kept.extend_from_slice(&data[..data.len().min(room)]);
                }
                BodyEvent::End => {
                    let status = *status;
                    self.body = None;
                    return Ok((at, Some(status)));
                }
            }
        }
    }
}

/// Appends the head of a request with so many bytes of body.
///
/// # Errors
/// [`Misuse`]: what is to be said in it cannot be.
pub fn write_head(out: &mut Vec<u8>, publishing: &Publishing, body: u64) -> Result<(), Misuse> {
    let mut head = RequestEncoder::new(out, Method::Post, &publishing.path, &publishing.host)?;
    if let Some(key) = &publishing.api_key {
        head.field("X-API-Key", key.as_bytes())?;
    }
    head.field("Content-Type", b"application/json")?;
    head.finish(Framing::Length(body), true).map(drop)
}

/// What is wrong with an answer of this status, if anything; control characters are left out, and a long text is cut. Of a
/// [batch](Form::Batch) with an answer of its own for each publication [`faults`] says it.
#[must_use]
pub fn fault(form: Form, status: u16, body: &[u8]) -> Option<String> {
    match (form, status) {
        (Form::Lines(_), 200..=299) => None,
        (Form::Api | Form::Batch(_), 200) => match serde_json::from_slice(body) {
            Ok(said) => error_of(&said),
            Err(_) => Some("a response that is not JSON".into()),
        },
        _ => {
            let said: Option<Value> = serde_json::from_slice(body).ok();
            let detail = said
                .as_ref()
                .and_then(|said| said.get("detail"))
                .and_then(|text| text.as_str());
            Some(detail.map_or_else(
                || status.to_string(),
                |detail| format!("{status}, {}", shown(detail)),
            ))
        }
    }
}

/// The same for each of so many publications of one request.
#[must_use]
pub fn faults(form: Form, status: u16, body: &[u8], count: usize) -> Vec<Option<String>> {
    let all = |fault: Option<String>| vec![fault; count];
    if !matches!((form, status), (Form::Batch(_), 200)) {
        return all(fault(form, status, body));
    }
    let Ok(Replies { replies }) = serde_json::from_slice(body) else {
        return all(Some("a response without `replies`".into()));
    };
    if replies.len() != count {
        let found = replies.len();
        return all(Some(format!(
            "a response with {found} replies to {count} publications"
        )));
    }
    replies
        .iter()
        .map(|reply| reply.error.as_ref().map(told))
        .collect()
}

/// What an answer to a batch says.
#[derive(Deserialize)]
struct Replies {
    replies: Vec<Reply>,
}

#[derive(Deserialize)]
struct Reply {
    error: Option<Value>,
}

fn error_of(said: &Value) -> Option<String> {
    said.get("error").map(told)
}

fn told(error: &Value) -> String {
    let code = error.get("code").and_then(Value::as_u64).unwrap_or(0);
    let message = error
        .get("message")
        .and_then(|text| text.as_str())
        .unwrap_or("no reason");
    format!("error {code} {}", shown(message))
}

fn shown(text: &str) -> String {
    text.chars()
        .filter(|c| !c.is_control())
        .take(limits::REASON_CHARACTERS)
        .collect()
}

/// What to do about a refusal.
pub(super) fn hint(status: u16) -> &'static str {
    match status {
        401 | 403 => "; give its key by --api-key (--publish URL names another endpoint)",
        404 | 405 => {
            "; no such endpoint: name the server's publish endpoint by --publish URL, and check that its HTTP API is enabled"
        }
        200 => {
            "; check that the namespace of --prefix exists, and that this is the publish endpoint (--publish URL names another)"
        }
        _ => "; --publish URL names another endpoint",
    }
}
