//! Any cut of the input gives the same events and the same output.

use ringmain_wire::h2::{Limits, Role};

use crate::h2::support::*;
use crate::shared_rng::Rng;

/// A conversation's input, with something of everything.
fn conversation() -> Vec<u8> {
    let mut all = opening();
    all.extend(settings(&[(1, 100), (4, 20), (3, 7)]));
    all.extend(get(1));
    all.extend(frame(HEADERS, 0, 3, &POST[..4]));
    all.extend(frame(CONTINUATION, 0, 3, &POST[4..9]));
    all.extend(frame(CONTINUATION, END_HEADERS, 3, &POST[9..]));
    all.extend(frame(DATA, PADDED, 3, b"\x03some data\0\0\0"));
    all.extend(frame(PING, 0, 0, b"01234567"));
    all.extend(frame(PRIORITY, 0, 9, &[0; 5]));
    all.extend(frame(0xEE, 0, 0, b"unknown"));
    all.extend(window_update(0, 1000));
    all.extend(frame(DATA, 0, 3, &[b'x'; 300]));
    all.extend(frame(
        HEADERS,
        END_HEADERS | END_STREAM,
        3,
        &literals(&[("x-sum", "7")]),
    ));
    all.extend(frame(HEADERS, END_HEADERS, 5, &get_with(&[("X-Upper", "a")])));
    all.extend([post(7), rst(7)].concat());
    all.extend(frame(
        HEADERS,
        END_HEADERS | END_STREAM | PADDED,
        9,
        &[&[2], GET, &[0, 0]].concat(),
    ));
    all.extend(frame(GOAWAY, 0, 0, &[0; 12]));
    all
}

/// What is heard and said, by pieces of the input.
fn run(input: &[u8], cuts: &[usize]) -> (Vec<String>, Vec<u8>, String) {
    let mut side = Side::new(Role::Server, &Limits::INTERNET);
    let mut heard = Vec::new();
    let mut at = 0;
    let mut end = String::new();
    for &cut in cuts.iter().chain([&input.len()]) {
        if let Err(fault) = side.hear_into(&input[at..cut], &mut heard) {
            end = fault.to_string();
            break;
        }
        at = cut;
    }
    let texts = heard.into_iter().map(|(_, text)| text).collect();
    (texts, side.out, end)
}

#[test]
fn a_conversation_says_the_same_however_it_is_cut() {
    let input = conversation();
    let whole = run(&input, &[]);
    assert_eq!(whole.0.len(), 12, "{:#?}", whole.0);
    assert_eq!(whole.2, "");
    for cut in 0..input.len() {
        assert_eq!(run(&input, &[cut]), whole, "cut at {cut}");
    }
    let all: Vec<usize> = (1..input.len()).collect();
    assert_eq!(run(&input, &all), whole, "byte by byte");
}

#[test]
fn mutations_say_the_same_however_they_are_cut() {
    let input = conversation();
    for seed in 0..3000 {
        let mut rng = Rng(seed);
        let mut mutated = input.clone();
        for _ in 0..=rng.below(4) {
            let at = rng.below(mutated.len());
            mutated[at] = rng.next() as u8;
        }
        let whole = run(&mutated, &[]);
        let mut cuts: Vec<usize> = (0..5).map(|_| rng.below(mutated.len())).collect();
        cuts.sort_unstable();
        assert_eq!(run(&mutated, &cuts), whole, "seed {seed}");
    }
}
