//! `ringmain run` with TLS: invalid options and files, reloaded certificates, redirects to HTTPS, a successor.
#![allow(clippy::disallowed_methods, reason = "a real program in real time")]
#![allow(clippy::print_stderr, reason = "a skipped test says so")]

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use crate::common::{Directory, PATIENCE, Server, connect, fails, program, skipped};
use crate::secure::{Authority, Secure, connector_of, localhost, trusting};
use ringmain_tls::{ClientSettings, Connector, KeyPair};
use rustix::process::{Pid, Signal, kill_process};

/// Certificates in files, and clients that trust them.
struct Rig {
    directory: Directory,
    authority: Authority,
}

impl Rig {
    fn new() -> Rig {
        Rig {
            directory: Directory::new(),
            authority: Authority::new("test authority"),
        }
    }

    fn with_authority_in_a_file() -> Rig {
        let rig = Rig::new();
        fs::write(rig.directory.join("ca.pem"), &rig.authority.pem.bytes).unwrap();
        rig
    }

    fn path(&self, name: &str) -> String {
        self.directory.join(name).display().to_string()
    }

    /// Writes a certificate for localhost and its key.
    fn install(&self, pair: &KeyPair) {
        fs::write(self.directory.join("cert.pem"), &pair.chain.bytes).unwrap();
        fs::write(self.directory.join("key.pem"), &pair.key.bytes).unwrap();
    }

    /// A server with a certificate for localhost and these arguments.
    fn command(&self, args: &[&str]) -> Command {
        self.install(&self.authority.sign("localhost"));
        let mut command = run(&["--listen", "127.0.0.1:0"]);
        command.args(["--cert", &self.path("cert.pem"), "--key", &self.path("key.pem")]);
        command.args(args);
        command
    }

    fn connector(&self, settings: impl FnOnce(&mut ClientSettings)) -> Connector {
        let mut all = trusting(&self.authority.pem);
        all.resume = false;
        settings(&mut all);
        connector_of(&all)
    }
}

fn run(args: &[&str]) -> Command {
    let mut command = Command::new(program());
    command.arg("run").args(args);
    command
}

/// A connection over TLS.
struct Client {
    stream: TcpStream,
    tls: Secure,
}

impl Client {
    fn new(addr: &str, connector: &Connector) -> Client {
        let mut stream = TcpStream::connect(addr).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let tls = Secure::new(&mut stream, connector, &localhost()).unwrap();
        Client { stream, tls }
    }

    /// The certificate that it was shown.
    fn shown(&self) -> Vec<u8> {
        self.tls.facts().unwrap().peer_certificates[0].clone()
    }

    /// The body of a short answer.
    fn ask(&mut self) -> std::io::Result<String> {
        let wire = self
            .tls
            .seal(b"GET /plaintext HTTP/1.1\r\nHost: localhost\r\n\r\n");
        self.stream.write_all(&wire)?;
        let mut text = Vec::new();
        while !text.ends_with(b"Hello, World!") {
            if self.tls.receive(&mut self.stream, &mut text)? == 0 {
                return Err(std::io::ErrorKind::UnexpectedEof.into());
            }
        }
        Ok(String::from_utf8(text).unwrap())
    }

    #[track_caller]
    fn expect_alive(&mut self) {
        let answer = self.ask().unwrap();
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    }
}

fn check(command: &mut Command, code: i32, expect: &[&str]) {
    let error = fails(command, code);
    for text in expect {
        assert!(error.contains(text), "expected `{text}` in: {error}");
    }
}

#[test]
fn a_wrong_command_line() {
    let cases: [(&[&str], &str); 12] = [
        (
            &["--cert", "a"],
            "expected a --key for each --cert, found 1 --cert and 0 --key",
        ),
        (&["--key", "a"], "found 0 --cert and 1 --key"),
        (
            &["--tls-dev", "--cert", "a", "--key", "b"],
            "'--tls-dev' cannot be used with '--cert",
        ),
        (
            &["--client-ca", "a"],
            "--client-ca is for TLS: add --cert and --key or --tls-dev",
        ),
        (&["--redirect-http", ":80"], "--redirect-http is for TLS"),
        (&["--key-log", "a"], "--key-log is for TLS"),
        (&["--tls-min", "1.3"], "--tls-min is for TLS"),
        (&["--tls-dev", "--tls-min", "1.1"], "[possible values: 1.2, 1.3]"),
        (&["--tls-dev", "--client-cert-optional"], "--client-ca"),
        (
            &["--tls-dev", "--echo"],
            "--tls-dev is for HTTP: drop it, or drop --echo",
        ),
        (
            &["--tls-dev", "--listen", ":8443", "--redirect-http", ":8443"],
            "--redirect-http [::]:8443 is an address of --listen",
        ),
        (
            &[
                "--tls-dev",
                "--listen",
                "unix:/nowhere",
                "--redirect-http",
                ":8080",
            ],
            "needs a port to redirect clients to: add --listen IP:PORT",
        ),
    ];
    for (args, expect) in cases {
        let server = Server::spawn(&mut run(args));
        let (status, said) = server.finish();
        assert_eq!(status.code(), Some(2), "{args:?}: {said:#?}");
        assert!(
            said.join("\n").contains(expect),
            "expected `{expect}` of {args:?} in: {said:#?}"
        );
    }
}

/// All that is wrong, and the socket file was never there.
#[test]
fn errors_of_all_files_are_reported_before_listening() {
    let rig = Rig::new();
    let (one, other) = (rig.authority.sign("localhost"), rig.authority.sign("localhost"));
    let old = rig.authority.sign_for("localhost", 1000, 2000);
    for (name, bytes) in [
        ("one.pem", &one.chain.bytes),
        ("one.key", &one.key.bytes),
        ("other.key", &other.key.bytes),
        ("old.pem", &old.chain.bytes),
        ("old.key", &old.key.bytes),
        ("garbage.pem", &b"-----BEGIN CERTIFICATE-----\nnothing\n".to_vec()),
    ] {
        fs::write(rig.directory.join(name), bytes).unwrap();
    }
    type Case<'a> = (&'a [(&'a str, &'a str)], &'a [&'a str], &'a [&'a str]);
    let cases: [Case<'_>; 4] = [
        (
            &[("absent.pem", "absent.key"), ("one.pem", "other.key")],
            &["--client-ca", "absent.ca", "--key-log", "absent/log"],
            &[
                "absent.pem: expected a file that can be read",
                "absent.key: expected a file that can be read",
                "absent.ca: expected a file that can be read",
                "absent/log: expected a file to append to",
                "expected the key of the certificate for localhost",
            ],
        ),
        (&[("old.pem", "old.key")], &[], &["old.pem", "1970"]),
        (
            &[("one.pem", "one.key"), ("one.pem", "one.key")],
            &[],
            &["expected each certificate once"],
        ),
        (
            &[("garbage.pem", "one.key"), ("one.pem", "garbage.pem")],
            &["--client-ca", "garbage.pem"],
            &["expected certificates in PEM", "expected a private key in PEM"],
        ),
    ];
    for (pairs, more, expect) in cases {
        let socket = rig.directory.join("socket");
        let mut command = run(&["--listen", &format!("unix:{}", socket.display())]);
        command.current_dir(rig.directory.path());
        for (chain, key) in pairs {
            command.args(["--cert", chain, "--key", key]);
        }
        command.args(more);
        let (status, said) = Server::spawn(&mut command).finish();
        assert_eq!(status.code(), Some(1), "{said:#?}");
        let all = said.join("\n");
        for text in expect {
            assert!(all.contains(text), "expected `{text}` of {pairs:?} in: {all}");
        }
        assert!(!all.contains("listening on") && !all.contains("panic"), "{all}");
        assert!(!socket.exists());
    }
    // One alone names its file and what to do.
    let mut command = run(&["--cert", "absent.pem", "--key", "absent.pem"]);
    check(
        command.current_dir(rig.directory.path()),
        1,
        &["invalid TLS settings"],
    );
}

#[test]
fn certificates_are_reloaded_on_sighup() {
    let rig = Rig::new();
    let (mut server, addrs) = Server::start(&mut rig.command(&[]), 1);
    let connector = rig.connector(|_| ());
    let mut first = Client::new(&addrs[0], &connector);
    first.expect_alive();

    fs::write(rig.directory.join("key.pem"), "no key").unwrap();
    server.signal(Signal::HUP);
    server.wait_for("keeping the previous certificates");
    let again = Client::new(&addrs[0], &connector);
    assert!(again.shown() == first.shown());

    rig.install(&rig.authority.sign("localhost"));
    server.signal(Signal::HUP);
    server.wait_for_each(&[
        "reloaded: + localhost",
        "reloaded: - localhost",
        "reloaded: 0 unchanged",
    ]);
    let mut new = Client::new(&addrs[0], &connector);
    assert!(new.shown() != first.shown());
    // The earlier connection remains open.
    for client in [&mut first, &mut new] {
        client.expect_alive();
    }
    server.terminate();
}

/// The head of the answer in the clear.
fn plain(addr: &str, request: &str) -> String {
    let mut stream = connect(addr);
    stream.write_all(request.as_bytes()).unwrap();
    stream.finish();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text
}

#[test]
fn http_is_sent_to_https() {
    let rig = Rig::new();
    let (server, addrs) = Server::start(&mut rig.command(&["--redirect-http", "127.0.0.1:0"]), 2);
    let port = addrs[0].rsplit(':').next().unwrap();
    Client::new(&addrs[0], &rig.connector(|_| ())).expect_alive();
    for (target, host, expect) in [
        ("/", "a.example", format!("https://a.example:{port}/")),
        (
            "/nothing/here?a=b%20c",
            "a.example:8080",
            format!("https://a.example:{port}/nothing/here?a=b%20c"),
        ),
        (
            "/to?url=http://b.example/x",
            "a.example",
            format!("https://a.example:{port}/to?url=http://b.example/x"),
        ),
        ("/", "[::1]", format!("https://[::1]:{port}/")),
        ("/x", "[::1]:80", format!("https://[::1]:{port}/x")),
        (
            "http://c.example:81/y?z",
            "a.example",
            format!("https://c.example:{port}/y?z"),
        ),
    ] {
        for method in ["GET", "HEAD", "POST", "DELETE"] {
            let request = format!("{method} {target} HTTP/1.1\r\nHost: {host}\r\nContent-Length: 0\r\n\r\n");
            let answer = plain(&addrs[1], &request);
            assert!(answer.starts_with("HTTP/1.1 308 "), "{request}{answer}");
            assert!(
                answer.contains(&format!("\r\nLocation: {expect}\r\n")),
                "{request}{answer}"
            );
        }
    }
    let answer = plain(&addrs[1], "GET / HTTP/1.0\r\n\r\n");
    assert!(
        answer.starts_with("HTTP/1.1 400 ") && answer.contains("a Host field"),
        "{answer}"
    );
    let answer = plain(&addrs[1], "GET / HTTP/1.1\r\n\r\n");
    assert!(answer.starts_with("HTTP/1.1 400 "), "{answer}");
    let said = server.terminate();
    let pages: Vec<&String> = said
        .iter()
        .filter(|line| line.contains("open in a browser"))
        .collect();
    assert_eq!(pages.len(), 1, "{said:#?}");
    assert!(
        pages[0].contains(&format!("https://127.0.0.1:{port}/")),
        "{pages:?}"
    );
}

#[test]
fn clients_show_certificates() {
    let rig = Rig::with_authority_in_a_file();
    let authority = rig.path("ca.pem");
    let known = rig.authority.sign("client");
    for optional in [false, true] {
        let mut args = vec!["--client-ca", &authority];
        args.extend(optional.then_some("--client-cert-optional"));
        let (server, addrs) = Server::start(&mut rig.command(&args), 1);
        let shows = rig.connector(|settings| settings.certificate = Some(known.clone()));
        Client::new(&addrs[0], &shows).expect_alive();
        let answer = Client::new(&addrs[0], &rig.connector(|_| ())).ask();
        assert_eq!(answer.is_ok(), optional, "{answer:?}");
        server.terminate();
    }
}

#[test]
fn an_old_version_is_refused() {
    let rig = Rig::new();
    let (server, addrs) = Server::start(&mut rig.command(&["--tls-min", "1.3"]), 1);
    let older = rig.connector(|settings| {
        settings.suites = vec!["TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256".to_owned()];
    });
    let mut stream = TcpStream::connect(&addrs[0]).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let error = Secure::new(&mut stream, &older, &localhost())
        .err()
        .expect("refused");
    assert!(error.to_string().contains("ProtocolVersion"), "{error}");
    Client::new(&addrs[0], &rig.connector(|_| ())).expect_alive();
    server.terminate();
}

#[test]
fn secrets_are_logged_for_their_owner_alone() {
    let rig = Rig::new();
    let log: PathBuf = rig.directory.join("keys");
    let (server, addrs) = Server::start(&mut rig.command(&["--key-log", &rig.path("keys")]), 1);
    assert!(
        server
            .said
            .iter()
            .any(|line| line.contains("TLS secrets of every connection are written to")),
        "{:#?}",
        server.said
    );
    for _ in 0..2 {
        Client::new(&addrs[0], &rig.connector(|_| ())).expect_alive();
    }
    server.terminate();
    assert_eq!(log.metadata().unwrap().permissions().mode() & 0o7777, 0o600);
    let text = fs::read_to_string(&log).unwrap();
    for label in [
        "CLIENT_HANDSHAKE_TRAFFIC_SECRET",
        "SERVER_HANDSHAKE_TRAFFIC_SECRET",
        "CLIENT_TRAFFIC_SECRET_0",
        "SERVER_TRAFFIC_SECRET_0",
    ] {
        let lines = text.lines().filter(|line| line.split(' ').next() == Some(label));
        assert_eq!(lines.count(), 2, "{label} in {text}");
    }
    // A label, 32 bytes of the client's hello, a secret; in hexadecimal.
    for line in text.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        let hex = |word: &str| word.bytes().all(|byte| byte.is_ascii_hexdigit());
        assert!(
            matches!(words[..], [_, hello, secret] if hello.len() == 64 && hex(hello) && hex(secret)),
            "{line}"
        );
    }
}

#[test]
fn a_development_certificate_is_for_this_host() {
    let (server, addrs) = Server::start(&mut run(&["--tls-dev", "--listen", "127.0.0.1:0"]), 1);
    let said = server.said.join("\n");
    assert!(
        said.contains("certificate for localhost, 127.0.0.1, ::1 (development certificate): ")
            && said.contains("SHA-256 "),
        "{said}"
    );
    let anybody = connector_of(&ClientSettings::new(ringmain_tls::Trust::AnybodyInsecure));
    Client::new(&addrs[0], &anybody).expect_alive();
    server.terminate();
}

#[test]
fn a_successor_serves_by_tls_and_redirects() {
    let rig = Rig::new();
    let (mut server, addrs) = Server::start(&mut rig.command(&["--redirect-http", "127.0.0.1:0"]), 2);
    let connector = rig.connector(|_| ());
    let first = Client::new(&addrs[0], &connector).shown();
    // The successor reads the files; a redirect names the same port.
    rig.install(&rig.authority.sign("localhost"));
    server.signal(Signal::USR2);
    let lines = server.wait_for_each(&[" serves now", "all connections are closed"]);
    let number = lines[0]
        .split("process ")
        .nth(1)
        .unwrap()
        .split(' ')
        .next()
        .unwrap();
    let mut client = Client::new(&addrs[0], &connector);
    client.expect_alive();
    assert!(client.shown() != first);
    let port = addrs[0].rsplit(':').next().unwrap();
    let answer = plain(&addrs[1], "GET /x HTTP/1.1\r\nHost: a.example\r\n\r\n");
    assert!(
        answer.contains(&format!("\r\nLocation: https://a.example:{port}/x\r\n")),
        "{answer}"
    );
    drop(client);
    kill_process(Pid::from_raw(number.parse().unwrap()).unwrap(), Signal::TERM).unwrap();
    server.wait_for("all connections are closed");
    server.finish();
}

/// Returns whether a tool is installed; without it the test is skipped with a message.
fn has(tool: &str, version: &str) -> bool {
    let found = Command::new(tool).arg(version).output().is_ok();
    if !found {
        skipped(&format!("no {tool} here, so that it is not tried against TLS"));
    }
    found
}

/// Runs a tool with this input; its output, both kinds.
fn talk(command: &mut Command, input: &[u8]) -> (bool, String) {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    // It may be over before it reads that.
    let _ = stdin.write_all(input);
    drop(stdin);
    let output = child.wait_with_output().unwrap();
    let all = [output.stdout, output.stderr].concat();
    (
        output.status.success(),
        String::from_utf8_lossy(&all).into_owned(),
    )
}

fn openssl(rig: &Rig, addr: &str, args: &[&str]) -> Command {
    let mut command = Command::new("openssl");
    command.args(["s_client", "-connect", addr, "-servername", "localhost"]);
    command.args(["-CAfile", &rig.path("ca.pem"), "-verify_return_error"]);
    command.args(args);
    command
}

const REQUEST: &[u8] = b"GET /plaintext HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";

#[test]
fn openssl_resumes_its_sessions_on_all_workers() {
    if !has("openssl", "version") {
        return;
    }
    let rig = Rig::with_authority_in_a_file();
    let (server, addrs) = Server::start(&mut rig.command(&["--workers", "4"]), 1);
    for version in ["-tls1_2", "-tls1_3"] {
        let session = rig.path("session");
        for number in 0..10 {
            let mut args = vec![version, "-ign_eof", "-sess_out", &session];
            if number > 0 {
                args.extend(["-sess_in", &session]);
            }
            let (_, said) = talk(&mut openssl(&rig, &addrs[0], &args), REQUEST);
            let how = if number == 0 { "\nNew, " } else { "\nReused, " };
            for text in ["Verify return code: 0 (ok)", "Hello, World!", how] {
                assert!(
                    said.contains(text),
                    "expected `{text}` of connection {number}, {version}: {said}"
                );
            }
        }
    }
    server.terminate();
}

#[test]
fn openssl_renegotiates_nothing_and_updates_keys() {
    if !has("openssl", "version") {
        return;
    }
    let rig = Rig::with_authority_in_a_file();
    let (server, addrs) = Server::start(&mut rig.command(&[]), 1);
    let (_, said) = talk(&mut openssl(&rig, &addrs[0], &["-tls1_2"]), b"R\n");
    assert!(
        said.contains("RENEGOTIATING") && said.contains("no renegotiation"),
        "{said}"
    );
    let (done, said) = talk(&mut openssl(&rig, &addrs[0], &["-tls1_3"]), b"K\n");
    assert!(
        done && said.contains("KEYUPDATE") && !said.contains("error"),
        "{said}"
    );
    for old in ["-tls1", "-tls1_1"] {
        let (done, said) = talk(&mut openssl(&rig, &addrs[0], &[old]), b"");
        assert!(!done, "{old} is spoken: {said}");
    }
    Client::new(&addrs[0], &rig.connector(|_| ())).expect_alive();
    server.terminate();
}

#[test]
fn curl_follows_a_redirect_uploads_and_shows_a_certificate() {
    if !has("curl", "--version") {
        return;
    }
    let rig = Rig::with_authority_in_a_file();
    let (authority, body) = (rig.path("ca.pem"), rig.path("body"));
    fs::write(&body, vec![b'x'; 300_000]).unwrap();
    let known = rig.authority.sign("client");
    fs::write(rig.directory.join("client.pem"), &known.chain.bytes).unwrap();
    fs::write(rig.directory.join("client.key"), &known.key.bytes).unwrap();
    let args = ["--client-ca", &authority, "--redirect-http", "127.0.0.1:0"];
    let (server, addrs) = Server::start(&mut rig.command(&args), 2);
    let ports = [&addrs[0], &addrs[1]].map(|addr| addr.rsplit(':').next().unwrap());
    let curl = |args: &[&str]| {
        let mut command = Command::new("curl");
        command.args([
            "-sS",
            "--max-time",
            "60",
            "--noproxy",
            "*",
            "--cacert",
            &authority,
        ]);
        for port in ports {
            command.args(["--resolve", &format!("localhost:{port}:127.0.0.1")]);
        }
        talk(command.args(args), b"")
    };
    let (certificate, key) = (rig.path("client.pem"), rig.path("client.key"));
    let shows = ["--cert", &certificate, "--key", &key];
    let http = format!("http://localhost:{}/plaintext", ports[1]);
    let mut args = shows.to_vec();
    args.extend(["--location", &http]);
    assert_eq!(curl(&args), (true, "Hello, World!".to_owned()));
    let https = format!("https://localhost:{}/echo", ports[0]);
    let data = format!("@{body}");
    for version in [&["--tls-max", "1.2"][..], &["--tlsv1.3"]] {
        let mut args = shows.to_vec();
        args.extend(version);
        args.extend(["--data-binary", &data, &https]);
        let (done, back) = curl(&args);
        assert!(
            done && back == "x".repeat(300_000),
            "{version:?}: {} bytes",
            back.len()
        );
    }
    // Over HTTP/2 curl writes before it receives the alert, and reports only a failed write.
    let (done, said) = curl(&["--http1.1", &https]);
    assert!(!done && said.contains("certificate required"), "{said}");
    server.terminate();
}
