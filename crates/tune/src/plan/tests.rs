//! What is kept of a plan and of a journal together.

use super::*;
use crate::journal::Intent;

fn change(key: &str, now: &str, wanted: &str) -> Change {
    Change {
        key: key.parse().unwrap(),
        now: now.into(),
        wanted: wanted.into(),
    }
}

fn entry(step: &str, change: &Change, undone: bool) -> Entry {
    Entry {
        intent: Intent {
            serial: 0,
            step: step.into(),
            key: change.key.clone(),
            before: change.now.clone(),
            wanted: change.wanted.clone(),
            also: Vec::new(),
        },
        effective: None,
        undone,
    }
}

#[test]
fn what_is_applied_joins_the_plan_with_its_first_value_and_its_last() {
    const SOMAXCONN: &str = "/proc/sys/net/core/somaxconn";
    let planned = Planned {
        step: Id::Ports,
        interface: None,
        changes: vec![change("/proc/sys/net/ipv4/tcp_tw_reuse", "2", "1")],
        applied: false,
    };
    let entries = [
        entry("backlogs", &change(SOMAXCONN, "128", "4096"), false),
        // A second run, after another wish.
        entry("backlogs", &change(SOMAXCONN, "4096", "65535"), false),
        entry("thp", &change("/sys/kernel/mm/x", "a", "b"), true),
        entry("of-another-version", &change("/sys/y", "a", "b"), false),
        // Planned anew, since somebody has changed it.
        entry(
            "ports",
            &change("/proc/sys/net/ipv4/tcp_tw_reuse", "0", "1"),
            false,
        ),
    ];
    let applied = Planned {
        step: Id::Backlogs,
        interface: None,
        changes: vec![change(SOMAXCONN, "128", "65535")],
        applied: true,
    };
    assert_eq!(with_applied(vec![planned.clone()], &entries), [applied, planned]);
}
