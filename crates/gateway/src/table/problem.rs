//! Errors of parts of a configuration, each with its consequence.

use std::fmt;

use crate::model::Name;

/// An error of a part of a configuration. All other parts are served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The part.
    pub place: Place,
    /// The name of the model's field.
    pub part: &'static str,
    /// The expected value.
    pub expected: String,
    /// The value found.
    pub found: String,
    /// The consequence.
    pub outcome: Outcome,
}

/// A part of a configuration, by name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    /// A listener.
    Listener(Name),
    /// A route, or one of its rules, from 0.
    Route(Name, Option<usize>),
    /// A stream route.
    Stream(Name),
    /// An upstream.
    Upstream(Name),
    /// A certificate.
    Certificate(Name),
    /// A set of authorities.
    Authorities(Name),
    /// The `push` section.
    Push,
}

/// The consequence of a problem for its part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The part is treated as absent.
    LeftOut,
    /// The previous configuration of the part stays in effect.
    AsBefore,
    /// The part keeps its requests and answers with 500.
    Answers500,
    /// Its share of requests is answered with 500; mirrored requests are not sent.
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
