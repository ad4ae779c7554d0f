//! The kernel's audit system: whether it is on, its rules, and the one rule that has new tasks go without.
//!
//! Asking needs CAP_AUDIT_CONTROL in the initial user namespace.

#[cfg(test)]
mod tests;

use std::io;

use crate::netlink::{Ask, Family, Message, Netlink, u32_at};

const GET: u16 = 1000;
const ADD_RULE: u16 = 1011;
const DELETE_RULE: u16 = 1012;
const LIST_RULES: u16 = 1013;
/// `AUDIT_FILTER_TASK`: decided once, when a task begins.
const TASK: u32 = 1;
const NEVER: u32 = 0;
/// Words of `audit_rule_data`: three, the mask of system calls, three arrays of fields, a length.
const RULE_WORDS: usize = 3 + 64 + 3 * 64 + 1;
const MASK: std::ops::Range<usize> = 3..3 + 64;

/// What the audit system does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status {
    /// 0 off, 1 on, 2 on until the host restarts.
    pub enabled: u32,
    /// The process that takes its records; zero for none.
    pub daemon: u32,
    /// Records that were lost.
    pub lost: u32,
    /// Rules of all lists.
    pub rules: usize,
    /// Whether new tasks go without: a rule `never,task` without conditions is there.
    pub never_task: bool,
}

/// Looks at it.
///
/// # Errors
/// `EPERM` without the right; `EPROTONOSUPPORT` in a kernel without it; `ECONNREFUSED` in a namespace that has none.
pub fn status() -> io::Result<Status> {
    let mut netlink = Netlink::open(Family::Audit)?;
    let told = netlink.request(GET, Ask::Get, &[])?;
    let status = told.iter().find(|message| message.kind == GET);
    let word = |at: usize| status.and_then(|message| u32_at(&message.payload, at * 4));
    let cut = || {
        io::Error::new(
            io::ErrorKind::InvalidData,
            "audit: expected its status; found a cut one",
        )
    };
    let (enabled, daemon) = (word(1).ok_or_else(cut)?, word(3).ok_or_else(cut)?);
    let lost = word(6).ok_or_else(cut)?;
    let rules = netlink.request(LIST_RULES, Ask::Dump, &[])?;
    Ok(Status {
        enabled,
        daemon,
        lost,
        rules: rules.iter().filter(|message| message.kind == LIST_RULES).count(),
        never_task: rules.iter().any(is_never_task),
    })
}

/// Adds or takes away the rule that has new tasks go without audit. Tasks that run keep what they began with.
///
/// # Errors
/// `EEXIST` or `ENOENT` if it is as wanted already; `EPERM` without the right, or where rules are locked.
pub fn set_never_task(present: bool) -> io::Result<()> {
    let kind = if present { ADD_RULE } else { DELETE_RULE };
    Netlink::open(Family::Audit)?.request(kind, Ask::Change(0), &never_task())?;
    Ok(())
}

fn never_task() -> Vec<u8> {
    let mut words = [0u32; RULE_WORDS];
    words[0] = TASK;
    words[1] = NEVER;
    // As auditctl writes it: all system calls, which this list does not look at.
    words[MASK].fill(u32::MAX);
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

/// A rule of this list and action without a condition.
fn is_never_task(message: &Message) -> bool {
    let word = |at: usize| u32_at(&message.payload, at * 4);
    message.kind == LIST_RULES && word(0) == Some(TASK) && word(1) == Some(NEVER) && word(2) == Some(0)
}
