//! Rules 10 and 11 of what is sent on: written from what was understood, and nothing splits it.

use ringmain_wire::h1::{
    BodyDecoder, BodyEvent, Exchange, Framing, Known, Limits, Misuse, RequestEncoder, ResponseEncoder,
};

use crate::h1::support::with_request;

/// What a gateway sends on for `input`, a whole request.
fn forwarded(input: &str) -> String {
    let mut out = Vec::new();
    with_request(input.as_bytes(), |head, bytes| {
        let host = head.fields.known(Known::Host).expect("HTTP/1.1 has one");
        let host = str::from_utf8(host).expect("it was checked");
        let mut encoder =
            RequestEncoder::new(&mut out, head.method, head.target_text, host).expect("as read");
        for field in head.fields.iter() {
            let name = str::from_utf8(field.name).expect("a token");
            // By hand no framing field can be written, in whatever spelling it came.
            match encoder.field(name, field.value) {
                Ok(()) | Err(Misuse::FramingField) => {}
                Err(other) => panic!("{name}: {other}"),
            }
        }
        let mut encoder = encoder.finish(head.framing, true).expect("as read");
        let mut decoder = BodyDecoder::new(head.framing, &Limits::default()).expect("within limits");
        let mut rest = &input.as_bytes()[bytes..];
        loop {
            let step = decoder.decode(rest).expect("a valid body");
            rest = &rest[step.consumed..];
            match step.event {
                BodyEvent::Data(data) => encoder.data(&mut out, data).expect("as declared"),
                // Trailers go on by an allow-list of the gateway's, which is empty here.
                BodyEvent::Trailers(_) => {}
                BodyEvent::NeedMore => panic!("`{input}` is whole"),
                BodyEvent::End => break,
            }
        }
        encoder.finish(&mut out).expect("as declared");
    });
    String::from_utf8(out).expect("these tests write ASCII")
}

#[test]
fn rule_10_what_goes_on_is_written_anew() {
    let chunked =
        "POST / HTTP/1.1\r\nHost: a\r\nX: y\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n";
    for (fields, body) in [
        (
            "Host: a\r\nX: y\r\nTransfer-Encoding: chunked",
            "5\r\nhello\r\n0\r\n\r\n",
        ),
        (
            "transfer-encoding:CHUNKED\r\nhost:a\r\nX:y",
            "5\r\nhello\r\n0\r\n\r\n",
        ),
        (
            "Host:\t a \t\r\nX: y  \r\nTRANSFER-ENCODING: \t chunked \t",
            "0005;a=b ; c\r\nhello\r\n000 ;d\r\nSum: 1\r\n\r\n",
        ),
        (
            "Host: a\r\nX: y\r\nConnection: close\r\nUpgrade: h2c\r\nTransfer-Encoding: chunked",
            "5\r\nhello\r\n0\r\nAuthorization: x\r\n\r\n",
        ),
    ] {
        let input = format!("POST / HTTP/1.1\r\n{fields}\r\n\r\n{body}");
        assert_eq!(forwarded(&input), chunked, "{input}");
    }
    let sized = "POST / HTTP/1.1\r\nHost: a\r\nX: y\r\nContent-Length: 5\r\n\r\nhello";
    for fields in [
        "Host: a\r\nX: y\r\nContent-Length: 5",
        "content-LENGTH:  0005\t\r\nHost: a\r\nX: y",
    ] {
        let input = format!("POST / HTTP/1.1\r\n{fields}\r\n\r\nhello");
        assert_eq!(forwarded(&input), sized, "{input}");
    }
}

#[test]
fn rule_11_no_field_splits_a_response() {
    let mut out = Vec::new();
    let exchange = Exchange {
        keep_alive: true,
        ..Exchange::REFUSED
    };
    let mut head = ResponseEncoder::new(&mut out, 200, exchange).expect("200 is a status");
    for byte in (0..b' ').filter(|&byte| byte != b'\t').chain([0x7F]) {
        let value = [b'a', byte, b'b'];
        assert_eq!(
            head.field("X-Claim", &value),
            Err(Misuse::FieldValue),
            "byte {byte:#04x}"
        );
        let name = format!("X{}", char::from(byte));
        assert_eq!(
            head.field(&name, b"a"),
            Err(Misuse::FieldName),
            "byte {byte:#04x}"
        );
    }
    head.field("X-Claim", "grüße\t, : \" % \\r\\n".as_bytes())
        .expect("all else stands for itself");
    let _ = head.finish(Framing::None).expect("no body");
    let lines = out.split(|&byte| byte == b'\n').count();
    assert_eq!(
        lines, 5,
        "status, claim, length, empty line and what is behind it"
    );
}
