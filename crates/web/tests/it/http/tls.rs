//! TLS of listeners: admitted clients, TLS facts for handlers, records split anywhere.

use std::io::Write;
use std::net::TcpStream;

use ringmain_tls::{
    Acceptor, ClientCertificates, ClientSettings, Connector, KeyPair, PeerName, ServerSettings,
};
use ringmain_web::{App, ListenerProtocol, Request, Result};

use crate::support::tls::{
    Authority, Secure, connector, connector_of, development, localhost, now, read, settings, trusting,
};
use crate::support::{Client, Server, Setting, get, serve, serve_at};

by_tls!(
    a_handler_is_told_what_was_agreed_on,
    a_name_chooses_the_certificate,
    a_name_that_nobody_has_is_refused_on_demand,
    clients_have_to_show_certificates,
    clients_may_show_certificates,
    sessions_are_resumed_by_every_worker,
    every_cut_of_what_is_encrypted,
    each_byte_alone,
);

/// A suite of TLS 1.2 alone.
const TLS12: &str = "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256";

fn facts(req: &Request<'_>) -> Result<String> {
    let told = req.tls().map(|facts| {
        format!(
            "{} {:?} {} {} by {}",
            facts.version.name(),
            facts.server_name,
            if facts.resumed { "resumed" } else { "full" },
            facts.peer_certificates.len(),
            req.cx().worker()
        )
    });
    Ok(format!("{} {}", req.scheme(), told.unwrap_or_default()))
}

fn app() -> App {
    App::new().get("/", |req, reply| reply.text(facts(req)?))
}

/// A server with these settings, and clients that trust the development authority.
fn serve_with(setting: Setting, settings: &ServerSettings) -> (Server, Acceptor) {
    let acceptor = Acceptor::new(settings, now()).expect("settings");
    let app = app().listener(0, ListenerProtocol::https(&acceptor));
    (serve_at(setting.engine, app, Some(connector())), acceptor)
}

fn connect(server: &Server, connector: &Connector, name: &str) -> std::io::Result<Client> {
    let name = PeerName::new(name).expect("a name");
    Client::new(server.addr).secure(connector, &name)
}

#[track_caller]
fn expect_told(client: &mut Client, expect: &str) {
    client.send(get("/"));
    let answer = client.answer();
    let text = answer.text();
    assert_eq!(text.rsplit_once(" by ").map(|(told, _)| told), Some(expect));
}

fn of_tls12() -> ClientSettings {
    ClientSettings {
        suites: vec![TLS12.to_owned()],
        ..trusting(&development().authority)
    }
}

fn a_handler_is_told_what_was_agreed_on(setting: Setting) {
    let (server, acceptor) = serve_with(setting, &settings());
    expect_told(&mut server.client(), "https TLSv1.3 Some(\"localhost\") full 0");
    let older = connector_of(&of_tls12());
    let mut client = connect(&server, &older, "localhost").expect("a handshake");
    expect_told(&mut client, "https TLSv1.2 Some(\"localhost\") full 0");
    // An address is no name to ask for.
    let mut client = connect(&server, &connector(), "127.0.0.1").expect("a handshake");
    expect_told(&mut client, "https TLSv1.3 None full 0");
    let counts = acceptor.counts();
    assert_eq!((counts.started, counts.finished, counts.failed), (3, 3, 0));
}

fn two_names() -> (Authority, ServerSettings) {
    let authority = Authority::new("ours");
    let settings = ServerSettings {
        certificates: vec![authority.sign("a.example"), authority.sign("*.b.example")],
        ..ServerSettings::default()
    };
    (authority, settings)
}

fn a_name_chooses_the_certificate(setting: Setting) {
    let (authority, settings) = two_names();
    let (server, _) = serve_with(setting, &settings);
    let connector = connector_of(&trusting(&authority.pem));
    for name in ["a.example", "x.b.example", "Y.B.Example"] {
        let mut client = connect(&server, &connector, name).expect("its certificate");
        let lower = name.to_ascii_lowercase();
        expect_told(&mut client, &format!("https TLSv1.3 Some({lower:?}) full 0"));
    }
    // A client that requests an unknown name gets the first certificate and verifies it itself.
    let error = connect(&server, &connector, "c.example")
        .err()
        .expect("another's");
    assert!(error.to_string().contains("one for a.example"), "{error}");
    expect_told(
        &mut connect(&server, &connector, "x.b.example").expect("it goes on"),
        "https TLSv1.3 Some(\"x.b.example\") resumed 0",
    );
}

fn a_name_that_nobody_has_is_refused_on_demand(setting: Setting) {
    let (authority, settings) = two_names();
    let settings = ServerSettings {
        refuse_unknown_names: true,
        ..settings
    };
    let (server, acceptor) = serve_with(setting, &settings);
    let connector = connector_of(&trusting(&authority.pem));
    let error = connect(&server, &connector, "c.example").err().expect("refused");
    assert!(error.to_string().contains("UnrecognisedName"), "{error}");
    connect(&server, &connector, "a.example").expect("its certificate");
    assert_eq!(acceptor.counts().failed, 1);
}

fn showing(certificate: Option<KeyPair>) -> Connector {
    connector_of(&ClientSettings {
        certificate,
        ..trusting(&development().authority)
    })
}

/// Returns the error of a rejected client. In TLS 1.3 it arrives after the client's own handshake.
#[track_caller]
fn refused(server: &Server, connector: &Connector) -> String {
    match connect(server, connector, "localhost") {
        Ok(mut client) => client.receive().expect_err("it is refused").to_string(),
        Err(error) => error.to_string(),
    }
}

fn clients_have_to_show_certificates(setting: Setting) {
    let (ours, theirs) = (Authority::new("ours"), Authority::new("theirs"));
    let settings = ServerSettings {
        client_certificates: ClientCertificates::Required(ours.pem.clone()),
        ..settings()
    };
    let (server, acceptor) = serve_with(setting, &settings);
    let known = showing(Some(ours.sign("client")));
    for expect in ["full", "resumed"] {
        let mut client = connect(&server, &known, "localhost").expect("it is known");
        expect_told(
            &mut client,
            &format!("https TLSv1.3 Some(\"localhost\") {expect} 1"),
        );
    }
    let told = refused(&server, &showing(None));
    assert!(told.contains("CertificateRequired"), "{told}");
    let told = refused(&server, &showing(Some(theirs.sign("client"))));
    assert!(told.contains("UnknownCA"), "{told}");
    assert_eq!(acceptor.counts().failed, 2);
    assert_eq!(server.app.stats().totals().requests(), 2);
}

fn clients_may_show_certificates(setting: Setting) {
    let (ours, theirs) = (Authority::new("ours"), Authority::new("theirs"));
    let settings = ServerSettings {
        client_certificates: ClientCertificates::Optional(ours.pem.clone()),
        ..settings()
    };
    let (server, _) = serve_with(setting, &settings);
    for (certificate, count) in [(None, 0), (Some(ours.sign("client")), 1)] {
        let mut client = connect(&server, &showing(certificate), "localhost").expect("it is let in");
        expect_told(
            &mut client,
            &format!("https TLSv1.3 Some(\"localhost\") full {count}"),
        );
    }
    let told = refused(&server, &showing(Some(theirs.sign("client"))));
    assert!(told.contains("UnknownCA"), "{told}");
}

/// The kernel chooses the worker; a ticket of one is taken by all.
fn sessions_are_resumed_by_every_worker(setting: Setting) {
    const WORKERS: usize = 4;
    let (server, acceptor) = serve_with(setting.workers(WORKERS), &settings());
    for connector in [connector(), connector_of(&of_tls12())] {
        let mut resumed = [false; WORKERS];
        for number in 0.. {
            assert!(number < 2000, "a worker is never chosen: {resumed:?}");
            let mut client = connect(&server, &connector, "localhost").expect("a handshake");
            client.send(get("/"));
            let text = client.answer().text().to_owned();
            assert_eq!(
                text.contains(" resumed "),
                number > 0,
                "connection {number}: {text}"
            );
            let worker = text.rsplit(' ').next().expect("its number");
            resumed[worker.parse::<usize>().expect("a number")] |= number > 0;
            if resumed.iter().all(|seen| *seen) {
                break;
            }
        }
    }
    let counts = acceptor.counts();
    assert_eq!((counts.finished - counts.resumed, counts.failed), (2, 0));
}

/// Each cut is a connection of its own whose second part is sent when the server has had the first: another connection
/// was answered meanwhile.
fn every_cut_of_what_is_encrypted(setting: Setting) {
    let server = serve(setting, app());
    let mut other = server.client();
    let length = {
        let mut client = server.client();
        client.sealed((get("/") + &get("/?again")).as_bytes()).len()
    };
    for cut in 1..length {
        let mut client = server.client();
        let mut wire = client.sealed(get("/").as_bytes());
        wire.extend(client.sealed(get("/?again").as_bytes()));
        let cut = cut * wire.len() / length;
        client.stream.write_all(&wire[..cut]).expect("it is taken");
        other.expect_alive("/");
        client.stream.write_all(&wire[cut..]).expect("it is taken");
        for _ in 0..2 {
            assert_eq!(client.answer().status, 200, "cut at {cut}");
        }
    }
}

fn drip(stream: &mut TcpStream, bytes: &[u8]) {
    for byte in bytes {
        stream.write_all(&[*byte]).expect("it is taken");
    }
}

fn each_byte_alone(setting: Setting) {
    let server = serve(setting, app());
    for connector in [connector(), connector_of(&of_tls12())] {
        let mut client = Client::new(server.addr);
        let mut secure = Secure::begin(&connector, &localhost());
        drip(&mut client.stream, &secure.hello());
        let mut buffer = [0; 4096];
        while secure.facts().is_none() {
            let count = read(&mut client.stream, &mut buffer).expect("bytes");
            assert!(count > 0, "the end within the handshake");
            secure.feed(&buffer[..count]);
            let mut answer = Vec::new();
            secure.open(&mut answer, &mut Vec::new()).expect("a handshake");
            drip(&mut client.stream, &answer);
        }
        client.tls = Some(secure);
        for _ in 0..2 {
            let wire = client.sealed(get("/").as_bytes());
            drip(&mut client.stream, &wire);
            assert_eq!(client.answer().status, 200);
        }
        client.finish();
        client.expect_end();
    }
}
