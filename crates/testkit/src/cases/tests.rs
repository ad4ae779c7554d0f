//! Command lines as cargo and nextest write them, and the cases that they select.

use super::Wish;

const NAMES: [&str; 3] = ["h1::requests", "h1::answers", "h2"];

fn selected(args: &[&str]) -> Vec<&'static str> {
    let wish = Wish::parse(args.iter().map(|arg| (*arg).to_owned())).expect("known arguments");
    NAMES.into_iter().filter(|name| wish.selects(name)).collect()
}

#[test]
fn all_are_selected_without_a_filter() {
    for args in [
        &[][..],
        &["--test-threads=8", "--nocapture"],
        &["--format", "terse", "-q"],
        &["--include-ignored", "--color", "never"],
    ] {
        assert_eq!(selected(args), NAMES, "{args:?}");
    }
}

#[test]
fn filters_are_parts_or_whole_names() {
    assert_eq!(selected(&["h1"]), ["h1::requests", "h1::answers"]);
    assert_eq!(selected(&["h1::answers", "h2"]), ["h1::answers", "h2"]);
    assert_eq!(selected(&["h1", "--skip", "answers"]), ["h1::requests"]);
    assert_eq!(selected(&["--skip=h1"]), ["h2"]);
    assert_eq!(selected(&["--exact", "h1"]), [""; 0]);
    assert_eq!(
        selected(&["h1::answers", "--exact", "--nocapture"]),
        ["h1::answers"]
    );
}

#[test]
fn none_is_ignored() {
    assert_eq!(selected(&["--list", "--format", "terse", "--ignored"]), [""; 0]);
}

#[test]
fn an_unknown_option_is_an_error() {
    assert_eq!(
        Wish::parse(["--seconds".to_owned()].into_iter()),
        Err("--seconds".to_owned())
    );
}
