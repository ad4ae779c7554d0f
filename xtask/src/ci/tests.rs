//! One definition of the test command, and the choice of steps.

use std::fs;
use std::process::Command;

use super::{STEPS, TEST, chosen, dependencies_are_unchanged};
use crate::root;

#[test]
fn documents_and_ci_script_name_the_test_command_of_the_step() {
    for path in ["README.md", "CONTRIBUTING.md", ".ci/run"] {
        let text = fs::read_to_string(root().join(path)).expect("the file is in the repository");
        assert!(
            text.contains(&TEST.to_string()),
            "{path} does not name `{TEST}`, which the step `test` runs"
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

/// Git decides in a repository of its own: unchanged, changed in the commit, changed since, and without a parent.
#[test]
fn dependencies_are_compared_with_the_parent_commit() {
    let folder = std::env::temp_dir().join(format!("xtask-deny-{}", std::process::id()));
    fs::create_dir_all(&folder).expect("temporary folders can be made");
    let git = |args: &[&str]| {
        let mut command = Command::new("git");
        command.args(["-c", "user.name=xtask", "-c", "user.email=xtask@localhost"]);
        let output = command
            .args(args)
            .current_dir(&folder)
            .output()
            .expect("git runs");
        assert!(output.status.success(), "git {args:?}: {output:?}");
    };
    let write = |text: &str| fs::write(folder.join("Cargo.lock"), text).expect("the folder is ours");
    git(&["init", "--quiet"]);
    assert!(!dependencies_are_unchanged(&folder), "no commit");
    write("1");
    git(&["add", "."]);
    git(&["commit", "--quiet", "-m", "first"]);
    assert!(!dependencies_are_unchanged(&folder), "no parent commit");
    git(&["commit", "--quiet", "--allow-empty", "-m", "second"]);
    assert!(dependencies_are_unchanged(&folder), "an equal parent commit");
    write("2");
    assert!(!dependencies_are_unchanged(&folder), "changed in the work tree");
    git(&["commit", "--quiet", "-a", "-m", "third"]);
    assert!(!dependencies_are_unchanged(&folder), "changed by the commit");
    fs::remove_dir_all(&folder).expect("the folder is ours");
}
