//! Nothing is allocated per message once buffers are warm, and a bomb makes no more memory than its limit: counted by the
//! allocator.

use ringmain_wire::grpc::{
    Decoder, Deflater, Encoding, Event, Inflater, Limits, Slot, TextDecoder, encode_text,
};
use stats_alloc::Region;

use crate::ALLOCATOR;

const ROUNDS: usize = 1000;

/// What a worker keeps.
struct Warm {
    body: Vec<u8>,
    text: Vec<u8>,
    plain: Vec<u8>,
    message: Vec<u8>,
    inflater: Inflater,
    deflater: Deflater,
}

pub(crate) fn main() {
    let mut warm = Warm {
        body: Vec::new(),
        text: Vec::new(),
        plain: Vec::new(),
        message: Vec::new(),
        inflater: Inflater::new(),
        deflater: Deflater::new(2),
    };
    check(&mut warm, "messages", messages);
    check(&mut warm, "messages as text", text);
    check(&mut warm, "deflated messages", deflated);
    bombs(&mut warm);
}

fn check(warm: &mut Warm, what: &str, run: fn(&mut Warm)) {
    run(warm);
    let region = Region::new(ALLOCATOR);
    for _ in 0..ROUNDS {
        run(warm);
    }
    let change = region.change();
    let counts = (change.allocations, change.reallocations);
    assert_eq!(counts, (0, 0), "{what}: {ROUNDS} rounds allocated: {change:?}");
}

fn write(body: &mut Vec<u8>) {
    body.clear();
    for length in [0, 10, 1000] {
        let slot = Slot::open(body);
        body.resize(body.len() + length, 7);
        slot.close(body, false).expect("short");
    }
}

fn read(body: &[u8], message: &mut Vec<u8>) {
    let mut decoder = Decoder::new(&Limits::INTERNET);
    message.clear();
    for piece in body.chunks(100) {
        let mut rest = piece;
        loop {
            let step = decoder.decode(rest).expect("as it was written");
            rest = &rest[step.consumed..];
            match step.event {
                Event::Data(data) => message.extend_from_slice(data),
                Event::NeedMore => break,
                Event::Begin { .. } | Event::End => {}
            }
        }
    }
    assert_eq!(message.len(), 1010);
}

fn messages(warm: &mut Warm) {
    write(&mut warm.body);
    read(&warm.body, &mut warm.message);
}

fn text(warm: &mut Warm) {
    write(&mut warm.body);
    warm.text.clear();
    encode_text(&mut warm.text, &warm.body);
    warm.plain.clear();
    let mut decoder = TextDecoder::new();
    for piece in warm.text.chunks(99) {
        decoder.decode(piece, &mut warm.plain).expect("as it was written");
    }
    read(&warm.plain, &mut warm.message);
}

fn deflated(warm: &mut Warm) {
    write(&mut warm.body);
    warm.text.clear();
    warm.deflater
        .deflate(Encoding::Deflate, &warm.body, &mut warm.text);
    warm.plain.clear();
    let done = warm
        .inflater
        .inflate(Encoding::Deflate, &warm.text, 10_000, &mut warm.plain);
    done.expect("as it was written");
    assert_eq!(warm.plain, warm.body);
}

/// Ten megabytes of zeroes against a limit of 100 KB.
fn bombs(warm: &mut Warm) {
    let zeroes = vec![0; 10_000_000];
    for encoding in [Encoding::Gzip, Encoding::Deflate] {
        let mut bomb = Vec::new();
        warm.deflater.deflate(encoding, &zeroes, &mut bomb);
        assert!(bomb.len() < 20_000);
        let mut out = Vec::new();
        let mut inflater = Inflater::new();
        let region = Region::new(ALLOCATOR);
        let outcome = inflater.inflate(encoding, &bomb, 100_000, &mut out);
        let change = region.change();
        assert!(outcome.is_err() && out.is_empty());
        // The buffer in its largest form, and the stream's window and tables.
        let most = 100_000 * 2 + 64 * 1024;
        let held = change.bytes_allocated - change.bytes_deallocated;
        assert!(held <= most, "{encoding:?}: {held} bytes held of {change:?}");
        assert!(change.bytes_allocated <= 2 * most, "{encoding:?}: {change:?}");
    }
}
