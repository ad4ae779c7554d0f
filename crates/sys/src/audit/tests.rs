//! What the kernel says about audit, read from bytes.

use super::*;

fn rule(words: [u32; 3]) -> Message {
    let mut bytes = never_task();
    for (at, word) in words.iter().enumerate() {
        bytes[at * 4..at * 4 + 4].copy_from_slice(&word.to_ne_bytes());
    }
    Message {
        kind: LIST_RULES,
        payload: bytes,
    }
}

#[test]
fn the_rule_is_recognised_among_others() {
    assert!(is_never_task(&rule([TASK, NEVER, 0])));
    // With a condition it leaves some tasks audited; other lists and actions are other rules.
    assert!(!is_never_task(&rule([TASK, NEVER, 1])));
    assert!(!is_never_task(&rule([4, NEVER, 0])));
    assert!(!is_never_task(&rule([TASK, 2, 0])));
}

#[test]
fn the_rule_has_the_length_that_the_kernel_expects() {
    assert_eq!(never_task().len(), 1040);
}

#[test]
fn a_cut_rule_is_none() {
    let whole = rule([TASK, NEVER, 0]);
    for end in 0..12 {
        let payload = whole.payload[..end].to_vec();
        assert!(!is_never_task(&Message {
            kind: LIST_RULES,
            payload
        }));
    }
}
