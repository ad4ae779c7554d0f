//! Profiles: the kernel's records of samples, and files of folded stacks with all that is made of them.

use ringmain_sys::perf::record;
use ringmain_tune::profile::folded::Folded;
use ringmain_tune::profile::summary::{self, Summary};
use ringmain_tune::profile::{difference, flame};

/// The first byte says what the rest is: a record (without or with copied stacks), or a file.
///
/// Laws: no panic on any bytes; a file that is read is the same when it is written and read again; every sample has exactly one side; no
/// function has more samples than there are; a graph is text that XML takes, with as many boxes opened as closed; a profile does not
/// differ from itself.
///
/// # Panics
/// When a law is broken.
pub fn run(input: &[u8]) {
    let Some((kind, rest)) = input.split_first() else {
        return;
    };
    if kind % 3 < 2 {
        let _ = (record::time(rest), record::read(rest, kind % 3 == 1));
        return;
    }
    let Ok(text) = std::str::from_utf8(rest) else {
        return;
    };
    match Folded::parse(text) {
        Ok(folded) => check(&folded),
        Err(error) => assert!(!error.to_string().is_empty(), "an error says what is wrong"),
    }
}

fn check(folded: &Folded) {
    // Stacks that were never seen are nothing to draw.
    assert_eq!(
        Folded::parse(&folded.write()).as_ref(),
        Ok(folded),
        "what is written is read"
    );
    let figures = Summary::of(folded);
    assert_eq!(
        figures.user + figures.kernel + figures.other,
        folded.total(),
        "a sample has one side"
    );
    for function in &figures.functions {
        assert!(
            function.own <= function.all && function.own <= folded.total(),
            "{function:?}"
        );
    }
    for found in &figures.suspects {
        assert!(found.innermost <= found.samples && found.samples <= folded.total());
    }
    assert!(!summary::profile_text(&figures, None).is_empty());
    let svg = flame::draw(folded, "a profile", "fuzzed");
    assert_eq!(svg.matches("<g ").count(), svg.matches("</g>").count());
    assert!(
        !svg.contains(|c: char| c.is_control() && c != '\n'),
        "XML holds no such character"
    );
    let same = difference::compare(folded, folded);
    assert!(
        same.functions
            .iter()
            .all(|change| !change.beyond_chance && change.rise() == 0.0)
    );
}
