//! `cargo xtask book`: builds the documentation site with mdBook, and is its preprocessor.
//!
//! The preprocessor rewrites links that leave `docs/` to addresses of the repository on the web: in a file tree they work as they are.
//! Knows the form in which mdBook passes chapters; the rules for pages are in `tidy`.

#[cfg(test)]
mod tests;

use std::io::{self, Read as _, Write as _};
use std::path::Path;
use std::process::{Command, ExitCode};

use serde_json::Value;

use crate::tidy::pages::links;
use crate::tidy::pages::links::resolve;

/// The version that CI installs. Others may pass chapters in another form.
const VERSION: &str = "0.5.4";

/// The repository on the web.
const REPOSITORY: &str = "https://github.com/ringmain/ringmain";

/// Builds the site into `target/book`.
pub(crate) fn build(root: &Path, args: &[&str]) -> ExitCode {
    let command = if args.is_empty() { &["build"] } else { args };
    let status = Command::new("mdbook").args(command).current_dir(root).status();
    match status {
        Ok(status) if status.success() => {
            if args.is_empty() {
                println!("book: target/book/index.html");
            }
            ExitCode::SUCCESS
        }
        Ok(_) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("book: mdbook could not be started: {error}; install it once:");
            eprintln!(
                "  cargo install mdbook --version {VERSION} --locked --no-default-features --features search,serve,watch"
            );
            ExitCode::FAILURE
        }
    }
}

/// Reads a book from standard input and writes it with rewritten links, as mdBook asks a preprocessor to.
pub(crate) fn preprocess(root: &Path) -> ExitCode {
    match preprocess_input(root) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("book: {error}");
            ExitCode::FAILURE
        }
    }
}

fn preprocess_input(root: &Path) -> Result<(), String> {
    let mut input = String::new();
    io::stdin()
        .read_to_string(&mut input)
        .map_err(|error| format!("standard input cannot be read: {error}"))?;
    let input: Value = serde_json::from_str(&input)
        .map_err(|error| format!("standard input is not the JSON of mdBook {VERSION}: {error}"))?;
    let mut book = input
        .get(1)
        .cloned()
        .ok_or("expected an array of context and book on standard input")?;
    rewrite_chapters(&mut book, &|path| root.join(path).is_dir());
    io::stdout()
        .write_all(book.to_string().as_bytes())
        .map_err(|error| format!("standard output cannot be written: {error}"))
}

/// Rewrites the content of each chapter below `value`.
fn rewrite_chapters(value: &mut Value, is_folder: &impl Fn(&str) -> bool) {
    match value {
        Value::Array(values) => values
            .iter_mut()
            .for_each(|value| rewrite_chapters(value, is_folder)),
        Value::Object(fields) => {
            let source = fields.get("source_path").and_then(Value::as_str);
            if let Some(path) = source.map(|path| format!("docs/{path}"))
                && let Some(Value::String(content)) = fields.get_mut("content")
            {
                *content = rewrite(&path, content, is_folder);
            }
            fields
                .values_mut()
                .for_each(|value| rewrite_chapters(value, is_folder));
        }
        _ => {}
    }
}

/// Replaces links of the page at `path` that lead outside `docs/`, to a folder, or to the index of a folder.
fn rewrite(path: &str, text: &str, is_folder: &impl Fn(&str) -> bool) -> String {
    let links = links(text);
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    // From the end, so that offsets before a replacement stay.
    for link in links.iter().rev() {
        let Some(target) = resolve(path, &link.address) else {
            continue;
        };
        let fragment = target.fragment.map_or(String::new(), |name| format!("#{name}"));
        let address = if is_folder(&target.path) {
            format!("{REPOSITORY}/tree/main/{}{fragment}", target.path)
        } else if !target.path.starts_with("docs/") {
            format!("{REPOSITORY}/blob/main/{}{fragment}", target.path)
        } else if target.path.ends_with("/README.md") {
            // mdBook renames the page, and not the links to it.
            link.address.replace("README.md", "index.md")
        } else {
            continue;
        };
        lines[link.line - 1].replace_range(link.start..link.start + link.address.len(), &address);
    }
    let mut text = lines.join("\n");
    text.push('\n');
    text
}
