//! `ringmain init`: writes a commented start, and never overwrites a file.
//!
//! The files are those in `templates/`, which the tests check, serve and compile.

#[cfg(test)]
mod tests;

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use crate::args::init::{Init, InitKind};
use crate::configuration::print_schema;
use crate::error::CliError;
use crate::print_output;

/// The configuration file of gateways and push servers.
const CONFIG: &str = "ringmain.yaml";
/// The schema that its first line names.
const SCHEMA: &str = "ringmain.schema.json";

/// A file to write, by its path in the directory.
struct NewFile {
    path: &'static str,
    text: String,
}

/// Writes the files, and prints the next commands.
///
/// # Errors
/// Fails if one of the files exists, before any is written, or if one cannot be written.
pub(crate) fn run(args: &Init) -> Result<(), CliError> {
    let directory = &args.directory;
    let files = files(args.kind, &package_name(directory));
    if let Some(file) = files
        .iter()
        .map(|file| shown_path(directory, file.path))
        .find(|path| fs::symlink_metadata(path).is_ok())
    {
        return Err(CliError::Other(format!(
            "{} already exists, and no file was written: name another directory, as in `ringmain init {} NEW`",
            file.display(),
            args.kind.name()
        )));
    }
    for file in &files {
        let path = shown_path(directory, file.path);
        write_new(&path, &file.text)
            .map_err(|error| CliError::Other(format!("cannot write {}: {error}", path.display())))?;
    }
    print_output(|out| {
        for file in &files {
            writeln!(out, "wrote {}", shown_path(directory, file.path).display())?;
        }
        writeln!(out, "\nNext:")?;
        for command in next_commands(args.kind, directory) {
            writeln!(out, "  {command}")?;
        }
        Ok(())
    })
}

impl InitKind {
    fn name(self) -> &'static str {
        match self {
            InitKind::Gateway => "gateway",
            InitKind::Push => "push",
            InitKind::App => "app",
        }
    }
}

fn files(kind: InitKind, package: &str) -> Vec<NewFile> {
    let file = |path, text: &str| NewFile {
        path,
        text: text.to_owned(),
    };
    match kind {
        InitKind::Gateway => vec![
            file(CONFIG, include_str!("templates/gateway/ringmain.yaml")),
            schema_file(),
        ],
        InitKind::Push => vec![
            file(CONFIG, include_str!("templates/push/ringmain.yaml")),
            schema_file(),
            file(
                "public/index.html",
                include_str!("templates/push/public/index.html"),
            ),
        ],
        InitKind::App => {
            let version = concat!(
                env!("CARGO_PKG_VERSION_MAJOR"),
                ".",
                env!("CARGO_PKG_VERSION_MINOR")
            );
            // Not named Cargo.toml in our sources: cargo would take its folder for a package.
            let manifest = include_str!("templates/app/Cargo.toml.in")
                .replace("@NAME@", package)
                .replace("@VERSION@", version);
            vec![
                file("Cargo.toml", &manifest),
                file("src/main.rs", include_str!("templates/app/src/main.rs")),
                file(".gitignore", "/target\n"),
            ]
        }
    }
}

fn schema_file() -> NewFile {
    let mut text = Vec::new();
    print_schema(&mut text).expect("memory takes every byte");
    NewFile {
        path: SCHEMA,
        text: String::from_utf8(text).expect("JSON is text"),
    }
}

/// Returns the commands to run next; paths are those from the current directory.
fn next_commands(kind: InitKind, directory: &Path) -> Vec<String> {
    let config = shell_word(&shown_path(directory, CONFIG));
    match kind {
        InitKind::Gateway => vec![
            format!("ringmain check {config}"),
            format!("ringmain run {config} &"),
            "curl http://127.0.0.1:8080/hello".to_owned(),
        ],
        InitKind::Push => vec![
            "export TOKEN_SECRET=$(head -c 32 /dev/urandom | base64) API_KEY=$(head -c 16 /dev/urandom | base64)"
                .to_owned(),
            format!("ringmain run {config} &        # then open http://127.0.0.1:8080/ in a browser"),
            "curl http://127.0.0.1:8080/api/publish -H \"X-API-Key: $API_KEY\" \
             --json '{\"channel\": \"news:all\", \"data\": {\"text\": \"Hello\"}}'"
                .to_owned(),
        ],
        InitKind::App => vec![
            format!("cd {}", shell_word(directory)),
            "cargo test".to_owned(),
            "cargo run        # then: curl http://127.0.0.1:8080/counters/visits --json '{\"add\": 2}'".to_owned(),
        ],
    }
}

/// Returns the path of a file, without a leading `./`.
fn shown_path(directory: &Path, file: &str) -> PathBuf {
    let path = directory.join(file);
    path.strip_prefix(".").map(Path::to_owned).unwrap_or(path)
}

/// Returns a path as a word of a shell.
fn shell_word(path: &Path) -> String {
    let text = path.display().to_string();
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-+@%:,".contains(c);
    if !text.is_empty() && text.chars().all(is_plain) && !text.starts_with('-') {
        return text;
    }
    format!("'{}'", text.replace('\'', "'\\''"))
}

/// Returns a name of a package of cargo for a directory.
fn package_name(directory: &Path) -> String {
    let directory = std::path::absolute(directory).unwrap_or_else(|_| directory.to_owned());
    // `.` is the last component of an absolute path only if the directory has none.
    let name = directory
        .components()
        .next_back()
        .map(|last| last.as_os_str().to_string_lossy().to_lowercase())
        .unwrap_or_default();
    let name: String = name
        .chars()
        .map(|c| {
            if c.is_ascii_alphanumeric() || c == '_' {
                c
            } else {
                '-'
            }
        })
        .collect();
    let name = name.trim_matches('-');
    match name.chars().next() {
        Some(first) if first.is_ascii_alphabetic() && name != "ringmain" && name != "test" => name.to_owned(),
        // Cargo refuses names that start with a digit, and those of a dependency.
        _ => format!("app-{name}").trim_end_matches('-').to_owned(),
    }
}

fn write_new(path: &Path, text: &str) -> io::Result<()> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    let mut file = OpenOptions::new().write(true).create_new(true).open(path)?;
    file.write_all(text.as_bytes())
}
