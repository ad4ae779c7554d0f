//! What is wrong with a draft: which part, what was expected there, what was found.
//!
//! Knows parts, not lines of a file: who read the file maps one to the other.

use std::fmt;

/// A draft that cannot be compiled.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{part}: expected {expected}, found {found}")]
pub struct TrafficError {
    /// Index of the flow; 0 where there is none.
    pub flow: usize,
    /// Index of the step in the flow; 0 where there is none.
    pub step: usize,
    /// What of it.
    pub part: Part,
    /// What should stand there.
    pub expected: String,
    /// What does.
    pub found: String,
}

/// A part of a draft.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// The list of flows.
    Flows,
    /// A flow's weight.
    Weight,
    /// A flow's list of steps.
    Steps,
    /// A step's request as a whole.
    Request,
    /// Its method.
    Method,
    /// Its target.
    Target,
    /// Its host.
    Host,
    /// The header of that index.
    Header(usize),
    /// Its body.
    Body,
    /// The expected statuses.
    Status,
    /// The check of that index.
    Check(usize),
    /// The capture of that index.
    Capture(usize),
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Part::Flows => f.write_str("flows"),
            Part::Weight => f.write_str("weight"),
            Part::Steps => f.write_str("steps"),
            Part::Request => f.write_str("request"),
            Part::Method => f.write_str("method"),
            Part::Target => f.write_str("path"),
            Part::Host => f.write_str("host"),
            Part::Header(index) => write!(f, "header {}", index + 1),
            Part::Body => f.write_str("body"),
            Part::Status => f.write_str("expected status"),
            Part::Check(index) => write!(f, "check {}", index + 1),
            Part::Capture(index) => write!(f, "capture {}", index + 1),
        }
    }
}

/// What is wrong with a part, before it is known of which step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Problem {
    pub(super) part: Part,
    pub(super) expected: String,
    pub(super) found: String,
}

impl Problem {
    pub(super) fn new(part: Part, expected: impl Into<String>, found: impl Into<String>) -> Problem {
        Problem {
            part,
            expected: expected.into(),
            found: found.into(),
        }
    }

    /// As an error of that step.
    pub(super) fn at(self, flow: usize, step: usize) -> TrafficError {
        TrafficError {
            flow,
            step,
            part: self.part,
            expected: self.expected,
            found: self.found,
        }
    }
}
