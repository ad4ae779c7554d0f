//! A service for tests, and the client's side of a call over the codec's own. Knows no single case.

use std::fmt::Write as _;
use std::time::Duration;

use prost::Message;
use ringmain_web::grpc::{self, Call, Code, Messages, Replies, Service, Status, prost};
use ringmain_web::testing::{TestClient, TestReply, TestRequest};
use ringmain_web::{App, Error};
use ringmain_wire::grpc::{
    Decoder, Event, Frame, Limits, Slot, TextDecoder, WebTrailers, decode_message, encode_text,
};

/// The request and response type of every method.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Text {
    #[prost(string, tag = "1")]
    pub(crate) text: String,
    #[prost(uint32, tag = "2")]
    pub(crate) number: u32,
}

pub(crate) fn text(text: impl Into<String>, number: u32) -> Text {
    Text {
        text: text.into(),
        number,
    }
}

pub(crate) const GRPC: &str = "application/grpc";
pub(crate) const WEB: &str = "application/grpc-web+proto";
pub(crate) const TEXT: &str = "application/grpc-web-text";
pub(crate) const DIALECTS: [&str; 3] = [GRPC, WEB, TEXT];

/// Ends as its message says.
async fn echo(call: &Call<'_>, message: Text) -> grpc::Result<Text> {
    match message.text.as_str() {
        "fail" => {
            call.add_trailer("x-why", "asked to")?;
            call.add_trailer("x-bytes-bin", [0, 255, 16])?;
            Err(Status::new(Code::NotFound, "nothing 100% there: \u{e4}")
                .with_detail("type.googleapis.com/test.Text", text("why", 7).encode_to_vec()))
        }
        "panic" => panic!("planned"),
        "error" => Err(Error::conflict("another has it").into()),
        "secret" => Err(std::io::Error::other("a secret").into()),
        "reserved" => call.add_header("grpc-status", "0").map(|()| message),
        "capital" => call.add_trailer("X-Name", "a").map(|()| message),
        "bytes" => call.add_header("x-name", [0xFF]).map(|()| message),
        "wait" => {
            let span = Duration::from_secs(message.number.into());
            call.request().cx().sleep(span).await;
            Ok(message)
        }
        "left" => Ok(text(format!("{:?}", call.remaining_time()), 0)),
        "metadata" => {
            call.add_header("x-said", call.metadata("x-say").unwrap_or_default())?;
            let bytes = call.metadata_bytes("x-say-bin")?.unwrap_or_default();
            call.add_header("x-said-bin", &bytes)?;
            call.add_trailer("x-end", "after all")?;
            Ok(text(format!("{:?} {bytes:?}", call.dialect()), 0))
        }
        _ => Ok(message),
    }
}

/// As many replies as the number says, then an error if there is a text.
async fn count(_: &Call<'_>, message: Text, replies: &mut Replies<'_, '_, Text>) -> grpc::Result {
    for number in 0..message.number {
        replies.send(&text(message.text.repeat(100), number)).await?;
    }
    if message.text == "fail" {
        return Err(Status::new(Code::DataLoss, "half of it"));
    }
    Ok(())
}

async fn sum(_: &Call<'_>, messages: &mut Messages<'_, Text>) -> grpc::Result<Text> {
    let mut sum = text("", 0);
    while let Some(message) = messages.next().await? {
        sum.number += message.number;
        sum.text += &message.text;
    }
    Ok(sum)
}

async fn talk(
    call: &Call<'_>,
    messages: &mut Messages<'_, Text>,
    replies: &mut Replies<'_, '_, Text>,
) -> grpc::Result {
    call.add_header("x-talk", "begins")?;
    replies.open().await?;
    while let Some(message) = messages.next().await? {
        replies
            .send(&text(message.text.to_uppercase(), message.number))
            .await?;
    }
    Ok(())
}

pub(crate) fn service() -> Service {
    Service::new("test.Service")
        .unary("Echo", echo)
        .server_streaming("Count", count)
        .client_streaming("Sum", sum)
        .bidi("Talk", talk)
        .message_limit(64 * 1024)
}

pub(crate) fn client() -> TestClient {
    TestClient::new(App::new().grpc(service())).unwrap()
}

/// Messages as a client sends them.
pub(crate) fn body(dialect: &str, messages: &[Text]) -> Vec<u8> {
    let mut out = Vec::new();
    for message in messages {
        let slot = Slot::open(&mut out);
        message.encode(&mut out).unwrap();
        slot.close(&mut out, false).unwrap();
    }
    as_text(dialect, out)
}

/// A body as the dialect has it.
pub(crate) fn as_text(dialect: &str, body: Vec<u8>) -> Vec<u8> {
    if dialect != TEXT {
        return body;
    }
    let mut text = Vec::new();
    encode_text(&mut text, &body);
    text
}

/// A request to a method, without a body yet.
pub(crate) fn request<'c>(client: &'c mut TestClient, dialect: &str, method: &str) -> TestRequest<'c> {
    let request = client.post(&format!("/test.Service/{method}"));
    let request = request.header("Content-Type", dialect);
    if dialect == GRPC {
        request.header("TE", "trailers")
    } else {
        request
    }
}

/// Calls a method, and reads the answer.
pub(crate) fn call(client: &mut TestClient, dialect: &str, method: &str, messages: &[Text]) -> Answer {
    let request = request(client, dialect, method).body(body(dialect, messages));
    Answer::read(dialect, &request.send())
}

/// The response as a client receives it.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    pub(crate) code: Code,
    pub(crate) message: String,
    /// Payloads as received, and whether they were compressed.
    pub(crate) payloads: Vec<(Vec<u8>, bool)>,
    /// Fields of the head, then of the trailers: `name: value`.
    pub(crate) head: Vec<String>,
    pub(crate) trailers: Vec<String>,
}

impl Answer {
    pub(crate) fn read(dialect: &str, reply: &TestReply) -> Answer {
        assert_eq!(reply.status(), 200, "{}", reply.text());
        assert_eq!(reply.header("content-type"), Some(dialect));
        let line = |(name, value): (&str, &[u8])| format!("{name}: {}", String::from_utf8_lossy(value));
        let mut answer = Answer {
            code: Code::Unknown,
            message: String::new(),
            payloads: Vec::new(),
            head: reply.headers().map(line).collect(),
            trailers: reply.trailers().map(line).collect(),
        };
        answer.read_body(dialect, reply.body());
        let alone = dialect == GRPC && answer.trailers.is_empty();
        let place = if alone { &answer.head } else { &answer.trailers };
        let find = |name: &str| {
            place
                .iter()
                .find_map(|line| line.strip_prefix(name))
                .map(str::to_owned)
        };
        let code = find("grpc-status: ").unwrap_or_else(|| panic!("a status in {answer:?}"));
        let message = find("grpc-message: ").unwrap_or_default();
        answer.code = Code::parse(code.as_bytes());
        answer.message = decode_message(message.as_bytes()).into_owned();
        answer
    }

    fn read_body(&mut self, dialect: &str, body: &[u8]) {
        let mut plain = Vec::new();
        let body = if dialect == TEXT {
            let mut text = TextDecoder::new();
            text.decode(body, &mut plain).unwrap();
            text.end_of_input().unwrap();
            &plain
        } else {
            body
        };
        let mut decoder = match dialect {
            GRPC => Decoder::new(&Limits::INTERNET),
            _ => Decoder::with_trailers(&Limits::INTERNET),
        };
        let (mut rest, mut payload, mut frame) = (body, Vec::new(), None);
        loop {
            let step = decoder.decode(rest).unwrap();
            rest = &rest[step.consumed..];
            match step.event {
                Event::Begin { frame: begun, .. } => frame = Some(begun),
                Event::Data(data) => payload.extend_from_slice(data),
                Event::End => match frame.take() {
                    Some(Frame::Message { compressed }) => {
                        self.payloads.push((std::mem::take(&mut payload), compressed));
                    }
                    _ => {
                        for field in WebTrailers::parse(&payload).unwrap().iter() {
                            let mut line = str::from_utf8(field.name).unwrap().to_owned();
                            write!(line, ": {}", String::from_utf8_lossy(field.value)).unwrap();
                            self.trailers.push(line);
                        }
                    }
                },
                Event::NeedMore => break,
            }
        }
        decoder.end_of_input().unwrap();
        assert_eq!(decoder.is_over(), dialect != GRPC, "trailers come last, once");
    }

    pub(crate) fn messages(&self) -> Vec<Text> {
        let plain = self.payloads.iter().map(|(payload, compressed)| {
            assert!(!compressed);
            Text::decode(payload.as_slice()).unwrap()
        });
        plain.collect()
    }

    /// It succeeded with these messages.
    #[track_caller]
    pub(crate) fn gives(&self, messages: &[Text]) {
        assert_eq!((self.code, self.message.as_str()), (Code::Ok, ""), "{self:?}");
        assert_eq!(self.messages(), messages);
    }

    /// It failed so, and the message has these words.
    #[track_caller]
    pub(crate) fn fails(&self, code: Code, words: &str) {
        assert_eq!(self.code, code, "{self:?}");
        assert!(self.message.contains(words), "{words:?} in {:?}", self.message);
    }
}
