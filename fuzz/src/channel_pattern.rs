//! Patterns of channels' names: the first line of an input is a pattern, the others are names.

use std::collections::BTreeSet;

use ringmain_push::fuzzing::{PATTERN_BYTES, is_of};

/// Names read of an input, and what a name may have, as channels' do.
const NAMES: usize = 16;
const NAME_BYTES: usize = 255;

/// A part of a pattern, as the second reader has it.
#[derive(Debug)]
enum Part {
    Byte(u8),
    One,
    Some,
    Class { not: bool, members: BTreeSet<u8> },
    Choice(Vec<Vec<Part>>),
}

/// Laws: no panic; a pattern can be if the second reader finds it can, and the same names are of it; every name, with each of its
/// characters taken literally, is the only one of its own pattern.
///
/// # Panics
/// When a law is broken.
pub fn run(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else {
        return;
    };
    let mut lines = text.split('\n');
    let pattern = lines.next().unwrap_or_default();
    let mut rest = pattern.as_bytes();
    let parts = parts(&mut rest, false).filter(|_| pattern.len() <= PATTERN_BYTES);
    let names = lines.filter(|name| name.is_ascii() && name.len() <= NAME_BYTES);
    let names: Vec<&str> = [""].into_iter().chain(names).take(NAMES).collect();
    for name in &names {
        let naive = parts
            .as_ref()
            .map(|parts| ends(parts, name.as_bytes(), &[0].into()).contains(&name.len()));
        assert_eq!(is_of(pattern, name), naive, "{pattern:?}: {name:?}");
        let own: String = name.chars().flat_map(|c| ['\\', c]).collect();
        if own.len() <= PATTERN_BYTES {
            for other in &names {
                assert_eq!(is_of(&own, other), Some(name == other), "{own:?}: {other:?}");
            }
        }
    }
}

/// Where what is read of a name may end that begins at one of these places.
fn ends(parts: &[Part], name: &[u8], starts: &BTreeSet<usize>) -> BTreeSet<usize> {
    let mut places = starts.clone();
    for part in parts {
        let one = |is: &dyn Fn(u8) -> bool| -> BTreeSet<usize> {
            let goes = places
                .iter()
                .filter(|at| name.get(**at).is_some_and(|byte| is(*byte)));
            goes.map(|at| at + 1).collect()
        };
        places = match part {
            Part::Byte(own) => one(&|byte| byte == *own),
            Part::One => one(&|_| true),
            Part::Class { not, members } => one(&|byte| members.contains(&byte) != *not),
            Part::Some => places
                .first()
                .map_or_else(BTreeSet::new, |first| (*first..=name.len()).collect()),
            Part::Choice(branches) => {
                let ends = branches.iter().map(|branch| ends(branch, name, &places));
                ends.flatten().collect()
            }
        };
    }
    places
}

/// Takes parts off the front of a text: all of it, or up to what ends a branch. `None`: it is none.
fn parts(text: &mut &[u8], in_branch: bool) -> Option<Vec<Part>> {
    let mut parts = Vec::new();
    while let Some(&byte) = text.first() {
        if in_branch && (byte == b',' || byte == b'}') {
            break;
        }
        take(text)?;
        parts.push(match byte {
            b'*' => Part::Some,
            b'?' => Part::One,
            b'\\' => Part::Byte(take(text)?),
            b'[' => class(text)?,
            b'{' => {
                let mut branches = vec![parts_of_branch(text)?];
                while take(text)? == b',' {
                    branches.push(parts_of_branch(text)?);
                }
                Part::Choice(branches)
            }
            byte => Part::Byte(byte),
        });
    }
    Some(parts)
}

/// One that has an end, which is still there.
fn parts_of_branch(text: &mut &[u8]) -> Option<Vec<Part>> {
    parts(text, true).filter(|_| !text.is_empty())
}

fn class(text: &mut &[u8]) -> Option<Part> {
    let not = text.first() == Some(&b'!');
    if not {
        take(text)?;
    }
    let end = text
        .iter()
        .position(|byte| *byte == b']')
        .filter(|end| *end > 0)?;
    let said = text.get(..end)?.to_vec();
    *text = &text[end + 1..];
    let mut members = BTreeSet::new();
    let mut at = 0;
    while at < said.len() {
        if said.get(at + 1) == Some(&b'-') && at + 2 < said.len() {
            members.extend(said[at]..=said[at + 2]);
            at += 3;
        } else {
            members.insert(said[at]);
            at += 1;
        }
    }
    Some(Part::Class { not, members })
}

fn take(text: &mut &[u8]) -> Option<u8> {
    let (first, rest) = text.split_first()?;
    *text = rest;
    Some(*first)
}
