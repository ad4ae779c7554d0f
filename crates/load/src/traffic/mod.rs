//! What is sent and what is made of the answers: requests compiled once, to be sent any number of times.
//!
//! ```text
//! flags, scenario ─▶ draft ─▶ compile (h1::RequestEncoder) ─▶ Traffic ─▶ pick a flow ─▶ Step: write … judge
//!                                                                        Values: what a flow has captured
//! ```
//!
//! Pure: no socket, no clock, no file. Randomness comes from the caller. Whatever a server sends that is captured and
//! sent back, no request is malformed and none ends where another does not expect it (`template` has the rules).

mod compile;
mod draft;
mod error;
mod judge;
mod parts;
mod pointer;
mod socket;
mod template;
#[cfg(test)]
mod tests;
mod values;

use std::time::Duration;

use bytes::Bytes;
use ringmain_wire::h1::{Fields, Method};

use crate::limits;
use compile::{Message, Whole};
pub use draft::{Body, Capture, Check, Expect, FlowDraft, Request, Source, StepDraft, Test};
use error::Problem;
pub use error::{Part, TrafficError};
pub use judge::FailedCheck;
use judge::Judge;
pub(crate) use parts::{Filled, Filling, Parts};
pub use socket::Socket;
pub(crate) use socket::{Content, NONCE_BYTES};
use template::Names;
pub(crate) use template::shorten;
pub use values::Values;

/// A mix of flows. Immutable, so that all workers share it.
#[derive(Clone, Debug)]
pub struct Traffic {
    flows: Vec<Flow>,
    /// The sum of the weights up to and with each flow.
    weights: Vec<u64>,
    /// Of WebSockets: what is sent in place of the one flow's one request.
    socket: Option<Socket>,
}

/// Steps that one connection takes one after the other.
#[derive(Clone, Debug)]
pub struct Flow {
    /// What reports call it.
    pub name: String,
    /// How often it is chosen, relative to the other flows.
    pub weight: u32,
    /// At least one.
    pub steps: Vec<Step>,
}

/// One request of a flow, and what is made of its answer.
#[derive(Clone, Debug)]
pub struct Step {
    name: String,
    method: String,
    pause: Option<Duration>,
    message: Message,
    judge: Judge,
}

impl Traffic {
    /// One request, again and again.
    ///
    /// # Errors
    /// The first part of the request that cannot be sent or checked.
    pub fn single(request: Request) -> Result<Traffic, TrafficError> {
        let step = StepDraft {
            name: String::new(),
            request,
            pause: None,
            captures: Vec::new(),
        };
        Traffic::mix(&[FlowDraft {
            name: "request".to_owned(),
            weight: 1,
            steps: vec![step],
        }])
    }

    /// Flows, chosen by weight.
    ///
    /// # Errors
    /// The first part of a flow that cannot be sent or checked, no flow or more than [`limits::FLOWS`], a weight of 0, no
    /// step or more than [`limits::STEPS`].
    pub fn mix(drafts: &[FlowDraft]) -> Result<Traffic, TrafficError> {
        if drafts.is_empty() || drafts.len() > limits::FLOWS {
            let expected = format!("1 to {} flows", limits::FLOWS);
            return Err(Problem::new(Part::Flows, expected, drafts.len().to_string()).at(0, 0));
        }
        let mut total = 0;
        let mut traffic = Traffic {
            flows: Vec::with_capacity(drafts.len()),
            weights: Vec::with_capacity(drafts.len()),
            socket: None,
        };
        for (index, draft) in drafts.iter().enumerate() {
            traffic.flows.push(Flow::new(draft, index)?);
            total += u64::from(draft.weight);
            traffic.weights.push(total);
        }
        Ok(traffic)
    }

    /// The messages of WebSockets: one flow of one step, as of requests, and what is really sent in [`Traffic::socket`].
    ///
    /// # Errors
    /// The request cannot open a WebSocket, or a message is too long.
    pub fn messages(request: Request, bytes: u32, deflate: bool) -> Result<Traffic, TrafficError> {
        let socket = Socket::new(&request, bytes, deflate).map_err(|problem| problem.at(0, 0))?;
        let traffic = Traffic::single(Request::get("/", "localhost"))?;
        Ok(Traffic {
            socket: Some(socket),
            ..traffic
        })
    }

    /// What is sent over WebSockets, if that is what this is.
    #[must_use]
    pub fn socket(&self) -> Option<&Socket> {
        self.socket.as_ref()
    }

    /// All flows, at least one.
    #[must_use]
    pub fn flows(&self) -> &[Flow] {
        &self.flows
    }

    /// The index of a flow, by weight. Where there is only one, no random number is drawn.
    #[must_use]
    #[inline]
    pub fn pick(&self, random: &mut fastrand::Rng) -> usize {
        match self.weights.as_slice() {
            [] | [_] => 0,
            [.., total] => {
                let drawn = random.u64(..total);
                self.weights.partition_point(|&end| end <= drawn)
            }
        }
    }

    /// Whether a connection may send a request before it has the answer to the last one: every flow is one step without
    /// pause and captures.
    #[must_use]
    pub fn may_pipeline(&self) -> bool {
        self.flows.iter().all(|flow| match flow.steps.as_slice() {
            [step] => step.pause.is_none() && !step.judge.captures(),
            _ => false,
        })
    }
}

impl Flow {
    fn new(draft: &FlowDraft, index: usize) -> Result<Flow, TrafficError> {
        if draft.weight == 0 {
            let expected = "a weight of at least 1 (leave the flow out if it is not to be used)";
            return Err(Problem::new(Part::Weight, expected, "0").at(index, 0));
        }
        if draft.steps.is_empty() || draft.steps.len() > limits::STEPS {
            let expected = format!("1 to {} steps", limits::STEPS);
            return Err(Problem::new(Part::Steps, expected, draft.steps.len().to_string()).at(index, 0));
        }
        let mut names = Names::new();
        let mut steps = Vec::with_capacity(draft.steps.len());
        for (place, step) in draft.steps.iter().enumerate() {
            steps.push(Step::new(step, &mut names).map_err(|problem| problem.at(index, place))?);
        }
        Ok(Flow {
            name: draft.name.clone(),
            weight: draft.weight,
            steps,
        })
    }
}

impl Step {
    fn new(draft: &StepDraft, names: &mut Names) -> Result<Step, Problem> {
        let request = &draft.request;
        // In this order: what this answer brings is not there yet when the request is sent.
        let message = Message::new(request, names)?;
        let judge = Judge::new(&request.expect, &draft.captures, names)?;
        let name = match draft.name.as_str() {
            "" => format!("{} {}", request.method, request.target),
            name => name.to_owned(),
        };
        Ok(Step {
            name,
            method: request.method.clone(),
            pause: draft.pause,
            message,
            judge,
        })
    }

    /// What reports call it.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The method, which says how the answer is framed.
    #[must_use]
    pub fn method(&self) -> Method<'_> {
        Method::new(&self.method)
    }

    /// Think time before it is sent.
    #[must_use]
    pub fn pause(&self) -> Option<Duration> {
        self.pause
    }

    /// The whole request, if it is the same each time.
    #[must_use]
    #[inline]
    pub fn constant(&self) -> Option<&Bytes> {
        match &self.message.whole {
            Whole::Constant(bytes) => Some(bytes),
            Whole::Template(_) => None,
        }
    }

    /// The request in its parts.
    pub(crate) fn parts(&self) -> &Parts {
        &self.message.parts
    }

    /// Appends one request. Allocates nothing once `out` is large enough.
    pub fn write(
        &self,
        out: &mut Vec<u8>,
        values: &Values,
        random: &mut fastrand::Rng,
        sequence: &mut Sequence,
    ) {
        match &self.message.whole {
            Whole::Constant(bytes) => out.extend_from_slice(bytes),
            Whole::Template(template) => template.write(out, values, random, sequence),
        }
    }

    /// Whether [`judge`](Self::judge) looks at the body; if not, any slice will do.
    #[must_use]
    pub fn needs_body(&self) -> bool {
        self.judge.needs_body()
    }

    /// Whether [`judge`](Self::judge) looks at the fields; if not, any will do.
    #[must_use]
    pub fn needs_fields(&self) -> bool {
        self.judge.needs_fields()
    }

    /// Whether the answer is what was expected; keeps what is to be captured. An integer compare or two where only a status
    /// is expected.
    ///
    /// # Errors
    /// The first check or capture that failed. Values that were not captured are empty, and the rest of the flow makes
    /// no sense.
    #[inline]
    pub fn judge<'s>(
        &'s self,
        status: u16,
        fields: &Fields<'_>,
        body: &[u8],
        values: &mut Values,
    ) -> Result<(), FailedCheck<'s>> {
        self.judge.judge(status, fields, body, values)
    }
}

/// Numbers for `{{seq}}`: each is given once in a run, though workers share nothing.
#[derive(Clone, Debug)]
pub struct Sequence {
    next: u64,
    workers: u64,
}

impl Sequence {
    /// For worker `worker` of `workers`, the first being 0: it yields `worker`, `worker + workers`, and so on.
    #[must_use]
    pub fn new(worker: usize, workers: usize) -> Sequence {
        Sequence {
            next: worker as u64,
            workers: workers as u64,
        }
    }

    #[inline]
    fn next(&mut self) -> u64 {
        let number = self.next;
        self.next = number.wrapping_add(self.workers);
        number
    }
}
