//! Redacts the values of some fields in JSON responses, at any depth. A response that cannot be parsed is replaced by 502.

use std::cell::Cell;

use ringmain_control::filter::{
    BodyAccess, Cx, ExchangeEnd, Filter, FilterError, FilterResponse, Flow, Options, Outcome, RequestHead,
    RequestInfo, ResponseBody, ResponseHead,
};
use serde::Deserialize;
use serde_json::Value;

/// A longer body is parsed on the blocking pool, so that the worker can serve other requests.
const ON_WORKER_BYTES: usize = 64 * 1024;

#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Settings {
    fields: Vec<String>,
    #[serde(default = "with")]
    with: String,
}

fn with() -> String {
    "(redacted)".into()
}

pub(crate) fn configure(options: &Options) -> Result<impl Fn(&Cx) -> Redact + use<>, FilterError> {
    let settings: Settings = options.read()?;
    Ok(move |cx: &Cx| Redact {
        settings: settings.clone(),
        worker: cx.worker(),
        redacted: Cell::new(0),
    })
}

pub(crate) struct Redact {
    settings: Settings,
    worker: usize,
    /// Number of redacted values on this worker.
    redacted: Cell<u64>,
}

/// Replaces values; returns their number.
fn redact(value: &mut Value, settings: &Settings) -> u64 {
    match value {
        Value::Object(map) => {
            let mut count = 0;
            for (name, value) in map {
                if settings.fields.contains(name) {
                    *value = settings.with.as_str().into();
                    count += 1;
                } else {
                    count += redact(value, settings);
                }
            }
            count
        }
        Value::Array(list) => list.iter_mut().map(|value| redact(value, settings)).sum(),
        _ => 0,
    }
}

/// Returns the redacted body and the number of redacted values; `None` if the body is not JSON.
fn redacted(body: &[u8], settings: &Settings) -> Option<(Vec<u8>, u64)> {
    let mut value = serde_json::from_slice(body).ok()?;
    let count = redact(&mut value, settings);
    Some((value.to_string().into_bytes(), count))
}

/// Replaces the response body.
fn put(into: &mut ResponseBody<'_>, redacted: Option<(Vec<u8>, u64)>, sum: &mut u64) -> Outcome<'static> {
    let Some((bytes, count)) = redacted else {
        let text = "the upstream's response is not valid JSON";
        return Ok(Flow::Respond(FilterResponse::text(502, text)));
    };
    *sum += count;
    *into.bytes_mut()? = bytes;
    Ok(Flow::Continue)
}

impl Filter for Redact {
    /// Number of redacted values.
    type Exchange = u64;

    fn begin(&self, _: &RequestInfo<'_>) -> u64 {
        0
    }

    fn request_head<'a>(&'a self, _: &'a mut u64, head: &'a mut RequestHead<'_>) -> Outcome<'a> {
        // Compressed bodies cannot be parsed.
        head.remove("Accept-Encoding");
        Ok(Flow::Continue)
    }

    fn response_head<'a>(&'a self, _: &'a mut u64, head: &'a mut ResponseHead<'_>) -> Outcome<'a> {
        let is_json = head.get("Content-Type").is_some_and(|kind| {
            let kind = kind.split(|byte| *byte == b';').next().unwrap_or_default();
            kind.trim_ascii().to_ascii_lowercase().ends_with(b"json")
        });
        if is_json && head.has_body() {
            // These fields describe the original bytes.
            for name in ["ETag", "Accept-Ranges", "Content-Digest"] {
                head.remove(name);
            }
            head.want_body(BodyAccess::Buffer);
        }
        Ok(Flow::Continue)
    }

    fn response_body<'a>(&'a self, sum: &'a mut u64, body: &'a mut ResponseBody<'_>) -> Outcome<'a> {
        if body.bytes().len() <= ON_WORKER_BYTES {
            let redacted = redacted(body.bytes(), &self.settings);
            return put(body, redacted, sum);
        }
        let (cx, settings) = (body.about().cx().clone(), self.settings.clone());
        Flow::wait(async move {
            let bytes = std::mem::take(body.bytes_mut()?);
            let redacted = cx.blocking(move || redacted(&bytes, &settings)).await?;
            put(body, redacted, sum)
        })
    }

    fn over(&self, sum: u64, end: &ExchangeEnd) {
        if sum > 0 && end.is_whole {
            self.redacted.set(self.redacted.get() + sum);
            let all = self.redacted.get();
            log::info!("worker {}: {sum} values redacted, {all} so far", self.worker);
        }
    }
}
