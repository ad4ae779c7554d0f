//! A scenario file as it is written: the one definition of its keys. The JSON Schema and the error messages come from it.
//!
//! Only structure; what the values mean together is for `build`.

use schemars::JsonSchema;
use serde::Deserialize;

use super::values::{At, OneOrMany, Pairs, Status, Time};

/// What `ringmain bench --scenario FILE` sends: flows of requests, chosen by weight. In a path, a header value and a body
/// `{{seq}}`, `{{random:1..1000}}`, `{{random-hex:16}}`, `{{uuid}}` and `{{value:NAME}}` are expanded anew for each
/// request; `{{{{` stands for `{{`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "Scenario of ringmain bench")]
pub(super) struct Document {
    /// Where to connect to, unless the command line names another target: `http://host:port`.
    pub(super) target: Option<At<String>>,
    /// Connections, all threads together.
    pub(super) connections: Option<At<u32>>,
    /// Threads of the client.
    pub(super) threads: Option<At<usize>>,
    /// Flows a second for an open loop; without it each connection sends as soon as it has its answer.
    pub(super) rate: Option<At<f64>>,
    /// Whether arrivals of an open loop are independent of each other instead of evenly spaced.
    pub(super) poisson: Option<bool>,
    /// How long is measured.
    pub(super) duration: Option<At<Time>>,
    /// How many requests are measured; with `duration`, until whichever is first.
    pub(super) requests: Option<At<u64>>,
    /// How long load is made before measuring begins.
    pub(super) warmup: Option<At<Time>>,
    /// Requests in flight on a connection; more than 1 only where every flow is one step without pause and captures.
    pub(super) pipeline: Option<At<u32>>,
    /// After so long without an answer a request counts as timed out.
    pub(super) timeout: Option<At<Time>>,
    /// Close a connection after so many answers and open another one.
    pub(super) reconnect_after: Option<At<u64>>,
    /// From which arrivals, the mix and random tokens follow.
    pub(super) seed: Option<u64>,
    /// What must hold for the figures, as in `--threshold`; if it does not, the exit code says so.
    #[serde(default)]
    pub(super) thresholds: Vec<At<String>>,
    /// What holds for every step that does not say otherwise.
    #[serde(default)]
    pub(super) defaults: Defaults,
    /// What connections do, over and over.
    pub(super) flows: At<Vec<Flow>>,
}

/// What holds for every step that does not say otherwise.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Defaults {
    /// Headers of every request; a header of the same name of a request replaces one.
    #[serde(default)]
    pub(super) headers: Pairs<At<String>>,
    /// What is expected of every answer; each key of it can be replaced by a step.
    #[serde(default)]
    pub(super) expect: Expect,
}

/// Steps that a connection takes one after the other.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Flow {
    /// What reports call it; no two flows have the same name.
    pub(super) name: At<String>,
    /// How often it is chosen, relative to the other flows; 1 if it does not say.
    pub(super) weight: Option<At<u32>>,
    /// At least one.
    pub(super) steps: At<Vec<Step>>,
}

/// A request, and what is made of its answer.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Step {
    /// What reports call it; method and path if it does not say.
    pub(super) name: Option<String>,
    /// What is sent.
    pub(super) request: At<Request>,
    /// Think time before it is sent.
    pub(super) pause: Option<At<Time>>,
    /// What is kept of the answer, by the name that later steps use it by as `{{value:NAME}}`.
    #[serde(default)]
    pub(super) capture: Pairs<At<Capture>>,
    /// What makes the answer right; a status from 200 to 399 if nothing says otherwise.
    #[serde(default)]
    pub(super) expect: Expect,
}

/// A request. At most one of `body`, `json` and `body_file`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Request {
    /// GET if it does not say.
    pub(super) method: Option<At<String>>,
    /// Path and query. Begins with `/`, or with a captured value: of a captured `http://host/path` only the path is used.
    pub(super) path: At<String>,
    /// Names and values. `Host` replaces the target's; what frames the message is written for you.
    #[serde(default)]
    pub(super) headers: Pairs<At<String>>,
    /// The body, as text. A captured value stands in it as it is.
    pub(super) body: Option<At<String>>,
    /// The body, as JSON; its keys are sent in alphabetical order. Tokens are expanded in its strings, and a captured value
    /// is escaped. Sends `Content-Type: application/json` if no header says otherwise.
    pub(super) json: Option<At<serde_json::Value>>,
    /// The body, as a file, relative to this one; no tokens are expanded in it.
    pub(super) body_file: Option<At<String>>,
}

/// Where a value stands in an answer. An answer without it is not what was expected.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum Capture {
    /// The value of the header of that name.
    Header(String),
    /// The string, number or boolean at that place of a JSON body: a JSON pointer such as `/user/id`.
    Json(String),
    /// The text of the body between the first of these texts and the next of the second.
    Between([String; 2]),
}

/// What makes an answer right: all of it.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Expect {
    /// The statuses that are right.
    pub(super) status: Option<At<OneOrMany<Status>>>,
    /// What headers must be.
    pub(super) header: Option<At<OneOrMany<HeaderCheck>>>,
    /// What the body must be.
    pub(super) body: Option<At<OneOrMany<BodyCheck>>>,
    /// What values of a JSON body must be.
    pub(super) json: Option<At<OneOrMany<JsonCheck>>>,
}

/// What a header must be: `equals` or `contains`.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct HeaderCheck {
    /// Its name, in any case.
    pub(super) name: String,
    /// Its value.
    pub(super) equals: Option<String>,
    /// A part of its value.
    pub(super) contains: Option<String>,
}

/// What the body must be: `equals` or `contains`.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct BodyCheck {
    /// All of it.
    pub(super) equals: Option<String>,
    /// A part of it.
    pub(super) contains: Option<String>,
}

/// What a value of a JSON body must be.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct JsonCheck {
    /// Its place: a JSON pointer such as `/user/id`; empty is the whole body.
    pub(super) pointer: String,
    /// The value there.
    pub(super) equals: serde_json::Value,
}
