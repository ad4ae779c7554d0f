//! Conditions, and verdicts that become conditions.

/// A condition of a status, without time and generation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Condition {
    /// Its type, such as `Accepted`.
    pub kind: &'static str,
    /// Its status.
    pub is_true: bool,
    /// Its reason, in CamelCase.
    pub reason: &'static str,
    /// An explanation for people.
    pub message: String,
}

impl Condition {
    pub(crate) fn new(kind: &'static str, is_true: bool, reason: &'static str) -> Condition {
        Condition {
            kind,
            is_true,
            reason,
            message: String::new(),
        }
    }

    /// A condition that is true with `reason` unless there is a fault.
    pub(crate) fn unless(kind: &'static str, reason: &'static str, fault: Option<&Fault>) -> Condition {
        match fault {
            None => Condition::new(kind, true, reason),
            Some(fault) => Condition {
                kind,
                is_true: false,
                reason: fault.reason,
                message: fault.message.clone(),
            },
        }
    }
}

/// The reason for which something is not accepted or not resolved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    pub(crate) reason: &'static str,
    pub(crate) message: String,
}

impl Fault {
    pub(crate) fn new(reason: &'static str, message: impl Into<String>) -> Fault {
        Fault {
            reason,
            message: message.into(),
        }
    }
}
