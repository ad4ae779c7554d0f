//! Other people's TLS against the program: `openssl s_client` and curl. `cargo xtask suite tls` has more tests.

#![allow(
    clippy::disallowed_methods,
    reason = "tests of the real program have real threads and real time"
)]

use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use crate::common::{Directory, Server, engines, program, skipped, wait_end};

/// Number of connections that resume a session: with two workers, one receives none in one of eight million runs.
const RESUMPTIONS: usize = 24;

const GET: &str = "GET /plaintext HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";

/// The program with a certificate that openssl made, which is its own authority.
struct Fixture {
    server: Server,
    addr: String,
    cert: PathBuf,
    folder: Directory,
}

impl Fixture {
    /// `None`, said aloud, where openssl is not installed.
    fn start(engine: &str) -> Option<Fixture> {
        if !is_here("openssl") {
            return None;
        }
        let folder = Directory::new();
        let (cert, key) = (folder.join("cert.pem"), folder.join("key.pem"));
        let mut make = Command::new("openssl");
        make.args([
            "req",
            "-x509",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:P-256",
            "-nodes",
        ])
        .args(["-days", "2", "-subj", "/CN=localhost"])
        .args(["-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"])
        .arg("-keyout")
        .arg(&key)
        .arg("-out")
        .arg(&cert);
        let made = run(&mut make, "");
        assert!(made.is_right, "openssl req: {}", made.text);
        let mut command = Command::new(program());
        command
            .args([
                "run",
                "--listen",
                "127.0.0.1:0",
                "--workers",
                "2",
                "--engine",
                engine,
                "--cert",
            ])
            .arg(&cert)
            .arg("--key")
            .arg(&key);
        let (server, mut addrs) = Server::start(&mut command, 1);
        let addr = addrs.remove(0);
        Some(Fixture {
            server,
            // The part of an address after its scheme.
            addr: addr
                .rsplit_once("//")
                .map_or(addr.as_str(), |(_, addr)| addr)
                .to_owned(),
            cert,
            folder,
        })
    }

    /// One connection of `openssl s_client`, which checks the certificate and sends `input`.
    fn s_client(&self, options: &[&str], input: &str) -> Outcome {
        let mut command = Command::new("openssl");
        command
            .args([
                "s_client",
                "-connect",
                &self.addr,
                "-servername",
                "localhost",
                "-CAfile",
            ])
            .arg(&self.cert)
            .args(["-verify_return_error", "-verify_hostname", "localhost"])
            .args(options);
        run(&mut command, input)
    }

    fn curl(&self, options: &[&str]) -> Outcome {
        let url = format!("https://{}/plaintext", self.addr);
        let mut command = Command::new("curl");
        command
            .args(["-sS", "-v", "--http1.1", "--max-time", "50", "--cacert"])
            .arg(&self.cert)
            .args(options)
            .args([&url; 5]);
        run(&mut command, "")
    }
}

/// Exit status and output of a tool.
struct Outcome {
    is_right: bool,
    text: String,
}

/// Returns whether the tool is installed; prints a message if not.
fn is_here(tool: &str) -> bool {
    let started = Command::new(tool)
        .arg("--version")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    let Ok(mut child) = started else {
        skipped(&format!("no {tool} here: on Debian, apt-get install {tool}"));
        return false;
    };
    wait_end(&mut child);
    true
}

/// Runs a tool that says little, with this input, to its end.
fn run(command: &mut Command, input: &str) -> Outcome {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    // One that has ended already says why.
    let _ = stdin.write_all(input.as_bytes());
    drop(stdin);
    wait_end(&mut child);
    let Output {
        status,
        stdout,
        stderr,
    } = child.wait_with_output().unwrap();
    let text = [stdout, stderr]
        .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
        .concat();
    Outcome {
        is_right: status.success(),
        text,
    }
}

#[test]
fn every_worker_resumes_the_sessions_of_the_others() {
    for engine in engines() {
        let Some(fixture) = Fixture::start(engine) else {
            return;
        };
        for version in ["-tls1_2", "-tls1_3"] {
            let session = fixture.folder.join(version);
            let session = session.to_str().unwrap();
            let first = fixture.s_client(&[version, "-ign_eof", "-sess_out", session], GET);
            assert!(
                first.is_right && first.text.contains("\nNew, TLSv1."),
                "{engine}: {}",
                first.text
            );
            for number in 0..RESUMPTIONS {
                let next = fixture.s_client(&[version, "-ign_eof", "-sess_in", session], GET);
                let is_right = next.is_right && next.text.contains("\nReused, TLSv1.");
                assert!(is_right, "{engine} {version}, connection {number}: {}", next.text);
                assert!(
                    next.text.contains("Hello, World!"),
                    "{engine} {version}: {}",
                    next.text
                );
            }
        }
        fixture.server.terminate();
    }
}

#[test]
fn renegotiation_is_refused() {
    for engine in engines() {
        let Some(fixture) = Fixture::start(engine) else {
            return;
        };
        let asked = fixture.s_client(&["-tls1_2"], "R\n");
        assert!(
            !asked.is_right && asked.text.contains("RENEGOTIATING"),
            "{engine}: {}",
            asked.text
        );
        let after = fixture.s_client(&["-tls1_2", "-ign_eof"], GET);
        assert!(
            after.is_right && after.text.contains("Hello, World!"),
            "{engine}: {}",
            after.text
        );
        fixture.server.terminate();
    }
}

#[test]
fn curl_speaks_both_versions_and_keeps_its_connection() {
    if !is_here("curl") {
        return;
    }
    for engine in engines() {
        let Some(fixture) = Fixture::start(engine) else {
            return;
        };
        for (option, version) in [("1.2", "TLSv1.2"), ("1.3", "TLSv1.3")] {
            let outcome = fixture.curl(&["--tls-max", option]);
            let Outcome { is_right, text } = &outcome;
            assert!(is_right, "{engine}: {text}");
            assert_eq!(text.matches("Hello, World!").count(), 5, "{engine}: {text}");
            assert!(
                text.contains(&format!("SSL connection using {version}")),
                "{engine}: {text}"
            );
            let connections = text.matches("Connected to ").count();
            assert_eq!(connections, 1, "{engine}: {text}");
        }
        fixture.server.terminate();
    }
}
