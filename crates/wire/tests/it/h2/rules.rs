//! Each rule with input that breaks it: what is said, and to whom.

use ringmain_wire::h2::{FaultKind, Limits, Scope};

use crate::h2::support::*;

/// A server is told `input` behind an opening. What it says is the fault, on that stream or (0) on the connection.
struct Rule {
    kind: FaultKind,
    stream: u32,
    input: Vec<u8>,
}

fn rule(kind: FaultKind, stream: u32, input: impl Into<Vec<u8>>) -> Rule {
    Rule {
        kind,
        stream,
        input: input.into(),
    }
}

/// A request with this block.
fn block(block: &[u8]) -> Vec<u8> {
    frame(HEADERS, END_HEADERS | END_STREAM, 1, block)
}

/// A request with these fields and no others.
fn fields(fields: &[(&str, &str)]) -> Vec<u8> {
    block(&literals(fields))
}

/// A usual request with these fields, too.
fn with(fields: &[(&str, &str)]) -> Vec<u8> {
    block(&get_with(fields))
}

fn limits() -> Limits {
    Limits {
        head_bytes: 2000,
        fields: 10,
        continuations: 3,
        streams: 2,
        stream_window: 100,
        connection_window: 65_535,
        ..Limits::INTERNET
    }
}

/// A request's pseudo-header fields.
const HEAD: [(&str, &str); 4] = [
    (":method", "GET"),
    (":scheme", "http"),
    (":path", "/"),
    (":authority", "a"),
];

fn framing_rules() -> Vec<Rule> {
    use FaultKind::*;
    vec![
        rule(FrameTooLarge, 0, frame(DATA, 0, 1, &[0; 16_385])),
        rule(FrameSize, 0, frame(PING, 0, 0, &[0; 7])),
        rule(FrameSize, 0, frame(SETTINGS, 0, 0, &[0; 5])),
        rule(FrameSize, 0, frame(SETTINGS, ACK, 0, &[0; 6])),
        rule(FrameSize, 0, [get(1), frame(RST_STREAM, 0, 1, &[0; 3])].concat()),
        rule(FrameSize, 0, frame(WINDOW_UPDATE, 0, 0, &[0; 3])),
        rule(FrameSize, 0, frame(GOAWAY, 0, 0, &[0; 7])),
        rule(
            FrameSize,
            0,
            frame(HEADERS, END_HEADERS | WITH_PRIORITY, 1, &[0; 4]),
        ),
        rule(FrameSize, 0, frame(DATA, PADDED, 1, &[])),
        rule(FrameSize, 1, [get(1), frame(PRIORITY, 0, 1, &[0; 4])].concat()),
        rule(FrameSize, 0, frame(PRIORITY, 0, 1, &[0; 4])),
        rule(FrameStream, 0, frame(DATA, 0, 0, b"a")),
        rule(FrameStream, 0, frame(HEADERS, END_HEADERS, 0, GET)),
        rule(FrameStream, 0, frame(PRIORITY, 0, 0, &[0; 5])),
        rule(FrameStream, 0, frame(RST_STREAM, 0, 0, &[0; 4])),
        rule(FrameStream, 0, frame(SETTINGS, 0, 1, &[])),
        rule(FrameStream, 0, frame(PING, 0, 1, &[0; 8])),
        rule(FrameStream, 0, frame(GOAWAY, 0, 1, &[0; 8])),
        rule(
            Padding,
            0,
            [post(1), frame(DATA, PADDED, 1, &[4, 0, 0, 0])].concat(),
        ),
        rule(Padding, 0, frame(HEADERS, END_HEADERS | PADDED, 1, &[1])),
        rule(
            Continuation,
            0,
            [frame(HEADERS, 0, 1, GET), frame(PING, 0, 0, &[0; 8])].concat(),
        ),
        rule(
            Continuation,
            0,
            [
                frame(HEADERS, 0, 1, GET),
                frame(CONTINUATION, END_HEADERS, 3, &[]),
            ]
            .concat(),
        ),
        rule(Continuation, 0, frame(CONTINUATION, END_HEADERS, 1, GET)),
        rule(
            SelfDependency,
            1,
            [get(1), frame(PRIORITY, 0, 1, &[0, 0, 0, 1, 0])].concat(),
        ),
        rule(
            SelfDependency,
            1,
            frame(
                HEADERS,
                END_HEADERS | WITH_PRIORITY,
                1,
                &[&[0, 0, 0, 1, 0], GET].concat(),
            ),
        ),
        rule(Setting, 0, settings(&[(2, 2)])),
        rule(Setting, 0, settings(&[(5, 16_383)])),
        rule(Setting, 0, settings(&[(5, 1 << 24)])),
        rule(Setting, 0, settings(&[(8, 2)])),
        rule(Setting, 0, settings(&[(8, 1), (8, 0)])),
        rule(InitialWindow, 0, settings(&[(4, 1 << 31)])),
        rule(Push, 0, frame(PUSH_PROMISE, END_HEADERS, 1, &[0; 4])),
    ]
}

fn stream_rules() -> Vec<Rule> {
    use FaultKind::*;
    let full = [get(1), get(3), get(5)].concat();
    vec![
        rule(StreamIdle, 0, frame(DATA, 0, 1, b"a")),
        rule(StreamIdle, 0, rst(1)),
        rule(StreamIdle, 0, window_update(1, 1)),
        rule(StreamIdle, 0, window_update(2, 1)),
        rule(StreamClosed, 1, [get(1), frame(DATA, 0, 1, b"a")].concat()),
        rule(StreamClosed, 1, [get(1), get(1)].concat()),
        rule(
            StreamClosed,
            1,
            [post(1), rst(1), frame(DATA, 0, 1, b"a")].concat(),
        ),
        rule(StreamClosed, 0, [post(1), rst(1), get(1)].concat()),
        rule(StreamNumber, 0, get(2)),
        rule(StreamNumber, 0, [get(5), get(3)].concat()),
        rule(TooManyStreams, 5, full),
        rule(WindowIncrement, 0, window_update(0, 0)),
        rule(WindowIncrement, 1, [get(1), window_update(1, 0)].concat()),
        rule(WindowOverflow, 0, window_update(0, i32::MAX as u32)),
        rule(
            WindowOverflow,
            1,
            [get(1), window_update(1, i32::MAX as u32)].concat(),
        ),
        rule(
            WindowOverflow,
            0,
            [
                get(1),
                window_update(1, 1 << 30),
                settings(&[(4, i32::MAX as u32)]),
            ]
            .concat(),
        ),
        rule(Window, 1, [post(1), frame(DATA, 0, 1, &[0; 101])].concat()),
        rule(
            Trailers,
            1,
            [post(1), frame(HEADERS, END_HEADERS, 1, &literals(&[("a", "b")]))].concat(),
        ),
        rule(
            PseudoPlace,
            1,
            [
                post(1),
                frame(HEADERS, END_HEADERS | END_STREAM, 1, &literals(&[(":path", "/")])),
            ]
            .concat(),
        ),
        rule(
            TrailerField,
            1,
            [
                post(1),
                frame(
                    HEADERS,
                    END_HEADERS | END_STREAM,
                    1,
                    &literals(&[("content-length", "0")]),
                ),
            ]
            .concat(),
        ),
    ]
}

fn field_rules() -> Vec<Rule> {
    use FaultKind::*;
    vec![
        rule(HeaderBlock, 0, block(&[0x00])),
        rule(TableIndex, 0, block(&[0xBE])),
        rule(TableSizeUpdate, 0, block(&[0x82, 0x20])),
        rule(FieldNameCase, 1, with(&[("X-Upper", "a")])),
        rule(FieldName, 1, with(&[("", "a")])),
        rule(FieldName, 1, with(&[("a b", "a")])),
        rule(FieldName, 1, with(&[("a:b", "a")])),
        rule(FieldName, 1, with(&[("é", "a")])),
        rule(FieldValue, 1, with(&[("a", "b\r\nc: d")])),
        rule(FieldValue, 1, with(&[("a", "b\nc")])),
        rule(FieldValue, 1, with(&[("a", "b\0c")])),
        rule(FieldValue, 1, with(&[("a", " b")])),
        rule(FieldValue, 1, with(&[("a", "b\t")])),
        rule(ConnectionField, 1, with(&[("connection", "close")])),
        rule(ConnectionField, 1, with(&[("keep-alive", "1")])),
        rule(ConnectionField, 1, with(&[("proxy-connection", "a")])),
        rule(ConnectionField, 1, with(&[("transfer-encoding", "chunked")])),
        rule(ConnectionField, 1, with(&[("upgrade", "h2c")])),
        rule(Te, 1, with(&[("te", "trailers, deflate")])),
    ]
}

fn pseudo_rules() -> Vec<Rule> {
    use FaultKind::*;
    let head = HEAD;
    vec![
        rule(PseudoUnknown, 1, fields(&[&head[..], &[(":x", "a")]].concat())),
        rule(PseudoPlace, 1, with(&[("a", "b"), (":path", "/")])),
        rule(PseudoPlace, 1, with(&[("a", "b"), (":status", "200")])),
        rule(PseudoPlace, 1, with(&[(":status", "200")])),
        rule(PseudoRepeated, 1, with(&[(":path", "/")])),
        rule(PseudoRepeated, 1, with(&[(":method", "GET")])),
        rule(PseudoRepeated, 1, with(&[(":status", "200"), (":status", "200")])),
        rule(PseudoMissing, 1, fields(&head[1..])),
        rule(PseudoMissing, 1, fields(&[head[0], head[2], head[3]])),
        rule(PseudoMissing, 1, fields(&[head[0], head[1], head[3]])),
        rule(
            Method,
            1,
            fields(&[(":method", "GE T"), head[1], head[2], head[3]]),
        ),
        rule(Method, 1, fields(&[(":method", ""), head[1], head[2], head[3]])),
        rule(Scheme, 1, fields(&[head[0], (":scheme", "1:"), head[2], head[3]])),
        rule(Authority, 1, fields(&head[..3])),
        rule(
            Authority,
            1,
            fields(&[head[0], head[1], head[2], (":authority", "a@b")]),
        ),
        rule(
            Authority,
            1,
            fields(&[head[0], head[1], head[2], (":authority", "")]),
        ),
        rule(Authority, 1, with(&[("host", "a b")])),
        rule(AuthorityHost, 1, with(&[("host", "otherhost")])),
        rule(AuthorityHost, 1, with(&[("host", "localhost:81")])),
        rule(
            AuthorityHost,
            1,
            with(&[("host", "localhost"), ("host", "localhost")]),
        ),
        rule(Path, 1, fields(&[head[0], head[1], (":path", ""), head[3]])),
        rule(Path, 1, fields(&[head[0], head[1], (":path", "a"), head[3]])),
        rule(Path, 1, fields(&[head[0], head[1], (":path", "/a b"), head[3]])),
        rule(Path, 1, fields(&[head[0], head[1], (":path", "/a#b"), head[3]])),
        rule(Path, 1, fields(&[head[0], head[1], (":path", "*"), head[3]])),
        rule(Status, 1, with(&[(":status", "20")])),
        rule(Protocol, 1, with(&[(":protocol", "websocket")])),
        rule(
            Protocol,
            1,
            fields(&[&head[1..], &[(":method", "CONNECT"), (":protocol", "websocket")]].concat()),
        ),
        rule(
            Connect,
            1,
            fields(&[(":method", "CONNECT"), (":authority", "a:1")]),
        ),
        rule(Expectation, 1, with(&[("expect", "200-ok")])),
    ]
}

fn length_field_rules() -> Vec<Rule> {
    use FaultKind::*;
    vec![
        rule(ContentLength, 1, with(&[("content-length", "+1")])),
        rule(ContentLength, 1, with(&[("content-length", "")])),
        rule(
            ContentLength,
            1,
            with(&[("content-length", "9223372036854775808")]),
        ),
        rule(
            ContentLength,
            1,
            with(&[("content-length", "0"), ("content-length", "1")]),
        ),
        rule(ContentLengthSum, 1, with(&[("content-length", "1")])),
    ]
}

/// A request that says so many bytes, then frames.
fn sized(length: &str, frames: &[Vec<u8>]) -> Vec<u8> {
    let head = frame(HEADERS, END_HEADERS, 1, &get_with(&[("content-length", length)]));
    [head, frames.concat()].concat()
}

fn length_rules() -> Vec<Rule> {
    let kind = FaultKind::ContentLengthSum;
    let data = |bytes: &[u8], end| frame(DATA, if end { END_STREAM } else { 0 }, 1, bytes);
    vec![
        rule(kind, 1, sized("3", &[data(b"abcd", false)])),
        rule(kind, 1, sized("3", &[data(b"ab", true)])),
        rule(kind, 1, sized("3", &[data(b"ab", false), data(b"", true)])),
        rule(kind, 1, sized("3", &[data(b"ab", false), data(b"cd", true)])),
        rule(
            kind,
            1,
            sized(
                "3",
                &[frame(
                    HEADERS,
                    END_HEADERS | END_STREAM,
                    1,
                    &literals(&[("a", "b")]),
                )],
            ),
        ),
    ]
}

/// What a connection says of `input`: the first fault, and on what.
fn judged(side: &mut Side, input: &[u8]) -> Option<(FaultKind, u32)> {
    match side.hear(input) {
        Err(fault) => {
            assert_eq!(fault.scope, Scope::Connection);
            let last = side.frames().pop().expect("a GOAWAY");
            assert_eq!(
                (last.0, last.3[4..8].to_vec()),
                (GOAWAY, fault.code().0.to_be_bytes().to_vec())
            );
            // The same for ever, and nothing more is sent.
            assert_eq!(side.hear(&get(99)), Err(fault));
            assert!(side.out.is_empty());
            Some((fault.kind, 0))
        }
        Ok(heard) => {
            let resets: Vec<_> = side
                .frames()
                .into_iter()
                .filter(|frame| frame.0 == RST_STREAM)
                .collect();
            let (_, _, stream, code) = resets.first()?;
            let (_, text) = heard.iter().find(|(_, text)| text.starts_with("broken"))?;
            let kind = *FaultKind::ALL
                .iter()
                .find(|kind| text.contains(&format!(" {kind:?} ")))?;
            assert_eq!(code[..], kind.code().0.to_be_bytes());
            Some((kind, *stream))
        }
    }
}

#[test]
fn every_rule_is_held() {
    let rules = [
        framing_rules(),
        stream_rules(),
        field_rules(),
        pseudo_rules(),
        length_field_rules(),
        length_rules(),
    ];
    for Rule { kind, stream, input } in rules.iter().flatten() {
        let mut side = Side::server(&limits());
        let (found, on) =
            judged(&mut side, input).unwrap_or_else(|| panic!("{kind:?}: {}", input.escape_ascii()));
        let shown = input.escape_ascii();
        assert_eq!((found, on), (*kind, *stream), "{shown}");
        if *stream > 0 {
            // The connection lives on.
            let heard = side
                .hear(&get(101))
                .unwrap_or_else(|fault| panic!("{fault}: {shown}"));
            let more = if *kind == FaultKind::TooManyStreams { 0 } else { 1 };
            let requests = heard.iter().filter(|(_, text)| text.contains("GET")).count();
            assert_eq!(requests, more, "{kind:?}: {shown}");
        }
    }
}

#[test]
fn the_preface_must_be_there_and_settings_first() {
    use ringmain_wire::h2::Role;
    for (input, kind) in [
        (&b"GET / HTTP/1.1\r\n"[..], FaultKind::Preface),
        (b"PRI * HTTP/2.0\r\n\r\nSX", FaultKind::Preface),
        (
            &[&opening()[..24], &frame(PING, 0, 0, &[0; 8])].concat(),
            FaultKind::SettingsFirst,
        ),
        (
            &[&opening()[..24], &frame(SETTINGS, ACK, 0, &[])].concat(),
            FaultKind::SettingsFirst,
        ),
    ] {
        let mut side = Side::new(Role::Server, &limits());
        assert_eq!(side.hear(input).map_err(|fault| fault.kind), Err(kind));
    }
    let mut client = Side::new(Role::Client, &limits());
    let heard = client.hear(&frame(PING, 0, 0, &[0; 8]));
    assert_eq!(heard.map_err(|fault| fault.kind), Err(FaultKind::SettingsFirst));
}

#[test]
fn a_server_s_answers_have_rules_too() {
    use FaultKind::*;
    let answer = |fields: &[(&str, &str)], end: bool| {
        let flags = if end {
            END_HEADERS | END_STREAM
        } else {
            END_HEADERS
        };
        frame(HEADERS, flags, 1, &literals(fields))
    };
    let ok = answer(&[(":status", "200")], false);
    let rows = [
        (PseudoMissing, 1, answer(&[("a", "b")], true)),
        (
            PseudoPlace,
            1,
            answer(&[(":status", "200"), (":path", "/")], true),
        ),
        (Status, 1, answer(&[(":status", "101")], false)),
        (Status, 1, answer(&[(":status", "20")], true)),
        (Status, 1, answer(&[(":status", "099")], true)),
        (InterimEnd, 1, answer(&[(":status", "100")], true)),
        (StreamIdle, 1, frame(DATA, 0, 1, b"a")),
        (
            ContentLengthSum,
            1,
            answer(&[(":status", "200"), ("content-length", "1")], true),
        ),
        (Trailers, 1, [ok.clone(), ok].concat()),
        (
            StreamIdle,
            0,
            frame(HEADERS, END_HEADERS, 3, &literals(&[(":status", "200")])),
        ),
        (
            StreamIdle,
            0,
            frame(HEADERS, END_HEADERS, 2, &literals(&[(":status", "200")])),
        ),
        (Push, 0, frame(PUSH_PROMISE, END_HEADERS, 1, &[0; 4])),
        (Setting, 0, settings(&[(2, 1)])),
    ];
    for (kind, stream, input) in rows {
        let mut client = Side::client(&limits());
        crate::h2::messages::ask(&mut client, "GET", true);
        client.out.clear();
        let (found, on) = judged(&mut client, &input).unwrap_or_else(|| panic!("{kind:?}"));
        assert_eq!((found, on), (kind, stream));
    }
}

#[test]
fn no_fault_is_without_its_rule() {
    const RULES: &str = include_str!("rules.rs");
    const FLOODS: &str = include_str!("floods.rs");
    // Those of a request are told as an event: see `messages.rs`.
    let told = [FaultKind::HeadTooLarge, FaultKind::TooManyFields];
    for kind in FaultKind::ALL.iter().filter(|kind| !told.contains(kind)) {
        let name = format!("{kind:?}");
        let named = |text: &str| {
            ["(", "::", " "].iter().any(|before| {
                [",", ")", ";"]
                    .iter()
                    .any(|behind| text.contains(&format!("{before}{name}{behind}")))
            })
        };
        assert!(named(RULES) || named(FLOODS), "{name}");
    }
}
