//! Certificates that change while requests are served: no request fails, and each connection retains its certificate.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;

use ringmain_testkit::wait::until;
use ringmain_tls::{Acceptor, ClientCertificates, ClientSettings, Connector, KeyPair, ServerSettings};
use ringmain_web::{App, ListenerProtocol};

use crate::support::tls::{Authority, Secure, connector_of, localhost, now, trusting};
use crate::support::{Client, Setting, get, serve_at};

by_tls!(
    a_reload_under_load_fails_no_request,
    a_reload_that_is_refused_changes_nothing,
    reloaded_client_authentication_applies_to_open_connections
);

/// Requests between two reloads.
const MORE: u64 = 150;
const RELOADS: usize = 20;
/// Requests of a connection of the load.
const EACH: usize = 5;

fn with(pair: &KeyPair) -> ServerSettings {
    ServerSettings {
        certificates: vec![pair.clone()],
        ..ServerSettings::default()
    }
}

fn app(acceptor: &Acceptor) -> App {
    App::new()
        .get("/", |_, reply| reply.text("ok"))
        .listener(0, ListenerProtocol::https(acceptor))
}

/// The certificate that a connection was shown.
fn shown(client: &Client) -> Vec<u8> {
    let facts = client.tls.as_ref().and_then(Secure::facts);
    facts.expect("it stands").peer_certificates[0].clone()
}

/// Connects, asks and hangs up until told to stop. Any failure is a panic of the thread.
fn load(
    connect: impl Fn() -> Client + Send + 'static,
    stop: &Arc<AtomicBool>,
    done: &Arc<AtomicU64>,
) -> JoinHandle<()> {
    let (stop, done) = (Arc::clone(stop), Arc::clone(done));
    std::thread::spawn(move || {
        while !stop.load(Ordering::Relaxed) {
            let mut client = connect();
            for _ in 0..EACH {
                client.send(get("/"));
                client.answer().expect(200, "ok");
                done.fetch_add(1, Ordering::Relaxed);
            }
            client.finish();
            client.expect_end();
        }
    })
}

/// Waits until the clients have had so many more answers.
fn progress(done: &AtomicU64, clients: &[JoinHandle<()>]) {
    let target = done.load(Ordering::Relaxed) + MORE;
    until("more answers", || {
        assert!(
            clients.iter().all(|client| !client.is_finished()),
            "a client has failed"
        );
        done.load(Ordering::Relaxed) >= target
    });
}

fn a_reload_under_load_fails_no_request(setting: Setting) {
    let authority = Authority::new("ours");
    let pairs = [authority.sign("localhost"), authority.sign("localhost")];
    let acceptor = Acceptor::new(&with(&pairs[0]), now()).expect("settings");
    let server = serve_at(setting.workers(2).engine, app(&acceptor), None);
    let connector = |resume| {
        connector_of(&ClientSettings {
            resume,
            ..trusting(&authority.pem)
        })
    };
    let addr = server.addr;
    let connect = move |connector: &Connector| {
        let client = Client::new(addr).secure(connector, &localhost());
        client.expect("a handshake")
    };
    let (stop, done) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let clients: Vec<_> = [true, false]
        .map(|resume| {
            let connector = connector(resume);
            load(move || connect(&connector), &stop, &done)
        })
        .into();
    let fresh = connector(false);
    // Connections from every period, which stay open to the end.
    let mut kept = vec![connect(&fresh)];
    for number in 1..=RELOADS {
        progress(&done, &clients);
        let reload = acceptor
            .reload(&with(&pairs[number % 2]), now())
            .expect("settings");
        assert_eq!(
            (reload.added.len(), reload.removed.len(), reload.unchanged),
            (1, 1, 0)
        );
        kept.push(connect(&fresh));
        kept.iter_mut().for_each(|client| client.expect_alive("/"));
    }
    stop.store(true, Ordering::Relaxed);
    for client in clients {
        client.join().expect("no failure");
    }
    let (even, odd) = (shown(&kept[0]), shown(&kept[1]));
    assert_ne!(even, odd);
    for (number, client) in kept.iter().enumerate() {
        let expect = if number % 2 == 0 { &even } else { &odd };
        assert!(
            shown(client) == *expect,
            "connection {number} was shown another one"
        );
    }
    assert_eq!(acceptor.counts().failed, 0);
}

fn a_reload_that_is_refused_changes_nothing(setting: Setting) {
    let authority = Authority::new("ours");
    let [first, other] = [authority.sign("localhost"), authority.sign("localhost")];
    let acceptor = Acceptor::new(&with(&first), now()).expect("settings");
    let connector = connector_of(&ClientSettings {
        resume: false,
        ..trusting(&authority.pem)
    });
    let server = serve_at(setting.engine, app(&acceptor), Some(connector));
    let before = shown(&server.client());
    let wrong = KeyPair {
        chain: other.chain,
        key: first.key,
    };
    let refused = acceptor.reload(&with(&wrong), now()).expect_err("another's key");
    assert!(refused.to_string().contains("another key"), "{refused}");
    let mut client = server.client();
    client.expect_alive("/");
    assert!(shown(&client) == before);
}

/// The next request of a connection is judged by the authorities of now, with and without a body, in a plain and in a streamed handler.
fn reloaded_client_authentication_applies_to_open_connections(setting: Setting) {
    let [ours, theirs] = ["ours", "theirs"].map(Authority::new);
    let own = ours.sign("localhost");
    let asking = |pems: &[&Authority]| ServerSettings {
        client_certificates: ClientCertificates::Required(ringmain_tls::Pem {
            source: "clients".to_owned(),
            bytes: pems.iter().flat_map(|it| it.pem.bytes.clone()).collect(),
        }),
        ..with(&own)
    };
    let acceptor = Acceptor::new(&asking(&[&ours]), now()).expect("settings");
    let app = app(&acceptor).post_streamed("/upload", async |req, reply| {
        while req.chunk().await?.is_some() {}
        reply.text("all of it")
    });
    let connector = connector_of(&ClientSettings {
        certificate: Some(ours.sign("ada.example")),
        ..trusting(&ours.pem)
    });
    let server = serve_at(setting.engine, app, Some(connector));
    let mut kept: Vec<Client> = (0..4).map(|_| server.client()).collect();
    kept.iter_mut().for_each(|client| client.expect_alive("/"));
    // One more authority changes nothing for clients of the first.
    acceptor
        .reload(&asking(&[&ours, &theirs]), now())
        .expect("settings");
    kept.iter_mut().for_each(|client| client.expect_alive("/"));
    acceptor.reload(&asking(&[&theirs]), now()).expect("settings");
    let requests = [
        get("/"),
        get("/nothing"),
        "POST /upload HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nbody".to_owned(),
        "POST /upload HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n".to_owned(),
    ];
    for (client, request) in kept.iter_mut().zip(requests) {
        client.send(request);
        let answer = client.answer();
        assert_eq!((answer.status, answer.closes()), (421, true));
        client.expect_end();
    }
}
