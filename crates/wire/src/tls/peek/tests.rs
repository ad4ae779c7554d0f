//! A client's first message: of real clients, cut everywhere, split over records, and wrong in each of its parts.

use std::sync::Arc;

use super::*;

/// Both outcomes of a whole input.
fn look(bytes: &[u8]) -> Result<Looked, NoHello> {
    HelloScanner::new().look(bytes)
}

fn hello(bytes: &[u8]) -> Hello {
    match look(bytes) {
        Ok(Looked::Hello(hello)) => hello,
        other => panic!("a message: {other:?}"),
    }
}

fn vector(width: usize, body: &[u8]) -> Vec<u8> {
    let length = (body.len() as u32).to_be_bytes();
    [&length[4 - width..], body].concat()
}

fn extension(kind: u16, body: &[u8]) -> Vec<u8> {
    [&kind.to_be_bytes()[..], &vector(2, body)].concat()
}

fn server_names(names: &[(u8, &[u8])]) -> Vec<u8> {
    let entries = names
        .iter()
        .map(|(kind, name)| [&[*kind][..], &vector(2, name)].concat());
    extension(SERVER_NAME, &vector(2, &entries.collect::<Vec<_>>().concat()))
}

fn protocols(names: &[&[u8]]) -> Vec<u8> {
    let entries = names.iter().map(|name| vector(1, name));
    extension(ALPN, &vector(2, &entries.collect::<Vec<_>>().concat()))
}

/// A message with these extensions; `None`: it ends before them.
fn message(extensions: Option<&[Vec<u8>]>) -> Vec<u8> {
    let mut body = vec![3, 3];
    body.extend_from_slice(&[7; 32]);
    body.extend(vector(1, &[9; 32]));
    body.extend(vector(2, &[0x13, 0x01, 0x13, 0x02]));
    body.extend(vector(1, &[0]));
    if let Some(extensions) = extensions {
        body.extend(vector(2, &extensions.concat()));
    }
    [&[CLIENT_HELLO][..], &vector(3, &body)].concat()
}

/// In records of so many bytes each.
fn records(message: &[u8], share: usize) -> Vec<u8> {
    let record = |part: &[u8]| [&[HANDSHAKE, 3, 1][..], &vector(2, part)].concat();
    message.chunks(share).map(record).collect::<Vec<_>>().concat()
}

fn plain(extensions: &[Vec<u8>]) -> Vec<u8> {
    records(&message(Some(extensions)), RECORD_BYTES)
}

/// Whatever the cuts, the outcome is that of the whole; and nothing is said before the message's last byte.
fn check_cuts(bytes: &[u8]) {
    let whole = look(bytes);
    for cut in 0..=bytes.len() {
        let mut scanner = HelloScanner::new();
        let first = scanner.look(&bytes[..cut]);
        match &first {
            Ok(Looked::NeedMore) => assert_eq!(scanner.look(bytes), whole, "cut at {cut}"),
            decided => assert_eq!(*decided, whole, "cut at {cut}"),
        }
    }
    let mut scanner = HelloScanner::new();
    let mut found = (1..=bytes.len()).map(|end| scanner.look(&bytes[..end]));
    let decided = found.find(|found| *found != Ok(Looked::NeedMore));
    assert_eq!(decided.unwrap_or(Ok(Looked::NeedMore)), whole, "byte by byte");
}

#[test]
fn a_real_client_is_understood() {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    for (versions, offered) in [
        (
            &[&rustls::version::TLS13][..],
            vec![b"h2".to_vec(), b"http/1.1".to_vec()],
        ),
        (&[&rustls::version::TLS12][..], Vec::new()),
    ] {
        let mut config = rustls::ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(versions)
            .expect("versions")
            .with_root_certificates(rustls::RootCertStore::empty())
            .with_no_client_auth();
        config.alpn_protocols.clone_from(&offered);
        let name = "Shop.Example".try_into().expect("a name");
        let mut client = rustls::ClientConnection::new(Arc::new(config), name).expect("a client");
        let mut bytes = Vec::new();
        client.write_tls(&mut bytes).expect("memory takes it");
        let expected = Hello {
            server_name: Some("shop.example".to_owned()),
            alpn: offered,
        };
        assert_eq!(hello(&bytes), expected);
        check_cuts(&bytes);
    }
}

#[test]
fn what_is_asked_for() {
    let name = |name: &str| server_names(&[(HOST_NAME, name.as_bytes())]);
    let of = |extensions: &[Vec<u8>]| hello(&plain(extensions)).server_name;
    assert_eq!(of(&[]), None);
    assert_eq!(of(&[name("a.example")]).as_deref(), Some("a.example"));
    assert_eq!(of(&[name("A.Example.")]).as_deref(), Some("a.example"));
    assert_eq!(
        of(&[extension(51, &[1, 2, 3]), name("b"), extension(43, &[])]).as_deref(),
        Some("b")
    );
    // Names of another kind are passed over.
    assert_eq!(
        of(&[server_names(&[(1, b"\0x"), (0, b"c")])]).as_deref(),
        Some("c")
    );
    let found = hello(&plain(&[protocols(&[b"h2", b"acme-tls/1"])]));
    assert_eq!(found.alpn, [b"h2".to_vec(), b"acme-tls/1".to_vec()]);
    assert_eq!(hello(&records(&message(None), RECORD_BYTES)), Hello::default());
}

#[test]
fn in_many_records_and_with_more_behind_it() {
    let message = message(Some(&[
        server_names(&[(0, b"split.example")]),
        protocols(&[b"h2"]),
    ]));
    for share in [1, 2, 3, 4, 5, 7, 50, message.len() - 1, message.len()] {
        let mut bytes = records(&message, share);
        assert_eq!(
            hello(&bytes).server_name.as_deref(),
            Some("split.example"),
            "records of {share}"
        );
        check_cuts(&bytes);
        let alone = look(&bytes);
        bytes.extend_from_slice(b"early data, or anything");
        assert_eq!(look(&bytes), alone);
        check_cuts(&bytes);
    }
    // Behind it in its own record.
    let more = [&message[..], &[0xff; 40]].concat();
    assert_eq!(
        look(&records(&more, RECORD_BYTES)),
        look(&records(&message, RECORD_BYTES))
    );
}

#[test]
fn what_is_none_is_told_as_soon_as_it_shows() {
    let is_none = |bytes: &[u8]| assert!(matches!(look(bytes), Err(NoHello::NotTls(_))), "{bytes:02x?}");
    is_none(b"G");
    is_none(b"SSH-2.0-client\r\n");
    is_none(&[0x80, 0x2e, 0x01, 0x00, 0x02]);
    is_none(&[22, 2]);
    is_none(&[23, 3, 3, 0, 1]);
    is_none(&[22, 3, 1, 0, 0]);
    is_none(&[22, 3, 1, 0x40, 1]);
    // A server's.
    is_none(&[22, 3, 1, 0, 4, 2]);
    assert_eq!(look(&[]), Ok(Looked::NeedMore));
    assert_eq!(look(&[22, 3, 1, 0x40, 0]), Ok(Looked::NeedMore));
}

#[test]
fn what_is_wrong_inside() {
    let twice = server_names(&[(0, b"a")]);
    let list = |body: &[u8]| extension(SERVER_NAME, body);
    let long = [b'a'; limits::SERVER_NAME_BYTES + 1];
    for wrong in [
        vec![twice.clone(), twice],
        vec![protocols(&[b"h2"]), protocols(&[b"h2"])],
        vec![server_names(&[(0, b"a"), (0, b"b")])],
        vec![server_names(&[(0, b"")])],
        vec![server_names(&[(0, b".")])],
        vec![server_names(&[(0, &long)])],
        vec![server_names(&[(0, b"a b")])],
        vec![server_names(&[(0, b"a\0b")])],
        vec![server_names(&[(0, "ä".as_bytes())])],
        vec![list(&[])],
        vec![list(&[0, 0])],
        vec![list(&[0, 4, 0, 0, 2, b'a'])],
        vec![list(&[0, 4, 0, 0, 1, b'a', b'b'])],
        vec![extension(ALPN, &[0, 0])],
        vec![extension(ALPN, &[0, 1, 0])],
        vec![extension(ALPN, &[0, 2, 2, b'h'])],
    ] {
        let bytes = plain(&wrong);
        assert!(matches!(look(&bytes), Err(NoHello::NotTls(_))), "{wrong:02x?}");
        check_cuts(&bytes);
    }
    // Each length of the whole message, one more and one less.
    let good = message(Some(&[server_names(&[(0, b"a.example")])]));
    for at in [6 + 32, 6 + 32 + 33 + 1, 6 + 32 + 33 + 6, 6 + 32 + 33 + 9] {
        for change in [1, u8::MAX] {
            let mut bad = good.clone();
            bad[at] = bad[at].wrapping_add(change);
            let bytes = records(&bad, RECORD_BYTES);
            assert!(
                matches!(look(&bytes), Err(NoHello::NotTls(_))),
                "length at {at}: {:?}",
                look(&bytes)
            );
            check_cuts(&bytes);
        }
    }
}

#[test]
fn what_is_too_long() {
    // It says so itself.
    assert_eq!(look(&[22, 3, 1, 0, 4, 1, 1, 0, 0]), Err(NoHello::TooLong));
    // By its records.
    let padded = message(Some(&[extension(21, &vec![0; 3000])]));
    let bytes = records(&padded, 1);
    assert!(bytes.len() > limits::HELLO_BYTES);
    assert_eq!(look(&bytes), Err(NoHello::TooLong));
    let mut scanner = HelloScanner::new();
    assert_eq!(
        scanner.look(&bytes[..limits::HELLO_BYTES - 1]),
        Ok(Looked::NeedMore)
    );
    assert_eq!(scanner.look(&bytes[..limits::HELLO_BYTES]), Err(NoHello::TooLong));
    // As long as may be.
    let room = limits::HELLO_BYTES - RECORD_HEADER - message(Some(&[extension(21, &[])])).len();
    let full = plain(&[extension(21, &vec![0; room])]);
    assert_eq!(full.len(), limits::HELLO_BYTES);
    assert_eq!(look(&full), Ok(Looked::Hello(Hello::default())));
    check_cuts(&full[..100]);
}

#[test]
fn anything_else_is_survived() {
    let mut random = fastrand::Rng::with_seed(7);
    let good = plain(&[
        server_names(&[(0, b"a.example")]),
        protocols(&[b"h2", b"http/1.1"]),
    ]);
    for _ in 0..3000 {
        let mut bytes = good.clone();
        for _ in 0..random.usize(1..4) {
            let at = random.usize(..bytes.len());
            bytes[at] = random.u8(..);
        }
        bytes.truncate(random.usize(..=bytes.len()));
        let whole = look(&bytes);
        let cut = random.usize(..=bytes.len());
        let mut scanner = HelloScanner::new();
        if scanner.look(&bytes[..cut]) == Ok(Looked::NeedMore) {
            assert_eq!(scanner.look(&bytes), whole, "{bytes:02x?} cut at {cut}");
        }
    }
}
