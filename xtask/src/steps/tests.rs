//! Times as text, target folders, arguments.

use std::time::Duration;

use super::{Outcome, clock, excepted, in_target_folder};

#[test]
fn durations_are_readable_at_every_scale() {
    for (seconds, expect) in [
        (0.04, "0.0s"),
        (59.94, "59.9s"),
        (61.0, "1m01s"),
        (3600.0, "1h00m00s"),
        (7384.2, "2h03m04s"),
    ] {
        assert_eq!(clock(Duration::from_secs_f64(seconds)), expect);
    }
}

#[test]
fn programs_follow_the_target_folder() {
    assert_eq!(
        in_target_folder("target/debug/ringmain", None),
        "target/debug/ringmain"
    );
    assert_eq!(
        in_target_folder("target/debug/ringmain", Some("/tmp/t")),
        "/tmp/t/debug/ringmain"
    );
    assert_eq!(
        in_target_folder("bench/smoke.sh", Some("/tmp/t")),
        "bench/smoke.sh"
    );
    assert_eq!(in_target_folder("my-target/x", Some("/tmp/t")), "my-target/x");
}

#[test]
fn exceptions_are_pairs() {
    assert_eq!(excepted(&[]), Ok(vec![]));
    assert_eq!(excepted(&["--except", "a", "--except", "b"]), Ok(vec!["a", "b"]));
    assert_eq!(excepted(&["--except"]), Err("--except".to_owned()));
    assert_eq!(excepted(&["--only", "a"]), Err("--only a".to_owned()));
}

#[test]
fn an_outcome_displays_its_failure() {
    let passed = Outcome::of("fmt", || Ok(()));
    assert!(passed.to_string().contains("passed"), "{passed}");
    let failed = Outcome::of("fmt", || Err("`cargo fmt` ended with 1".into()));
    let text = failed.to_string();
    assert!(
        text.contains("FAILED") && text.ends_with("`cargo fmt` ended with 1"),
        "{text}"
    );
}
