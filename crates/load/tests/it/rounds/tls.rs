//! Over TLS: what is secured, resumed, refused, cut off.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use ringmain_engine::Choice;
use ringmain_load::plan::{self, Extent, Pace, Plan};
use ringmain_load::run::{RunError, Session};
use ringmain_load::traffic::{Body, Request, Traffic};
use ringmain_tls::{
    Acceptor, ClientCertificates, ClientSettings, DevCertificate, KeyPair, Pem, ServerSettings, Trust,
    Version,
};

use crate::rounds::support::{Gate, Peer, Server, get, plan, round};

on_every_backend!(
    requests_over_tls,
    uploads_over_tls,
    websockets_over_tls,
    at_a_rate,
    sessions_are_resumed,
    each_handshake_a_full_one,
    the_version_that_was_asked_for,
    certificates_that_do_not_do,
    anybody_is_believed_if_that_is_asked_for,
    client_certificates,
    what_is_not_tls,
    handshakes_that_take_too_long,
    answers_that_were_cut_off,
    answers_that_end_with_the_connection,
    a_server_that_is_gone_for_a_while,
);

fn made() -> DevCertificate {
    DevCertificate::new(&[], ringmain_sys::clock::realtime()).expect("names")
}

fn acceptor(made: &DevCertificate) -> Acceptor {
    accepting(ServerSettings {
        certificates: vec![made.pair.clone()],
        ..ServerSettings::default()
    })
}

fn accepting(settings: ServerSettings) -> Acceptor {
    Acceptor::new(&settings, ringmain_sys::clock::realtime()).expect("settings in order")
}

fn trusting(made: &DevCertificate) -> ClientSettings {
    ClientSettings::new(Trust::Authorities(made.authority.clone()))
}

fn tls(name: &str, settings: ClientSettings) -> Option<plan::Tls> {
    Some(plan::Tls {
        settings: Arc::new(settings),
        name: name.to_owned(),
    })
}

/// The round of this plan comes to nothing, and says this.
fn check_refused(plan: Plan, said: &str) {
    let session = Session::new(plan, get()).expect("a plan");
    match session.round(0, None, &mut |_| ()) {
        Err(error @ RunError::NotConnected { .. }) => {
            let text = error.to_string();
            assert!(text.contains(said), "expected `{said}` in: {text}");
        }
        other => panic!("{other:?}"),
    }
}

fn requests_over_tls(engine: Choice) {
    for (name, pipeline, threads) in [("localhost", 1, 1), ("127.0.0.1", 4, 2)] {
        let made = made();
        let server = Server::tls(&acceptor(&made), Peer::serve);
        let plan = Plan {
            tls: tls(name, trusting(&made)),
            pipeline,
            threads,
            extent: Extent::Count(200),
            ..plan(&server, engine)
        };
        let counts = round(plan, get()).figures.counts;
        assert_eq!((counts.sent, counts.answered, counts.failed()), (200, 200, 0));
        assert_eq!(counts.statuses, BTreeMap::from([(200, 200)]));
        assert_eq!((counts.connects, counts.tls_handshakes()), (2, 2));
        assert_eq!(counts.tls_versions, BTreeMap::from([("TLSv1.3", 2)]));
        server.finish();
    }
}

/// Longer than what a connection may leave unsent.
fn uploads_over_tls(engine: Choice) {
    const LENGTH: usize = 2 << 20;
    let made = made();
    let server = Server::tls(&acceptor(&made), |peer| {
        while let Some(asked) = peer.request() {
            assert_eq!(asked.body.len(), LENGTH);
            peer.answer(200, "ok");
        }
    });
    let plan = Plan {
        tls: tls("localhost", trusting(&made)),
        extent: Extent::Count(6),
        ..plan(&server, engine)
    };
    let mut request = Request::get("/", "test");
    request.method = "POST".into();
    request.body = Body::Bytes(vec![b'a'; LENGTH].into());
    let counts = round(plan, Traffic::single(request).expect("a request"))
        .figures
        .counts;
    assert_eq!((counts.answered, counts.failed()), (6, 0), "{counts:?}");
    server.finish();
}

fn websockets_over_tls(engine: Choice) {
    let made = made();
    let server = Server::tls(&acceptor(&made), |peer| {
        if let Some(mut socket) = crate::rounds::websocket::plainly(peer) {
            assert_eq!(socket.echo(), Some(1000), "it says goodbye");
        }
    });
    let traffic = Traffic::messages(Request::get("/ws", "test"), 64, false).expect("messages");
    let plan = Plan {
        protocol: traffic.socket().expect("messages").protocol(),
        tls: tls("localhost", trusting(&made)),
        extent: Extent::Count(50),
        ..plan(&server, engine)
    };
    let figures = round(plan, traffic).figures;
    let counts = &figures.counts;
    assert_eq!((counts.answered, counts.unexpected, counts.failed()), (50, 0, 0));
    assert_eq!((figures.handshake.count(), figures.opening.count()), (2, 2));
    server.finish();
}

/// While a handshake is under way arrivals wait, with their moments.
fn at_a_rate(engine: Choice) {
    let made = made();
    let server = Server::tls(&acceptor(&made), Peer::serve);
    let plan = Plan {
        tls: tls("localhost", trusting(&made)),
        pace: Pace::Constant(1_000.0),
        reconnect_after: Some(10),
        extent: Extent::Time(Duration::from_millis(100)),
        ..plan(&server, engine)
    };
    let counts = round(plan, get()).figures.counts;
    assert_eq!(counts.sent + counts.dropped, 100);
    assert_eq!(counts.failed(), 0);
    server.finish();
}

/// Within a round, not over rounds.
fn sessions_are_resumed(engine: Choice) {
    let made = made();
    let server = Server::tls(&acceptor(&made), Peer::serve);
    for version in [Version::Tls12, Version::Tls13] {
        let mut settings = trusting(&made);
        plan::Tls::only(&mut settings, version);
        let plan = Plan {
            tls: tls("localhost", settings),
            connections: 1,
            reconnect_after: Some(2),
            extent: Extent::Count(20),
            ..plan(&server, engine)
        };
        let session = Session::new(plan, get()).expect("a plan");
        for number in 0..2 {
            let round = session.round(number, None, &mut |_| ()).expect("a round");
            let counts = &round.figures.counts;
            assert_eq!((counts.answered, counts.failed()), (20, 0));
            assert_eq!(
                counts.tls_versions.keys().copied().collect::<Vec<_>>(),
                [version.name()]
            );
            let handshakes = counts.tls_handshakes();
            assert!((10..=11).contains(&handshakes), "{counts:?}");
            assert_eq!(counts.tls_resumed, handshakes - 1);
        }
    }
    server.finish();
}

fn each_handshake_a_full_one(engine: Choice) {
    let made = made();
    let server = Server::tls(&acceptor(&made), Peer::serve);
    let settings = ClientSettings {
        resume: false,
        ..trusting(&made)
    };
    let plan = Plan {
        tls: tls("localhost", settings),
        reconnect_after: Some(1),
        ..plan(&server, engine)
    };
    let counts = round(plan, get()).figures.counts;
    assert_eq!((counts.answered, counts.failed(), counts.tls_resumed), (10, 0, 0));
    assert!(counts.tls_handshakes() >= 10);
    server.finish();
}

fn the_version_that_was_asked_for(engine: Choice) {
    let made = made();
    let server = Server::tls(&acceptor(&made), Peer::serve);
    let only_new = accepting(ServerSettings {
        certificates: vec![made.pair.clone()],
        minimum_version: Version::Tls13,
        ..ServerSettings::default()
    });
    let newer = Server::tls(&only_new, |peer| drop(peer.request()));
    let old = || {
        let mut settings = trusting(&made);
        plan::Tls::only(&mut settings, Version::Tls12);
        settings
    };
    let counts = round(
        Plan {
            tls: tls("localhost", old()),
            ..plan(&server, engine)
        },
        get(),
    )
    .figures
    .counts;
    assert_eq!(counts.tls_versions, BTreeMap::from([("TLSv1.2", 2)]));
    assert!(
        counts
            .tls_suites
            .keys()
            .all(|suite| suite.starts_with("TLS_ECDHE_")),
        "{counts:?}"
    );
    check_refused(
        Plan {
            tls: tls("localhost", old()),
            ..plan(&newer, engine)
        },
        "it speaks no version of TLS in common with us",
    );
    server.finish();
    newer.finish();
}

fn certificates_that_do_not_do(engine: Choice) {
    let (made, (_, other)) = (made(), made_for_client());
    let server = Server::tls(&acceptor(&made), |peer| drop(peer.request()));
    for (name, settings, said) in [
        ("elsewhere.example", trusting(&made), "one for localhost"),
        (
            "localhost",
            ClientSettings::new(Trust::Authorities(other)),
            "whose issuer is unknown here",
        ),
    ] {
        let plan = Plan {
            tls: tls(name, settings),
            ..plan(&server, engine)
        };
        check_refused(plan, said);
    }
    server.finish();
}

fn anybody_is_believed_if_that_is_asked_for(engine: Choice) {
    let server = Server::tls(&acceptor(&made()), Peer::serve);
    let plan = Plan {
        tls: tls("elsewhere.example", ClientSettings::new(Trust::AnybodyInsecure)),
        ..plan(&server, engine)
    };
    assert_eq!(round(plan, get()).figures.counts.answered, 10);
    server.finish();
}

fn client_certificates(engine: Choice) {
    let made = made();
    let (pair, authority) = made_for_client();
    let acceptor = accepting(ServerSettings {
        certificates: vec![made.pair.clone()],
        client_certificates: ClientCertificates::Required(authority),
        ..ServerSettings::default()
    });
    let server = Server::tls(&acceptor, Peer::serve);
    let shown = ClientSettings {
        certificate: Some(pair),
        ..trusting(&made)
    };
    let plan_with = |settings| Plan {
        tls: tls("localhost", settings),
        ..plan(&server, engine)
    };
    assert_eq!(round(plan_with(shown), get()).figures.counts.answered, 10);
    // In TLS 1.3 the refusal comes when the client has finished already: requests break, and it is said why.
    let counts = round(plan_with(trusting(&made)), get()).figures.counts;
    assert_eq!((counts.answered, counts.failed()), (0, 10));
    let first = &counts.first_errors["TLS: refused by the server"];
    assert!(first.contains("it asks for a client certificate"), "{first}");
    server.finish();
}

/// A client's certificate, and the authority that issued it.
fn made_for_client() -> (KeyPair, Pem) {
    use rcgen::{BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer};
    let key = || rcgen::KeyPair::generate().expect("a key");
    let params = |name: &str| CertificateParams::new(vec![name.to_owned()]).expect("a name");
    let pem = |text: String| Pem {
        source: "test".into(),
        bytes: text.into_bytes(),
    };
    let mut authority = params("authority");
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority_key = key();
    let issuer = authority.self_signed(&authority_key).expect("a certificate");
    let mut leaf = params("client");
    leaf.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    let leaf_key = key();
    let certificate = leaf.signed_by(&leaf_key, &Issuer::new(authority, authority_key));
    let pair = KeyPair {
        chain: pem(certificate.expect("a certificate").pem()),
        key: pem(leaf_key.serialize_pem()),
    };
    (pair, pem(issuer.pem()))
}

fn what_is_not_tls(engine: Choice) {
    let made = made();
    let server = Server::new(|peer| {
        if !peer.bytes().is_empty() {
            peer.send("HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n");
            peer.wait();
        }
    });
    let plan = Plan {
        tls: tls("localhost", trusting(&made)),
        ..plan(&server, engine)
    };
    check_refused(plan, "plain HTTP, where HTTPS is spoken");
    server.finish();
}

fn handshakes_that_take_too_long(engine: Choice) {
    let made = made();
    let gate = Gate::default();
    let shut = gate.clone();
    // Takes the hello and says nothing.
    let server = Server::new(move |peer| {
        if !peer.bytes().is_empty() {
            shut.pass();
        }
    });
    let plan = Plan {
        tls: tls("localhost", trusting(&made)),
        timeout: Duration::from_millis(50),
        connect_timeout: Duration::from_millis(300),
        ..plan(&server, engine)
    };
    check_refused(plan, "the handshake did not complete within 50ms");
    gate.open();
    server.finish();
}

/// A bare FIN: anybody could have sent it.
fn answers_that_were_cut_off(engine: Choice) {
    let made = made();
    let server = Server::tls(&acceptor(&made), |peer| {
        if peer.request().is_some() {
            peer.send("HTTP/1.1 200 OK\r\n\r\nas long as it la");
            peer.cut();
        }
    });
    let plan = Plan {
        tls: tls("localhost", trusting(&made)),
        extent: Extent::Count(6),
        ..plan(&server, engine)
    };
    let counts = round(plan, get()).figures.counts;
    assert_eq!((counts.answered, counts.failed()), (0, 6));
    assert_eq!(
        counts.broken,
        BTreeMap::from([("closed without close_notify", 6)])
    );
    server.finish();
}

fn answers_that_end_with_the_connection(engine: Choice) {
    let made = made();
    let server = Server::tls(&acceptor(&made), |peer| {
        if peer.request().is_some() {
            peer.send("HTTP/1.1 200 OK\r\n\r\nas long as it lasts");
        }
    });
    let plan = Plan {
        tls: tls("localhost", trusting(&made)),
        extent: Extent::Count(20),
        ..plan(&server, engine)
    };
    let counts = round(plan, get()).figures.counts;
    assert_eq!((counts.answered, counts.failed()), (20, 0), "{counts:?}");
    server.finish();
}

/// Once it has begun, failed handshakes are figures.
fn a_server_that_is_gone_for_a_while(engine: Choice) {
    let made = made();
    let server = Server::tls(&acceptor(&made), |peer| {
        // Ends within the handshake, or right after it.
        if peer.number % 3 != 1 {
            peer.serve();
        }
    });
    let plan = Plan {
        tls: tls("localhost", trusting(&made)),
        connections: 1,
        reconnect_after: Some(2),
        extent: Extent::Count(12),
        ..plan(&server, engine)
    };
    let counts = round(plan, get()).figures.counts;
    assert_eq!(counts.answered + counts.failed(), 12);
    assert!(counts.answered >= 8, "{counts:?}");
    assert!(
        counts.connect_errors.contains_key("TLS: connection ended"),
        "{counts:?}"
    );
    server.finish();
}

#[test]
fn what_is_wrong_with_certificates_is_said_before_anything_is_sent() {
    let server = Server::new(|_| ());
    let garbage = Pem {
        source: "ca.pem".into(),
        bytes: b"nothing".to_vec(),
    };
    let good = plan(&server, Choice::Auto);
    let plan = Plan {
        tls: tls("localhost", ClientSettings::new(Trust::Authorities(garbage))),
        ..good.clone()
    };
    let Err(RunError::Tls(refused)) = Session::new(plan, get()) else {
        panic!("it is no certificate");
    };
    assert!(refused.to_string().contains("ca.pem"), "{refused}");
    let plan = Plan {
        tls: tls("no name", ClientSettings::new(Trust::AnybodyInsecure)),
        ..good
    };
    assert!(matches!(
        Session::new(plan, get()),
        Err(RunError::Plan { setting: "sni", .. })
    ));
    server.finish();
}
