//! Unidirectional clients over gRPC and gRPC-Web: the same sessions, ended by a status.

use std::collections::BTreeMap;
use std::time::Duration;

use ringmain_hub::protocol::{ConnectRequest, Format, PushMessage, SubscribeRequest};
use ringmain_push::Options;
use ringmain_push::limits::PING_INTERVAL;
use ringmain_web::testing::{StreamedReply, TestClient};
use ringmain_wire::grpc::{
    Decoder, Event, Frame, Limits, Slot, TextDecoder, WebTrailers, decode_message, encode_text,
};
use ringmain_wire::h2::Stream;

use crate::support::{Http2, options, serve};

const CONSUME: &str = "/centrifugal.centrifugo.unistream.CentrifugoUniStream/Consume";

/// Encodes a connect request with these channels, as its client sends it.
fn encode_connect(token: &str, channels: &[&str]) -> Vec<u8> {
    let subs: BTreeMap<String, SubscribeRequest> = channels
        .iter()
        .map(|channel| ((*channel).to_owned(), SubscribeRequest::default()))
        .collect();
    framed(&ConnectRequest {
        token: token.to_owned(),
        subs,
        ..ConnectRequest::default()
    })
}

fn framed(connect: &ConnectRequest) -> Vec<u8> {
    let mut message = Vec::new();
    Format::Protobuf.write(connect, &mut message).expect("bytes");
    let before = message.iter().take_while(|&&byte| byte >= 0x80).count() + 1;
    let mut out = Vec::new();
    let slot = Slot::open(&mut out);
    out.extend_from_slice(&message[before..]);
    slot.close(&mut out, false).expect("a short message");
    out
}

#[track_caller]
fn publish(client: &mut TestClient, channel: &str, data: &str) {
    let reply = client.post("/api/publish").header("x-api-key", "key");
    let body = format!(r#"{{"channel":"{channel}","data":{data}}}"#);
    let reply = reply.header("content-type", "application/json").body(body).send();
    assert!(reply.text().starts_with(r#"{"result":{"#), "{}", reply.text());
}

/// The received part of a response: pushes, and its status.
#[derive(Default)]
struct Heard {
    bytes: Vec<u8>,
    /// `grpc-status` and `grpc-message`.
    status: Option<(String, String)>,
}

impl Heard {
    /// Returns the complete pushes, and reads the end of the body.
    fn pushes(&mut self) -> Vec<PushMessage> {
        let mut decoder = Decoder::with_trailers(&Limits::INTERNET);
        let (mut at, mut whole) = (0, 0);
        let (mut pushes, mut payload, mut kind) = (Vec::new(), Vec::new(), None);
        loop {
            let step = decoder.decode(&self.bytes[at..]).expect("frames");
            at += step.consumed;
            match step.event {
                Event::NeedMore => break,
                Event::Begin { frame, .. } => {
                    payload.clear();
                    kind = Some(frame);
                }
                Event::Data(data) => payload.extend_from_slice(data),
                Event::End if kind == Some(Frame::Trailers) => {
                    let trailers = WebTrailers::parse(&payload).expect("lines");
                    self.ended(trailers.iter().map(|field| (field.name, field.value)));
                    whole = at;
                }
                Event::End => {
                    pushes.push(Format::Protobuf.read(&payload).expect("a push"));
                    whole = at;
                }
            }
        }
        self.bytes.drain(..whole);
        pushes
    }

    fn ended<'f>(&mut self, fields: impl Iterator<Item = (&'f [u8], &'f [u8])>) {
        let mut status = (String::new(), String::new());
        for (name, value) in fields {
            let text = || decode_message(value).into_owned();
            match name {
                b"grpc-status" => status.0 = text(),
                b"grpc-message" => status.1 = text(),
                _ => {}
            }
        }
        if !status.0.is_empty() {
            self.status = Some(status);
        }
    }
}

/// Summarizes pushes.
fn summarize(pushes: &[PushMessage]) -> Vec<String> {
    let one = |push: &PushMessage| match push {
        PushMessage {
            pub_: Some(publication),
            channel,
            ..
        } => format!("{channel} {}", String::from_utf8_lossy(&publication.data)),
        PushMessage {
            connect: Some(connect),
            ..
        } => {
            let subs: Vec<&str> = connect.subs.keys().map(String::as_str).collect();
            format!("connected {} {}", subs.join(","), connect.ping)
        }
        PushMessage {
            disconnect: Some(why),
            ..
        } => format!("disconnect {} {}", why.code, why.reconnect),
        push if *push == PushMessage::default() => "ping".to_owned(),
        push => format!("{push:?}"),
    };
    pushes.iter().map(one).collect()
}

/// A call of gRPC-Web over HTTP/1.1.
struct Web {
    reply: StreamedReply,
    text: Option<TextDecoder>,
    heard: Heard,
    ended: bool,
}

impl Web {
    #[track_caller]
    fn call(client: &mut TestClient, content: &str, message: &[u8]) -> Web {
        let is_text = content.contains("text");
        let mut body = Vec::new();
        if is_text {
            encode_text(&mut body, message);
        } else {
            body.extend_from_slice(message);
        }
        let request = client.post(CONSUME).header("content-type", content);
        let reply = request
            .header("x-grpc-web", "1")
            .body(body)
            .open()
            .expect("an answer");
        assert_eq!(reply.status(), 200);
        let kind = reply.head().header("content-type").unwrap_or_default().to_owned();
        assert!(
            kind.starts_with(content.split('+').next().unwrap_or_default()),
            "{kind}"
        );
        Web {
            reply,
            text: is_text.then(TextDecoder::new),
            heard: Heard::default(),
            ended: false,
        }
    }

    /// Returns the next pushes; none at the end.
    #[track_caller]
    fn next(&mut self) -> Vec<String> {
        loop {
            let pushes = self.heard.pushes();
            if !pushes.is_empty() || self.ended {
                return summarize(&pushes);
            }
            match self.reply.piece().expect("a piece") {
                None => self.ended = true,
                Some(piece) => match &mut self.text {
                    None => self.heard.bytes.extend(piece),
                    Some(text) => text.decode(&piece, &mut self.heard.bytes).expect("base64"),
                },
            }
        }
    }

    /// Returns the status, with the pushes before it.
    #[track_caller]
    fn end(&mut self) -> (Vec<String>, String, String) {
        let mut all = Vec::new();
        loop {
            let pushes = self.next();
            if pushes.is_empty() {
                let (code, words) = self.heard.status.clone().expect("a status");
                return (all, code, words);
            }
            all.extend(pushes);
        }
    }
}

/// Calls of gRPC over HTTP/2.
struct Native {
    http2: Http2,
    heard: BTreeMap<u32, Heard>,
}

impl Native {
    fn new(client: &mut TestClient) -> Native {
        Native {
            http2: Http2::new(client),
            heard: BTreeMap::new(),
        }
    }

    fn call(&mut self, message: &[u8], more: &[(&str, &str)]) -> Stream {
        let fields = [&[("content-type", "application/grpc"), ("te", "trailers")], more].concat();
        let stream = self.http2.request("POST", CONSUME, &fields, message);
        self.heard.insert(stream.id(), Heard::default());
        self.http2.turn();
        stream
    }

    fn received(&mut self, stream: Stream) -> (Vec<String>, Option<(String, String)>) {
        self.http2.turn();
        let answer = self.http2.response(stream);
        assert_eq!(answer.status, 200);
        let heard = self.heard.get_mut(&stream.id()).expect("asked");
        heard.bytes.append(&mut answer.body);
        let fields = answer.fields.iter();
        heard.ended(fields.map(|(name, value)| (name.as_bytes(), value.as_bytes())));
        (summarize(&heard.pushes()), heard.status.clone())
    }
}

const WEB: [&str; 2] = ["application/grpc-web+proto", "application/grpc-web-text+proto"];

#[test]
fn pushes_arrive_in_every_grpc_dialect() {
    let mut client = serve(options());
    let asked = encode_connect("", &["news", "kept:a"]);
    let mut webs: Vec<Web> = WEB.map(|kind| Web::call(&mut client, kind, &asked)).into();
    let mut native = Native::new(&mut client);
    let streams = [(); 2].map(|()| native.call(&asked, &[]));
    for web in &mut webs {
        assert_eq!(web.next(), ["connected kept:a,news 25"]);
    }
    for stream in streams {
        assert_eq!(
            native.received(stream),
            (vec!["connected kept:a,news 25".to_owned()], None)
        );
    }
    publish(&mut client, "news", "[1]");
    publish(&mut client, "kept:a", "2");
    for web in &mut webs {
        let mut heard = web.next();
        while heard.len() < 2 {
            heard.extend(web.next());
        }
        assert_eq!(heard, ["news [1]", "kept:a 2"]);
    }
    for stream in streams {
        assert_eq!(native.received(stream).0, ["news [1]", "kept:a 2"]);
    }
    client.advance(PING_INTERVAL + Duration::from_secs(1));
    assert_eq!(webs[0].next(), ["ping"]);
    assert_eq!(native.received(streams[1]).0, ["ping"]);
    client.shut_down();
    for web in &mut webs {
        let (mut before, code, words) = web.end();
        before.retain(|told| told != "ping");
        assert_eq!(before, ["disconnect 3001 true"]);
        assert_eq!((&*code, &*words), ("14", "shutdown (code 3001)"));
    }
    // Its turn may be later.
    client.advance(Duration::from_secs(3));
    let (pushes, status) = native.received(streams[1]);
    assert_eq!(pushes, ["disconnect 3001 true"]);
    assert_eq!(status, Some(("14".to_owned(), "shutdown (code 3001)".to_owned())));
    drop((webs, native));
    client.finish().expect("it ends");
}

#[test]
fn a_refused_grpc_client_receives_a_status() {
    let mut client = serve(Options {
        anonymous: false,
        ..options()
    });
    let (all, code, words) = Web::call(&mut client, WEB[0], &encode_connect("no token", &[])).end();
    assert_eq!(
        (all.len(), &*code, &*words),
        (0, "16", "invalid token (code 3500)")
    );
    let mut native = Native::new(&mut client);
    let stream = native.call(&encode_connect("", &[]), &[]);
    let (pushes, status) = native.received(stream);
    assert_eq!(
        (pushes.len(), status.map(|status| status.0)),
        (0, Some("16".to_owned()))
    );
    // Not a connect request.
    let (_, code, _) = Web::call(&mut client, WEB[0], &[0, 0, 0, 0, 2, 0xFF, 0xFF]).end();
    assert_eq!(code, "13");
    let (_, code, _) = Web::call(&mut client, WEB[0], &encode_connect(&"x".repeat(70_000), &[])).end();
    assert_eq!(code, "8");
    let mut client = serve(options());
    let (_, code, words) = Web::call(&mut client, WEB[1], &encode_connect("", &["nowhere:a"])).end();
    assert_eq!((&*code, &*words), ("3", "bad request (code 3501)"));
    client.finish().expect("it ends");
}

#[test]
fn a_disconnected_client_receives_the_reason() {
    let mut client = serve(options());
    let mut web = Web::call(&mut client, WEB[0], &encode_connect("", &["news"]));
    assert_eq!(web.next(), ["connected news 25"]);
    let mut native = Native::new(&mut client);
    let stream = native.call(&encode_connect("", &["news"]), &[("grpc-timeout", "40S")]);
    assert_eq!(native.received(stream).0.len(), 1);
    let body = r#"{"user":""}"#;
    let order = client
        .post("/api/disconnect")
        .header("x-api-key", "key")
        .body(body);
    let answer = order.send();
    assert_eq!(answer.status(), 200, "{}", answer.text());
    client.advance(Duration::from_secs(41));
    // The deadline is the client's own.
    let (pushes, status) = native.received(stream);
    assert_eq!(pushes, ["ping"]);
    assert_eq!(status.map(|status| status.0), Some("4".to_owned()));
    assert_eq!(client.running(), 1, "the other one still listens");
    drop((web, native));
    client.advance(Duration::from_secs(1));
    assert_eq!(client.running(), 0);
    client.finish().expect("it ends");
}

#[test]
fn a_cancelled_call_frees_its_session() {
    let mut client = serve(options());
    let mut native = Native::new(&mut client);
    let streams: Vec<Stream> = (0..50)
        .map(|_| native.call(&encode_connect("", &["news"]), &[]))
        .collect();
    assert_eq!(client.running(), 50);
    let listeners = |client: &mut TestClient| {
        let request = client.post("/api/channels").header("x-api-key", "key").body("{}");
        request.send().text().to_owned()
    };
    assert!(listeners(&mut client).contains(r#""num_clients":50"#));
    for &stream in &streams[..49] {
        native.http2.cancel_stream(stream);
    }
    native.http2.turn();
    assert_eq!(client.running(), 1);
    assert!(listeners(&mut client).contains(r#""num_clients":1"#));
    publish(&mut client, "news", "1");
    assert_eq!(native.received(streams[49]).0, ["connected news 25", "news 1"]);
    // A connection that its client has closed will not be read.
    native.http2.raw.end();
    client.advance(Duration::from_millis(1));
    assert_eq!(client.running(), 0);
    let mut web = Web::call(&mut client, WEB[0], &encode_connect("", &[]));
    assert_eq!(web.next().len(), 1);
    web.reply.connection().end();
    client.advance(Duration::from_millis(1));
    assert_eq!(client.running(), 0);
    client.finish().expect("it ends");
}

#[test]
fn pages_of_other_hosts_may_read_the_status() {
    let mut client = serve(Options {
        origins: vec!["https://app.example.com".to_owned()],
        ..options()
    });
    let preflight = client.request("OPTIONS", CONSUME);
    let preflight = preflight
        .header("origin", "https://app.example.com")
        .header("access-control-request-method", "POST")
        .send();
    assert_eq!(preflight.status(), 204);
    assert_eq!(
        preflight.header("access-control-allow-origin"),
        Some("https://app.example.com")
    );
    let headers = preflight
        .header("access-control-allow-headers")
        .unwrap_or_default();
    assert!(
        headers.contains("X-Grpc-Web") && headers.contains("Grpc-Timeout"),
        "{headers}"
    );
    let mut call = |origin: &str| {
        let request = client.post(CONSUME).header("content-type", WEB[0]);
        let reply = request
            .header("origin", origin)
            .body(encode_connect("", &[]))
            .open()
            .expect("an answer");
        let named = |name: &str| reply.head().header(name).unwrap_or_default().to_owned();
        (
            named("access-control-allow-origin"),
            named("access-control-expose-headers"),
            reply,
        )
    };
    let (origin, exposed, _reply) = call("https://app.example.com");
    assert_eq!(
        (&*origin, &*exposed),
        ("https://app.example.com", "Grpc-Status, Grpc-Message")
    );
    let (origin, _, mut reply) = call("https://evil.example");
    assert_eq!(origin, "");
    let mut body = Vec::new();
    while let Some(piece) = reply.piece().expect("a piece") {
        body.extend(piece);
    }
    assert!(
        String::from_utf8_lossy(&body).contains("grpc-status: 7"),
        "{body:?}"
    );
}
