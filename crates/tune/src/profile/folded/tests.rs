//! Folded stacks by tables.

use super::{Folded, FoldedError, Side, shown, side};
use crate::profile::limits::SAMPLES;

#[test]
fn what_is_written_is_read() {
    let mut folded = Folded::default();
    folded.add("worker;main;f", 2);
    folded.add("worker;main;f", 1);
    folded.add("worker;main;read;vfs_read_[k]", 4);
    folded.add("a name with spaces;[unknown]", 1);
    let text = "a name with spaces;[unknown] 1\nworker;main;f 3\nworker;main;read;vfs_read_[k] 4\n";
    assert_eq!(folded.write(), text);
    assert_eq!(Folded::parse(text), Ok(folded.clone()));
    assert_eq!((folded.total(), folded.len()), (8, 3));
    assert_eq!(folded.unknown(), (1, 1));
}

#[test]
fn what_is_no_stack_is_named() {
    let line = |line, found: &str| {
        let found = found.to_owned();
        Err(FoldedError::Line { line, found })
    };
    let table = [
        ("", Err(FoldedError::Empty)),
        ("# a comment\n\n", Err(FoldedError::Empty)),
        ("a;b 1\na;b", line(2, "a;b")),
        ("a;b -1", line(1, "a;b -1")),
        (" 1", line(1, " 1")),
        ("a;b 1.5", line(1, "a;b 1.5")),
    ];
    for (text, expected) in table {
        assert_eq!(Folded::parse(text), expected, "{text:?}");
    }
    // As many as there can be, and one more.
    let most = format!("a;b {}\na;c 1\n", SAMPLES - 1);
    assert_eq!(Folded::parse(&most).unwrap().total(), SAMPLES);
    assert_eq!(
        Folded::parse(&format!("{most}a;b 1\n")),
        Err(FoldedError::TooMany(3))
    );
    let mut folded = Folded::parse(&most).unwrap();
    folded.add("a;b", u64::MAX);
    assert_eq!(folded.total(), SAMPLES);
}

#[test]
fn frames_have_a_side() {
    let table = [
        ("main", "main", Side::User, false),
        ("do_syscall_64_[k]", "do_syscall_64", Side::Kernel, false),
        ("push_[i]", "push", Side::User, true),
        ("[unknown]", "[unknown]", Side::Other, false),
        (
            "[unknown in libc.so.6]",
            "[unknown in libc.so.6]",
            Side::Other,
            false,
        ),
        ("[unknown]_[k]", "[unknown]", Side::Kernel, false),
        ("[u8]::len_[i]", "[u8]::len", Side::User, true),
    ];
    for (frame, name, side, inlined) in table {
        let shown = shown(frame);
        assert_eq!((shown.name, shown.side, shown.inlined), (name, side, inlined));
    }
    assert_eq!(side("worker;main;write_[k]"), Side::Kernel);
    assert_eq!(side("worker;main"), Side::User);
    assert_eq!(side("worker"), Side::Other);
}
