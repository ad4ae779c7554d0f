//! Errors of parts of a configuration, each with its consequence.

use std::fmt;

use crate::model::Name;

/// An error of a part of a configuration. All other parts are served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The part.
    pub part: ConfigPart,
    /// The name of the model's field.
    pub field: &'static str,
    /// The expected value.
    pub expected: String,
    /// The value found.
    pub found: String,
    /// The consequence.
    pub consequence: Consequence,
}

/// A part of a configuration, by name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ConfigPart {
    /// A listener.
    Listener(Name),
    /// A route, or one of its rules by its index; texts count rules from 1.
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
pub enum Consequence {
    /// The part is treated as absent.
    Omitted,
    /// The previous configuration of the part stays in effect.
    Unchanged,
    /// The part keeps its requests and responds 500.
    Responds500,
    /// Its share of requests is answered with 500; mirrored requests are not sent.
    ShareResponds500,
}

impl fmt::Display for ConfigPart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ConfigPart::Listener(name) => write!(f, "listener `{name}`"),
            ConfigPart::Route(name, None) => write!(f, "route `{name}`"),
            ConfigPart::Route(name, Some(index)) => write!(f, "route `{name}`, rule {}", index + 1),
            ConfigPart::Stream(name) => write!(f, "stream `{name}`"),
            ConfigPart::Upstream(name) => write!(f, "upstream `{name}`"),
            ConfigPart::Certificate(name) => write!(f, "certificate `{name}`"),
            ConfigPart::Authorities(name) => write!(f, "authorities `{name}`"),
            ConfigPart::Push => f.write_str("push"),
        }
    }
}

impl fmt::Display for Consequence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Consequence::Omitted => "it is ignored",
            Consequence::Unchanged => "the previous version stays active",
            Consequence::Responds500 => "its requests receive 500",
            Consequence::ShareResponds500 => "its share of requests receives 500",
        })
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Problem {
            part: location,
            field: part,
            expected,
            found,
            consequence: outcome,
        } = self;
        write!(
            f,
            "{location}: {part}: expected {expected}, found {found}; {outcome}"
        )
    }
}
