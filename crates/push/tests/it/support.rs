//! An application with channels, and clients of its streams.

use std::collections::BTreeMap;
use std::time::Duration;

use ringmain_hub::history::HistoryOptions;
use ringmain_push::{Namespace, Options};
use ringmain_web::App;
use ringmain_web::testing::{RawConnection, Setup, StreamedReply, TestClient, TestRequest};
use ringmain_wire::h1::{FieldBlock, Method};
use ringmain_wire::h2::{Connection, ErrorCode, Event, HeadBuffer, Limits, Request, Role};
use serde_json::{Value, json};

/// Returns options with channels without retention, and with all features in the namespace `kept`.
pub(crate) fn options() -> Options {
    let mut kept = Namespace {
        publish: true,
        history: true,
        presence: true,
        recovery: true,
        ..Namespace::default()
    };
    kept.channel_options.presence = true;
    kept.channel_options.history = Some(HistoryOptions {
        publications: 2,
        bytes: 1000,
        ttl: Duration::from_secs(60),
    });
    Options {
        namespaces: [("kept".to_owned(), kept)].into(),
        anonymous: true,
        api_key: Some("key".to_owned()),
        ..Options::default()
    }
}

pub(crate) fn serve(options: Options) -> TestClient {
    TestClient::new(ringmain_push::serve(App::new(), options)).expect("an application")
}

/// Serves on so many workers, with a page that returns the worker's number.
pub(crate) fn serve_by(workers: usize, options: Options) -> TestClient {
    let app = App::new().get("/worker", |request, reply| {
        reply.text(request.cx().worker().to_string())
    });
    let setup = Setup {
        workers,
        ..Setup::default()
    };
    TestClient::with(ringmain_push::serve(app, options), setup).expect("an application")
}

/// Replaces random numbers by names.
pub(crate) fn masked(text: &str) -> String {
    let mut masked = text.to_owned();
    for (before, length, name) in [
        (r#""client":""#, 36, "CLIENT"),
        (r#""epoch":""#, 16, "EPOCH"),
        (r#""node":""#, 36, "NODE"),
        (r#""session":""#, 34, "SESSION"),
    ] {
        let mut from = 0;
        while let Some(found) = masked[from..].find(before) {
            let at = from + found + before.len();
            if masked.as_bytes().get(at + length) == Some(&b'"') {
                masked.replace_range(at..at + length, name);
            }
            from = at;
        }
    }
    masked
}

/// The messages of a streamed response.
pub(crate) struct Stream {
    pub(crate) reply: StreamedReply,
    text: Vec<u8>,
    /// For requests beside it.
    pub(crate) session: String,
    pub(crate) node: String,
}

pub(crate) const CONNECT: &str = r#"{"id":1,"connect":{}}"#;

impl Stream {
    #[track_caller]
    pub(crate) fn open(request: TestRequest<'_>) -> Stream {
        let reply = request.open().expect("an answer");
        let (status, body) = (reply.status(), Vec::new());
        let mut stream = Stream {
            reply,
            text: body,
            session: String::new(),
            node: String::new(),
        };
        assert_eq!(status, 200, "{:?}", stream.reply.piece());
        stream
    }

    /// Connects over HTTP streaming.
    #[track_caller]
    pub(crate) fn lines(client: &mut TestClient) -> Stream {
        let request = client.post("/connection/http_stream").body(CONNECT);
        let mut stream = Stream::open(request);
        let reply = stream.line();
        stream.is_connected(&reply);
        stream
    }

    /// Connects over server-sent events.
    #[track_caller]
    pub(crate) fn events(client: &mut TestClient) -> Stream {
        let mut stream = Stream::open(client.get(&with_query("/connection/sse", CONNECT)));
        let reply = stream.event();
        stream.is_connected(&reply);
        stream
    }

    #[track_caller]
    fn is_connected(&mut self, reply: &str) {
        let told: Value = serde_json::from_str(reply).expect("JSON");
        let text = |name: &str| told["connect"][name].as_str().unwrap_or_default().to_owned();
        (self.session, self.node) = (text("session"), text("node"));
        let expected = concat!(
            r#"{"id":1,"connect":{"client":"CLIENT","version":"ringmain "#,
            env!("CARGO_PKG_VERSION"),
            r#"","ping":25,"pong":true,"session":"SESSION","node":"NODE"}}"#
        );
        assert_eq!(masked(reply), expected);
    }

    /// Returns the next line.
    #[track_caller]
    pub(crate) fn line(&mut self) -> String {
        self.try_line().expect("a line")
    }

    /// Returns the next line; `None` at the end of the stream.
    #[track_caller]
    pub(crate) fn try_line(&mut self) -> Option<String> {
        loop {
            if let Some(end) = self.text.iter().position(|&byte| byte == b'\n') {
                let line: Vec<u8> = self.text.drain(..=end).collect();
                return Some(String::from_utf8_lossy(&line[..end]).into_owned());
            }
            let piece = self.reply.piece().expect("a piece")?;
            self.text.extend_from_slice(&piece);
        }
    }

    /// Returns the data of the next event.
    #[track_caller]
    pub(crate) fn event(&mut self) -> String {
        self.identified_event().1
    }

    /// Returns the next event's `id`, if it has one, and its data.
    #[track_caller]
    pub(crate) fn identified_event(&mut self) -> (Option<String>, String) {
        let event = self.reply.event().expect("an event").expect("no end");
        let (id, data) = match event.strip_prefix("id: ").and_then(|rest| rest.split_once('\n')) {
            Some((id, data)) => (Some(id.to_owned()), data),
            None => (None, &*event),
        };
        (id, data.strip_prefix("data: ").expect("data alone").to_owned())
    }

    /// Sends commands beside it. Returns the status.
    pub(crate) fn send_commands(&self, client: &mut TestClient, commands: &str) -> u16 {
        emulate(client, &self.session, &self.node, commands)
    }

    /// Sends commands on an open connection.
    pub(crate) fn send_commands_over(&self, connection: &mut RawConnection, commands: &str) -> u16 {
        let body = json!({ "session": self.session, "node": self.node, "data": commands }).to_string();
        let length = body.len();
        connection.send(format!(
            "POST /emulation HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\n{body}"
        ));
        connection.try_reply("POST").expect("an answer").status()
    }
}

pub(crate) fn emulate(client: &mut TestClient, session: &str, node: &str, commands: &str) -> u16 {
    let body = json!({ "session": session, "node": node, "data": commands });
    client.post("/emulation").json(&body).send().status()
}

/// Returns a target with the connect command in its query.
pub(crate) fn with_query(path: &str, connect: &str) -> String {
    let mut target = format!("{path}?cf_connect=");
    for byte in connect.bytes() {
        target.push_str(&format!("%{byte:02X}"));
    }
    target
}

/// A client of HTTP/2 in virtual time.
pub(crate) struct Http2 {
    pub(crate) raw: RawConnection,
    wire: Connection,
    heads: HeadBuffer,
    out: Vec<u8>,
    input: Vec<u8>,
    answers: BTreeMap<u32, Answer>,
    /// Consumes bodies; otherwise they remain within their windows.
    pub(crate) consumes_bodies: bool,
}

/// The received part of a response: its status, fields and trailers, and the unread part of its body.
#[derive(Debug, Default)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) fields: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
    pub(crate) end: bool,
    pub(crate) reset: Option<ErrorCode>,
}

impl Answer {
    /// Returns the received body as text.
    pub(crate) fn take_text(&mut self) -> String {
        String::from_utf8(std::mem::take(&mut self.body)).expect("text")
    }
}

impl Http2 {
    pub(crate) fn new(client: &mut TestClient) -> Http2 {
        let (mut out, limits) = (Vec::new(), Limits::INTERNET);
        Http2 {
            raw: client.raw(),
            wire: Connection::new(Role::Client, &limits, Duration::ZERO, &mut out),
            heads: HeadBuffer::new(&limits),
            out,
            input: Vec::new(),
            answers: BTreeMap::new(),
            consumes_bodies: true,
        }
    }

    pub(crate) fn request(
        &mut self,
        method: &str,
        path: &str,
        fields: &[(&str, &str)],
        body: &[u8],
    ) -> ringmain_wire::h2::Stream {
        let stream = self.open(method, path, fields, body.is_empty());
        if !body.is_empty() {
            self.send(stream, body, true);
        }
        stream
    }

    /// Starts a request whose body follows.
    pub(crate) fn open_request(
        &mut self,
        method: &str,
        path: &str,
        fields: &[(&str, &str)],
    ) -> ringmain_wire::h2::Stream {
        self.open(method, path, fields, false)
    }

    fn open(
        &mut self,
        method: &str,
        path: &str,
        fields: &[(&str, &str)],
        end: bool,
    ) -> ringmain_wire::h2::Stream {
        let mut block = FieldBlock::new();
        for (name, value) in fields {
            block.push(name, value.as_bytes()).expect("a field");
        }
        let request = Request {
            method: Method::new(method),
            scheme: "http",
            authority: "localhost",
            path,
            protocol: None,
        };
        let asked = self.wire.request(&request, &block, None, end, &mut self.out);
        let stream = asked.expect("a stream");
        self.answers.insert(stream.id(), Answer::default());
        stream
    }

    /// Sends a part of a request's body.
    pub(crate) fn send(&mut self, stream: ringmain_wire::h2::Stream, body: &[u8], end: bool) {
        let sent = self.wire.data(stream, body, end, &mut self.out);
        assert_eq!(sent, Ok(body.len()), "it fits into the windows");
    }

    pub(crate) fn cancel_stream(&mut self, stream: ringmain_wire::h2::Stream) {
        self.wire.reset(stream, ErrorCode::CANCEL, &mut self.out);
    }

    /// Consumes so many bytes of a body in its window.
    pub(crate) fn take(&mut self, stream: ringmain_wire::h2::Stream, bytes: usize) {
        self.wire.consume(stream, bytes, &mut self.out);
    }

    pub(crate) fn response(&mut self, stream: ringmain_wire::h2::Stream) -> &mut Answer {
        self.answers.get_mut(&stream.id()).expect("asked")
    }

    /// Sends pending frames, advances time, and handles received frames.
    pub(crate) fn turn(&mut self) {
        let out = std::mem::take(&mut self.out);
        self.raw.send(out);
        self.raw.advance(Duration::from_millis(1));
        self.input.extend(self.raw.received());
        let mut at = 0;
        loop {
            let input = &self.input[at..];
            let step = self
                .wire
                .receive(input, Duration::ZERO, &mut self.heads, &mut self.out)
                .expect("frames");
            at += step.consumed;
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            match step.event {
                Event::NeedMore => break,
                Event::Response { stream, head, end } => {
                    let answer = self.answers.get_mut(&stream.id()).expect("asked");
                    (answer.status, answer.end) = (head.status, end);
                    let fields = head.fields.iter();
                    answer
                        .fields
                        .extend(fields.map(|field| (text(field.name), text(field.value))));
                }
                Event::Data { stream, data, end } => {
                    let answer = self.answers.get_mut(&stream.id()).expect("asked");
                    answer.body.extend_from_slice(data);
                    answer.end = end;
                    if self.consumes_bodies {
                        self.wire.consume(stream, data.len(), &mut self.out);
                    }
                }
                Event::Trailers { stream, fields } => {
                    let answer = self.answers.get_mut(&stream.id()).expect("asked");
                    answer.end = true;
                    answer
                        .fields
                        .extend(fields.iter().map(|field| (text(field.name), text(field.value))));
                }
                Event::Reset { stream, code } => {
                    self.answers.get_mut(&stream.id()).expect("asked").reset = Some(code);
                }
                _ => {}
            }
        }
        self.input.drain(..at);
    }
}
