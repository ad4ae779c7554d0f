//! Every example does what its first lines promise: started as a process, asked by a socket, ended by SIGTERM.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::time::UNIX_EPOCH;

use ringmain::tls::DevCertificate;
use rustix::process::{Signal, kill_process};
use serde_json::json;

use crate::support::{Answer, Server, ask_by_tls, example};

#[test]
fn echo_sends_every_byte_back() {
    let server = Server::start("echo", &[]);
    let mut stream = server.connect();
    stream.write_all(b"ring").unwrap();
    let mut back = [0; 4];
    stream.read_exact(&mut back).unwrap();
    assert_eq!(&back, b"ring");
    drop(stream);
    server.terminate();
}

#[test]
fn hello_greets_by_name() {
    let server = Server::start("hello", &[]);
    let answer = server.ask("GET /hello/J%C3%B6rg", "", b"");
    assert_eq!((answer.status, answer.text()), (200, "Hello, Jörg!\n"));
    assert_eq!(answer.field("Content-Type"), Some("text/plain; charset=utf-8"));

    let answer = server.ask("GET /nowhere", "", b"");
    assert_eq!(answer.status, 404);
    assert_eq!(answer.json()["detail"], "no route matches `/nowhere`");
    server.terminate();
}

#[test]
fn a_new_process_takes_over() {
    let mut server = Server::start("hello", &[]);
    let successor = server.replace();
    let answer = server.ask("GET /hello/you", "", b"");
    assert_eq!((answer.status, answer.text()), (200, "Hello, you!\n"));
    kill_process(successor, Signal::TERM).unwrap();
    let (_, said) = server.finish();
    let count = |text: &str| said.iter().filter(|line| line.contains(text)).count();
    assert_eq!((count("listening on "), count("error")), (2, 0), "{said:#?}");
}

#[test]
fn a_bad_address_is_one_line_and_exit_code_1() {
    let (code, said) = Server::spawn(example("hello").arg("nonsense")).finish();
    assert_eq!(code, Some(1));
    assert_eq!(said.len(), 1, "{said:#?}");
    assert!(
        said[0].starts_with("error: ") && said[0].contains("nonsense"),
        "{said:#?}"
    );
}

#[test]
fn websocket_messages_come_back() {
    let server = Server::start("ws_echo", &[]);
    let mut stream = server.connect();
    let request = "GET / HTTP/1.1\r\nHost: test\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
                   Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\
                   Sec-WebSocket-Extensions: permessage-deflate\r\n\r\n";
    stream.write_all(request.as_bytes()).unwrap();
    // Two texts, the second deflated (RFC 7692 §7.2.3.1), then a Close; masked with zeroes.
    stream.write_all(b"\x81\x84\0\0\0\0ring").unwrap();
    stream
        .write_all(b"\xc1\x87\0\0\0\0\xf2\x48\xcd\xc9\xc9\x07\x00")
        .unwrap();
    stream.write_all(b"\x88\x82\0\0\0\0\x03\xe8").unwrap();
    let mut came = Vec::new();
    stream.read_to_end(&mut came).unwrap();
    let text = came.escape_ascii().to_string();
    assert!(text.starts_with("HTTP/1.1 101 "), "{text}");
    assert!(
        text.contains("Sec-WebSocket-Extensions: permessage-deflate"),
        "{text}"
    );
    assert!(
        came.ends_with(b"\x81\x04ring\x81\x05Hello\x88\x02\x03\xe8"),
        "{text}"
    );
    server.terminate();
}

const TOKEN: &str = "Authorization: Bearer secret\r\n";
const JSON: &str = "Authorization: Bearer secret\r\nContent-Type: application/json\r\n";

#[test]
fn the_json_api_keeps_books() {
    let server = Server::start("json_api", &[]);
    for (id, title) in [(1, "Emma"), (2, "Walden"), (3, "Dracula")] {
        let body = json!({ "title": title, "year": 1850 }).to_string();
        let answer = server.ask("POST /books", JSON, body.as_bytes());
        assert_eq!(answer.status, 201, "{answer:?}");
        assert_eq!(answer.field("Location"), Some(&*format!("/books/{id}")));
        assert_eq!(
            answer.json(),
            json!({ "id": id, "title": title, "year": 1850, "added_by": "ann" })
        );
    }
    let titles = |target: &str| {
        let page = server.ask(&format!("GET {target}"), "", b"").json();
        let books = page["books"].as_array().unwrap().iter();
        let titles: Vec<_> = books
            .map(|book| book["title"].as_str().unwrap().to_owned())
            .collect();
        (titles.join(" "), page["more"].as_bool().unwrap())
    };
    assert_eq!(titles("/books?limit=2"), ("Emma Walden".into(), true));
    assert_eq!(titles("/books?after=2"), ("Dracula".into(), false));

    assert_eq!(server.ask("GET /books/2", "", b"").json()["title"], "Walden");
    assert_eq!(server.ask("DELETE /books/2", TOKEN, b"").status, 204);
    assert_eq!(server.ask("GET /books/2", "", b"").status, 404);
    assert_eq!(titles("/books"), ("Emma Dracula".into(), false));
    assert_eq!(server.ask("GET /healthz", "", b"").status, 200);
    server.terminate();
}

#[test]
fn the_json_api_says_what_is_wrong() {
    let server = Server::start("json_api", &[]);
    let fails = |request: &str, fields: &str, body: &str, status: u16, words: &[&str]| -> Answer {
        let answer = server.ask(request, fields, body.as_bytes());
        assert_eq!(answer.status, status, "{request} {body}: {answer:?}");
        assert_eq!(answer.field("Content-Type"), Some("application/problem+json"));
        let problem = answer.json();
        assert_eq!(problem["status"], status);
        let detail = problem["detail"].as_str().unwrap();
        for word in words {
            assert!(detail.contains(word), "{request} {body}: `{word}` in `{detail}`");
        }
        answer
    };
    let emma = r#"{"title": "Emma", "year": 1815}"#;
    let answer = fails("POST /books", "", emma, 401, &["token"]);
    assert_eq!(answer.field("WWW-Authenticate"), Some("Bearer"));
    fails("POST /books", TOKEN, emma, 415, &["application/json", "none"]);
    let wrong = "{\n  \"title\": \"Emma\",\n  \"year\": \"1815\"\n}";
    fails("POST /books", JSON, wrong, 400, &["year", "line 3", "string"]);
    fails("POST /books", JSON, r#"{"title": "Emma"}"#, 400, &["year"]);
    fails(
        "POST /books",
        JSON,
        r#"{"title": "Emma", "yaer": 1815}"#,
        400,
        &["yaer"],
    );
    fails("POST /books", JSON, "{", 400, &["line 1"]);

    assert_eq!(server.ask("POST /books", JSON, emma.as_bytes()).status, 201);
    fails("POST /books", JSON, emma, 409, &["Emma"]);
    fails("GET /books?limit=0", "", "", 400, &["limit", "1 to 100"]);
    fails("GET /books?limit=many", "", "", 400, &["limit", "many"]);
    fails("GET /books/first", "", "", 400, &["id", "first"]);
    fails("GET /books/7", "", "", 404, &["7"]);
    fails("DELETE /books/7", TOKEN, "", 404, &["7"]);
    let answer = fails("PUT /books/1", TOKEN, "", 405, &["PUT"]);
    assert_eq!(answer.field("Allow"), Some("GET, HEAD, DELETE, OPTIONS"));
    server.terminate();
}

/// An empty directory of the test's own.
fn directory(name: &str) -> String {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}", std::process::id()));
    let _ = fs::remove_dir_all(&path);
    fs::create_dir_all(&path).unwrap();
    path.to_str().unwrap().to_owned()
}

fn names(directory: &str) -> Vec<String> {
    let entries = fs::read_dir(directory).unwrap();
    entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect()
}

#[test]
fn an_upload_comes_back_as_it_was() {
    let directory = directory("upload");
    let server = Server::start("upload", &[&directory]);
    let film: Vec<u8> = (0..3_000_000_u32).map(|i| (i % 251) as u8).collect();
    let fnv1a = film.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
    });

    // In chunks, as a client sends that does not know the length beforehand; the head alone first.
    let mut stream = server.connect();
    let head = "PUT /files/film.mkv HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\
                Transfer-Encoding: chunked\r\nExpect: 100-continue\r\n\r\n";
    stream.write_all(head.as_bytes()).unwrap();
    let mut go = [0; 25];
    stream.read_exact(&mut go).unwrap();
    assert_eq!(&go, b"HTTP/1.1 100 Continue\r\n\r\n");
    for chunk in film.chunks(100_000) {
        write!(stream, "{:x}\r\n", chunk.len()).unwrap();
        stream.write_all(chunk).unwrap();
        stream.write_all(b"\r\n").unwrap();
    }
    stream.write_all(b"0\r\n\r\n").unwrap();
    let answer = Answer::read(stream);
    assert_eq!(answer.status, 201, "{answer:?}");
    assert_eq!(
        answer.json(),
        json!({ "bytes": film.len(), "fnv1a": format!("{fnv1a:016x}") })
    );

    let answer = server.ask("GET /files/film.mkv", "", b"");
    assert_eq!(answer.field("Content-Length"), Some("3000000"));
    assert!(answer.body == film, "what came back differs");
    let answer = server.both("HEAD /files/film.mkv", "GET /gone");
    assert!(answer.text().starts_with("HTTP/1.1 404 "), "{answer:?}");
    let answer = server.ask("HEAD /files/film.mkv", "", b"");
    assert_eq!(
        (answer.field("Content-Length"), &*answer.body),
        (Some("3000000"), &b""[..])
    );
    assert_eq!(names(&directory), ["film.mkv"]);
    server.terminate();
    fs::remove_dir_all(directory).unwrap();
}

#[test]
fn an_upload_is_bounded_and_cannot_escape() {
    let directory = directory("bounded");
    let server = Server::start("upload", &[&directory]);
    let escapes = server.ask("PUT /files/..%2Fx", "", b"x");
    assert_eq!(escapes.status, 400, "{escapes:?}");
    assert_eq!(server.ask("GET /files/none", "", b"").status, 404);

    // Refused by its head alone.
    let mut stream = server.connect();
    let head = "PUT /files/x HTTP/1.1\r\nHost: test\r\nContent-Length: 1073741825\r\n\r\n";
    stream.write_all(head.as_bytes()).unwrap();
    assert_eq!(Answer::read(stream).status, 413);

    // Broken off: it is told so, and nothing stays.
    let mut stream = server.connect();
    let head = "PUT /files/x HTTP/1.1\r\nHost: test\r\nContent-Length: 10\r\n\r\nhalf";
    stream.write_all(head.as_bytes()).unwrap();
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    assert_eq!(Answer::read(stream).status, 400);
    server.terminate();
    assert_eq!(names(&directory), [""; 0]);
    fs::remove_dir(directory).unwrap();
}

#[test]
fn https_is_spoken_and_certificates_change() {
    let server = Server::start("https", &[]);
    let answer = ask_by_tls(server.addr(), "GET /");
    assert!(answer.contains("Hello over TLSv1.3 with TLS_"), "{answer}");
    server.terminate();

    let directory = std::env::temp_dir().join(format!("ringmain-https-{}", std::process::id()));
    fs::create_dir(&directory).unwrap();
    let [chain, key] = ["chain.pem", "key.pem"].map(|name| directory.join(name));
    let install = || {
        let made = DevCertificate::new(&[], UNIX_EPOCH.elapsed().unwrap())
            .unwrap()
            .pair;
        fs::write(&chain, made.chain.bytes).unwrap();
        fs::write(&key, made.key.bytes).unwrap();
    };
    install();
    let files = [chain.to_str().unwrap(), key.to_str().unwrap()];
    let server = Server::start("https", &files);
    install();
    let answer = ask_by_tls(server.addr(), "POST /certificates");
    assert!(
        answer.contains("+ localhost, 127.0.0.1, ::1 (") && answer.contains("\n0 unchanged"),
        "{answer}"
    );
    fs::write(&key, "no key").unwrap();
    let answer = ask_by_tls(server.addr(), "POST /certificates");
    assert!(
        answer.starts_with("HTTP/1.1 422 ") && answer.contains("expected a private key"),
        "{answer}"
    );
    ask_by_tls(server.addr(), "GET /");
    server.terminate();
    let (code, said) = server_fails(&files);
    assert_eq!(code, Some(1), "{said:#?}");
    assert!(
        said.join("\n").starts_with("error: invalid TLS settings:"),
        "{said:#?}"
    );
    fs::remove_dir_all(&directory).unwrap();
}

fn server_fails(files: &[&str]) -> (Option<i32>, Vec<String>) {
    Server::spawn(example("https").arg("127.0.0.1:0").args(files)).finish()
}

#[test]
fn the_clock_ticks_until_the_server_ends() {
    let server = Server::start("clock", &[]);
    let page = server.ask("GET /", "", b"");
    assert_eq!(page.field("Content-Type"), Some("text/html; charset=utf-8"));
    assert!(page.text().contains("new EventSource(\"/ticks\")"));

    // The head of what has no end is an answer like another: the next one follows.
    let answer = server.both("HEAD /ticks", "GET /gone");
    assert_eq!(answer.status, 200);
    assert!(answer.text().starts_with("HTTP/1.1 404 "), "{answer:?}");

    let mut stream = server.connect();
    stream
        .write_all(b"GET /ticks HTTP/1.1\r\nHost: test\r\n\r\n")
        .unwrap();
    let mut lines = BufReader::new(stream).lines().map(Result::unwrap);
    let head: Vec<String> = lines.by_ref().take_while(|line| !line.is_empty()).collect();
    assert!(
        head.iter().any(|line| line == "Content-Type: text/event-stream"),
        "{head:#?}"
    );
    let mut id = || -> u64 {
        let line = lines.by_ref().find(|line| line.starts_with("id:")).unwrap();
        line["id:".len()..].trim().parse().unwrap()
    };
    let (first, second) = (id(), id());
    assert!(second > first, "{first} {second}");

    // A stream without an end does not hold up the shutdown, and ends as HTTP wants it.
    let log = server.terminate();
    let lines_with = |text: &str| log.lines().filter(|line| line.contains(text)).count();
    let logged = ["\"GET / ", "HEAD /ticks", "GET /gone"].map(lines_with);
    assert_eq!(logged, [1, 1, 1], "{log}");
    let rest: Vec<String> = lines.collect();
    assert_eq!(rest[rest.len() - 2..], ["0", ""], "{rest:#?}");
}

#[test]
fn services_of_grpc_are_called_over_grpc_web() {
    let server = Server::start("grpc", &[]);
    let call = |method: &str, fields: &str, body: &[u8]| {
        let fields = format!("Content-Type: application/grpc-web\r\n{fields}");
        let answer = server.ask(&format!("POST {method}"), &fields, body);
        assert_eq!(answer.status, 200);
        answer
    };
    let name = b"\0\0\0\0\x05\n\x03you";
    let answer = call("/demo.Greeter/Greet", "", name);
    assert_eq!(answer.field("Content-Type"), Some("application/grpc-web"));
    assert_eq!(
        answer.body.escape_ascii().to_string(),
        r"\x00\x00\x00\x00\r\n\x0bHello, you!\x80\x00\x00\x00\x1egrpc-status: 0\r\nx-letters: 3\r\n"
    );
    let answer = call(
        "/demo.Greeter/Greet",
        "Origin: http://localhost:3000\r\n",
        b"\0\0\0\0\0",
    );
    let text = answer.body.escape_ascii().to_string();
    assert!(
        text.ends_with(r"grpc-status: 3\r\ngrpc-message: name: expected some text, found none\r\n"),
        "{text}"
    );
    assert_eq!(
        answer.field("Access-Control-Allow-Origin"),
        Some("http://localhost:3000")
    );

    // Goes on until the deadline.
    let answer = call("/demo.Greeter/Repeat", "grpc-timeout: 500m\r\n", name);
    let text = answer.body.escape_ascii().to_string();
    // In one chunk or in several, as the clock had it.
    let greetings = text.matches(r"\x00\x00\x00\x00\r\n\x0bHello, you!").count();
    assert!(greetings > 1, "{text}");
    assert!(text.contains("grpc-status: 4"), "{text}");

    let answer = call("/grpc.health.v1.Health/Check", "", b"\0\0\0\0\0");
    assert!(
        answer.body.starts_with(b"\0\0\0\0\x02\x08\x01\x80"),
        "{}",
        answer.body.escape_ascii()
    );
    server.terminate();
}

#[test]
fn the_report_is_the_same_for_the_same_sensor() {
    let server = Server::start("report", &["epoll"]);
    let report = |sensor: u32| {
        let answer = server.ask(&format!("GET /report?sensor={sensor}"), "", b"");
        assert_eq!(answer.status, 200);
        answer.json()
    };
    let one = report(1);
    assert_eq!(
        (&one["sensor"], &one["measurements"]),
        (&json!(1), &json!(10_000))
    );
    assert_eq!(one, report(1));
    assert_ne!(one["median"], report(2)["median"]);
    let answer = server.ask("GET /report?sensor=x", "", b"");
    assert_eq!(answer.status, 400);
    server.terminate();
}
