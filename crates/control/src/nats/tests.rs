//! Consumers without a NATS server: authentication, reconnects, and misbehaving servers.
#![allow(
    clippy::disallowed_methods,
    reason = "a server of tests has a thread and a socket of its own"
)]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use fastrand::Rng;
use ringmain_gateway::model::{NatsAccess, NatsLogin, NatsServer, NatsTls, Secret};

use super::backoff::{self, FIRST_DELAY, MAX_DELAY};
use super::credentials::Credentials;
use super::protocol::ServerEvent;
use super::*;

/// The seed of NATS's own manual, and its key.
const SEED: &str = "SUACSSL3UAHUDXKFSNVUZRF5UHPMWZ6BFDTJ7M6USDXIEDNPPQYYYCU3VY";
const KEY: &str = "UDXU4RCSJNZOIQHZNWXHXORDPRTGNJAHAHFRGZNEEJCPQTT2M7NLCNF4";

#[test]
fn the_wait_grows_up_to_a_limit_and_is_never_the_same() {
    let seed = 7;
    println!("seed {seed}");
    let mut random = Rng::with_seed(seed);
    for failures in 1..60 {
        let wait = backoff::next_delay(failures, &mut random);
        let most = FIRST_DELAY
            .saturating_mul(1 << (failures - 1).min(10))
            .min(MAX_DELAY);
        assert!(wait >= most / 2 && wait <= most, "{failures}: {wait:?}");
    }
    let (one, two) = (
        backoff::next_delay(40, &mut random),
        backoff::next_delay(40, &mut random),
    );
    assert_ne!(one, two);
}

#[test]
fn credentials_are_read_and_sign() {
    let file = format!(
        "-----BEGIN NATS USER JWT-----\neyJ0.eyJq.c2ln\n------END NATS USER JWT------\n\n*** IMPORTANT ***\n\n\
         -----BEGIN USER NKEY SEED-----\n{SEED}\n------END USER NKEY SEED------\n"
    );
    let both = Credentials::parse(&file).expect("credentials");
    assert_eq!(both.jwt.as_deref(), Some("eyJ0.eyJq.c2ln"));
    assert_eq!(both.public(), KEY);
    let alone = Credentials::parse(&format!("{SEED}\n")).expect("a seed");
    assert!(alone.jwt.is_none() && alone.public() == KEY);
    // Ed25519 signs the same the same.
    assert_eq!(alone.sign("nonce"), both.sign("nonce"));
    assert_eq!(alone.sign("nonce").len(), 86);
    let account = "SAAIBDPBAUTWCWBKIO6XHQNINK5FWJW4OHLXC3HQ2KFE4PEJUA44CNHTC4";
    for wrong in [
        "",
        "x",
        KEY,
        &SEED[1..],
        &SEED.replace("VY", "WY"),
        &SEED.replace('K', "L"),
        account,
    ] {
        assert!(Credentials::parse(wrong).is_err(), "{wrong}");
    }
}

/// A server with scripted responses, which records requests.
struct ScriptedServer(TcpListener);

impl ScriptedServer {
    fn new() -> (ScriptedServer, SocketAddr) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let addr = listener.local_addr().expect("an address");
        (ScriptedServer(listener), addr)
    }

    /// Accepts a connection and writes a greeting.
    fn take(&self, said: &str) -> BufReader<TcpStream> {
        let (mut stream, _) = self.0.accept().expect("a connection");
        stream
            .set_read_timeout(Some(Duration::from_secs(30)))
            .expect("a time limit");
        stream.write_all(said.as_bytes()).expect("said");
        BufReader::new(stream)
    }
}

fn line(stream: &mut BufReader<TcpStream>) -> String {
    let mut line = String::new();
    stream.read_line(&mut line).expect("a line");
    line
}

fn access(addr: SocketAddr, login: NatsLogin, tls: Option<NatsTls>) -> NatsAccess {
    NatsAccess {
        servers: vec![NatsServer {
            host: addr.ip().to_string().into(),
            port: addr.port(),
            tls: false,
        }],
        login,
        tls,
    }
}

/// Returns the outcome of connecting, beside the script of a server.
fn open(access: &NatsAccess, server: impl FnOnce() + Send) -> Result<Connection, ConnectionError> {
    std::thread::scope(|scope| {
        let other = scope.spawn(server);
        let runtime = runtime().expect("a runtime");
        let outcome = runtime.block_on(async {
            let ready = ConnectOptions::new(access)?;
            Connection::open(&ready, &access.servers[0]).await
        });
        other.join().expect("the server");
        outcome
    })
}

#[test]
fn connections_are_authenticated_as_configured() {
    for (login, greeting, said) in [
        (NatsLogin::Anonymous, "INFO {}\r\n", vec![]),
        (
            NatsLogin::User {
                user: "ada".into(),
                password: Secret::new(b"pass\"word".as_slice()),
            },
            "INFO {\"auth_required\":true}\r\n",
            vec![r#""user":"ada""#, r#""pass":"pass\"word""#],
        ),
        (
            NatsLogin::Token(Secret::new(b"s3cret".as_slice())),
            "INFO {\"auth_required\":true}\r\n",
            vec![r#""auth_token":"s3cret""#],
        ),
        (
            NatsLogin::Credentials(Secret::new(SEED.as_bytes())),
            "INFO {\"nonce\":\"abc\"}\r\n",
            vec![r#""nkey":"UDXU4"#, r#""sig":""#],
        ),
    ] {
        let (server, addr) = ScriptedServer::new();
        let outcome = open(&access(addr, login, None), || {
            let mut stream = server.take(greeting);
            let connect = line(&mut stream);
            assert!(connect.starts_with("CONNECT {\"verbose\":false,"), "{connect}");
            assert!(connect.contains(r#""headers":false"#), "{connect}");
            for said in said {
                assert!(connect.contains(said), "{connect}");
            }
            assert_eq!(line(&mut stream), "PING\r\n");
            stream.get_mut().write_all(b"PONG\r\n").expect("said");
        });
        outcome.expect("a connection");
    }
}

#[test]
fn authentication_failures_are_reported() {
    let tls = || Some(NatsTls::default());
    let seed = || NatsLogin::Credentials(Secret::new(SEED.as_bytes()));
    for (login, tls, said, expect) in [
        (
            NatsLogin::Anonymous,
            None,
            "INFO {}\r\n-ERR 'Authorization Violation'\r\n",
            "server error: \"Authorization Violation\"",
        ),
        (
            NatsLogin::Anonymous,
            None,
            "INFO {\r\n",
            "expected JSON in the server's greeting; found none",
        ),
        (
            NatsLogin::Anonymous,
            None,
            "HTTP/1.1 400 Bad Request\r\n",
            "expected INFO, MSG, PING, PONG, +OK or -ERR, found something else",
        ),
        (
            NatsLogin::Anonymous,
            None,
            "PING\r\n",
            "expected INFO, MSG, PING, PONG, +OK or -ERR, found something else",
        ),
        (
            NatsLogin::Anonymous,
            None,
            "",
            "the server has closed the connection",
        ),
        (
            NatsLogin::Anonymous,
            tls(),
            "INFO {}\r\n",
            "expected a server with TLS; it offers none",
        ),
        (
            NatsLogin::Anonymous,
            tls(),
            "INFO {\"tls_available\":true}\r\nPING\r\n",
            "expected nothing between greeting and TLS; found something",
        ),
        (
            seed(),
            None,
            "INFO {}\r\n",
            "the server has sent no nonce: it does not use credentials",
        ),
    ] {
        let (server, addr) = ScriptedServer::new();
        let outcome = open(&access(addr, login, tls), || {
            let mut stream = server.take(said);
            stream
                .get_mut()
                .shutdown(std::net::Shutdown::Write)
                .expect("an end");
            // Until the peer has closed the connection.
            let _ = stream.read_to_end(&mut Vec::new());
        });
        assert_eq!(outcome.expect_err("refused").to_string(), expect);
    }
}

#[test]
fn a_server_that_cannot_be_reached_is_a_failure() {
    let (server, addr) = ScriptedServer::new();
    drop(server);
    let outcome = open(&access(addr, NatsLogin::Anonymous, None), || {});
    assert!(matches!(outcome, Err(ConnectionError::Io(_))), "{outcome:?}");
}

#[test]
fn more_than_a_server_takes_is_not_sent() {
    let (server, addr) = ScriptedServer::new();
    let mut connection = open(&access(addr, NatsLogin::Anonymous, None), || {
        let mut stream = server.take("INFO {\"max_payload\":4}\r\nPONG\r\n");
        line(&mut stream);
    })
    .expect("a connection");
    assert!(connection.publish("a", b"12345").is_err());
    assert!(connection.publish("a b", b"1").is_err());
    connection.publish("a", b"1234").expect("few enough");
    assert_eq!(connection.waiting(), "PUB a 4\r\n1234\r\n".len());
    assert!(matches!(connection.event(), Ok(None | Some(ServerEvent::Pong))));
}

#[test]
fn a_pong_confirms_earlier_publications() {
    let (server, addr) = ScriptedServer::new();
    let access = access(addr, NatsLogin::Anonymous, None);
    std::thread::scope(|scope| {
        let other = scope.spawn(|| {
            let mut stream = server.take("INFO {\"max_payload\":1024}\r\nPONG\r\n");
            let greeting = [line(&mut stream), line(&mut stream)];
            assert!(greeting[0].starts_with("CONNECT ") && greeting[1] == "PING\r\n");
            let said: Vec<String> = (0..5).map(|_| line(&mut stream)).collect();
            assert_eq!(
                said.concat(),
                "PUB a 1\r\n1\r\nPUB b 1\r\n2\r\nPING\r\n",
                "one question behind both"
            );
            stream.get_mut().write_all(b"PING\r\nPONG\r\n").expect("said");
            assert_eq!(line(&mut stream), "PONG\r\n");
            let refusal = b"-ERR 'Permissions Violation for Publish to \"c\"'\r\n";
            stream.get_mut().write_all(refusal).expect("said");
            stream
        });
        let mut publisher = Publisher::connect(&access).expect("a connection");
        for (subject, payload) in [("a", b"1"), ("b", b"2")] {
            publisher.publish(subject, payload).expect("it can be said");
        }
        assert!(
            publisher
                .publish("a b", b"3")
                .expect_err("no subject")
                .is_permanent()
        );
        assert_eq!(publisher.unconfirmed(), 2);
        assert!(publisher.waiting() > 0);
        let failure = loop {
            match publisher.send_pending(Duration::from_millis(10)) {
                // It has waited for the socket.
                Ok(()) => {}
                Err(failure) => break failure,
            }
        };
        assert!(failure.is_permanent(), "{failure}");
        assert_eq!((publisher.unconfirmed(), publisher.waiting()), (0, 0));
        drop(other.join().expect("the server"));
        let gone = loop {
            match publisher.send_pending(Duration::from_millis(10)) {
                // It has waited for the socket.
                Ok(()) => {}
                Err(failure) => break failure,
            }
        };
        assert!(
            matches!(gone, ConnectionError::Closed | ConnectionError::Io(_)) && !gone.is_permanent(),
            "{gone}"
        );
    });
}
