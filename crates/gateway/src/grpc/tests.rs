//! Messages in the pieces of a body.

use prost::Message;
use ringmain_wire::grpc::FaultKind;

use super::error::GrpcError;
use super::frame;
use super::reader::MessageReader;

#[derive(Clone, PartialEq, Message)]
struct Text {
    #[prost(string, tag = "1")]
    text: String,
}

fn text(text: &str) -> Text {
    Text {
        text: text.to_owned(),
    }
}

/// Reads all messages of pieces of a body; the last element is an error if there is one.
fn read(pieces: &[&[u8]], limit: u32) -> Vec<Result<Text, String>> {
    let mut reader = MessageReader::new(limit);
    let mut messages = Vec::new();
    for piece in pieces {
        let mut rest = *piece;
        while !rest.is_empty() {
            match reader.feed(rest) {
                Ok((consumed, is_complete)) => {
                    rest = &rest[consumed..];
                    if is_complete {
                        messages.push(reader.decode().map_err(|error| error.to_string()));
                    }
                }
                Err(fault) => {
                    messages.push(Err(format!("{:?}", fault.kind)));
                    return messages;
                }
            }
        }
    }
    if let Err(fault) = reader.finish() {
        messages.push(Err(format!("{:?}", fault.kind)));
    }
    messages
}

#[test]
fn any_cut_gives_the_same_messages() {
    let mut valid = Vec::new();
    for message in ["", "one", "", "a longer message", ""] {
        valid.extend(frame(&text(message)).expect("short"));
    }
    let bodies = [
        valid.clone(),
        valid[..valid.len() - 8].to_vec(),
        [&valid[..], &[7, 0, 0, 0, 1, 0]].concat(),
        [&valid[..], &[1, 0, 0, 0, 1, 0]].concat(),
        [&valid[..], &[0, 0, 1, 0, 0, 0]].concat(),
        [&valid[..], &[0, 0, 0, 0, 2, 0x0a, 9]].concat(),
    ];
    for body in bodies {
        let whole = read(&[&body], 1000);
        assert!(whole.len() >= 4, "{whole:?}");
        for cut in 0..=body.len() {
            let (start, end) = body.split_at(cut);
            assert_eq!(read(&[start, end], 1000), whole, "cut at {cut}");
        }
        let bytes: Vec<&[u8]> = body.chunks(1).collect();
        assert_eq!(read(&bytes, 1000), whole);
    }
}

#[test]
fn a_message_beyond_the_limit_is_rejected_by_its_prefix() {
    let framed = frame(&text("0123456789")).expect("short");
    assert_eq!(read(&[&framed], 12), [Ok(text("0123456789"))]);
    let too_long = format!("{:?}", FaultKind::MessageTooLarge);
    assert_eq!(read(&[&framed[..5]], 11), [Err(too_long)]);
}

#[test]
fn a_message_of_another_type_is_an_error() {
    let mut reader = MessageReader::new(10);
    // Field 1 as a number.
    assert_eq!(reader.feed(&[0, 0, 0, 0, 2, 0x08, 1]).expect("framed"), (7, true));
    let decoded = reader.decode::<Text>();
    assert!(matches!(decoded, Err(GrpcError::Undecodable(_))), "{decoded:?}");
}
