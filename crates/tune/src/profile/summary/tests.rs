//! The figures of a small profile, and how they are said.

use std::time::Duration;

use ringmain_sys::perf::Clock;

use super::Summary;
use crate::profile::difference::compare;
use crate::profile::folded::{Folded, Side};
use crate::profile::golden;
use crate::profile::{Facts, KernelView, StackKind};

const STACKS: &str = "\
worker-*;main;parse 120
worker-*;main;parse;next_[i] 80
worker-*;main;next 20
worker-*;main;send;do_syscall_64_[k];tcp_sendmsg_[k] 500
worker-*;main;send;do_syscall_64_[k];tcp_sendmsg_[k];__dev_queue_xmit_[k];nf_hook_slow_[k] 180
worker-*;main;walk;walk;walk 60
worker-*;[unknown in libx.so] 40
";

fn facts() -> Facts {
    Facts {
        who: "process 7 (server)".into(),
        clock: Clock::Timer,
        frequency: 997,
        stacks: StackKind::Copied(16 << 10),
        kernel: KernelView::Named,
        lasted: Duration::from_millis(10_020),
        samples: 1000,
        lost: 3,
        threads: vec![("worker-0".into(), 600), ("worker-1".into(), 400)],
        remarks: vec![
            "3 records were lost to a full buffer, mostly samples: request fewer with --frequency".into(),
        ],
    }
}

#[test]
fn sides_and_functions_are_counted() {
    let summary = Summary::of(&Folded::parse(STACKS).unwrap());
    assert_eq!(
        (
            summary.total,
            summary.user,
            summary.kernel,
            summary.other,
            summary.unknown
        ),
        (1000, 280, 680, 40, (40, 40))
    );
    let top: Vec<_> = summary
        .top(Side::User, 9)
        .map(|f| (f.name.as_str(), f.own, f.all))
        .collect();
    // A function is one, inlined or not, and recursion counts once.
    assert_eq!(top, [("parse", 120, 200), ("next", 100, 100), ("walk", 60, 60)]);
    let top: Vec<_> = summary
        .top(Side::Kernel, 1)
        .map(|f| (f.name.as_str(), f.own, f.all))
        .collect();
    assert_eq!(top, [("tcp_sendmsg", 500, 680)]);
}

#[test]
fn the_text_is_as_it_was() {
    let summary = Summary::of(&Folded::parse(STACKS).unwrap());
    golden::check(
        "summary/golden/profile.txt",
        &super::profile_text(&summary, Some(&facts())),
    );
}

#[test]
fn suspects_that_cannot_be_seen_are_not_said_to_be_absent() {
    let summary = Summary::of(&Folded::parse("w;main 100\n").unwrap());
    for (kernel, expected) in [
        (KernelView::Named, "none has as much as"),
        (KernelView::Nameless, "its functions have no names"),
        (KernelView::Nothing, "it is not visible"),
    ] {
        let text = super::profile_text(&summary, Some(&Facts { kernel, ..facts() }));
        assert!(text.contains(expected), "{text}");
        assert_eq!(text.contains("none has"), kernel == KernelView::Named);
    }
}

#[test]
fn the_document_is_as_it_was() {
    let summary = Summary::of(&Folded::parse(STACKS).unwrap());
    golden::check(
        "summary/golden/profile.json",
        &super::profile_json(&summary, &facts()),
    );
}

#[test]
fn a_difference_is_told() {
    let before = Folded::parse(STACKS).unwrap();
    let after =
        Folded::parse("worker-*;main;parse 1500\nworker-*;main;send;do_syscall_64_[k];tcp_sendmsg_[k] 500\n");
    let found = compare(&before, &after.unwrap());
    let names = ["before.folded", "after.folded"];
    golden::check(
        "summary/golden/difference.txt",
        &super::difference_text(&found, names),
    );
    golden::check(
        "summary/golden/difference.json",
        &super::difference_json(&found, names),
    );
}

#[test]
fn no_difference_is_told() {
    let one = Folded::parse(STACKS).unwrap();
    let text = super::difference_text(&compare(&one, &one), ["a", "b"]);
    assert!(
        text.contains("\nKnown costs\n  none of 1 has changed by more than"),
        "{text}"
    );
    assert!(!text.contains("before   after"), "{text}");
}
