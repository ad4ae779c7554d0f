//! The start of a response, second by second.

use ringmain_wire::h1::{Exchange, Framing, ResponseEncoder};

use super::*;

fn head(preamble: &mut Preamble, wall: Duration) -> String {
    let mut out = Vec::new();
    let mut head = ResponseEncoder::new(&mut out, 204, Exchange::REFUSED).unwrap();
    preamble.update(wall);
    head.block(preamble.fields(ContentKind::None));
    let _no_body = head.finish(Framing::None).unwrap();
    String::from_utf8(out).unwrap()
}

#[test]
fn it_follows_the_second() {
    let mut preamble = Preamble::new(Some("ringmain")).unwrap();
    let table = [
        (0, "Thu, 01 Jan 1970 00:00:00 GMT"),
        (999, "Thu, 01 Jan 1970 00:00:00 GMT"),
        (1000, "Thu, 01 Jan 1970 00:00:01 GMT"),
        (784_111_777_000, "Sun, 06 Nov 1994 08:49:37 GMT"),
        // A clock that was set back is believed.
        (1999, "Thu, 01 Jan 1970 00:00:01 GMT"),
    ];
    for (millis, date) in table {
        let expected = format!(
            "HTTP/1.1 204 No Content\r\nServer: ringmain\r\nDate: {date}\r\nConnection: close\r\n\r\n"
        );
        assert_eq!(head(&mut preamble, Duration::from_millis(millis)), expected);
    }
}

#[test]
fn a_server_need_not_say_its_name() {
    let mut preamble = Preamble::new(None).unwrap();
    let head = head(&mut preamble, Duration::ZERO);
    assert!(!head.contains("Server") && head.contains("Date: "), "{head}");
    assert_eq!(Preamble::new(Some("a\r\nb: c")).err(), Some(Misuse::FieldValue));
}

#[test]
fn a_preface_is_the_status_line_and_the_fields() {
    let mut preamble = Preamble::new(Some("ringmain")).unwrap();
    preamble.update(Duration::from_secs(1));
    for kind in [
        ContentKind::None,
        ContentKind::Json,
        ContentKind::Text,
        ContentKind::Html,
        ContentKind::Problem,
        ContentKind::Own,
    ] {
        let (mut prepared, mut written) = (Vec::new(), Vec::new());
        let head = ResponseEncoder::with_preface(&mut prepared, preamble.ok(kind), Exchange::REFUSED);
        let _body = head.finish(Framing::Length(5)).unwrap();
        let mut head = ResponseEncoder::new(&mut written, 200, Exchange::REFUSED).unwrap();
        head.block(preamble.fields(kind));
        let _body = head.finish(Framing::Length(5)).unwrap();
        assert_eq!(
            prepared.escape_ascii().to_string(),
            written.escape_ascii().to_string()
        );
        let content_types = String::from_utf8(written)
            .unwrap()
            .matches("Content-Type")
            .count();
        assert_eq!(
            content_types,
            usize::from(!matches!(kind, ContentKind::None | ContentKind::Own))
        );
    }
}
