//! Questions as servers read them, answers as they write them, and what forgers and broken servers send.

use std::net::IpAddr;

use super::{Answer, AnswerFault, BadName, Kind, Outcome, Question, parse};

const QUESTION: Question<'static> = Question {
    id: 0x1234,
    name: "www.shop.example",
    kind: Kind::V4,
};

#[test]
fn a_question() {
    let mut out = b"before".to_vec();
    QUESTION.write(&mut out).expect("a name");
    assert_eq!(
        out.escape_ascii().to_string(),
        "before\\x124\\x01\\x00\\x00\\x01\\x00\\x00\\x00\\x00\\x00\\x01\\x03www\\x04shop\\x07example\\x00\\x00\\x01\\x00\\x01\
         \\x00\\x00)\\x04\\xd0\\x00\\x00\\x00\\x00\\x00\\x00"
    );
    let long = vec!["a".repeat(63); 4].join(".");
    for name in ["", ".", "a..b", &"x".repeat(64), &long] {
        let mut out = Vec::new();
        assert_eq!(
            Question { name, ..QUESTION }.write(&mut out),
            Err(BadName),
            "{name}"
        );
        assert!(out.is_empty());
    }
}

/// A message: flags, and records of the answer and authority sections.
struct Message(Vec<u8>);

impl Message {
    fn new(flags: u16, answers: u16, authorities: u16) -> Message {
        let mut out = vec![0x12, 0x34];
        out.extend_from_slice(&flags.to_be_bytes());
        for count in [1, answers, authorities, 0] {
            out.extend_from_slice(&count.to_be_bytes());
        }
        out.extend_from_slice(b"\x03WWW\x04shop\x07example\0\0\x01\0\x01");
        Message(out)
    }

    fn record(mut self, name: &[u8], kind: u16, ttl: u32, data: &[u8]) -> Message {
        self.0.extend_from_slice(name);
        self.0.extend_from_slice(&kind.to_be_bytes());
        self.0.extend_from_slice(&1_u16.to_be_bytes());
        self.0.extend_from_slice(&ttl.to_be_bytes());
        self.0.extend_from_slice(&(data.len() as u16).to_be_bytes());
        self.0.extend_from_slice(data);
        self
    }

    #[track_caller]
    fn check(&self, expected: Result<(Outcome, u32), AnswerFault>) {
        let expected = expected.map(|(outcome, ttl)| Answer { outcome, ttl });
        assert_eq!(parse(&self.0, &QUESTION), expected);
        // However it is cut, it is no answer.
        for length in 0..self.0.len() {
            assert!(parse(&self.0[..length], &QUESTION).is_err(), "cut at {length}");
        }
    }
}

/// The name asked for, by pointer.
const ASKED: &[u8] = b"\xc0\x0c";

fn addresses(all: &[[u8; 4]]) -> Outcome {
    Outcome::Addresses(all.iter().map(|address| IpAddr::from(*address)).collect())
}

#[test]
fn answers() {
    let two = Message::new(0x8180, 2, 0)
        .record(ASKED, 1, 300, &[192, 0, 2, 1])
        .record(b"\x03www\x04SHOP\x07example\0", 1, 60, &[192, 0, 2, 2]);
    two.check(Ok((addresses(&[[192, 0, 2, 1], [192, 0, 2, 2]]), 60)));
    let alias = Message::new(0x8180, 3, 0)
        .record(ASKED, 5, 30, b"\x03cdn\xc0\x10")
        .record(b"\x05other\0", 1, 5, &[10, 0, 0, 1])
        .record(b"\x03cdn\x04shop\x07example\0", 1, 300, &[192, 0, 2, 1]);
    alias.check(Ok((addresses(&[[192, 0, 2, 1]]), 30)));
    let soa = b"\0\0\0\0\0\x01\0\0\0\x02\0\0\0\x03\0\0\0\x04\0\0\0\x0a";
    Message::new(0x8183, 0, 1)
        .record(b"\0", 6, 900, soa)
        .check(Ok((Outcome::NotFound, 10)));
    Message::new(0x8180, 0, 1)
        .record(b"\0", 6, 5, soa)
        .check(Ok((Outcome::Empty, 5)));
    Message::new(0x8180, 0, 0).check(Ok((Outcome::Empty, 0)));
    Message::new(0x8180, 1, 0)
        .record(ASKED, 1, u32::MAX, &[1, 2, 3, 4])
        .check(Ok((addresses(&[[1, 2, 3, 4]]), 0)));
}

#[test]
fn answers_that_are_none() {
    Message::new(0x0100, 0, 0).check(Err(AnswerFault::Other));
    Message::new(0x8380, 0, 0).check(Err(AnswerFault::Truncated));
    Message::new(0x8182, 0, 0).check(Err(AnswerFault::Refused(2)));
    Message::new(0x8180, 1, 0).check(Err(AnswerFault::Form));
    Message::new(0x8180, 1, 0)
        .record(ASKED, 1, 1, &[1, 2, 3])
        .check(Err(AnswerFault::Form));
    // A pointer to itself, one to the front of the message and one beyond it.
    for name in [&b"\xc0\x22"[..], b"\xc0\xff", b"\x40", b"\x80"] {
        Message::new(0x8180, 1, 0)
            .record(name, 1, 1, &[1, 2, 3, 4])
            .check(Err(AnswerFault::Form));
    }
    // Aliases in a circle.
    Message::new(0x8180, 1, 0)
        .record(ASKED, 5, 1, ASKED)
        .check(Err(AnswerFault::Form));
    let message = Message::new(0x8180, 0, 0);
    let other = |question: Question<'_>| assert_eq!(parse(&message.0, &question), Err(AnswerFault::Other));
    other(Question { id: 7, ..QUESTION });
    other(Question {
        name: "shop.example",
        ..QUESTION
    });
    other(Question {
        name: "www.shop.example.com",
        ..QUESTION
    });
    other(Question {
        kind: Kind::V6,
        ..QUESTION
    });
}

#[test]
fn no_message_panics() {
    let good = Message::new(0x8180, 2, 1)
        .record(ASKED, 5, 30, b"\x03cdn\xc0\x10")
        .record(b"\x03cdn\x04shop\x07example\0", 1, 300, &[192, 0, 2, 1])
        .record(b"\0", 6, 900, &[0; 22]);
    let mut random = fastrand::Rng::with_seed(3);
    for _ in 0..200_000 {
        let mut bytes = good.0.clone();
        for _ in 0..random.usize(1..6) {
            let at = random.usize(..bytes.len());
            bytes[at] = random.u8(..);
        }
        let _ = parse(&bytes, &QUESTION);
    }
}
