//! Event streams: what is written, read back by the algorithm of the standard.

mod reader;

use std::time::Duration;

use reader::{Dispatched, Reader};
use ringmain_wire::sse::{Event, HEARTBEAT, Misuse, comment};

fn written(event: Event<'_>) -> String {
    let mut out = b"before".to_vec();
    event.write(&mut out).expect("an event");
    let text = String::from_utf8(out).expect("UTF-8");
    text.strip_prefix("before").expect("it is appended").to_owned()
}

#[test]
fn an_event_is_its_lines_and_an_empty_one() {
    let table = [
        (Event::new(), "\n"),
        (Event::new().data("a"), "data: a\n\n"),
        (Event::new().data(""), "data: \n\n"),
        (Event::new().data(" a"), "data:  a\n\n"),
        (Event::new().data("a\nb"), "data: a\ndata: b\n\n"),
        (
            Event::new().data("a\r\nb\rc\n\rd"),
            "data: a\ndata: b\ndata: c\ndata: \ndata: d\n\n",
        ),
        (Event::new().data("a\n"), "data: a\ndata: \n\n"),
        (
            Event::new()
                .event("price")
                .id("42")
                .retry(Duration::from_millis(1500))
                .data("7"),
            "event: price\nid: 42\nretry: 1500\ndata: 7\n\n",
        ),
        (Event::new().id(""), "id: \n\n"),
        (Event::new().retry(Duration::ZERO), "retry: 0\n\n"),
        (
            Event::new().retry(Duration::MAX),
            "retry: 18446744073709551615\n\n",
        ),
    ];
    for (event, expected) in table {
        assert_eq!(written(event), expected, "{event:?}");
    }
}

#[test]
fn what_would_be_read_as_something_else_is_refused() {
    let table = [
        (Event::new().event("a\ndata: b"), Misuse::Name),
        (Event::new().event("a\r"), Misuse::Name),
        (Event::new().id("1\n"), Misuse::Id),
        (Event::new().id("\r1"), Misuse::Id),
        (Event::new().id("1\0"), Misuse::Id),
    ];
    for (event, expected) in table {
        let mut out = b"kept".to_vec();
        assert_eq!(event.data("x").write(&mut out), Err(expected), "{event:?}");
        assert_eq!(out, b"kept");
    }
}

#[test]
fn comments_and_heartbeats_are_not_seen_by_readers() {
    let mut out = Vec::new();
    out.extend_from_slice(HEARTBEAT);
    comment(&mut out, "hello\r\ndata: not data\nid: 1");
    comment(&mut out, "");
    assert_eq!(
        String::from_utf8_lossy(&out),
        ":\n\n: hello\n: data: not data\n: id: 1\n\n: \n\n"
    );
    Event::new().data("seen").write(&mut out).expect("an event");
    out.extend_from_slice(HEARTBEAT);
    let mut reader = Reader::new();
    reader.feed(&out);
    assert_eq!(reader.dispatched, [Dispatched::message("seen")]);
    assert_eq!(reader.last_id, "");
}

/// A small generator (xorshift64), so that a failure can be run again by its seed.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }

    fn text(&mut self, alphabet: &[&str]) -> String {
        let length = self.below(8);
        (0..length)
            .map(|_| alphabet[self.below(alphabet.len() as u64) as usize])
            .collect()
    }
}

const DATA: [&str; 10] = ["\r", "\n", "\r\n", " ", ":", "a", "data: ", "é", "\u{feff}", "\0"];
const NAME: [&str; 6] = [" ", ":", "a", "data", "é", "\u{feff}"];

#[test]
fn what_is_written_is_what_is_read() {
    for seed in 1..2000 {
        let mut random = Random(0x9E37_79B9_7F4A_7C15_u64.wrapping_mul(seed));
        let mut out = Vec::new();
        let mut expected = Vec::new();
        let (mut last_id, mut last_retry) = (String::new(), None);
        for _ in 0..4 {
            let (name, id, data) = (random.text(&NAME), random.text(&NAME), random.text(&DATA));
            let mut event = Event::new();
            let mut read_name = "message";
            if random.below(2) == 0 {
                event = event.event(&name);
                read_name = if name.is_empty() { read_name } else { &name };
            }
            if random.below(2) == 0 {
                event = event.id(&id);
                last_id.clone_from(&id);
            }
            if random.below(2) == 0 {
                let millis = random.below(5000);
                event = event.retry(Duration::from_millis(millis));
                last_retry = Some(millis);
            }
            if random.below(4) > 0 {
                event = event.data(&data);
                expected.push(Dispatched {
                    name: read_name.into(),
                    data: data.replace("\r\n", "\n").replace('\r', "\n"),
                    id: last_id.clone(),
                });
            }
            event.write(&mut out).expect("an event");
        }
        for cut in 0..=out.len() {
            let mut reader = Reader::new();
            reader.feed(&out[..cut]);
            reader.feed(&out[cut..]);
            assert_eq!(reader.dispatched, expected, "seed {seed}, cut at {cut}");
            assert_eq!(
                (&reader.last_id, reader.retry),
                (&last_id, last_retry),
                "seed {seed}"
            );
        }
    }
}
