//! What a client hears of a server's bytes, cut at every place; what it says, as a server reads it.

use ringmain_wire::ws::{Window, encode_shared};

use super::*;
use crate::traffic::{Body, Request, Sequence, Traffic};

/// A client with what is drawn from.
struct Bench {
    websocket: WebSocket,
    reading: Reading,
    traffic: Traffic,
    random: fastrand::Rng,
    sequence: Sequence,
    scratch: Vec<u8>,
}

const CONNECTION: u64 = 5;

fn traffic(body: Body, deflate: bool) -> Traffic {
    let request = Request {
        body,
        ..Request::get("/", "test")
    };
    Traffic::messages(request, 20, deflate).expect("messages")
}

impl Bench {
    /// A client whose connection stands.
    fn new(traffic: Traffic, deflation: Option<Deflation>) -> Bench {
        Bench {
            websocket: WebSocket::new(20),
            reading: Reading {
                frames: Some(Frames::new(deflation)),
                ..Reading::default()
            },
            traffic,
            random: fastrand::Rng::with_seed(7),
            sequence: Sequence::new(0, 1),
            scratch: Vec::new(),
        }
    }

    /// Message `number` as it leaves.
    fn write(&mut self, number: u64) -> Vec<u8> {
        let mut draws = Draws {
            random: &mut self.random,
            sequence: &mut self.sequence,
            scratch: &mut self.scratch,
        };
        let socket = self.traffic.socket().expect("messages");
        self.websocket
            .write(&mut self.reading, socket, CONNECTION, number, &mut draws);
        self.scratch.clone()
    }

    /// What comes of the pieces; `asked` messages, from 0 on, are on their way.
    fn hear(&mut self, pieces: &[&[u8]], asked: usize) -> Vec<(Told, Vec<u8>)> {
        let (mut all, mut kept, mut oldest) = (Vec::new(), Vec::new(), 0);
        for piece in pieces {
            kept.extend_from_slice(piece);
            loop {
                let mut draws = Draws {
                    random: &mut self.random,
                    sequence: &mut self.sequence,
                    scratch: &mut self.scratch,
                };
                let socket = self.traffic.socket().expect("messages");
                let awaited = Awaited {
                    connection: CONNECTION,
                    oldest: oldest as u64,
                    asked: asked - oldest,
                };
                let (websocket, reading) = (&mut self.websocket, &mut self.reading);
                let (taken, heard) = websocket.read(reading, socket, awaited, &mut kept, &mut draws);
                kept.drain(..taken);
                match heard {
                    Told::More => break,
                    Told::Answer(_) => {
                        oldest += 1;
                        all.push((heard, Vec::new()));
                    }
                    Told::Said => all.push((heard, self.scratch.clone())),
                    Told::Broken(_) | Told::Closing(_) => {
                        all.push((heard, self.scratch.clone()));
                        return all;
                    }
                }
                if kept.is_empty() {
                    break;
                }
            }
        }
        all
    }
}

/// What a server reads of a client's frames: messages, and control frames by name.
fn read(bytes: &[u8], deflation: Option<Deflation>) -> Vec<(String, Vec<u8>)> {
    let mut bytes = bytes.to_vec();
    let mut decoder = Decoder::new(Role::Server, &Limits::INTERNET, deflation);
    let mut inflater = Inflater::new(7);
    let (mut all, mut message, mut at) = (Vec::new(), Vec::new(), 0);
    loop {
        let Step { event, consumed } = decoder
            .decode(&mut bytes[at..], Some(&mut inflater))
            .expect("frames");
        at += consumed;
        match event {
            Event::NeedMore => return all,
            Event::Piece(piece) => {
                message.extend_from_slice(piece.data);
                if piece.last {
                    all.push((format!("{:?}", piece.kind), std::mem::take(&mut message)));
                }
            }
            Event::Pong(data) => all.push(("pong".into(), data.to_vec())),
            Event::Close(close) => {
                let code = close.map(|close| close.code.number().to_string());
                all.push(("close".into(), code.unwrap_or_default().into_bytes()));
            }
            other => panic!("{other:?}"),
        }
    }
}

/// A server's bytes: of an answer to each message, something between, and a Close.
fn answers(messages: &[(String, Vec<u8>)], deflated: bool) -> Vec<u8> {
    let mut out = Vec::new();
    let mut deflater = Deflater::new(Window::MAX, 6);
    let mut encoder = Encoder::new(Role::Server, None, usize::MAX);
    for (number, (kind, data)) in messages.iter().enumerate() {
        let message = match kind.as_str() {
            "Text" => Message::Text(str::from_utf8(data).expect("a text")),
            _ => Message::Binary(data),
        };
        match number % 3 {
            0 => encode_shared(&mut out, message, deflated.then_some(&mut deflater)),
            1 => encoder.message(&mut out, message, Mask::None).expect("open"),
            _ => {
                let empty = match message {
                    Message::Text(_) => Message::Text(""),
                    Message::Binary(_) => Message::Binary(b""),
                };
                encoder
                    .fragment(&mut out, empty, false, Mask::None)
                    .expect("open");
                encoder.ping(&mut out, b"here", Mask::None).expect("open");
                encoder
                    .fragment(&mut out, message, true, Mask::None)
                    .expect("open");
            }
        }
    }
    let close = Close {
        code: CloseCode::GOING_AWAY,
        reason: "bye",
    };
    encoder.close(&mut out, Some(close), Mask::None).expect("open");
    out
}

#[test]
fn what_is_heard_does_not_depend_on_the_cut() {
    let bodies = [
        Body::None,
        Body::Text("händler".into()),
        Body::Text("{{seq}} is {{random-hex:30}}".into()),
        Body::Bytes(vec![0xfe; 25].into()),
    ];
    for (body, deflated) in bodies
        .into_iter()
        .flat_map(|body| [(body.clone(), false), (body, true)])
    {
        let deflation = deflated.then_some(Deflation::SHARED);
        let bench = || {
            let mut bench = Bench::new(traffic(body.clone(), deflated), deflation);
            let sent: Vec<u8> = (0..4).flat_map(|number| bench.write(number)).collect();
            (bench, read(&sent, deflation))
        };
        let (mut whole, sent) = bench();
        assert_eq!(sent.len(), 4);
        let bytes = answers(&sent, deflated);
        let heard = whole.hear(&[&bytes], 4);
        let kinds: Vec<Told> = heard.iter().map(|(heard, _)| *heard).collect();
        let right = Told::Answer(Answer {
            status: 0,
            right: true,
            last: false,
            code: None,
        });
        let close = Told::Closing("closed by a Close frame");
        assert_eq!(kinds, [right, right, Told::Said, right, right, close]);
        assert_eq!(read(&heard[2].1, None), [("pong".into(), b"here".to_vec())]);
        assert_eq!(read(&heard[5].1, None), [("close".into(), b"1001".to_vec())]);
        for cut in 1..bytes.len() {
            let (first, second) = bytes.split_at(cut);
            assert_eq!(bench().0.hear(&[first, second], 4), heard, "cut at {cut}");
        }
        let single: Vec<&[u8]> = bytes.chunks(1).collect();
        assert_eq!(bench().0.hear(&single, 4), heard);
    }
}

#[test]
fn each_frame_has_a_key_of_its_own() {
    let mut bench = Bench::new(traffic(Body::Text("same".into()), false), None);
    let frames: Vec<Vec<u8>> = (0..100).map(|number| bench.write(number)).collect();
    for (index, frame) in frames.iter().enumerate() {
        assert_eq!(frame[1], 0x80 | 4);
        assert_ne!(frame[2..6], [0; 4]);
        assert!(!frames[..index].contains(frame), "a key came twice");
    }
}

#[test]
fn any_change_is_found() {
    let mut bench = Bench::new(traffic(Body::Text("{{random-hex:20}}".into()), false), None);
    let sent = read(&bench.write(0), None);
    let right = &sent[0].1;
    let mut spoilt = vec![right[1..].to_vec(), [right, &b"x"[..]].concat(), Vec::new()];
    for at in 0..right.len() {
        let mut one = right.clone();
        one[at] ^= 1;
        spoilt.push(one);
    }
    for data in spoilt {
        let mut bench = Bench::new(traffic(Body::Text("{{random-hex:20}}".into()), false), None);
        let sent = [bench.write(0), bench.write(1)].concat();
        let second = read(&sent, None).remove(1);
        let bytes = answers(&[("Text".into(), data), second], false);
        let heard: Vec<Told> = bench
            .hear(&[&bytes], 2)
            .into_iter()
            .map(|(heard, _)| heard)
            .collect();
        let answer = |right| {
            Told::Answer(Answer {
                status: 0,
                right,
                last: false,
                code: None,
            })
        };
        assert_eq!(heard[..2], [answer(false), answer(true)]);
    }
}

/// What frames cost is counted in `wire`: here nothing grows once it is warm.
#[test]
fn buffers_stay_as_they_are() {
    for deflated in [false, true] {
        let deflation = deflated.then_some(Deflation::SHARED);
        let mut bench = Bench::new(
            traffic(Body::Text("{{seq}} {{random-hex:300}}".into()), deflated),
            deflation,
        );
        let mut first = None;
        for round in 0..1_000 {
            for number in 0..3 {
                let sent = bench.write(number);
                let message = read(&sent, deflation);
                let mut answer = answers(&message, deflated);
                // Without the Close.
                answer.truncate(answer.len() - 7);
                let heard = bench.hear(&[&answer], 1);
                assert!(matches!(
                    heard[..],
                    [(Told::Answer(Answer { right: true, .. }), _)]
                ));
            }
            let now = (
                [bench.scratch.capacity(), bench.websocket.message.capacity()],
                [bench.reading.sent.capacity(), bench.reading.lengths.capacity()],
                [bench.websocket.deflaters.len(), bench.websocket.inflaters.len()],
            );
            // Numbers grow a digit, and what is random deflates better or worse.
            if round == 200 {
                first = Some(now);
            }
            assert!(first.is_none_or(|first| first == now), "{first:?}, {now:?}");
        }
    }
}

#[test]
fn random_bytes_are_no_panic() {
    let seed = ringmain_sys::clock::random();
    println!("seed {seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    for _ in 0..2_000 {
        let mut bench = Bench::new(traffic(Body::None, true), Some(Deflation::SHARED));
        bench.write(0);
        let mut bytes = vec![0; random.usize(..60)];
        random.fill(&mut bytes);
        if let Some(first) = bytes.first_mut() {
            *first &= 0xCF;
        }
        bench.hear(&[&bytes], 1);
        let (_, opened) = bench.websocket.opened(
            &mut Reading::default(),
            bench.traffic.socket().expect("messages"),
            &bytes,
        );
        assert!(!matches!(opened, Opened::Open { .. }));
    }
}
