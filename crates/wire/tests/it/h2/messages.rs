//! Requests and answers there and back, both roles ours.

use ringmain_wire::h1::{FieldBlock, FieldTable, Framing, Known, Method};
use ringmain_wire::h2::{
    Event, Limits, Misuse, Repeated, Request, Role, Stream, load_request, load_response, store_request,
    store_response,
};

use crate::h2::support::*;

/// Has a client ask for `/a?b`.
pub(crate) fn ask(client: &mut Side, method: &str, end: bool) -> Stream {
    ask_with(client, method, &FieldBlock::new(), None, end)
}

fn ask_with(client: &mut Side, method: &str, fields: &FieldBlock, length: Option<u64>, end: bool) -> Stream {
    let request = Request {
        method: Method::new(method),
        scheme: "http",
        authority: "localhost",
        path: "/a?b",
        protocol: None,
    };
    let asked = client
        .connection
        .request(&request, fields, length, end, &mut client.out);
    asked.expect("a request")
}

fn pass(from: &mut Side, to: &mut Side) -> Vec<Heard> {
    let bytes = std::mem::take(&mut from.out);
    to.hear(&bytes).expect("no fault")
}

fn block(fields: &[(&str, &str)]) -> FieldBlock {
    let mut block = FieldBlock::new();
    for (name, value) in fields {
        block.push(name, value.as_bytes()).expect("a field");
    }
    block
}

#[test]
fn a_request_and_its_answer_come_as_they_were_sent() {
    let limits = Limits::INTERNET;
    let (mut client, mut server) = (Side::client(&limits), Side::server(&limits));
    for round in 0..5 {
        let fields = block(&[("Accept", "a/b"), ("X-Round", &round.to_string())]);
        let asked = ask_with(&mut client, "POST", &fields, Some(5), false);
        client
            .connection
            .data(asked, b"hello", true, &mut client.out)
            .expect("data");
        let heard = pass(&mut client, &mut server);
        let id = 1 + 2 * round;
        assert_eq!(
            texts(&heard),
            [
                format!(
                    "{id} POST /a?b localhost Length(5) end=false accept=a/b x-round={round} content-length=5"
                ),
                format!("{id} data hello end=true"),
            ]
        );
        let stream = heard[0].0.expect("a stream");
        let mut head = server
            .connection
            .respond(stream, 404, &mut server.out)
            .expect("a head");
        head.block(&block(&[("Server", "ringmain"), ("Keep-Alive", "1")]));
        head.field("X-More", b"yes").expect("a field");
        head.length(3);
        head.finish(false);
        assert_eq!(
            server.connection.data(stream, b"abc", false, &mut server.out),
            Ok(3)
        );
        server
            .connection
            .trailers(stream, &block(&[("X-Sum", "1")]), &mut server.out)
            .expect("trailers");
        let heard = pass(&mut server, &mut client);
        assert_eq!(
            texts(&heard),
            [
                format!("{id} 404 Length(3) end=false server=ringmain x-more=yes content-length=3"),
                format!("{id} data abc end=false"),
                format!("{id} trailers x-sum=1"),
            ]
        );
        assert!(client.connection.is_idle() && server.connection.is_idle());
    }
}

#[test]
fn a_block_that_goes_by_a_number_is_what_it_stands_for() {
    let limits = Limits::INTERNET;
    let (mut client, mut server) = (Side::client(&limits), Side::server(&limits));
    for round in 0..60 {
        ask(&mut client, "GET", true);
        let stream = pass(&mut client, &mut server)[0].0.expect("a stream");
        // Every tenth round the fields are others; in some the table changes in between.
        let number = round / 10;
        let known = block(&[("Server", "ringmain"), ("Date", &number.to_string())]);
        let mut head = server
            .connection
            .respond(stream, 200, &mut server.out)
            .expect("a head");
        head.known_block(number + 1, &known);
        let more = (round % 7 / 2).to_string();
        head.block(&block(&[("X-More", &more)]));
        head.finish(true);
        let heard = pass(&mut server, &mut client);
        let id = stream.id();
        let expected = format!("{id} 200 None end=true server=ringmain date={number} x-more={more}");
        assert_eq!(texts(&heard), [expected]);
    }
}

#[test]
fn interim_answers_come_before_the_final_one() {
    let limits = Limits::INTERNET;
    let (mut client, mut server) = (Side::client(&limits), Side::server(&limits));
    let fields = block(&[("Expect", "100-continue")]);
    ask_with(&mut client, "PUT", &fields, None, false);
    let stream = pass(&mut client, &mut server)[0].0.expect("a stream");
    for status in [100, 103] {
        let head = server
            .connection
            .respond(stream, status, &mut server.out)
            .expect("a head");
        // Whatever is said.
        head.finish(true);
    }
    server
        .connection
        .respond(stream, 204, &mut server.out)
        .expect("a head")
        .finish(true);
    let heard = pass(&mut server, &mut client);
    assert_eq!(
        texts(&heard),
        [
            "1 100 None end=false",
            "1 103 None end=false",
            "1 204 None end=true"
        ]
    );
}

#[test]
fn what_a_caller_may_not_do_writes_nothing() {
    let limits = Limits::INTERNET;
    let mut server = Side::server(&limits);
    let stream = server.hear(&post(1)).expect("a request")[0].0.expect("a stream");
    let Side { connection, out, .. } = &mut server;
    assert_eq!(
        connection.begin_data(stream, 1, false, out),
        Err(Misuse::HeadOrder)
    );
    assert_eq!(
        connection.trailers(stream, &FieldBlock::new(), out),
        Err(Misuse::HeadOrder)
    );
    assert_eq!(connection.respond(stream, 101, out).err(), Some(Misuse::Status));
    assert_eq!(connection.respond(stream, 99, out).err(), Some(Misuse::Status));
    assert!(out.is_empty());
    let mut head = connection.respond(stream, 200, out).expect("a head");
    assert_eq!(head.field("connection", b"close"), Err(Misuse::Field));
    assert_eq!(head.field(":path", b"/"), Err(Misuse::Field));
    assert_eq!(head.field("a", b"b\r\nc"), Err(Misuse::Field));
    head.finish(true);
    let length = out.len();
    assert_eq!(
        connection.respond(stream, 200, out).err(),
        Some(Misuse::HeadOrder)
    );
    assert_eq!(connection.begin_data(stream, 1, false, out), Err(Misuse::Ended));
    connection.reset(stream, ringmain_wire::h2::ErrorCode::CANCEL, out);
    let length = length + 13;
    assert_eq!(connection.respond(stream, 200, out).err(), Some(Misuse::NoStream));
    assert_eq!(
        connection.begin_data(stream, 1, false, out),
        Err(Misuse::NoStream)
    );
    assert_eq!(out.len(), length);
}

#[test]
fn heads_that_do_not_fit_a_frame_go_on_in_others() {
    let limits = Limits {
        head_bytes: 60_000,
        ..Limits::INTERNET
    };
    let (mut client, mut server) = (Side::client(&limits), Side::server(&limits));
    let long = "~".repeat(40_000);
    let fields = block(&[("X-Long", &long)]);
    ask_with(&mut client, "GET", &fields, None, true);
    let heard = pass(&mut client, &mut server);
    assert_eq!(
        heard[0].1,
        format!("1 GET /a?b localhost None end=true x-long={long}")
    );
}

#[test]
fn a_head_beyond_its_limits_is_told_and_can_be_answered() {
    let limits = Limits {
        head_bytes: 1000,
        fields: 3,
        ..Limits::INTERNET
    };
    for fields in [
        vec![("a", "b"); 4],
        vec![
            (
                "a",
                "0123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789"
            );
            12
        ],
    ] {
        let mut server = Side::server(&limits);
        let heard = server
            .hear(&frame(HEADERS, END_HEADERS, 1, &get_with(&fields)))
            .expect("no fault");
        assert_eq!(texts(&heard), ["1 too large end=false"]);
        let stream = heard[0].0.expect("a stream");
        server
            .connection
            .respond(stream, 431, &mut server.out)
            .expect("a head")
            .finish(true);
        // What follows builds on the same table.
        let heard = server.hear(&get(3)).expect("no fault");
        assert_eq!(texts(&heard), ["3 GET / localhost None end=true"]);
    }
}

#[test]
fn cookies_are_one_field() {
    let mut server = Side::server(&Limits::INTERNET);
    let block = get_with(&[
        ("cookie", "a=1"),
        ("x", "y"),
        ("cookie", "b=2"),
        ("accept", "z"),
        ("cookie", "c=3"),
    ]);
    for stream in [1, 3] {
        let heard = server
            .hear(&frame(HEADERS, END_HEADERS | END_STREAM, stream, &block))
            .expect("no fault");
        let expected = format!("{stream} GET / localhost None end=true cookie=a=1; b=2; c=3 x=y accept=z");
        assert_eq!(texts(&heard), [expected]);
    }
}

#[test]
fn a_head_that_comes_again_says_the_same_and_one_that_changes_the_table_does_not() {
    let mut server = Side::server(&Limits::INTERNET);
    // With a literal that is indexed each time: the second is another entry.
    let indexing = [GET, b"\x40\x01a\x01b"].concat();
    // The newest entry but one and two, of the same request.
    let by_index = b"\x82\x84\x86\xbf\xbe";
    let rows = [
        (1, GET, ""),
        (3, GET, ""),
        (5, &indexing, " a=b"),
        (7, &indexing, " a=b"),
        (9, by_index, " a=b"),
    ];
    for (stream, block, expected) in rows {
        let heard = server.hear(&frame(HEADERS, END_HEADERS | END_STREAM, stream, block));
        let text = format!("{stream} GET / localhost None end=true{expected}");
        assert_eq!(texts(&heard.expect("no fault")), [text]);
    }
}

#[test]
fn a_stored_head_is_loaded_as_it_was() {
    let limits = Limits {
        extended_connect: true,
        connect: true,
        ..Limits::INTERNET
    };
    for fields in [
        vec![
            (":method", "GET"),
            (":scheme", "http"),
            (":path", "/a?b=c"),
            (":authority", "a:1"),
            ("accept", "x"),
        ],
        vec![
            (":method", "OPTIONS"),
            (":scheme", "https"),
            (":path", "*"),
            ("host", "a"),
            ("x", "\u{e9}"),
            ("x", ""),
        ],
        vec![
            (":method", "CONNECT"),
            (":authority", "a:1"),
            ("expect", "100-continue"),
        ],
        vec![
            (":method", "CONNECT"),
            (":scheme", "https"),
            (":path", "/chat"),
            (":authority", "a"),
            (":protocol", "websocket"),
            ("content-length", "7"),
        ],
    ] {
        let mut side = Side::server(&limits);
        let input = frame(HEADERS, END_HEADERS, 1, &literals(&fields));
        let Side {
            connection,
            heads,
            out,
            now,
            ..
        } = &mut side;
        let step = connection.receive(&input, *now, heads, out).expect("no fault");
        let Event::Request { head, .. } = step.event else {
            panic!("{:?}", step.event);
        };
        let mut stored = Vec::new();
        store_request(&head, &mut stored);
        let mut table = FieldTable::new(&ringmain_wire::h1::Limits::INTERNET);
        let loaded = load_request(&stored, &mut table).expect("stored");
        assert_eq!(format!("{head:?}"), format!("{loaded:?}"));
        for cut in 0..stored.len() {
            let mut table = FieldTable::new(&ringmain_wire::h1::Limits::INTERNET);
            // Cut between fields it is a shorter head; nowhere does it panic.
            let _ = load_request(&stored[..cut], &mut table);
        }
    }
}

#[test]
fn stored_answers_load_as_they_were() {
    let limits = Limits::INTERNET;
    for (status, fields, end) in [
        (
            200,
            &[("a", "b"), ("set-cookie", "x"), ("set-cookie", "")][..],
            false,
        ),
        (204, &[], true),
        (103, &[("link", "</a>")], false),
    ] {
        let (mut client, mut server) = (Side::client(&limits), Side::server(&limits));
        ask(&mut client, "GET", true);
        pass(&mut client, &mut server);
        let asked = server.connection.streams().next().expect("one");
        let mut head = server
            .connection
            .respond(asked, status, &mut server.out)
            .expect("open");
        head.block(&block(fields));
        head.finish(end);
        let Side {
            connection,
            heads,
            out,
            now,
            ..
        } = &mut client;
        let mut at = 0;
        let head = loop {
            let step = connection.receive(&server.out[at..], *now, heads, out);
            let step = step.expect("no fault");
            at += step.consumed;
            match step.event {
                Event::Response { head, .. } => break (format!("{head:?}"), stored(&head)),
                Event::NeedMore => panic!("an answer"),
                _ => {}
            }
        };
        let mut table = FieldTable::new(&ringmain_wire::h1::Limits::INTERNET);
        let loaded = load_response(&head.1, &mut table).expect("stored");
        assert_eq!(head.0, format!("{loaded:?}"));
        for cut in 0..head.1.len() {
            let mut table = FieldTable::new(&ringmain_wire::h1::Limits::INTERNET);
            let _ = load_response(&head.1[..cut], &mut table);
        }
    }
}

fn stored(head: &ringmain_wire::h1::ResponseHead<'_>) -> Vec<u8> {
    let mut stored = Vec::new();
    store_response(head, &mut stored);
    stored
}

#[test]
fn as_many_requests_as_the_peer_takes() {
    let (mut client, server) = (Side::client(&Limits::INTERNET), Side::server(&Limits::INTERNET));
    // Before it has said how many.
    assert!(client.connection.openable() > 1_000_000);
    let first = ask(&mut client, "GET", true);
    // SETTINGS_MAX_CONCURRENT_STREAMS.
    let settings = frame(SETTINGS, 0, 0, &[0, 3, 0, 0, 0, 3]);
    client.hear(&settings).expect("no fault");
    assert_eq!(client.connection.openable(), 2);
    ask(&mut client, "GET", true);
    ask(&mut client, "GET", true);
    assert_eq!(
        (client.connection.openable(), client.connection.can_open()),
        (0, false)
    );
    client
        .connection
        .reset(first, ringmain_wire::h2::ErrorCode::CANCEL, &mut client.out);
    assert_eq!(client.connection.openable(), 1);
    assert_eq!(server.connection.openable(), 0, "servers ask nothing");
}

#[test]
fn answers_without_a_body_need_none() {
    let limits = Limits::INTERNET;
    let (mut client, mut server) = (Side::client(&limits), Side::server(&limits));
    for (method, status) in [("HEAD", 200), ("GET", 304)] {
        ask(&mut client, method, true);
        let stream = pass(&mut client, &mut server)[0].0.expect("a stream");
        let mut head = server
            .connection
            .respond(stream, status, &mut server.out)
            .expect("a head");
        head.length(1000);
        head.finish(true);
        let heard = pass(&mut server, &mut client);
        assert!(
            heard[0].1.contains(" None end=true content-length=1000"),
            "{}",
            heard[0].1
        );
    }
}

#[test]
fn known_fields_are_known_by_either_way_in() {
    let mut server = Side::server(&Limits::INTERNET);
    // By literal, by the static table's name, and by the dynamic table.
    for (stream, block) in [
        (1, get_with(&[("user-agent", "a"), ("content-type", "b")])),
        (3, [GET, b"\x7a\x01a\x5f\x01b"].concat()),
        (5, [&b"\x82\x84\x86"[..], b"\xc0", b"\xbf\xbe"].concat()),
    ] {
        let input = frame(HEADERS, END_HEADERS, stream, &block);
        let Side {
            connection,
            heads,
            out,
            now,
            ..
        } = &mut server;
        let step = connection.receive(&input, *now, heads, out).expect("no fault");
        let Event::Request { head, .. } = step.event else {
            panic!("{:?}", step.event);
        };
        assert_eq!(head.fields.known(Known::UserAgent), Some(&b"a"[..]), "{stream}");
        assert_eq!(head.fields.known(Known::ContentType), Some(&b"b"[..]), "{stream}");
        assert_eq!(head.framing, Framing::Chunked);
    }
}

/// Each head arrives as it was asked for, whether or not it was encoded anew; other heads in between change the table.
#[test]
fn a_request_that_is_sent_again_says_the_same_each_time() {
    let limits = Limits::INTERNET;
    let (mut client, mut server) = (Side::client(&limits), Side::server(&limits));
    let mut repeated = [Repeated::default(), Repeated::default()];
    let heads = [
        block(&[("X-Kind", "one"), ("Authorization", "Bearer secret")]),
        block(&[("X-Kind", "two"), ("X-Long", &"l".repeat(600))]),
    ];
    let mut lengths = Vec::new();
    for round in 0..40 {
        // Now and then a head that goes into the table, twice so that it does.
        if round % 10 >= 8 {
            ask_with(
                &mut client,
                "GET",
                &block(&[("X-Other", &format!("{}", round / 10))]),
                None,
                true,
            );
            pass(&mut client, &mut server);
        }
        let which = usize::from(round % 5 == 4);
        let request = Request {
            method: Method::new(if which == 0 { "GET" } else { "HEAD" }),
            scheme: "http",
            authority: "localhost",
            path: "/again",
            protocol: None,
        };
        let asked = client.connection.request_again(
            &mut repeated[which],
            &request,
            &heads[which],
            None,
            true,
            &mut client.out,
        );
        let id = asked.expect("a request").id();
        if which == 0 {
            lengths.push(client.out.len());
        }
        let fields = if which == 0 {
            "x-kind=one authorization=Bearer\\x20secret".replace("\\x20", " ")
        } else {
            format!("x-kind=two x-long={}", "l".repeat(600))
        };
        let method = if which == 0 { "GET" } else { "HEAD" };
        let expected = format!("{id} {method} /again localhost None end=true {fields}");
        assert_eq!(texts(&pass(&mut client, &mut server)), [expected]);
    }
    assert_eq!(lengths.iter().min(), lengths.last(), "short in the end");
}

/// Its bodies are told apart as if it had been encoded anew: HEAD has none in its answer.
#[test]
fn what_is_sent_again_is_answered_like_the_first() {
    let limits = Limits::INTERNET;
    let (mut client, mut server) = (Side::client(&limits), Side::server(&limits));
    let mut repeated = Repeated::default();
    for _ in 0..6 {
        let request = Request {
            method: Method::new("HEAD"),
            scheme: "http",
            authority: "localhost",
            path: "/",
            protocol: None,
        };
        let fields = FieldBlock::new();
        let asked =
            client
                .connection
                .request_again(&mut repeated, &request, &fields, None, true, &mut client.out);
        let asked = asked.expect("a request");
        let heard = pass(&mut client, &mut server);
        let stream = heard[0].0.expect("a stream");
        let mut head = server
            .connection
            .respond(stream, 200, &mut server.out)
            .expect("a head");
        head.length(5);
        head.finish(true);
        let heard = pass(&mut server, &mut client);
        let expected = format!("{} 200 None end=true content-length=5", asked.id());
        assert_eq!(texts(&heard), [expected]);
        assert!(client.connection.is_idle());
    }
}

#[test]
fn a_client_knows_when_nothing_more_is_taken() {
    let limits = Limits {
        streams: 7,
        ..Limits::INTERNET
    };
    let (mut client, mut server) = (Side::new(Role::Client, &limits), Side::new(Role::Server, &limits));
    assert_eq!(client.connection.streams_allowed(), None);
    pass(&mut client, &mut server);
    pass(&mut server, &mut client);
    assert_eq!(client.connection.streams_allowed(), Some(7));
    assert!(!client.connection.is_spent());
    server.connection.go_away(&mut server.out);
    pass(&mut server, &mut client);
    assert!(client.connection.is_spent() && !server.connection.is_spent());
}
