//! What is heard of a server's bytes, however they are cut.

use ringmain_wire::h1::FieldBlock;

use super::*;
use crate::traffic::{Body, Check, FlowDraft, Request as Draft, Sequence, StepDraft, Test};

const NOW: Time = Time(5_000);

/// A client with one connection, and its server.
struct Pair {
    http2: Http2,
    session: Session,
    lanes: Vec<Lane>,
    traffic: Traffic,
    server: Connection,
    heads: HeadBuffer,
    /// What the server has said and the client has not heard.
    said: Vec<u8>,
}

impl Pair {
    /// Behind the settings of both.
    fn new(traffic: Traffic, lanes: usize) -> Pair {
        let limits = Limits::INTERNET;
        let mut said = Vec::new();
        let mut pair = Pair {
            http2: Http2::new(false, None),
            session: Session::default(),
            lanes: (0..lanes).map(|_| Lane::default()).collect(),
            traffic,
            server: Connection::new(Role::Server, &limits, Duration::ZERO, &mut said),
            heads: HeadBuffer::new(&limits),
            said,
        };
        pair.http2.open(&mut pair.session, NOW);
        pair.hear_client();
        let said = std::mem::take(&mut pair.said);
        let (taken, opened) = pair.http2.opened(&mut pair.session, NOW, &said);
        assert!(matches!(opened, Opened::Open { .. }), "{opened:?}");
        // What follows the settings is not looked at before there are requests.
        pair.said.extend_from_slice(&said[taken..]);
        pair
    }

    fn ask(&mut self, flow: u32, lane: u32) {
        let request = InFlight {
            sent: NOW,
            flow,
            lane,
            ..InFlight::default()
        };
        let mut draws = Draws {
            random: &mut fastrand::Rng::with_seed(1),
            sequence: &mut Sequence::new(0, 1),
            scratch: &mut Vec::new(),
        };
        let lane = &self.lanes[lane as usize];
        let written = self
            .http2
            .write(&mut self.session, lane, &self.traffic, request, &mut draws);
        written.expect("a request");
    }

    /// Has the server hear what the client has written; its streams with requests that are whole.
    fn hear_client(&mut self) -> Vec<Stream> {
        let input = std::mem::take(&mut self.http2.out);
        let (mut streams, mut at) = (Vec::new(), 0);
        loop {
            let (rest, heads) = (&input[at..], &mut self.heads);
            let step = self.server.receive(rest, Duration::ZERO, heads, &mut self.said);
            let step = step.expect("it keeps the rules");
            at += step.consumed;
            match step.event {
                Event::NeedMore => return streams,
                Event::Request {
                    stream, end: true, ..
                }
                | Event::Data {
                    stream, end: true, ..
                } => {
                    streams.push(stream);
                }
                _ => {}
            }
        }
    }

    /// What the client hears of bytes that come in two parts.
    fn hear(&mut self, parts: [&[u8]; 2]) -> Vec<String> {
        let (mut kept, mut heard) = (Vec::new(), Vec::new());
        for part in parts {
            kept.extend_from_slice(part);
            loop {
                let (session, lanes) = (&mut self.session, &mut self.lanes);
                let (taken, told) = self.http2.read(session, lanes, &self.traffic, NOW, &kept);
                kept.drain(..taken);
                match told {
                    Heard::More => break,
                    Heard::Retreat(what) => {
                        heard.push(format!("retreat {what}"));
                        while let Some(request) = self.session.take_lost() {
                            heard.push(format!("lost with it {}", request.lane));
                        }
                    }
                    Heard::Answer(request, answer) => heard.push(format!(
                        "lane {}: {} right={} last={}",
                        request.lane, answer.status, answer.right, answer.last
                    )),
                    Heard::Lost(request, what) => heard.push(format!("lane {} lost: {what}", request.lane)),
                    Heard::Unprocessed(request, what) => {
                        heard.push(format!("lane {} unprocessed: {what}", request.lane));
                    }
                    other => heard.push(format!("{other:?}")),
                }
                if kept.is_empty() {
                    break;
                }
            }
        }
        heard
    }
}

fn traffic() -> Traffic {
    let flow = |target: &str, checks: Vec<Check>| {
        let mut request = Draft::get(target, "test");
        request.expect.checks = checks;
        FlowDraft {
            name: "flow".into(),
            weight: 1,
            steps: vec![StepDraft {
                name: String::new(),
                request,
                pause: None,
                captures: Vec::new(),
            }],
        }
    };
    let body = Check::Body(Test::Equals("hello".into()));
    let header = Check::Header {
        name: "X-A".into(),
        test: Test::Equals("1".into()),
    };
    let flows = [
        flow("/plain", vec![]),
        flow("/body", vec![body.clone()]),
        flow("/both", vec![header, body]),
    ];
    Traffic::mix(&flows).expect("flows")
}

/// A conversation with all kinds of ends.
fn conversation() -> (Pair, Vec<u8>) {
    let mut pair = Pair::new(traffic(), 8);
    for (lane, flow) in [0, 1, 2, 0, 1, 0, 0].into_iter().enumerate() {
        pair.ask(flow, lane as u32);
    }
    let streams = pair.hear_client();
    assert_eq!(streams.len(), 7);
    let (server, said) = (&mut pair.server, &mut pair.said);
    let mut fields = FieldBlock::new();
    fields.push("X-A", b"1").expect("a field");
    let begin = |server: &mut Connection, stream: usize, status, said: &mut Vec<u8>| {
        let mut head = server.respond(streams[stream], status, said).expect("a head");
        head.block(&fields);
        head.finish(false);
    };
    begin(server, 2, 200, said);
    begin(server, 1, 103, said);
    begin(server, 1, 200, said);
    server.data(streams[2], b"hel", false, said).expect("data");
    server.data(streams[1], b"hello", true, said).expect("data");
    server.reset(streams[5], ErrorCode::REFUSED_STREAM, said);
    begin(server, 0, 404, said);
    server.data(streams[0], b"", true, said).expect("data");
    server.data(streams[2], b"lo", false, said).expect("data");
    server.trailers(streams[2], &fields, said).expect("trailers");
    begin(server, 4, 200, said);
    server.data(streams[4], b"other", true, said).expect("data");
    // Only up to the sixth stream.
    said.extend_from_slice(&[0, 0, 8, 7, 0, 0, 0, 0, 0, 0, 0, 0, 11, 0, 0, 0, 0]);
    begin(server, 3, 200, said);
    server.data(streams[3], b"the last", true, said).expect("data");
    let said = std::mem::take(&mut pair.said);
    (pair, said)
}

#[test]
fn a_conversation_is_heard_the_same_however_it_is_cut() {
    let (mut pair, said) = conversation();
    let whole = pair.hear([&said, b""]);
    assert_eq!(
        whole,
        [
            "lane 1: 200 right=true last=false",
            "lane 5 unprocessed: RST_STREAM: REFUSED_STREAM",
            "lane 0: 404 right=false last=false",
            "lane 2: 200 right=true last=false",
            "lane 4: 200 right=false last=false",
            "retreat GOAWAY: NO_ERROR",
            "lost with it 6",
            "lane 3: 200 right=true last=true",
        ]
    );
    assert_eq!(pair.session.under_way(), 0);
    for cut in 0..said.len() {
        let (mut pair, said) = conversation();
        let (first, second) = said.split_at(cut);
        assert_eq!(pair.hear([first, second]), whole, "cut at {cut}");
    }
}

/// As much leaves as there is room for, in turn, and the rest when windows open.
#[test]
fn bodies_take_turns() {
    let mut request = Draft::get("/", "test");
    request.method = "POST".into();
    request.body = Body::Bytes(vec![b'u'; 100_000].into());
    let mut pair = Pair::new(Traffic::single(request).expect("a request"), 3);
    for lane in 0..3 {
        pair.ask(0, lane);
    }
    let heads = pair.http2.out.len();
    assert!(heads < 1_000, "no body leaves with its head");
    pair.http2.send_bodies(&mut pair.session, heads + 40_000);
    let sent = pair.http2.out.len() - heads;
    assert!((40_000..40_000 + 2 * FRAME_BYTES).contains(&sent), "{sent}");
    // The connection's window is the least of all: no more than that leaves.
    pair.http2.send_bodies(&mut pair.session, usize::MAX);
    let mut whole = pair.hear_client().len();
    for _ in 0..20 {
        let said = std::mem::take(&mut pair.said);
        assert_eq!(pair.hear([&said, b""]), [""; 0]);
        pair.http2.send_bodies(&mut pair.session, usize::MAX);
        whole += pair.hear_client().len();
    }
    assert_eq!(whole, 3);
}

#[test]
fn what_is_late_is_given_up_alone() {
    let mut pair = Pair::new(traffic(), 2);
    pair.ask(0, 0);
    assert_eq!(pair.session.oldest(), Some(NOW));
    pair.http2.give_up(&mut pair.session, Time(NOW.0 - 1));
    assert_eq!(pair.session.under_way(), 1);
    pair.http2.give_up(&mut pair.session, NOW);
    assert_eq!(pair.session.take_lost().map(|request| request.lane), Some(0));
    assert_eq!((pair.session.under_way(), pair.session.oldest()), (0, None));
    assert!(pair.session.may_ask() && !pair.session.is_over());
}

#[test]
fn requests_are_tried_before_any_is_sent() {
    assert_eq!(Http2::check(&traffic()), Ok(()));
}
