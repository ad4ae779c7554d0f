//! From the file to drafts: what the values mean, and where each part of a draft was written, so that what
//! compiling finds wrong has a line and a column.

use std::collections::BTreeSet;

use bytes::Bytes;

use super::Scenario;
use super::document::{self, Document};
use super::error::ScenarioError;
use super::settings::{self, time};
use super::values::{At, OneOrMany, Pairs, Position};
use crate::traffic::{
    Body, Capture, Check, Expect, FlowDraft, Part, Request, Source, StepDraft, Test, Traffic, TrafficError,
    shorten,
};

/// Reads the file that a `body_file` names.
pub(super) type Read<'r> = &'r mut dyn FnMut(&str) -> std::io::Result<Vec<u8>>;

/// Where the parts of a mix stand.
struct Places {
    flows: Position,
    each: Vec<FlowPlaces>,
}

struct FlowPlaces {
    weight: Position,
    steps: Position,
    each: Vec<StepPlaces>,
}

/// Parts that are not written stand where the request does.
struct StepPlaces {
    request: Position,
    method: Position,
    target: Position,
    headers: Vec<Position>,
    body: Position,
    status: Position,
    checks: Vec<Position>,
    captures: Vec<Position>,
}

/// Makes a scenario of a document.
pub(super) fn build(file: &str, document: Document, read: Read<'_>) -> Result<Scenario, ScenarioError> {
    let settings = settings::of(file, &document)?;
    let mut builder = Builder {
        file,
        defaults: document.defaults,
        read,
    };
    let mut drafts = Vec::new();
    let mut places = Places {
        flows: document.flows.position,
        each: Vec::new(),
    };
    let mut names = BTreeSet::new();
    for flow in document.flows.value {
        let name = &flow.name;
        if name.value.is_empty() || !names.insert(name.value.clone()) {
            let expected = "a name that no other flow has";
            let found = format!("`{}`", name.value);
            return Err(ScenarioError::new(file, name.position, "name", expected, found));
        }
        let (draft, place) = builder.flow(flow)?;
        drafts.push(draft);
        places.each.push(place);
    }
    // The host comes later; all else can be wrong now.
    Traffic::mix(&drafts).map_err(|error| places.locate(file, error))?;
    Ok(Scenario {
        file: file.to_owned(),
        settings,
        drafts,
    })
}

impl Places {
    fn locate(&self, file: &str, error: TrafficError) -> ScenarioError {
        let position = self.position(&error);
        // The key of the file; which of several it is, the place says.
        let what = match error.part {
            Part::Header(_) => "headers".to_owned(),
            Part::Check(_) => "expect".to_owned(),
            Part::Capture(_) => "capture".to_owned(),
            part => part.to_string(),
        };
        ScenarioError::new(file, position, what, error.expected, error.found)
    }

    fn position(&self, error: &TrafficError) -> Position {
        let Some(flow) = self.each.get(error.flow) else {
            return self.flows;
        };
        match (error.part, flow.each.get(error.step)) {
            (Part::Flows, _) => self.flows,
            (Part::Weight, _) => flow.weight,
            (Part::Steps, _) | (_, None) => flow.steps,
            (part, Some(step)) => step.position(part),
        }
    }
}

impl StepPlaces {
    fn position(&self, part: Part) -> Position {
        let of = |list: &[Position], index: usize| list.get(index).copied().unwrap_or(self.request);
        match part {
            Part::Method => self.method,
            Part::Target => self.target,
            Part::Header(index) => of(&self.headers, index),
            Part::Body => self.body,
            Part::Status => self.status,
            Part::Check(index) => of(&self.checks, index),
            Part::Capture(index) => of(&self.captures, index),
            Part::Flows | Part::Weight | Part::Steps | Part::Request | Part::Host => self.request,
        }
    }
}

struct Builder<'b> {
    file: &'b str,
    defaults: document::Defaults,
    read: Read<'b>,
}

impl Builder<'_> {
    fn wrong(
        &self,
        position: Position,
        what: &str,
        expected: impl Into<String>,
        found: impl Into<String>,
    ) -> ScenarioError {
        ScenarioError::new(self.file, position, what, expected, found)
    }

    fn flow(&mut self, flow: document::Flow) -> Result<(FlowDraft, FlowPlaces), ScenarioError> {
        let mut draft = FlowDraft {
            name: flow.name.value,
            weight: flow.weight.as_ref().map_or(1, |weight| weight.value),
            steps: Vec::new(),
        };
        let mut places = FlowPlaces {
            weight: flow.weight.map_or(flow.name.position, |weight| weight.position),
            steps: flow.steps.position,
            each: Vec::new(),
        };
        for step in flow.steps.value {
            let (step, place) = self.step(step)?;
            draft.steps.push(step);
            places.each.push(place);
        }
        Ok((draft, places))
    }

    fn step(&mut self, step: document::Step) -> Result<(StepDraft, StepPlaces), ScenarioError> {
        let At {
            value: request,
            position,
        } = step.request;
        let (body, body_at) = self.body(&request, position)?;
        let mut headers = merged(&self.defaults.headers, &request.headers);
        if let Some(json) = &request.json
            && !headers
                .iter()
                .any(|(name, _)| name.eq_ignore_ascii_case("content-type"))
        {
            let value = "application/json".to_owned();
            let position = json.position;
            headers.push(("Content-Type".to_owned(), At { value, position }));
        }
        let (expect, status, checks) = self.expect(step.expect, position)?;
        let places = StepPlaces {
            request: position,
            method: request.method.as_ref().map_or(position, |method| method.position),
            target: request.path.position,
            headers: headers.iter().map(|(_, value)| value.position).collect(),
            body: body_at,
            status,
            checks,
            captures: step
                .capture
                .0
                .iter()
                .map(|(_, capture)| capture.position)
                .collect(),
        };
        let captures = step.capture.0.into_iter().map(|(name, capture)| Capture {
            name,
            from: match capture.value {
                document::Capture::Header(name) => Source::Header(name),
                document::Capture::Json(pointer) => Source::Json(pointer),
                document::Capture::Between([before, after]) => Source::Between { before, after },
            },
        });
        let draft = StepDraft {
            name: step.name.unwrap_or_default(),
            request: Request {
                method: request
                    .method
                    .map_or_else(|| "GET".to_owned(), |method| method.value),
                target: request.path.value,
                host: "localhost".to_owned(),
                headers: headers
                    .into_iter()
                    .map(|(name, value)| (name, value.value))
                    .collect(),
                body,
                expect,
            },
            pause: time(self.file, "pause", step.pause.as_ref())?,
            captures: captures.collect(),
        };
        Ok((draft, places))
    }

    fn body(
        &mut self,
        request: &document::Request,
        position: Position,
    ) -> Result<(Body, Position), ScenarioError> {
        let given = [
            request.body.as_ref().map(|body| body.position),
            request.json.as_ref().map(|json| json.position),
            request.body_file.as_ref().map(|file| file.position),
        ];
        let mut given = given.into_iter().flatten();
        let first = given.next();
        if let Some(second) = given.next() {
            let expected = "one of `body`, `json` and `body_file`";
            return Err(self.wrong(second, "request", expected, "another one"));
        }
        let body = if let Some(text) = &request.body {
            Body::Text(text.value.clone())
        } else if let Some(json) = &request.json {
            Body::Json(json.value.to_string())
        } else if let Some(file) = &request.body_file {
            self.body_file(file)?
        } else {
            Body::None
        };
        Ok((body, first.unwrap_or(position)))
    }

    fn body_file(&mut self, file: &At<String>) -> Result<Body, ScenarioError> {
        let bytes = (self.read)(&file.value).map_err(|error| {
            let found = format!("`{}`: {error}", file.value);
            self.wrong(file.position, "body_file", "a file that can be read", found)
        })?;
        Ok(Body::Bytes(Bytes::from(bytes)))
    }

    /// What a step expects, with the places of the status and of each check.
    fn expect(
        &self,
        own: document::Expect,
        position: Position,
    ) -> Result<(Expect, Position, Vec<Position>), ScenarioError> {
        let defaults = &self.defaults.expect;
        let status = own.status.or_else(|| defaults.status.clone());
        let status_at = status.as_ref().map_or(position, |status| status.position);
        let mut statuses = Vec::new();
        for status in status.map_or_else(Vec::new, At::into_list) {
            let expected = "a status such as 200 or a class such as 2xx, without interim ones";
            let range = status.value.range().ok_or_else(|| {
                let found = format!("`{}`", shorten(&status.value.0));
                self.wrong(status.position, "status", expected, found)
            })?;
            statuses.push(range);
        }
        let mut checks = Vec::new();
        for At { value, position } in listed(own.header, &defaults.header) {
            let name = value.name;
            let test = self.test(value.equals, value.contains, position)?;
            checks.push((Check::Header { name, test }, position));
        }
        for At { value, position } in listed(own.body, &defaults.body) {
            let test = self.test(value.equals, value.contains, position)?;
            checks.push((Check::Body(test), position));
        }
        for At { value, position } in listed(own.json, &defaults.json) {
            let (pointer, equals) = (value.pointer, value.equals);
            checks.push((Check::Json { pointer, equals }, position));
        }
        let (checks, places) = checks.into_iter().unzip();
        Ok((Expect { statuses, checks }, status_at, places))
    }

    fn test(
        &self,
        equals: Option<String>,
        contains: Option<String>,
        position: Position,
    ) -> Result<Test, ScenarioError> {
        match (equals, contains) {
            (Some(text), None) => Ok(Test::Equals(text)),
            (None, Some(text)) => Ok(Test::Contains(text)),
            (both, _) => {
                let found = if both.is_some() { "both" } else { "neither" };
                Err(self.wrong(position, "expect", "either `equals` or `contains`", found))
            }
        }
    }
}

fn listed<T: Clone>(own: Option<At<OneOrMany<T>>>, default: &Option<At<OneOrMany<T>>>) -> Vec<At<T>> {
    own.or_else(|| default.clone())
        .map_or_else(Vec::new, At::into_list)
}

/// The defaults that are not replaced, then the request's own.
fn merged(defaults: &Pairs<At<String>>, own: &Pairs<At<String>>) -> Vec<(String, At<String>)> {
    let replaced = |name: &str| own.0.iter().any(|(own, _)| own.eq_ignore_ascii_case(name));
    let kept = defaults.0.iter().filter(|(name, _)| !replaced(name));
    kept.chain(&own.0).cloned().collect()
}
