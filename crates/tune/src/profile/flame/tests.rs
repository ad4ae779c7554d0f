//! Graphs of small profiles: where boxes are, which colour they have, and the file as it is written.

use super::palette::{changed, of_frame};
use super::{Tree, count, draw};
use crate::profile::folded::Folded;

const SMALL: &str = "\
worker;main;parse<&str> 30
worker;main;parse<&str>;next_[i] 10
worker;main;send;tcp_sendmsg_[k] 50
worker;[unknown] 10
";

#[test]
fn boxes_are_as_wide_as_their_samples() {
    let folded = Folded::parse(SMALL).unwrap();
    let mut found = Vec::new();
    let tree = Tree::of(&[&folded]);
    let narrow = tree.walk(0.0, &mut |place, node| {
        let scaled = |part: f64| (part * 100.0).round() as u32;
        found.push((
            node.frame.to_owned(),
            place.depth,
            scaled(place.start),
            scaled(place.width),
        ));
    });
    found.sort();
    let expected = [
        ("[unknown]", 2, 0, 10),
        ("main", 2, 10, 90),
        ("next_[i]", 4, 10, 10),
        ("parse<&str>", 3, 10, 40),
        ("send", 3, 50, 50),
        ("tcp_sendmsg_[k]", 4, 50, 50),
        ("worker", 1, 0, 100),
    ];
    let expected = expected.map(|(name, depth, start, width)| (name.to_owned(), depth, start, width));
    assert_eq!(found, expected);
    assert_eq!(narrow, 0);
    // Narrow boxes are counted, with nothing that is in them.
    assert_eq!(tree.walk(0.2, &mut |_, _| {}), 2);
}

#[test]
fn two_profiles_are_as_wide_as_their_mean() {
    let (before, after) = (
        Folded::parse("w;a 10\n").unwrap(),
        Folded::parse("w;b 999\n").unwrap(),
    );
    let mut found = Vec::new();
    Tree::of(&[&before, &after]).walk(0.0, &mut |place, node| {
        found.push((node.frame.to_owned(), place.start, place.width, node.counts));
    });
    let expected = [
        ("w", 0.0, 1.0, [10, 999]),
        ("a", 0.0, 0.5, [10, 0]),
        ("b", 0.5, 0.5, [0, 999]),
    ];
    let expected = expected.map(|(name, start, width, counts)| (name.to_owned(), start, width, counts));
    assert_eq!(found, expected);
}

#[test]
fn user_code_is_blue_and_the_kernel_red() {
    for (frame, hues) in [
        ("main", 200..=225),
        ("serde_json::ser::to_writer", 200..=225),
        ("push_[i]", 195..=225),
        ("tcp_sendmsg_[k]", 0..=20),
        ("[unknown]_[k]", 0..=20),
    ] {
        let colour = of_frame(frame, 3);
        assert!(
            hues.contains(&colour.hue) && colour.saturation >= 50,
            "{frame}: {colour:?}"
        );
        // The same in every place and graph.
        assert_eq!(colour, of_frame(frame, 9));
    }
    // Neither has a colour that says something.
    assert!(of_frame("[unknown]", 3).saturation < 15 && of_frame("worker", 1).saturation < 15);
    // More is orange, less is green, and nearly the same is neither.
    assert!(changed(0.05).hue < 40 && changed(-0.05).hue > 120 && changed(0.0005).saturation < 15);
    assert!(changed(0.1).lightness < changed(0.01).lightness);
}

#[test]
fn names_cannot_break_the_file() {
    let folded = Folded::parse("w;a<b>&\"c\"\u{1}]]>;d 10\n").unwrap();
    let svg = draw(&folded, "<title> & more", "s\u{ffff}");
    assert!(svg.contains("a&lt;b&gt;&amp;&quot;c&quot;]]&gt;"));
    assert!(svg.contains("&lt;title&gt; &amp; more"));
    assert!(!svg.contains(['\u{1}', '\u{ffff}']));
}

#[test]
fn thousands_stand_apart() {
    assert_eq!(
        [0, 999, 1000, 1_234_567].map(count),
        ["0", "999", "1,000", "1,234,567"]
    );
}

/// The whole file; made anew by `UPDATE_GOLDEN=1 cargo test -p ringmain-tune`.
#[test]
fn the_file_is_as_it_was() {
    let folded = Folded::parse(SMALL).unwrap();
    crate::profile::golden::check(
        "flame/golden/small.svg",
        &draw(&folded, "process 7 (worker)", "100 samples in 1.0 s"),
    );
}
