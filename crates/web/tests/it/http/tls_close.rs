//! TLS of listeners: bytes that are not TLS, slow and excessive clients, the end of connections.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use ringmain_tls::{Acceptor, HandshakeCounts};
use ringmain_web::{App, Limits, ListenerProtocol};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, ClientConnection, RootCertStore};

use crate::support::tls::{Secure, acceptor, connector, development, localhost};
use crate::support::{Client, Server, Setting, get, serve, serve_at};

by_tls!(
    plain_http_is_answered_in_the_clear,
    bytes_that_are_not_tls_close_the_connection,
    tls_is_no_http,
    a_handshake_has_its_time,
    a_request_has_its_time_from_the_end_of_the_handshake,
    a_flood_in_the_handshake_closes_the_connection,
    a_flood_after_the_handshake_closes_the_connection,
    a_record_that_was_changed_ends_the_connection,
    an_announced_end_is_answered_and_announced,
    bytes_after_close_notify_are_dropped,
    an_end_without_close_notify_is_an_end,
    an_upload_that_was_cut_is_no_whole_one,
    a_shutdown_lets_handshakes_finish,
);

const HOUR: Duration = Duration::from_secs(3600);

fn app() -> App {
    App::new()
        .get("/", |_, reply| reply.text("ok"))
        .post_streamed("/upload", async |req, reply| {
            while req.chunk().await?.is_some() {}
            reply.text("all of it")
        })
}

fn counted(setting: Setting, app: App) -> (Server, Acceptor) {
    let acceptor = acceptor();
    let app = app.listener(0, ListenerProtocol::https(&acceptor));
    (serve_at(setting.engine, app, Some(connector())), acceptor)
}

/// Reads all bytes on the wire until the connection ends, properly or not.
fn all(stream: &mut TcpStream) -> Vec<u8> {
    let mut all = Vec::new();
    // A reset is an end too: bytes sent last may remain unread at the server.
    let _ = stream.read_to_end(&mut all);
    all
}

/// Returns true if these bytes are one unencrypted alert.
fn is_alert(bytes: &[u8]) -> bool {
    matches!(bytes, [21, 3, _, 0, 2, 2, _])
}

fn hello() -> Vec<u8> {
    Secure::begin(&connector(), &localhost()).hello()
}

fn bytes_that_are_not_tls_close_the_connection(setting: Setting) {
    let (server, acceptor) = counted(setting, app());
    let mut long = hello();
    long[3] = 0xff;
    let mut none = hello();
    none[5] = 99;
    let cases: [(&str, &[u8], bool); 5] = [
        ("zeroes", &[0; 100], false),
        ("another protocol", b"SSH-2.0-OpenSSH_9.9\r\n", false),
        ("a record that is too long", &long, true),
        ("no hello", &none, true),
        ("data before a hello", &[23, 3, 3, 0, 3, 1, 2, 3], true),
    ];
    for (number, (name, bytes, told)) in cases.iter().enumerate() {
        let mut client = Client::new(server.addr);
        client.stream.write_all(bytes).expect("it is taken");
        let answer = all(&mut client.stream);
        assert_eq!(is_alert(&answer), *told, "{name}: {answer:?}");
        assert!(*told || answer.is_empty(), "{name}: {answer:?}");
        assert_eq!(acceptor.counts().failed, number as u64 + 1, "{name}");
        server.get("/").expect(200, "ok");
    }
}

/// An unencrypted request gets an unencrypted response, also while its body is in flight, and no part reaches a handler.
fn plain_http_is_answered_in_the_clear(setting: Setting) {
    let (server, acceptor) = counted(setting, app());
    let body = [
        &b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 500000\r\n\r\n"[..],
        &[b'x'; 500_000],
    ]
    .concat();
    for (number, request) in [&b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"[..], &body]
        .into_iter()
        .enumerate()
    {
        let mut client = Client::new(server.addr);
        client.send(request);
        let answer = client.answer();
        assert_eq!((answer.status, answer.closes()), (400, true));
        assert!(
            answer.text().contains("this port speaks TLS"),
            "{}",
            answer.text()
        );
        client.expect_end();
        assert_eq!(acceptor.counts().failed, number as u64 + 1);
    }
    server.get("/").expect(200, "ok");
}

fn tls_is_no_http(setting: Setting) {
    let setting = Setting {
        tls: false,
        ..setting
    };
    let server = serve(setting, app());
    let mut client = server.client();
    client.send(hello());
    assert_eq!(client.answer().status, 400);
    client.finish();
    client.expect_end();
}

/// Three clients: one sends nothing, one half a ClientHello, and one does not continue after it.
fn a_handshake_has_its_time(setting: Setting) {
    let limits = Limits {
        handshake_timeout: Duration::from_millis(50),
        header_timeout: HOUR,
        ..Limits::default()
    };
    let (server, acceptor) = counted(setting, app().limits(limits));
    let hello = hello();
    for said in [0, 1, 4, hello.len() / 2, hello.len()] {
        let mut client = Client::new(server.addr);
        // On a machine that stalls the time may be over before this.
        let _ = client.stream.write_all(&hello[..said]);
        let answer = all(&mut client.stream);
        assert!(
            answer.is_empty() || said == hello.len(),
            "{said} bytes: {answer:?}"
        );
    }
    let counts = acceptor.counts();
    let expect = HandshakeCounts {
        started: 5,
        ..HandshakeCounts::default()
    };
    assert_eq!(counts, expect, "nobody has broken a rule");
}

fn a_request_has_its_time_from_the_end_of_the_handshake(setting: Setting) {
    let limits = Limits {
        handshake_timeout: HOUR,
        header_timeout: Duration::from_millis(50),
        ..Limits::default()
    };
    let server = serve(setting, app().limits(limits));
    let mut silent = server.client();
    silent.expect_end();
}

/// Records that TLS 1.3 permits for compatibility with middleboxes, without end.
fn a_flood_in_the_handshake_closes_the_connection(setting: Setting) {
    let (server, acceptor) = counted(setting, app());
    for flood in [&[20, 3, 3, 0, 1, 1][..], &[22, 3, 3, 0, 1, 0], &[22, 3, 3, 0, 0]] {
        let mut client = Client::new(server.addr);
        client.stream.write_all(&hello()).expect("it is taken");
        // Fails when the server has closed the connection.
        let sent = client.stream.write_all(&flood.repeat(5_000_000));
        assert!(sent.is_err(), "all of {flood:?} was taken");
    }
    assert_eq!(acceptor.counts().failed, 3);
    server.get("/").expect(200, "ok");
}

/// Key updates: each costs the server work without any use.
fn a_flood_after_the_handshake_closes_the_connection(setting: Setting) {
    let server = serve(setting, app());
    let authority = CertificateDer::from_pem_slice(&development().authority.bytes).expect("PEM");
    let mut roots = RootCertStore::empty();
    roots.add(authority).expect("an authority");
    let config = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_root_certificates(roots)
        .with_no_client_auth();
    let name = "localhost".try_into().expect("a name");
    let mut tls = ClientConnection::new(Arc::new(config), name).expect("settings");
    let mut stream = Client::new(server.addr).stream;
    while tls.is_handshaking() {
        tls.complete_io(&mut stream).expect("a handshake");
    }
    let flood = (0..1_000_000).find(|_| {
        tls.refresh_traffic_keys().expect("TLS 1.3");
        tls.write_tls(&mut stream).is_err()
    });
    assert!(flood.is_some(), "all of it was taken");
    server.get("/").expect(200, "ok");
}

fn a_record_that_was_changed_ends_the_connection(setting: Setting) {
    let server = serve(setting, app());
    for at in [5, 30] {
        let mut client = server.client();
        client.expect_alive("/");
        let mut wire = client.sealed(get("/").as_bytes());
        wire[at] ^= 1;
        client.stream.write_all(&wire).expect("it is taken");
        let error = client.receive().expect_err("an alert");
        assert!(error.to_string().contains("BadRecordMac"), "{error}");
    }
    assert_eq!(server.app.stats().totals().requests(), 2);
}

fn an_announced_end_is_answered_and_announced(setting: Setting) {
    let server = serve(setting, app());
    // The last request and the end behind it, without FIN.
    let mut client = server.client();
    client.send(get("/"));
    let end = client.tls.as_mut().expect("it speaks TLS").close();
    client.stream.write_all(&end).expect("it is taken");
    client.answer().expect(200, "ok");
    client.expect_end();
    // An end alone.
    let mut client = server.client();
    client.expect_alive("/");
    let end = client.tls.as_mut().expect("it speaks TLS").close();
    client.stream.write_all(&end).expect("it is taken");
    client.expect_end();
}

fn bytes_after_close_notify_are_dropped(setting: Setting) {
    let server = serve(setting, app());
    let mut client = server.client();
    let mut wire = client.sealed(get("/").as_bytes());
    wire.extend(client.tls.as_mut().expect("it speaks TLS").close());
    wire.extend(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    client.stream.write_all(&wire).expect("it is taken");
    client.answer().expect(200, "ok");
    client.expect_end();
    assert_eq!(server.app.stats().totals().requests(), 1);
}

/// A response was complete before the end, or it was not: HTTP detects that itself.
fn an_end_without_close_notify_is_an_end(setting: Setting) {
    let server = serve(setting, app());
    for (request, answered) in [
        (get("/"), true),
        ("GET / HT".to_owned(), false),
        (String::new(), false),
    ] {
        let mut client = server.client();
        if !request.is_empty() {
            client.send(&request);
        }
        client.stream.shutdown(Shutdown::Write).expect("it is open");
        if answered {
            client.answer().expect(200, "ok");
        }
        client.expect_end();
    }
    // In the middle of a record.
    let mut client = server.client();
    let wire = client.sealed(get("/").as_bytes());
    client.stream.write_all(&wire[..20]).expect("it is taken");
    client.stream.shutdown(Shutdown::Write).expect("it is open");
    client.expect_end();
}

fn an_upload_that_was_cut_is_no_whole_one(setting: Setting) {
    let server = serve(setting, app());
    for head in [
        "Content-Length: 10\r\n\r\nabc",
        "Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n",
    ] {
        let mut client = server.client();
        client.send(format!("POST /upload HTTP/1.1\r\nHost: a\r\n{head}"));
        client.stream.shutdown(Shutdown::Write).expect("it is open");
        let answer = client.answer();
        assert_eq!((answer.status, answer.closes()), (400, true));
        client.expect_end();
    }
}

/// A client in a handshake gets its response; a client that has sent nothing, or is idle, is disconnected at once.
fn a_shutdown_lets_handshakes_finish(setting: Setting) {
    let server = serve(setting.grace(HOUR), app());
    let mut client = Client::new(server.addr);
    let mut secure = Secure::begin(&connector(), &localhost());
    client.stream.write_all(&secure.hello()).expect("it is taken");
    // The server's keys have arrived; it waits for the client's.
    assert!(client.stream.peek(&mut [0]).expect("the server's hello") > 0);
    let mut silent = Client::new(server.addr);
    let mut idle = server.client();
    idle.expect_alive("/");
    server.running.shut_down();
    idle.expect_end();
    assert_eq!(silent.receive().expect("an orderly end"), 0);
    secure.agree(&mut client.stream).expect("a handshake");
    client.tls = Some(secure);
    client.send(get("/"));
    let answer = client.answer();
    answer.expect(200, "ok");
    assert!(answer.closes(), "{answer:?}");
    client.expect_end();
    server.running.join().expect("an orderly end");
}
