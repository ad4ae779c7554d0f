//! The guardian's own corpus, requests with verdicts, against our codec. It is read from the guardian's package.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use ringmain_fuzz::differences::{Cause, Difference, Reader, is_listed_for_requests};
use ringmain_fuzz::guardian;
use ringmain_wire::h1::{FaultKind, FieldTable, HeadScanner, Limits, Parsed, parse_request};

/// Files of the corpus; `single-case.yaml` is for its authors' debugging.
const FILES: &[&str] = &[
    "acceptable",
    "ambiguous",
    "bad-header-characters",
    "edge-cases",
    "more-compliant-tests",
    "real-life-test-cases",
    "rfc-compliant",
    "severe",
    "uri-specific-test-cases",
];

/// A request of the corpus.
#[derive(Debug, Default)]
struct Case {
    file: &'static str,
    name: String,
    method: String,
    uri: String,
    version: String,
    headers: Vec<(String, String)>,
    tier: String,
    reason: String,
}

impl Case {
    /// Its bytes. Most cases leave `Host` out, which would be all that we say; they get one.
    fn bytes(&self) -> Vec<u8> {
        let mut head = format!("{} {} {}\r\n", self.method, self.uri, self.version);
        let has_host = |(name, _): &(String, String)| name.eq_ignore_ascii_case("host");
        if !self.headers.iter().any(has_host) {
            head.push_str("Host: a\r\n");
        }
        for (name, value) in &self.headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        head.push_str("\r\n");
        // The corpus writes a byte as the character with its number.
        let latin = |character: char| u8::try_from(u32::from(character));
        let bytes: Result<Vec<u8>, _> = head.chars().map(latin).collect();
        bytes.unwrap_or_else(|_| head.into_bytes())
    }
}

#[test]
fn the_guardian_s_corpus_is_judged_as_it_says() {
    let cases = cases();
    let mut wrong = Vec::new();
    for case in &cases {
        let bytes = case.bytes();
        let ours = verdict(&bytes);
        let allowed = match (case.tier.as_str(), ours) {
            ("Severe" | "Ambiguous", Ok(())) => is_listed_as_taken(case, &bytes),
            ("Compliant", Err(fault)) => is_listed_for_requests(Difference::Refused(Reader::Guardian, fault)),
            ("Severe" | "Ambiguous", Err(_)) | ("Compliant", Ok(())) | ("Acceptable", _) => true,
            (tier, _) => panic!("{}, `{}`: no tier `{tier}`", case.file, case.name),
        };
        if !allowed {
            wrong.push(format!(
                "{}, `{}`: {} {}, ours {ours:?}: `{}`",
                case.file,
                case.name,
                case.tier,
                case.reason,
                bytes.escape_ascii()
            ));
        }
    }
    println!("{} cases", cases.len());
    assert_eq!(wrong, Vec::<String>::new());
    for tier in ["Compliant", "Acceptable", "Ambiguous", "Severe"] {
        let count = cases.iter().filter(|case| case.tier == tier).count();
        assert!(count >= 10, "{count} cases are {tier}: the corpus was not read");
    }
}

/// Whether we may take what the corpus calls dangerous.
fn is_listed_as_taken(case: &Case, bytes: &[u8]) -> bool {
    let look_alike = |(name, _): &(String, String)| guardian::is_look_alike(name.as_bytes());
    if case.headers.iter().any(look_alike) {
        return is_listed_for_requests(Difference::Taken(Reader::Guardian, Cause::LookAlike));
    }
    guardian::judge(bytes).is_some_and(|judgement| {
        let cause = Cause::Judged(judgement.reason);
        is_listed_for_requests(Difference::Taken(Reader::Guardian, cause))
    })
}

fn verdict(input: &[u8]) -> Result<(), FaultKind> {
    let limits = Limits::default();
    let (mut scanner, mut table) = (HeadScanner::new(), FieldTable::new(&limits));
    match parse_request(input, &limits, &mut scanner, &mut table) {
        Ok(Parsed::Complete { .. }) => Ok(()),
        Ok(Parsed::Partial) => panic!("`{}` is a whole head", input.escape_ascii()),
        Err(fault) => Err(fault.kind),
    }
}

/// Where the guardian's package lies.
fn package() -> PathBuf {
    let manifest = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");
    let mut command = Command::new(env!("CARGO"));
    command.args(["metadata", "--format-version", "1", "--manifest-path", manifest]);
    let output = command.output().expect("cargo runs, it has started this test");
    let text = String::from_utf8(output.stdout).expect("JSON is UTF-8");
    let path = text
        .split('"')
        .find(|part| part.contains("http_desync_guardian-") && part.ends_with("Cargo.toml"))
        .expect("the guardian is a dependency");
    PathBuf::from(path)
        .parent()
        .expect("a file is in a folder")
        .join("tests")
}

fn cases() -> Vec<Case> {
    let folder = package();
    let mut cases = Vec::new();
    for file in FILES {
        let path = folder.join(file).with_extension("yaml");
        let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let found = parse(file, &text);
        let marks = text.lines().filter(|line| line.starts_with("- name:")).count();
        assert_eq!(found.len(), marks, "{file}: every case is read");
        cases.extend(found);
    }
    cases
}

/// The few lines of YAML that the corpus is written in: `key: value`, told apart by indentation.
fn parse(file: &'static str, text: &str) -> Vec<Case> {
    let mut cases: Vec<Case> = Vec::new();
    for line in text.lines() {
        let content = line.trim_start();
        let indent = line.len() - content.len();
        if content.starts_with('#') {
            continue;
        }
        let (mark, content) = match content.strip_prefix("- ") {
            Some(rest) => (true, rest),
            None => (false, content),
        };
        let Some((key, value)) = content.split_once(':') else {
            continue;
        };
        let value = scalar(value.trim());
        if indent == 0 && mark && key == "name" {
            cases.push(Case {
                file,
                name: value,
                ..Case::default()
            });
            continue;
        }
        let Some(case) = cases.last_mut() else { continue };
        let top = indent == 2 && !mark;
        match key {
            "uri" if top => case.uri = value,
            "method" if top => case.method = value,
            "version" if top => case.version = value,
            "name" if mark => case.headers.push((value, String::new())),
            "value" => case.headers.last_mut().expect("a name comes first").1 = value,
            // A header's tier stands deeper than the verdict's.
            "tier" if indent == 4 => case.tier = value,
            "reason" => case.reason = value,
            _ => {}
        }
    }
    cases
}

/// A plain, single-quoted or double-quoted scalar; then the corpus's own escapes.
fn scalar(text: &str) -> String {
    let plain = match text.as_bytes() {
        [b'"', ..] => text[1..].rsplit_once('"').expect("a closing quote").0,
        [b'\'', ..] => text[1..].rsplit_once('\'').expect("a closing quote").0,
        _ => text.split(" #").next().unwrap_or_default().trim_end(),
    };
    let mut result = String::new();
    let mut characters = plain.chars();
    while let Some(character) = characters.next() {
        if character != '\\' {
            result.push(character);
            continue;
        }
        result.push(match characters.next() {
            Some('x') => {
                let digits: String = characters.by_ref().take(2).collect();
                char::from(u8::from_str_radix(&digits, 16).expect("two hexadecimal digits"))
            }
            Some('b') => '\x08',
            Some('f') => '\x0c',
            Some('n') => '\n',
            Some('r') => '\r',
            Some('t') => '\t',
            Some(other) => other,
            None => panic!("an escape without a character in `{text}`"),
        });
    }
    result
}
