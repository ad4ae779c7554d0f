//! Subjects by a table, and the commits that full, shallow and foreign clones check.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::super::tests::check;
use super::{Base, Commit, commits_after, inspect};

#[track_caller]
fn check_subject(subject: &str, expect: Option<&str>) {
    let commit = Commit {
        id: "1234567".into(),
        subject: subject.into(),
    };
    let expect = expect.map(|what| format!("1 {what}: `{subject}`"));
    check(
        inspect(&[commit]),
        &expect.as_deref().into_iter().collect::<Vec<_>>(),
    );
}

#[test]
fn a_subject_has_an_area_and_an_imperative() {
    for right in [
        "push: bound the replies of one client",
        "engine, sim: begin a receive again after a reset was repeated",
        "docs/bench.md, ci: process, embed, feed and bring",
        "h2: pass a frame of 16,384 bytes",
        "xtask: re-read the tree",
        "Revert \"Add what was lost\"",
    ] {
        check_subject(right, None);
    }
    for (wrong, what) in [
        ("Add a file", "subject has no area"),
        ("push:bound it", "subject has no area"),
        (
            "Push: bound it",
            "`Push` is no area, in lower case and without spaces",
        ),
        (
            "push, : bound it",
            "`` is no area, in lower case and without spaces",
        ),
        (
            "push and web: bound it",
            "`push and web` is no area, in lower case and without spaces",
        ),
        ("push: Bound it", "`Bound` is no verb in lower case"),
        ("push:  bound it", "`` is no verb in lower case"),
        ("push: bounds it", "`bounds` is no imperative"),
        ("push: bounded it", "`bounded` is no imperative"),
        ("push: bounding it", "`bounding` is no imperative"),
        ("push: tests of it", "`tests` is no imperative"),
        ("push: the bound", "`the` is no imperative"),
        ("push: bound it.", "subject ends with a full stop"),
    ] {
        check_subject(wrong, Some(what));
    }
    let longest = format!("push: bound {}", "ü".repeat(60));
    check_subject(&longest, None);
    check_subject(&format!("{longest}x"), Some("subject has 73 characters"));
}

/// A folder for repositories; removed with the value.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("xtask-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).expect("temporary folders can be made");
        Folder(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Runs git at `seconds` since 1970; returns its output.
fn git(root: &Path, seconds: u64, args: &[&str]) -> String {
    let date = format!("@{seconds} +0000");
    let output = Command::new("git")
        .args(["-c", "user.name=xtask", "-c", "user.email=xtask@localhost"])
        .args(["-c", "init.defaultBranch=main", "-c", "commit.gpgSign=false"])
        .args(args)
        .env("GIT_COMMITTER_DATE", &date)
        .env("GIT_AUTHOR_DATE", &date)
        .current_dir(root)
        .output()
        .expect("git runs");
    assert!(output.status.success(), "git {args:?}: {output:?}");
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

#[track_caller]
fn check_commits(root: &Path, base: Base<'_>, expect: &[&str]) {
    let commits = commits_after(root, base).expect("the clone has commits to check");
    let mut subjects: Vec<&str> = commits.iter().map(|commit| commit.subject.as_str()).collect();
    subjects.sort_unstable();
    assert_eq!(subjects, expect);
}

#[test]
fn commits_after_the_base_are_checked() {
    let folder = Folder::new("subjects");
    let full = folder.0.join("full");
    fs::create_dir(&full).expect("the folder is ours");
    let commit = |seconds, subject: &str| {
        git(
            &full,
            seconds,
            &["commit", "--quiet", "--allow-empty", "-m", subject],
        )
    };
    git(&full, 1, &["init", "--quiet"]);
    commit(1, "Old");
    git(&full, 1, &["branch", "side"]);
    commit(5, "Base");
    let id = git(&full, 5, &["rev-parse", "HEAD"]);
    let base = Base {
        commit: &id,
        seconds: 5,
    };
    check_commits(&full, base, &[]);
    // A branch from before the base: one commit older than it, one after it.
    git(&full, 2, &["checkout", "--quiet", "side"]);
    commit(3, "Side, older");
    commit(7, "Side, newer");
    git(&full, 8, &["checkout", "--quiet", "main"]);
    commit(8, "After");
    git(
        &full,
        9,
        &["merge", "--quiet", "--no-ff", "-m", "Merge of 'side'", "side"],
    );
    check_commits(&full, base, &["After", "Side, newer"]);

    let clone = |name: &str, depth: &str| {
        let url = format!("file://{}", full.display());
        git(&folder.0, 9, &["clone", "--quiet", "--depth", depth, &url, name]);
        folder.0.join(name)
    };
    // The merge alone; its parents; all but the beginning, with the base.
    check_commits(&clone("shallow-1", "1"), base, &[]);
    check_commits(&clone("shallow-2", "2"), base, &["After", "Side, newer"]);
    check_commits(&clone("shallow-3", "3"), base, &["After", "Side, newer"]);

    // Another history, and no repository.
    let unknown = Base {
        commit: "0123456789012345678901234567890123456789",
        seconds: 0,
    };
    let error = commits_after(&full, unknown).expect_err("the base is unknown");
    assert!(
        error.contains("does not contain the commit 0123456789"),
        "{error}"
    );
    let empty = folder.0.join("empty");
    fs::create_dir(&empty).expect("the folder is ours");
    fs::write(empty.join(".git"), "nothing").expect("the folder is ours");
    let error = commits_after(&empty, base).expect_err("no repository");
    assert!(error.starts_with("`git rev-parse` failed"), "{error}");
}
