//! `ringmain run FILE` with TLS: certificates by name, client certificates by listener, reloads, and a successor.
#![allow(
    clippy::disallowed_methods,
    reason = "tests of the real program have real threads and real time"
)]

use std::ffi::OsString;
use std::fs;
use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsFd;

use crate::common::{self, Directory, PATIENCE, program, wait_end};
use crate::proxy::{Answer, Origin, Proxy, get, until};
use crate::secure::{Authority, Secure, connector_of, trusting};
use ringmain_sys::inherit::spawn_with;
use ringmain_testkit::wait;
use ringmain_tls::{ClientSettings, KeyPair, PeerName};
use rustix::process::{Pid, Signal, kill_process};

fn install(folder: &Directory, name: &str, pair: &KeyPair) {
    fs::write(folder.join(&format!("{name}.key")), &pair.key.bytes).expect("written");
    fs::write(folder.join(&format!("{name}.crt")), &pair.chain.bytes).expect("written");
}

/// A connection to a host of a gateway over TLS.
struct Client {
    stream: TcpStream,
    tls: Secure,
}

impl Client {
    fn open(addr: &str, host: &str, settings: &ClientSettings) -> std::io::Result<Client> {
        let mut stream = TcpStream::connect(addr)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let name = PeerName::new(host).expect("a name");
        let tls = Secure::new(&mut stream, &connector_of(settings), &name)?;
        Ok(Client { stream, tls })
    }

    fn shown(&self) -> Vec<u8> {
        self.tls.facts().expect("it stands").peer_certificates[0].clone()
    }

    fn get(&mut self, host: &str, target: &str) -> std::io::Result<Answer> {
        let request = format!("GET {target} HTTP/1.1\r\nHost: {host}\r\n\r\n");
        let wire = self.tls.seal(request.as_bytes());
        self.stream.write_all(&wire)?;
        let mut bytes = Vec::new();
        loop {
            let text = String::from_utf8_lossy(&bytes);
            let whole = text.split_once("\r\n\r\n").is_some_and(|(head, body)| {
                let length = head.lines().find_map(|line| {
                    let (name, value) = line.split_once(": ")?;
                    name.eq_ignore_ascii_case("content-length")
                        .then(|| value.parse().ok())?
                });
                length.is_none_or(|length: usize| body.len() >= length)
            });
            if whole {
                return Ok(Answer::of(&text));
            }
            if self.tls.receive(&mut self.stream, &mut bytes)? == 0 {
                return Err(std::io::ErrorKind::UnexpectedEof.into());
            }
        }
    }
}

fn without_tickets(authority: &Authority) -> ClientSettings {
    ClientSettings {
        resume: false,
        ..trusting(&authority.pem)
    }
}

#[test]
fn names_choose_certificates_and_new_ones_are_shown_without_a_word() {
    let authority = Authority::new("authority");
    let origin = Origin::named("origin");
    let text = format!(
        "
listeners:
  plain: {{address: 127.0.0.1:0, redirect_to_https: {{port: 8443}}}}
  secure: {{address: 127.0.0.1:0, hosts: [shop.test, other.test], tls: {{certificates: [shop, other]}}}}
certificates:
  shop: {{chain: shop.crt, key: shop.key}}
  other: {{chain: other.crt, key: other.key}}
to: http://{}
",
        origin.addr()
    );
    let prepare = |folder: &Directory| {
        install(folder, "shop", &authority.sign("shop.test"));
        install(folder, "other", &authority.sign("other.test"));
    };
    let proxy = Proxy::start_with(&text, &[], 2, prepare);
    let (plain, secure) = (&proxy.addrs[0], &proxy.addrs[1]);
    let moved = get(plain, "shop.test", "/a?b");
    assert_eq!(moved.status, 308);
    assert_eq!(moved.field("location"), Some("https://shop.test:8443/a?b"));

    // The names are checked, too.
    let settings = without_tickets(&authority);
    let mut shop = Client::open(secure, "shop.test", &settings).expect("a handshake");
    let mut other = Client::open(secure, "other.test", &settings).expect("a handshake");
    assert_eq!(shop.get("shop.test", "/x").expect("an answer").body, "origin /x");
    assert_eq!(
        other.get("other.test", "/y").expect("an answer").body,
        "origin /y"
    );

    install(&proxy.folder, "shop", &authority.sign("shop.test"));
    let again = wait::find("the new certificate", || {
        let again = Client::open(secure, "shop.test", &settings).expect("a handshake");
        (again.shown() != shop.shown()).then_some(again)
    });
    drop(again);
    // A key that is none changes nothing, and neither does one of another certificate.
    let mut server = proxy.server;
    for wrong in [&b"no key"[..], &authority.sign("other.test").key.bytes] {
        fs::write(proxy.folder.join("other.key"), wrong).expect("written");
        server.wait_for("keeping the previous configuration");
        Client::open(secure, "other.test", &settings).expect("a handshake");
    }
    Client::open(secure, "other.test", &settings).expect("a handshake");
    assert_eq!(shop.get("shop.test", "/z").expect("an answer").status, 200);
    assert_eq!(other.get("other.test", "/z").expect("an answer").status, 200);
    server.terminate();
}

#[test]
fn one_listener_of_an_address_wants_certificates_and_the_other_none() {
    let authority = Authority::new("authority");
    let strangers = Authority::new("strangers");
    let folder = Directory::new();
    install(&folder, "all", &authority.sign("shop.test"));
    install(&folder, "staff", &authority.sign("staff.test"));
    fs::write(folder.join("ca.crt"), &authority.pem.bytes).expect("written");
    // Two listeners of one address: its port must be known.
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let addr = listener.local_addr().expect("an address").to_string();
    let text = format!(
        "
listeners:
  shop: {{address: {addr:?}, hosts: shop.test, tls: {{certificates: all}}}}
  staff:
    address: {addr:?}
    hosts: staff.test
    tls: {{certificates: staff, clients: {{authorities: ca}}}}
certificates:
  all: {{chain: all.crt, key: all.key}}
  staff: {{chain: staff.crt, key: staff.key}}
authorities: {{ca: ca.crt}}
routes:
  all: {{rules: [{{respond: {{body: come in}}}}]}}
"
    );
    let file = folder.join("proxy.yaml");
    fs::write(&file, text).expect("written");
    let args = [OsString::from("run"), file.into(), "-q".into()];
    let mut server = spawn_with(&[(listener.as_fd(), "web")], program(), &args).expect("a process");
    server.wait_ready(Some(PATIENCE)).expect("it serves");

    let nobody = without_tickets(&authority);
    let clerk = ClientSettings {
        certificate: Some(authority.sign("clerk.test")),
        ..without_tickets(&authority)
    };
    let stranger = ClientSettings {
        certificate: Some(strangers.sign("clerk.test")),
        ..without_tickets(&authority)
    };
    let ask = |settings: &ClientSettings, sni: &str, host: &str| {
        let mut client = Client::open(&addr, sni, settings)?;
        client.get(host, "/").map(|answer| answer.status)
    };
    assert_eq!(ask(&nobody, "shop.test", "shop.test").expect("an answer"), 200);
    assert_eq!(ask(&nobody, "staff.test", "staff.test").expect("an answer"), 403);
    assert_eq!(ask(&clerk, "staff.test", "staff.test").expect("an answer"), 200);
    assert_eq!(ask(&nobody, "shop.test", "staff.test").expect("an answer"), 421);
    assert_eq!(ask(&clerk, "shop.test", "staff.test").expect("an answer"), 421);
    ask(&stranger, "staff.test", "staff.test").expect_err("a stranger");
    kill_process(Pid::from_child(&server.process), Signal::TERM).expect("a process");
    assert_eq!(wait_end(&mut server.process).code(), Some(0));
}

#[test]
fn a_successor_finds_its_listeners_by_their_addresses() {
    let text = |first: &str, second: &str, word: &str| {
        format!(
            "
listeners:
  {first}: {{address: \"{}\"}}
  {second}: {{address: \"{}\"}}
admin: {{address: 127.0.0.1:0}}
routes:
  one: {{listeners: one, rules: [{{respond: {{body: {word} one}}}}]}}
  two: {{listeners: two, rules: [{{respond: {{body: {word} two}}}}]}}
",
            if first == "one" { "127.0.0.1:0" } else { "[::1]:0" },
            if first == "one" { "[::1]:0" } else { "127.0.0.1:0" },
        )
    };
    if TcpListener::bind("[::1]:0").is_err() {
        return common::skipped("no IPv6 here, so addresses cannot be told apart");
    }
    let proxy = Proxy::start_with(&text("one", "two", "old"), &[], 2, |_| {});
    let (one, two) = (&proxy.addrs[0], &proxy.addrs[1]);
    assert_eq!(get(one, "a", "/").body, "old one");
    assert_eq!(get(two, "a", "/").body, "old two");
    let mut server = proxy.server;
    // The other way round.
    fs::write(&proxy.file, text("two", "one", "new")).expect("written");
    until(one, "a", "/", |answer| answer.body == "new one");
    server.signal(Signal::USR2);
    let lines = server.wait_for_each(&[" serves now", "all connections are closed"]);
    let pid = lines[0]
        .split("process ")
        .nth(1)
        .and_then(|rest| rest.split(' ').next());
    let pid: i32 = pid.expect("a number").parse().expect("a number");
    assert_eq!(get(one, "a", "/").body, "new one");
    assert_eq!(get(two, "a", "/").body, "new two");
    kill_process(Pid::from_raw(pid).expect("a process"), Signal::TERM).expect("it lives");
    server.finish();
}
