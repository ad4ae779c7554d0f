//! `ringmain init`: its files are valid, served and compiled, and never replace others.
#![allow(
    clippy::disallowed_methods,
    reason = "tests of the real program have real threads and real time"
)]

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use ringmain_testkit::subscriber::Subscriber;

use crate::common::{Directory, Server, program};
use crate::proxy::{ask, get};

/// The application that `ringmain init app` writes, compiled here with its test.
#[path = "../../src/init/templates/app/src/main.rs"]
#[allow(
    dead_code,
    unreachable_pub,
    reason = "a program, of which the test runs a part"
)]
mod app;

const VARIABLES: [(&str, &str); 2] = [
    ("TOKEN_SECRET", "a secret of at least thirty-two bytes"),
    ("API_KEY", "the-key"),
];

fn run(directory: &Path, args: &[&str]) -> Output {
    Command::new(program())
        .current_dir(directory)
        .args(args)
        .envs(VARIABLES)
        .output()
        .unwrap()
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

/// Writes the files, and checks the first lines of the output.
#[track_caller]
fn init(directory: &Path, args: &[&str], files: &[&str]) -> String {
    let output = run(directory, &[&["init"], args].concat());
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let printed = text(&output.stdout).to_owned();
    let wrote: String = files.iter().map(|file| format!("wrote {file}\n")).collect();
    let commands = printed.strip_prefix(&format!("{wrote}\nNext:\n"));
    let commands = commands.unwrap_or_else(|| panic!("{printed}"));
    assert_eq!(commands.lines().count(), 3, "{printed}");
    assert!(
        files.iter().all(|file| directory.join(file).is_file()),
        "{printed}"
    );
    printed
}

/// Starts the program with a file in which it listens on ports of the kernel.
fn serve(file: &Path) -> (Server, Vec<String>) {
    let config = fs::read_to_string(file).unwrap();
    let config = config
        .replace("127.0.0.1:8080\n", "127.0.0.1:0\n")
        .replace("127.0.0.1:9901", "127.0.0.1:0");
    fs::write(file, config).unwrap();
    let mut command = Command::new(program());
    command.arg("run").arg(file).envs(VARIABLES);
    Server::start(&mut command, 1)
}

#[test]
fn a_gateway_is_valid_and_serves() {
    let directory = Directory::new();
    let folder = directory.join("");
    let printed = init(
        &folder,
        &["gateway", "my site"],
        &["my site/ringmain.yaml", "my site/ringmain.schema.json"],
    );
    assert!(
        printed.contains("ringmain check 'my site/ringmain.yaml'\n"),
        "{printed}"
    );
    let output = run(&folder, &["check", "my site/ringmain.yaml"]);
    assert_eq!(
        text(&output.stdout),
        "my site/ringmain.yaml: valid: 1 listener, 1 route, 1 upstream\n"
    );
    check_modeline(&directory.join("my site/ringmain.yaml"));
    check_options_in_comments(&directory.join("my site/ringmain.yaml"), 3);
    let (server, addrs) = serve(&directory.join("my site/ringmain.yaml"));
    let response = get(&addrs[0], "a", "/hello");
    assert_eq!((response.status, &*response.body), (200, "Hello from Ringmain\n"));
    server.terminate();
}

#[test]
fn a_push_server_is_valid_serves_its_page_and_delivers() {
    let directory = Directory::new();
    let folder = directory.join("");
    init(
        &folder,
        &["push"],
        &["ringmain.yaml", "ringmain.schema.json", "public/index.html"],
    );
    let output = run(&folder, &["check", "ringmain.yaml"]);
    assert_eq!(
        text(&output.stdout),
        "ringmain.yaml: valid: 1 listener, 1 route, 0 upstreams\n"
    );
    check_modeline(&directory.join("ringmain.yaml"));
    check_options_in_comments(&directory.join("ringmain.yaml"), 1);
    let (server, addrs) = serve(&directory.join("ringmain.yaml"));
    let page = get(&addrs[0], "a", "/");
    assert!(page.status == 200 && page.body.contains("news:all"), "{page:?}");
    assert_eq!(get(&addrs[0], "a", "/ringmain.yaml").status, 404);
    let mut subscriber = Subscriber::to(&addrs[0], &["news:all"]);
    let publication = r#"{"channel": "news:all", "data": {"text": "Hello"}}"#;
    assert_eq!(
        ask(&addrs[0], "POST", "a", "/api/publish", publication).status,
        401
    );
    let request = format!(
        "POST /api/publish HTTP/1.1\r\nHost: a\r\nX-API-Key: the-key\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{publication}",
        publication.len()
    );
    let mut stream = crate::common::connect(&addrs[0]);
    stream.write_all(request.as_bytes()).unwrap();
    let mut response = String::new();
    stream.read_to_string(&mut response).unwrap();
    assert!(response.starts_with("HTTP/1.1 200 "), "{response}");
    let (_, data) = subscriber.publication();
    assert_eq!(data["text"], "Hello");
    server.terminate();
}

#[test]
fn an_application_has_a_manifest_for_this_version() {
    let directory = Directory::new();
    let folder = directory.join("");
    let printed = init(
        &folder,
        &["app", "My-Shop"],
        &["My-Shop/Cargo.toml", "My-Shop/src/main.rs", "My-Shop/.gitignore"],
    );
    assert!(
        printed.contains("Next:\n  cd My-Shop\n  cargo test\n  cargo run"),
        "{printed}"
    );
    let manifest = fs::read_to_string(directory.join("My-Shop/Cargo.toml")).unwrap();
    assert!(manifest.contains("name = \"my-shop\"\n"), "{manifest}");
    assert!(manifest.contains("\nringmain = \"0.1\"\n"), "{manifest}");
    assert!(!manifest.contains('@'), "{manifest}");
    let written = fs::read_to_string(directory.join("My-Shop/src/main.rs")).unwrap();
    assert_eq!(written, include_str!("../../src/init/templates/app/src/main.rs"));
}

#[test]
fn no_file_is_replaced() {
    let directory = Directory::new();
    let folder = directory.join("");
    fs::write(directory.join("ringmain.schema.json"), "mine").unwrap();
    let output = run(&folder, &["init", "gateway"]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert_eq!(
        text(&output.stderr),
        "error: ringmain.schema.json already exists, and no file was written: name another directory, as in `ringmain \
         init gateway NEW`\n"
    );
    assert!(!directory.join("ringmain.yaml").exists());
    assert_eq!(
        fs::read_to_string(directory.join("ringmain.schema.json")).unwrap(),
        "mine"
    );
    // A folder that is a file.
    let output = run(&folder, &["init", "gateway", "ringmain.schema.json"]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(
        text(&output.stderr).starts_with("error: cannot write ringmain.schema.json/"),
        "{output:?}"
    );
}

/// The first line names the schema beside the file, which is that of this program.
fn check_modeline(file: &Path) {
    let config = fs::read_to_string(file).unwrap();
    let first = config.lines().next().unwrap();
    let schema = first
        .strip_prefix("# yaml-language-server: $schema=")
        .expect(first);
    let schema = fs::read_to_string(file.with_file_name(schema)).unwrap();
    assert_eq!(schema, text(&run(Path::new("/"), &["schema"]).stdout));
}

/// With every option that is written as a comment, the file is valid, too.
fn check_options_in_comments(file: &Path, expected: usize) {
    let config = fs::read_to_string(file).unwrap();
    let mut count = 0;
    let mut uncommented = String::new();
    for line in config.lines() {
        let option = line.trim_start().strip_prefix("# ").filter(|option| {
            option.split_once(": ").is_some_and(|(key, _)| {
                !key.is_empty() && key.bytes().all(|b| b.is_ascii_lowercase() || b == b'_')
            })
        });
        match option {
            Some(option) => {
                count += 1;
                let indent = line.len() - line.trim_start().len();
                uncommented.push_str(&format!("{}{option}\n", " ".repeat(indent)));
            }
            None => uncommented.push_str(&format!("{line}\n")),
        }
    }
    assert_eq!(count, expected, "{uncommented}");
    let copy = file.with_file_name("uncommented.yaml");
    fs::write(&copy, uncommented).unwrap();
    let output = run(Path::new("/"), &["check", copy.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
}
