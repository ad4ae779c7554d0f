//! The subject of a commit: `area: imperative`, at most 72 characters.
//!
//! Owns which commits are checked: those after [`BASE`] that this clone has. Knows nothing of their contents.

#[cfg(test)]
mod tests;

use std::path::Path;
use std::process::Command;

use super::Finding;

/// The last commit that is not checked, and its time in seconds since 1970.
///
/// Move it to a later commit only if a subject that the rule refuses was published.
const BASE: Base<'_> = Base {
    commit: "c1d472bbcd018fd8506caadeee84afe52a212386",
    seconds: 1_795_919_506,
};

/// Longest subject, in characters.
const CHARACTERS: usize = 72;

/// A commit whose ancestors are not checked.
#[derive(Clone, Copy, Debug)]
struct Base<'a> {
    commit: &'a str,
    seconds: u64,
}

/// A commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Commit {
    /// Its abbreviated identifier.
    pub(super) id: String,
    pub(super) subject: String,
}

/// Commits to check, or the reason why the clone has none.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Subjects {
    Commits(Vec<Commit>),
    Skipped(String),
}

/// Reads the commits of the clone at `root` that are to be checked.
pub(super) fn read(root: &Path) -> Subjects {
    commits_after(root, BASE).map_or_else(Subjects::Skipped, Subjects::Commits)
}

/// Returns the commits of `HEAD` that are neither merges, nor in the history of `base`, nor older than it.
///
/// A full clone must have `base`: without it, its history is another one. A shallow clone need not: there the time decides alone. It
/// also excludes old commits of merged branches whose connection to `base` the clone does not have.
fn commits_after(root: &Path, base: Base<'_>) -> Result<Vec<Commit>, String> {
    let is_shallow = git(root, &["rev-parse", "--is-shallow-repository"])?.trim() == "true";
    let base_commit = format!("{}^{{commit}}", base.commit);
    let has_base = git(root, &["cat-file", "-e", &base_commit]).is_ok();
    if !has_base && !is_shallow {
        return Err(format!(
            "this history does not contain the commit {}",
            base.commit
        ));
    }
    let excluded = format!("^{}", base.commit);
    let mut args = vec!["log", "--no-merges", "--format=%h%x09%ct%x09%p%x09%s", "HEAD"];
    if has_base {
        args.push(&excluded);
    }
    args.push("--");
    let log = git(root, &args)?;
    let mut commits = Vec::new();
    for line in log.lines() {
        let mut fields = line.splitn(4, '\t');
        let (Some(id), Some(seconds), Some(parents), Some(subject)) =
            (fields.next(), fields.next(), fields.next(), fields.next())
        else {
            return Err(format!("`git log` printed `{line}`"));
        };
        let is_after = seconds.parse::<u64>().is_ok_and(|seconds| seconds > base.seconds);
        // git shows the oldest commits of a shallow clone without their parents.
        if is_after && !(parents.is_empty() && is_merge(root, id)?) {
            commits.push(Commit {
                id: id.into(),
                subject: subject.into(),
            });
        }
    }
    Ok(commits)
}

/// Returns whether a commit has two parents, in the clone or not.
fn is_merge(root: &Path, id: &str) -> Result<bool, String> {
    let object = git(root, &["cat-file", "commit", id])?;
    let head = object.lines().take_while(|line| !line.is_empty());
    Ok(head.filter(|line| line.starts_with("parent ")).count() > 1)
}

/// Returns the output of git; the error is one line.
fn git(root: &Path, args: &[&str]) -> Result<String, String> {
    let output = Command::new("git")
        .args(args)
        .current_dir(root)
        .output()
        .map_err(|error| format!("git could not be started: {error}"))?;
    if !output.status.success() {
        let errors = String::from_utf8_lossy(&output.stderr);
        let first = errors.lines().next().unwrap_or("no message");
        return Err(format!("`git {}` failed: {first}", args[0]));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Checks the subjects of commits.
pub(super) fn inspect(commits: &[Commit]) -> Vec<Finding> {
    commits.iter().filter_map(inspect_one).collect()
}

fn inspect_one(commit: &Commit) -> Option<Finding> {
    // git writes the subject of a revert, with the quoted one inside.
    if commit.subject.starts_with("Revert \"") {
        return None;
    }
    let characters = commit.subject.chars().count();
    let what = if characters > CHARACTERS {
        format!("subject has {characters} characters")
    } else {
        fault(&commit.subject)?
    };
    Some(Finding::new(
        &format!("commit {}", commit.id),
        1,
        format!("{what}: `{}`", commit.subject),
        format!(
            "`area: imperative`, at most {CHARACTERS} characters, as in `push: bound the replies of one client`"
        ),
        "reword it (`git commit --amend`, `git rebase -i`); a commit that is published: move BASE in xtask/src/tidy/subjects/mod.rs",
    ))
}

/// Returns the reason why a subject is refused.
fn fault(subject: &str) -> Option<String> {
    let Some((areas, text)) = subject.split_once(": ") else {
        return Some("subject has no area".into());
    };
    let is_part = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-_./".contains(&byte);
    let is_area = |area: &str| !area.is_empty() && area.bytes().all(is_part);
    if let Some(area) = areas.split(", ").find(|area| !is_area(area)) {
        return Some(format!("`{area}` is no area, in lower case and without spaces"));
    }
    let verb = text.split(' ').next().unwrap_or_default().trim_end_matches(',');
    let is_word = !verb.is_empty() && verb.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'-');
    if !is_word {
        return Some(format!("`{verb}` is no verb in lower case"));
    }
    if text.ends_with('.') {
        return Some("subject ends with a full stop".into());
    }
    is_no_imperative(verb).then(|| format!("`{verb}` is no imperative"))
}

/// Words that begin a clause or a noun phrase.
const NO_VERBS: &[&str] = &[
    "a", "all", "an", "and", "each", "how", "it", "its", "more", "no", "not", "one", "some", "that", "the",
    "these", "this", "what", "when", "where", "whether", "who", "wip",
];

/// Imperatives with the ending of another form.
const IMPERATIVES: &[&str] = &[
    "alias", "bias", "bleed", "breed", "bring", "canvas", "embed", "exceed", "feed", "focus", "heed", "need",
    "ping", "proceed", "ring", "seed", "shed", "shred", "speed", "spring", "string", "succeed", "swing",
    "weed",
];

/// Returns whether a word cannot be an imperative, by the endings of other forms: "adds", "added", "adding".
fn is_no_imperative(word: &str) -> bool {
    let is_plural = word.ends_with('s') && !word.ends_with("ss");
    let is_other_form = is_plural || word.ends_with("ed") || word.ends_with("ing");
    NO_VERBS.contains(&word) || (is_other_form && !IMPERATIVES.contains(&word))
}
