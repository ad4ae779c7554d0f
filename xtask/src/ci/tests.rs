//! One definition of the test command, and the choice of steps.

use std::fs;

use super::{STEPS, TEST, chosen};
use crate::root;

#[test]
fn readme_and_ci_script_name_the_same_test_command() {
    for path in ["README.md", ".ci/run"] {
        let text = fs::read_to_string(root().join(path)).expect("the file is in the repository");
        assert!(
            text.lines().any(|line| line.trim() == TEST.to_string()),
            "{path} has no line `{TEST}`: the step `test`, the README and `.ci/run` must name one command"
        );
    }
}

#[track_caller]
fn check(args: &[&str], expect: Result<usize, &str>) {
    let found = chosen(args).map(|steps| steps.len());
    match (&found, expect) {
        (Ok(count), Ok(expected)) => assert_eq!(*count, expected),
        (Err(what), Err(part)) => assert!(what.contains(part), "{what}"),
        _ => panic!("{args:?}: expected {expect:?}, found {found:?}"),
    }
}

#[test]
fn steps_can_be_left_out_by_name() {
    check(&[], Ok(STEPS.len()));
    check(&["--except", "test"], Ok(STEPS.len() - 1));
    check(&["--except", "test", "--except", "fuzz"], Ok(STEPS.len() - 2));
    check(&["--except", "tests"], Err("no step `tests`"));
    check(&["--except"], Err("`--except STEP`"));
    check(&["--fast", "test"], Err("`--except STEP`"));
}
