//! Nothing is allocated per message once buffers are warm, and a connection without a message under way holds no
//! memory of its own: counted by the allocator.

use ringmain_wire::ws::{
    Close, CloseCode, Decoder, Deflater, Deflation, Encoder, Event, Inflater, Limits, Mask, Message, Role,
    Window, encode_shared,
};
use stats_alloc::Region;

use crate::ALLOCATOR;

const ROUNDS: usize = 1000;

/// What a worker keeps.
struct Warm {
    out: Vec<u8>,
    input: Vec<u8>,
    inflater: Inflater,
    deflater: Deflater,
    message: Vec<u8>,
    bomb: Vec<u8>,
}

pub(crate) fn main() {
    let mut warm = Warm {
        out: Vec::new(),
        input: Vec::new(),
        inflater: Inflater::new(4096),
        deflater: Deflater::new(Window::MAX, 6),
        message: b"a message that repeats itself; ".repeat(1000),
        bomb: Vec::new(),
    };
    let zeroes = vec![0; 10_000_000];
    encode_shared(&mut warm.bomb, Message::Binary(&zeroes), Some(&mut warm.deflater));
    drop(zeroes);
    check(&mut warm, "plain messages", |warm| exchange(warm, None));
    check(&mut warm, "deflated messages", |warm| {
        exchange(warm, Some(Deflation::SHARED))
    });
    check(&mut warm, "messages in pieces", pieces);
    check(&mut warm, "bombs", bomb);
    contexts();
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

/// A connection from its first message to its Close.
fn exchange(warm: &mut Warm, deflation: Option<Deflation>) {
    let mut client = Encoder::new(Role::Client, deflation, 1000);
    let mut decoder = Decoder::new(Role::Server, &Limits::default(), deflation);
    let mut key = || [1, 2, 3, 4];
    let message = Message::Binary(&warm.message);
    warm.input.clear();
    let sent = match deflation {
        None => client.message(&mut warm.input, message, Mask::Keys(&mut key)),
        Some(_) => client.deflated(&mut warm.input, message, &mut warm.deflater, Mask::Keys(&mut key)),
    };
    sent.expect("open");
    client
        .message(&mut warm.input, Message::Text("grüße"), Mask::Keys(&mut key))
        .expect("open");
    client
        .ping(&mut warm.input, b"p", Mask::Keys(&mut key))
        .expect("open");
    let close = Some(Close {
        code: CloseCode::NORMAL,
        reason: "done",
    });
    client
        .close(&mut warm.input, close, Mask::Keys(&mut key))
        .expect("open");
    let mut server = Encoder::new(Role::Server, deflation, usize::MAX);
    warm.out.clear();
    let (mut at, mut bytes) = (0, 0);
    loop {
        let step = decoder
            .decode(&mut warm.input[at..], Some(&mut warm.inflater))
            .expect("valid");
        at += step.consumed;
        match step.event {
            Event::Piece(piece) => {
                bytes += piece.data.len();
                server
                    .message(&mut warm.out, Message::Binary(piece.data), Mask::None)
                    .expect("open");
            }
            Event::Ping(data) => server.pong(&mut warm.out, data, Mask::None).expect("open"),
            Event::Close(close) => server.close(&mut warm.out, close, Mask::None).expect("open"),
            Event::NeedMore => break,
            Event::NeedInflater | Event::Pong(_) => panic!("{step:?}"),
        }
    }
    assert_eq!(bytes, warm.message.len() + "grüße".len());
    assert!(decoder.is_closed() && at == warm.input.len());
    encode_shared(&mut warm.out, Message::Text("to all"), Some(&mut warm.deflater));
}

fn pieces(warm: &mut Warm) {
    warm.input.clear();
    encode_shared(
        &mut warm.input,
        Message::Binary(&warm.message),
        Some(&mut warm.deflater),
    );
    encode_shared(&mut warm.input, Message::Text("a€b"), None);
    let mut decoder = Decoder::new(Role::Client, &Limits::default(), Some(Deflation::SHARED));
    let (mut at, mut end, mut bytes) = (0, 0, 0);
    while at < warm.input.len() {
        end = (end + 3).min(warm.input.len());
        loop {
            let step = decoder
                .decode(&mut warm.input[at..end], Some(&mut warm.inflater))
                .expect("valid");
            at += step.consumed;
            match step.event {
                Event::Piece(piece) => bytes += piece.data.len(),
                Event::NeedMore => break,
                other => panic!("{other:?}"),
            }
        }
    }
    assert_eq!(bytes, warm.message.len() + "a€b".len());
}

fn bomb(warm: &mut Warm) {
    warm.input.clear();
    warm.input.extend_from_slice(&warm.bomb);
    let limits = Limits {
        message_bytes: 100_000,
        ..Limits::default()
    };
    let mut decoder = Decoder::new(Role::Client, &limits, Some(Deflation::SHARED));
    let mut at = 0;
    while let Ok(step) = decoder.decode(&mut warm.input[at..], Some(&mut warm.inflater)) {
        assert!(!matches!(step.event, Event::NeedMore), "it ends in a fault");
        at += step.consumed;
    }
}

/// Contexts are as large as they say.
fn contexts() {
    let bytes = |make: fn()| {
        let region = Region::new(ALLOCATOR);
        make();
        region.change().bytes_allocated
    };
    let inflater = bytes(|| drop(Inflater::new(4096)));
    assert!(inflater <= 52 * 1024 + 4096, "an inflater of {inflater} bytes");
    for (window, most) in [(Window::MAX, 372 * 1024), (Window::MIN, 136 * 1024)] {
        let region = Region::new(ALLOCATOR);
        let deflater = Deflater::new(window, 6);
        let found = region.change().bytes_allocated;
        assert!(found <= most, "{deflater:?} of {found} bytes");
    }
}
