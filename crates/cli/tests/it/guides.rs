//! The configurations of the guides: each block of YAML in README.md and below `docs/` that is a whole configuration passes
//! `ringmain check`.
//!
//! A block is whole if it has a listener: `listen`, `listeners` or `kubernetes`. A part of a configuration has `yaml fragment` as its info
//! string, which renderers do not show.
#![allow(
    clippy::disallowed_methods,
    reason = "tests of the real program have real threads and real time"
)]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::common::{Directory, program};
use crate::secure::Authority;

/// The least number of whole configurations in all pages.
const LEAST: usize = 30;

/// A block of code of a page.
struct Block {
    page: PathBuf,
    /// The number of its first line, from 1.
    line: usize,
    info: String,
    text: String,
}

fn docs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs")
}

fn pages(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            pages(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "md") {
            found.push(path);
        }
    }
}

/// Returns the blocks of code of a page, without the indentation of the list that a block is in.
fn blocks(page: &Path) -> Vec<Block> {
    let text = fs::read_to_string(page).unwrap();
    let mut blocks: Vec<Block> = Vec::new();
    let mut open: Option<(usize, Block)> = None;
    for (number, line) in text.lines().enumerate() {
        let content = line.trim_start();
        match (&mut open, content.strip_prefix("```")) {
            (None, Some(info)) => {
                let block = Block {
                    page: page.to_owned(),
                    line: number + 2,
                    info: info.trim().to_owned(),
                    text: String::new(),
                };
                open = Some((line.len() - content.len(), block));
            }
            (Some(_), Some("")) => blocks.extend(open.take().map(|(_, block)| block)),
            (Some((indent, block)), _) => {
                let indent = (*indent).min(line.len() - content.len());
                block.text += &line[indent..];
                block.text.push('\n');
            }
            (None, None) => {}
        }
    }
    assert!(open.is_none(), "{}: a block without an end", page.display());
    blocks
}

/// Returns true if a file has a listener: without one no configuration is valid.
fn has_listener(text: &str) -> bool {
    let mut keys = text
        .lines()
        .filter_map(|line| line.split_once(':'))
        .map(|(key, _)| key);
    keys.any(|key| ["listen", "listeners", "kubernetes"].contains(&key))
}

/// Creates the files that a configuration names: certificates, keys, passwords, pages.
fn create_files(text: &str, folder: &Directory) {
    let is_part = |sign: char| sign.is_ascii_alphanumeric() || "./_-".contains(sign);
    let authority = Authority::new("guides");
    let pair = authority.sign("localhost");
    for name in text.split(|sign| !is_part(sign)) {
        let path = folder.join(name.trim_start_matches("./"));
        let stem = path
            .file_stem()
            .and_then(|stem| stem.to_str())
            .unwrap_or_default();
        let extension = path.extension().and_then(|extension| extension.to_str());
        let contents = match extension {
            Some("crt" | "pem") if stem.ends_with("ca") => authority.pem.bytes.clone(),
            Some("crt" | "pem") => pair.chain.bytes.clone(),
            Some("key") => pair.key.bytes.clone(),
            Some("htpasswd") => {
                b"alice:$2a$10$Zkx19XLiW6VYouLHR5NmfOFU0z2GTNmpkT/5qqR7hx4IjWJPDhjvG\n".to_vec()
            }
            Some("keys") => format!("phone sha256:{}\n", "0a".repeat(32)).into_bytes(),
            // RFC 8037, appendix A.2.
            Some("jwks") => {
                br#"{"keys":[{"kty":"OKP","crv":"Ed25519","kid":"1","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}]}"#
                    .to_vec()
            }
            Some("html") => b"<p>A page</p>\n".to_vec(),
            Some("secret" | "token") => b"0123456789abcdef0123456789abcdef\n".to_vec(),
            _ => continue,
        };
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, contents).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    }
}

/// Returns true if the program under test has the features that a configuration needs.
fn is_supported(text: &str) -> bool {
    let has = |key: &str| text.lines().any(|line| line.trim_start().starts_with(key));
    let needs_brokers = [
        "jetstream:",
        "kafka:",
        "redis_streams:",
        "redis_pubsub:",
        "postgres:",
    ]
    .into_iter()
    .any(has);
    (cfg!(feature = "kubernetes") || !has("kubernetes:")) && (cfg!(feature = "brokers") || !needs_brokers)
}

#[test]
fn configurations_of_the_guides_are_valid() {
    let mut found = vec![docs().join("../README.md")];
    pages(&docs(), &mut found);
    found.sort();
    let mut checked = 0;
    let mut errors = Vec::new();
    for block in found.iter().flat_map(|page| blocks(page)) {
        if block.info != "yaml" || !has_listener(&block.text) || !is_supported(&block.text) {
            continue;
        }
        checked += 1;
        let folder = Directory::new();
        create_files(&block.text, &folder);
        // Logs are opened by the check.
        let text = block
            .text
            .replace("/var/log/ringmain/", "")
            .replace("/var/log/", "");
        let file = folder.file("guide.yaml", text);
        let variables = block
            .text
            .split("${env:")
            .skip(1)
            .filter_map(|rest| rest.split('}').next());
        let output = Command::new(program())
            .arg("check")
            .arg(&file)
            .envs(variables.map(|name| (name, "0123456789abcdef0123456789abcdef")))
            .output()
            .unwrap();
        if output.status.code() != Some(0) {
            let page = block.page.strip_prefix(docs()).unwrap().display();
            let said = String::from_utf8_lossy(&output.stdout).into_owned();
            errors.push(format!("docs/{page}:{}:\n{said}", block.line));
        }
    }
    assert!(
        errors.is_empty(),
        "not valid (a part of a configuration has the info string `yaml fragment`):\n{}",
        errors.join("\n")
    );
    assert!(checked >= LEAST, "{checked} configurations");
}
