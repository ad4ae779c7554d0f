//! An application with channels, and clients of its streams.

use std::time::Duration;

use ringmain_hub::history::Keep;
use ringmain_push::{Namespace, Options};
use ringmain_web::App;
use ringmain_web::testing::{RawConnection, Setup, StreamedReply, TestClient, TestRequest};
use serde_json::{Value, json};

/// Channels that keep nothing, and in the namespace `kept` those that know everything.
pub(crate) fn options() -> Options {
    let mut kept = Namespace {
        publish: true,
        history: true,
        presence: true,
        recovery: true,
        ..Namespace::default()
    };
    kept.rules.presence = true;
    kept.rules.keep = Some(Keep {
        publications: 2,
        bytes: 1000,
        time: Duration::from_secs(60),
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

/// With so many workers, and a page that says which of them answers.
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

/// Numbers that are drawn by lot, by what they are.
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

/// Messages of an answer that lasts.
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

    /// One that is connected by HTTP streaming.
    #[track_caller]
    pub(crate) fn lines(client: &mut TestClient) -> Stream {
        let request = client.post("/connection/http_stream").body(CONNECT);
        let mut stream = Stream::open(request);
        let reply = stream.line();
        stream.is_connected(&reply);
        stream
    }

    /// One that is connected by server-sent events.
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

    /// The next line.
    #[track_caller]
    pub(crate) fn line(&mut self) -> String {
        self.try_line().expect("a line")
    }

    /// The next line; `None` at the end of the stream.
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

    /// The data of the next event.
    #[track_caller]
    pub(crate) fn event(&mut self) -> String {
        let event = self.reply.event().expect("an event").expect("no end");
        event.strip_prefix("data: ").expect("data alone").to_owned()
    }

    /// Sends commands beside it. Returns the status.
    pub(crate) fn say(&self, client: &mut TestClient, commands: &str) -> u16 {
        emulate(client, &self.session, &self.node, commands)
    }

    /// The same on a connection that is open.
    pub(crate) fn say_by(&self, connection: &mut RawConnection, commands: &str) -> u16 {
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

/// A target whose query says how to connect.
pub(crate) fn with_query(path: &str, connect: &str) -> String {
    let mut target = format!("{path}?cf_connect=");
    for byte in connect.bytes() {
        target.push_str(&format!("%{byte:02X}"));
    }
    target
}
