//! Nothing is allocated per request once a connection is warm, and an idle one holds little: counted by the allocator.

use std::time::Duration;

use ringmain_wire::h1::{FieldBlock, Method};
use ringmain_wire::h2::{Connection, Event, HeadBuffer, Limits, Request, Role};
use stats_alloc::Region;

use crate::ALLOCATOR;

const ROUNDS: usize = 1000;

/// Streams at once in a round.
const STREAMS: usize = 8;

/// Both sides of a connection, with all that they use.
struct Pair {
    client: Connection,
    server: Connection,
    client_heads: HeadBuffer,
    server_heads: HeadBuffer,
    asked: FieldBlock,
    answered: FieldBlock,
    to_server: Vec<u8>,
    to_client: Vec<u8>,
    answers: usize,
}

const NOW: Duration = Duration::ZERO;

fn pair() -> Pair {
    let limits = Limits::INTERNET;
    let (mut to_server, mut to_client) = (Vec::new(), Vec::new());
    let mut asked = FieldBlock::new();
    asked.push("User-Agent", b"a client").expect("a field");
    let mut answered = FieldBlock::new();
    answered.push("Server", b"ringmain").expect("a field");
    answered
        .push("Content-Type", b"application/json")
        .expect("a field");
    Pair {
        client: Connection::new(Role::Client, &limits, NOW, &mut to_server),
        server: Connection::new(Role::Server, &limits, NOW, &mut to_client),
        client_heads: HeadBuffer::new(&limits),
        server_heads: HeadBuffer::new(&limits),
        asked,
        answered,
        to_server,
        to_client,
        answers: 0,
    }
}

/// Some requests at once, answered with a body.
fn round(pair: &mut Pair) {
    let request = Request {
        method: Method::Get,
        scheme: "http",
        authority: "localhost",
        path: "/json",
        protocol: None,
    };
    for _ in 0..STREAMS {
        let sent = pair
            .client
            .request(&request, &pair.asked, None, true, &mut pair.to_server);
        sent.expect("a stream is free");
    }
    serve(pair);
    listen(pair);
}

fn serve(pair: &mut Pair) {
    let mut at = 0;
    loop {
        let input = &pair.to_server[at..];
        let step = pair
            .server
            .receive(input, NOW, &mut pair.server_heads, &mut pair.to_client)
            .expect("no fault");
        at += step.consumed;
        match step.event {
            Event::NeedMore => break,
            Event::Request { stream, head, .. } => {
                assert_eq!(head.target_text, "/json");
                let mut head = pair
                    .server
                    .respond(stream, 200, &mut pair.to_client)
                    .expect("a head");
                head.known_block(1, &pair.answered);
                head.length(27);
                head.finish(false);
                let sent = pair.server.data(stream, &[b'x'; 27], true, &mut pair.to_client);
                assert_eq!(sent, Ok(27));
            }
            _ => {}
        }
    }
    pair.to_server.clear();
}

fn listen(pair: &mut Pair) {
    let mut at = 0;
    loop {
        let input = &pair.to_client[at..];
        let step = pair
            .client
            .receive(input, NOW, &mut pair.client_heads, &mut pair.to_server)
            .expect("no fault");
        at += step.consumed;
        match step.event {
            Event::NeedMore => break,
            Event::Data { stream, data, end } => {
                let bytes = data.len();
                pair.client.consume(stream, bytes, &mut pair.to_server);
                pair.answers += usize::from(end);
            }
            _ => {}
        }
    }
    pair.to_client.clear();
}

pub(crate) fn main() {
    let mut pair = pair();
    for _ in 0..10 {
        round(&mut pair);
    }
    pair.answers = 0;
    let region = Region::new(ALLOCATOR);
    for _ in 0..ROUNDS {
        round(&mut pair);
    }
    let change = region.change();
    let counts = (change.allocations, change.reallocations);
    assert_eq!(pair.answers, ROUNDS * STREAMS);
    assert_eq!(counts, (0, 0), "{ROUNDS} rounds allocated: {change:?}");
    assert!(pair.server.is_idle());
    let held = size_of::<Connection>() + pair.server.memory();
    assert!(held < 4 * 1024, "an idle connection holds {held} bytes");
}
