//! No allocation per message once buffers are warm: counted by the allocator.

use ringmain_wire::h1::{
    BodyDecoder, BodyEvent, FieldBlock, FieldTable, Framing, HeadScanner, Known, Limits, Method, Parsed,
    RequestEncoder, ResponseEncoder, parse_request, parse_response,
};
use stats_alloc::Region;

use crate::ALLOCATOR;

const MESSAGES: usize = 1000;

/// What a connection and its worker keep.
struct Warm {
    limits: Limits,
    scanner: HeadScanner,
    table: FieldTable,
    block: FieldBlock,
    out: Vec<u8>,
}

pub(crate) fn main() {
    let limits = Limits::default();
    let mut warm = Warm {
        limits,
        scanner: HeadScanner::new(),
        table: FieldTable::new(&limits),
        block: FieldBlock::new(),
        out: Vec::new(),
    };
    warm.block.push("Server", b"ringmain").expect("a field");
    check(&mut warm, "requests and their answers", serve);
    check(&mut warm, "a request in pieces", serve_pieces);
    check(&mut warm, "requests out and their answers in", request);
    check(&mut warm, "refused requests", refuse);
}

fn check(warm: &mut Warm, what: &str, run: fn(&mut Warm)) {
    run(warm);
    let region = Region::new(ALLOCATOR);
    for _ in 0..MESSAGES {
        run(warm);
    }
    let change = region.change();
    let counts = (change.allocations, change.reallocations);
    assert_eq!(
        counts,
        (0, 0),
        "{what}: {MESSAGES} messages allocated: {change:?}"
    );
}

fn decode(framing: Framing, limits: &Limits, mut input: &[u8]) -> usize {
    let mut body = BodyDecoder::new(framing, limits).expect("within limits");
    let mut bytes = 0;
    while !body.is_over() {
        let step = body.decode(input).expect("valid");
        input = &input[step.consumed..];
        match step.event {
            BodyEvent::Data(data) => bytes += data.len(),
            BodyEvent::Trailers(trailers) => bytes += trailers.iter().count(),
            BodyEvent::NeedMore | BodyEvent::End => {}
        }
    }
    bytes
}

const POST: &[u8] = b"POST /a?b HTTP/1.1\r\nHost: a\r\nX-Other: 1\r\nX-Other: 2\r\nCookie: c\r\nTransfer-Encoding: chunked\r\n\r\n\
    5;e\r\nhello\r\n0\r\nSum: 1\r\n\r\n";

fn serve(warm: &mut Warm) {
    let parsed = parse_request(POST, &warm.limits, &mut warm.scanner, &mut warm.table).expect("valid");
    let Parsed::Complete { head, bytes } = parsed else {
        panic!("the head is whole")
    };
    assert!(head.fields.known(Known::Cookie).is_some() && head.fields.all("x-other").count() == 2);
    assert_eq!(decode(head.framing, &warm.limits, &POST[bytes..]), 6);
    answer(warm);
}

fn serve_pieces(warm: &mut Warm) {
    for length in (1..POST.len()).step_by(7) {
        let parsed =
            parse_request(&POST[..length], &warm.limits, &mut warm.scanner, &mut warm.table).expect("valid");
        if let Parsed::Complete { .. } = parsed {
            return;
        }
    }
    panic!("the head is whole");
}

fn answer(warm: &mut Warm) {
    warm.out.clear();
    let exchange = ringmain_wire::h1::Exchange::REFUSED;
    let mut head = ResponseEncoder::new(&mut warm.out, 200, exchange).expect("a status");
    head.block(&warm.block);
    head.field("Content-Type", b"text/plain").expect("a field");
    let mut body = head.finish(Framing::Chunked).expect("a head");
    body.data(&mut warm.out, b"hello").expect("chunked");
    body.finish(&mut warm.out).expect("chunked");
    let mut head = ResponseEncoder::new(&mut warm.out, 200, exchange).expect("a status");
    head.block(&warm.block);
    let slot = head.finish_with_length_to_come().expect("a head");
    warm.out.extend_from_slice(b"hello");
    slot.fill(&mut warm.out);
}

fn request(warm: &mut Warm) {
    warm.out.clear();
    let mut head = RequestEncoder::new(&mut warm.out, Method::Post, "/a", "b:80").expect("a request");
    head.field("Accept", b"*/*").expect("a field");
    let mut body = head.finish(Framing::Length(5), true).expect("a head");
    body.data(&mut warm.out, b"hello").expect("five bytes");
    body.finish(&mut warm.out).expect("five bytes");
    let input = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nServer: x\r\n\r\nhello";
    let parsed = parse_response(
        input,
        Method::Post,
        &warm.limits,
        &mut warm.scanner,
        &mut warm.table,
    )
    .expect("valid");
    let Parsed::Complete { head, bytes } = parsed else {
        panic!("the head is whole")
    };
    assert_eq!(decode(head.framing, &warm.limits, &input[bytes..]), 5);
}

fn refuse(warm: &mut Warm) {
    let mut scanner = HeadScanner::new();
    let refused = parse_request(
        b"GET / HTTP/1.1\r\nHost : a\r\n\r\n",
        &warm.limits,
        &mut scanner,
        &mut warm.table,
    );
    assert!(refused.is_err());
    answer(warm);
}
