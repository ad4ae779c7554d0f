//! The NATS codec: messages of servers, whole, fragmented and invalid; messages of clients.

use ringmain_control::nats::protocol::{
    Decoder, EncodeError, LINE_BYTES, ProtocolError, encode_connect, encode_ping, encode_pong,
    encode_publish, encode_subscribe, is_filter, is_subject,
};

const PAYLOAD: usize = 16;

/// Returns the events, and the final error: they do not depend on fragmentation.
fn read(pieces: &[&[u8]]) -> (Vec<String>, Option<ProtocolError>) {
    let mut decoder = Decoder::new(PAYLOAD);
    let (mut kept, mut said) = (Vec::new(), Vec::new());
    for piece in pieces {
        kept.extend_from_slice(piece);
        loop {
            match decoder.decode(&kept) {
                Ok((used, event)) => {
                    let over = event.is_none();
                    said.extend(event.map(|event| format!("{event:?}")));
                    kept.drain(..used);
                    if over {
                        break;
                    }
                }
                Err(fault) => return (said, Some(fault)),
            }
        }
        assert!(kept.len() <= LINE_BYTES + PAYLOAD + 2, "{} are held", kept.len());
    }
    (said, None)
}

#[track_caller]
fn check(bytes: &[u8], said: &[&str], fault: Option<ProtocolError>) {
    let whole = read(&[bytes]);
    assert_eq!(whole.0, said);
    assert_eq!(whole.1, fault);
    let single: Vec<&[u8]> = bytes.chunks(1).collect();
    assert_eq!(read(&single), whole, "byte by byte");
    for cut in 0..bytes.len().min(400) {
        let (one, two) = bytes.split_at(cut);
        assert_eq!(read(&[one, two]), whole, "cut at {cut}");
    }
}

#[test]
fn server_messages_are_decoded() {
    check(
        b"INFO {\"server_id\":\"a\"} \r\nPING\r\nPONG\r\n+OK\r\n-ERR 'Authorization Violation'\r\n",
        &[
            "Info([123, 34, 115, 101, 114, 118, 101, 114, 95, 105, 100, 34, 58, 34, 97, 34, 125])",
            "Ping",
            "Pong",
            "Ok",
            r#"Error("Authorization Violation")"#,
        ],
        None,
    );
    check(
        b"MSG a.b 7 3\r\n\r\n1\r\nmsg\ta  8 \t_INBOX.1 0\r\n\r\nping\r\n",
        &[
            r#"Message { subject: "a.b", subscription: 7, payload: [13, 10, 49] }"#,
            r#"Message { subject: "a", subscription: 8, payload: [] }"#,
            "Ping",
        ],
        None,
    );
}

#[test]
fn oversized_messages_are_skipped() {
    let mut bytes = b"MSG a 1 17\r\nPING\r\nPING\r\n12345\r\nMSG b 2 16\r\n0123456789abcdef\r\n".to_vec();
    let said = [
        r#"TooLarge { subject: "a", subscription: 1, bytes: 17 }"#,
        r#"Message { subject: "b", subscription: 2, payload: [48, 49, 50, 51, 52, 53, 54, 55, 56, 57, 97, 98, 99, 100, 101, 102] }"#,
    ];
    check(&bytes, &said, None);
    bytes.truncate(14);
    check(&bytes, &said[..1], None);
    check(
        b"MSG a 1 18446744073709551615\r\n",
        &[],
        Some(ProtocolError::Message),
    );
}

#[test]
fn protocol_violations_are_errors() {
    for (bytes, fault) in [
        (&b"HELLO\r\n"[..], ProtocolError::Unknown),
        (b"\r\n", ProtocolError::Unknown),
        (b"HMSG a 1 4 4\r\nabcd\r\n", ProtocolError::Unknown),
        (b"HTTP/1.1 400 Bad Request\r\n", ProtocolError::Unknown),
        (b"-ERR '\xff'\r\n", ProtocolError::Unknown),
        (b"PING\n", ProtocolError::LineEnd),
        (b"\n", ProtocolError::LineEnd),
        (b"MSG\r\n", ProtocolError::Message),
        (b"MSG a\r\n", ProtocolError::Message),
        (b"MSG a 1\r\n", ProtocolError::Message),
        (b"MSG a 1 -1\r\n", ProtocolError::Message),
        (b"MSG a 1 +1\r\n", ProtocolError::Message),
        (b"MSG a b 1\r\n", ProtocolError::Message),
        (b"MSG a 1 b c 1\r\n", ProtocolError::Message),
        (b"MSG a 1 b x\r\n", ProtocolError::Message),
        (b"MSG \xff 1 1\r\n", ProtocolError::Message),
        (b"MSG a 1 \xff 1\r\n1\r\n", ProtocolError::Message),
        (b"MSG a 1 1 \xff\r\n1\r\n", ProtocolError::Message),
        (b"MSG a 1 99999999999999999999\r\n", ProtocolError::Message),
        (b"MSG a 1 1\r\nabc", ProtocolError::PayloadEnd),
        (b"MSG a 1 1\r\na\n\n", ProtocolError::PayloadEnd),
    ] {
        check(bytes, &[], Some(fault));
    }
    let long = format!("MSG {} 1 0\r\n\r\n", "x".repeat(2049));
    assert_eq!(read(&[long.as_bytes()]).1, Some(ProtocolError::Message));
}

#[test]
fn lines_are_bounded() {
    let info = |bytes: usize| {
        let mut line = b"INFO ".to_vec();
        line.resize(bytes - 2, b'x');
        line.extend(b"\r\n");
        line
    };
    assert_eq!(read(&[&info(LINE_BYTES)]).0.len(), 1);
    assert_eq!(read(&[&info(LINE_BYTES + 1)]).1, Some(ProtocolError::LongLine));
    let endless = vec![b'x'; LINE_BYTES];
    assert_eq!(read(&[&endless]).1, Some(ProtocolError::LongLine));
    assert_eq!(read(&[&endless[1..]]).1, None);
}

#[test]
fn arbitrary_bytes_do_not_panic() {
    let words: [&[u8]; 12] = [
        b"MSG ", b"a.b ", b"1 ", b"3", b"\r\n", b"abc", b"INFO ", b"{}", b"PING", b"-ERR ", b"\n", b"99999",
    ];
    for seed in 0..2000 {
        println!("seed {seed}");
        let mut random = fastrand::Rng::with_seed(seed);
        let mut bytes = Vec::new();
        for _ in 0..random.usize(1..12) {
            bytes.extend_from_slice(words[random.usize(0..words.len())]);
        }
        let whole = read(&[&bytes]);
        let size = random.usize(1..5);
        let pieces: Vec<&[u8]> = bytes.chunks(size).collect();
        assert_eq!(read(&pieces), whole);
    }
}

#[test]
fn client_messages_are_encoded() {
    let mut out = Vec::new();
    encode_connect(r#"{"verbose":false}"#, &mut out).expect("one line");
    encode_subscribe("prices.>", 1, &mut out).expect("a filter");
    encode_publish("prices.a", b"{}", &mut out).expect("a subject");
    encode_ping(&mut out);
    encode_pong(&mut out);
    let said = "CONNECT {\"verbose\":false}\r\nSUB prices.> 1\r\nPUB prices.a 2\r\n{}\r\nPING\r\nPONG\r\n";
    assert_eq!(String::from_utf8_lossy(&out), said);
    assert_eq!(encode_connect("{\n}", &mut out), Err(EncodeError::LineBreak));
    assert_eq!(encode_subscribe("a b", 1, &mut out), Err(EncodeError::Subject));
    assert_eq!(encode_publish("a.*", b"", &mut out), Err(EncodeError::Subject));
    assert_eq!(
        encode_publish("a 1\r\nPUB b", b"", &mut out),
        Err(EncodeError::Subject)
    );
    assert_eq!(out.len(), said.len());
}

#[test]
fn subjects_are_validated() {
    for (text, subject, filter) in [
        ("a", true, true),
        ("a.b-c.D_1", true, true),
        ("größe", true, true),
        ("a*", true, true),
        ("*", false, true),
        (">", false, true),
        ("a.*.b", false, true),
        ("a.>", false, true),
        ("*.>", false, true),
        ("a.>.b", false, false),
        (">.>", false, false),
        ("", false, false),
        (".", false, false),
        ("a.", false, false),
        (".a", false, false),
        ("a..b", false, false),
        ("a b", false, false),
        ("a\tb", false, false),
        ("a\r\n", false, false),
    ] {
        assert_eq!((is_subject(text), is_filter(text)), (subject, filter), "{text:?}");
    }
    assert!(!is_filter(&"x".repeat(2049)) && is_filter(&"x".repeat(2048)));
}
