//! gRPC in its native form, and trailers of our own: the content of each frame.

use ringmain_web::App;
use ringmain_web::grpc::prost::Message;
use ringmain_web::grpc::{self, Call, Code, Messages, Replies, Service, Status};
use ringmain_wire::grpc::Slot;

use crate::http2::client::{Got, Http2, fields};
use crate::support::{Setting, serve};

in_every_way!(
    a_call_ends_in_trailers,
    a_status_may_stand_alone,
    a_stream_is_answered_while_it_is_sent,
    a_deadline_resets_nothing,
    long_messages_keep_to_their_windows,
    whole_answers_have_trailers_too,
);

#[derive(Clone, PartialEq, Message)]
struct Text {
    #[prost(string, tag = "1")]
    text: String,
}

fn text(text: impl Into<String>) -> Text {
    Text { text: text.into() }
}

async fn echo(call: &Call<'_>, message: Text) -> grpc::Result<Text> {
    match message.text.as_str() {
        "fail" => Err(Status::new(Code::NotFound, "not here")),
        "fail late" => {
            call.add_header("x-head", "a")?;
            Err(Status::new(Code::NotFound, "not here"))
        }
        "wait" => {
            call.request()
                .cx()
                .sleep(std::time::Duration::from_secs(3600))
                .await;
            Ok(message)
        }
        _ => {
            call.add_trailer("x-end", "b")?;
            Ok(message)
        }
    }
}

async fn talk(
    _: &Call<'_>,
    messages: &mut Messages<'_, Text>,
    replies: &mut Replies<'_, '_, Text>,
) -> grpc::Result {
    replies.open().await?;
    while let Some(message) = messages.next().await? {
        replies.send(&text(message.text.to_uppercase())).await?;
    }
    Ok(())
}

fn app() -> App {
    let service = Service::new("test.Service")
        .unary("Echo", echo)
        .bidi("Talk", talk);
    App::new()
        .grpc(service)
        .get_async("/shared", async |_, reply| {
            reply.trailer("X-Sum", "3")?;
            reply.bytes("text/plain", "one")
        })
        .get_async("/long", async |_, reply| {
            reply.trailer("X-Sum", "300000")?;
            reply.text("one".repeat(100_000))
        })
}

fn body(message: &Text) -> Vec<u8> {
    let mut body = Vec::new();
    let slot = Slot::open(&mut body);
    message.encode(&mut body).expect("a vector");
    slot.close(&mut body, false).expect("short");
    body
}

const HEAD: [(&str, &str); 2] = [("content-type", "application/grpc"), ("te", "trailers")];

fn call(client: &mut Http2, more: &[(&str, &str)], message: &Text) -> Got {
    let all: Vec<_> = HEAD.iter().chain(more).copied().collect();
    let stream = client.head("POST", "/test.Service/Echo", &fields(&all), false);
    client.send_body(stream, &body(message));
    client.wait(stream)
}

fn lines(fields: &[(&str, &str)]) -> Vec<(String, String)> {
    let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
    fields.iter().map(owned).collect()
}

fn a_call_ends_in_trailers(setting: Setting) {
    let server = serve(setting.clone(), app());
    let mut client = Http2::new(&setting, &server);
    for _ in 0..2 {
        let got = call(&mut client, &[], &text("hello"));
        assert_eq!(
            (got.status, got.field("content-type")),
            (200, Some("application/grpc"))
        );
        assert_eq!(got.field("content-length"), None);
        assert_eq!(got.body, body(&text("hello")));
        assert_eq!(got.trailers, lines(&[("grpc-status", "0"), ("x-end", "b")]));
    }
    server.shut_down();
}

fn a_status_may_stand_alone(setting: Setting) {
    let server = serve(setting.clone(), app());
    let mut client = Http2::new(&setting, &server);
    let said = lines(&[("grpc-status", "5"), ("grpc-message", "not here")]);
    let got = call(&mut client, &[], &text("fail"));
    assert!(
        got.body.is_empty() && got.trailers.is_empty() && got.end,
        "{got:?}"
    );
    assert!(said.iter().all(|line| got.fields.contains(line)), "{got:?}");
    // Metadata is sent before the status.
    let got = call(&mut client, &[], &text("fail late"));
    assert_eq!((got.field("x-head"), got.field("grpc-status")), (Some("a"), None));
    assert_eq!((got.body.len(), got.trailers), (0, said));
    server.shut_down();
}

fn a_stream_is_answered_while_it_is_sent(setting: Setting) {
    let server = serve(setting.clone(), app());
    let mut client = Http2::new(&setting, &server);
    let stream = client.head("POST", "/test.Service/Talk", &fields(&HEAD), false);
    let got = client.wait_for(stream, |got| got.status > 0);
    assert!(got.body.is_empty() && !got.end, "the head comes first: {got:?}");
    let mut expected = Vec::new();
    for word in ["a", "b", "c"] {
        client.send_piece(stream, &body(&text(word)), false);
        expected.extend_from_slice(&body(&text(word.to_uppercase())));
        let length = expected.len();
        let got = client.wait_for(stream, |got| got.body.len() >= length);
        assert_eq!(got.body, expected);
    }
    client.send_piece(stream, b"", true);
    assert_eq!(client.wait(stream).trailers, lines(&[("grpc-status", "0")]));
    server.shut_down();
}

fn a_deadline_resets_nothing(setting: Setting) {
    let server = serve(setting.clone(), app());
    let mut client = Http2::new(&setting, &server);
    let got = call(&mut client, &[("grpc-timeout", "10m")], &text("wait"));
    assert_eq!(
        (got.field("grpc-status"), got.reset),
        (Some("4"), None),
        "{got:?}"
    );
    assert_eq!(call(&mut client, &[], &text("on")).body, body(&text("on")));
    server.shut_down();
}

fn long_messages_keep_to_their_windows(setting: Setting) {
    let server = serve(setting.clone(), app());
    let mut client = Http2::new(&setting, &server);
    let message = text("long ".repeat(300_000));
    let got = call(&mut client, &[], &message);
    assert!(got.body == body(&message), "{} bytes", got.body.len());
    assert_eq!(got.trailers[0], ("grpc-status".to_owned(), "0".to_owned()));
    server.shut_down();
}

fn whole_answers_have_trailers_too(setting: Setting) {
    let server = serve(setting.clone(), app());
    let mut client = Http2::new(&setting, &server);
    let got = client.ask("/shared");
    got.expect(200, "one");
    assert_eq!(got.trailers, lines(&[("x-sum", "3")]));
    let got = client.ask("/long");
    got.expect(200, &"one".repeat(100_000));
    assert_eq!(got.trailers, lines(&[("x-sum", "300000")]));
    server.shut_down();
}
