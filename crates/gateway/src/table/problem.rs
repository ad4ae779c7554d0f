//! What is wrong with parts of a configuration together, and what becomes of them.

use std::fmt;

use crate::model::Name;

/// A part that cannot be what it says. All others are served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Where.
    pub place: Place,
    /// What of it: the name of the model's field.
    pub part: &'static str,
    /// What should be there.
    pub expected: String,
    /// What is.
    pub found: String,
    /// What becomes of it.
    pub outcome: Outcome,
}

/// A part of a configuration, by name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    /// A listener.
    Listener(Name),
    /// A route, or one of its rules, from 0.
    Route(Name, Option<usize>),
    /// A route of connections.
    Stream(Name),
    /// An upstream.
    Upstream(Name),
    /// A certificate.
    Certificate(Name),
    /// A set of authorities.
    Authorities(Name),
    /// What is pushed to clients.
    Push,
}

/// What becomes of a part that has a problem.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It is as if it were not there.
    LeftOut,
    /// What served in its place before goes on.
    AsBefore,
    /// It keeps its requests and answers them 500.
    Answers500,
    /// The share of requests that would have gone there is answered 500; of mirrors nothing is sent there.
    ShareAnswers500,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Listener(name) => write!(f, "listener `{name}`"),
            Place::Route(name, None) => write!(f, "route `{name}`"),
            Place::Route(name, Some(rule)) => write!(f, "route `{name}`, rule {rule}"),
            Place::Stream(name) => write!(f, "stream `{name}`"),
            Place::Upstream(name) => write!(f, "upstream `{name}`"),
            Place::Certificate(name) => write!(f, "certificate `{name}`"),
            Place::Authorities(name) => write!(f, "authorities `{name}`"),
            Place::Push => f.write_str("push"),
        }
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Outcome::LeftOut => "it is left out",
            Outcome::AsBefore => "it goes on as it was",
            Outcome::Answers500 => "its requests are answered 500",
            Outcome::ShareAnswers500 => "its share of requests is answered 500",
        })
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Problem {
            place,
            part,
            expected,
            found,
            outcome,
        } = self;
        write!(
            f,
            "{place}: {part}: expected {expected}, found {found}; {outcome}"
        )
    }
}
