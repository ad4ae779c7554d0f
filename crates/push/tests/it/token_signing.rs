//! Tokens as signed by an application, and a client that sends them, in either format.

use std::collections::VecDeque;
use std::time::Duration;

use aws_lc_rs::hmac;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use ringmain_hub::protocol::{
    Command, ConnectRequest, Error, Format, Push, RefreshRequest, Replies, Reply, SubRefreshRequest,
    SubscribeRequest,
};
use ringmain_push::{KeySet, Namespace, Options, SubscribeAccess, Tokens};
use ringmain_web::App;
use ringmain_web::testing::{Setup, TestClient, TestEvent, TestSocket};
use serde_json::{Value, json};

use crate::support::options;

pub(crate) const SECRET: &[u8; 32] = b"a secret of two and thirty bytes";
pub(crate) const FORMATS: [Format; 2] = [Format::Json, Format::Protobuf];
pub(crate) const LEEWAY: u64 = 10;

pub(crate) fn signed_by(secret: &[u8], header: &Value, claims: &Value) -> String {
    let encode = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
    let message = format!("{}.{}", encode(header), encode(claims));
    let key = hmac::Key::new(hmac::HMAC_SHA256, secret);
    let signature = hmac::sign(&key, message.as_bytes());
    format!("{message}.{}", URL_SAFE_NO_PAD.encode(signature.as_ref()))
}

#[expect(clippy::needless_pass_by_value, reason = "what `json!` makes")]
pub(crate) fn token(claims: Value) -> String {
    signed_by(SECRET, &json!({ "alg": "HS256" }), &claims)
}

pub(crate) fn tokens() -> Tokens {
    Tokens {
        leeway: Duration::from_secs(LEEWAY),
        ..Tokens::new(KeySet::from_secret(SECRET).expect("a key"))
    }
}

/// Returns options without anonymous clients. The namespaces `users` and `closed` are as `kept`, with restricted access.
pub(crate) fn guarded() -> Options {
    let mut options = options();
    let kept = options.namespaces["kept"];
    for (name, listen) in [
        ("users", SubscribeAccess::Users),
        ("closed", SubscribeAccess::NoOne),
    ] {
        options.namespaces.insert(
            name.to_owned(),
            Namespace {
                subscribe_access: listen,
                ..kept
            },
        );
    }
    options.anonymous = false;
    options.tokens = Some(tokens());
    options
}

/// Serves on so many workers.
pub(crate) fn serve_guarded(workers: usize, options: Options) -> TestClient {
    let app = App::new().get("/now", |request, reply| {
        reply.text(request.cx().wall().as_secs().to_string())
    });
    let setup = Setup {
        workers,
        ..Setup::default()
    };
    TestClient::with(ringmain_push::serve(app, options), setup).expect("an application")
}

/// Returns the time by which tokens are checked, in seconds since 1970.
pub(crate) fn now(client: &mut TestClient) -> u64 {
    client.get("/now").send().text().parse().expect("a number")
}

/// A client on a WebSocket.
pub(crate) struct WsClient {
    pub(crate) socket: TestSocket,
    format: Format,
    number: u32,
    waiting: VecDeque<Reply>,
}

impl WsClient {
    pub(crate) fn open(client: &mut TestClient, format: Format) -> WsClient {
        let opening = client.ws("/connection/websocket");
        WsClient {
            socket: opening.protocols(&[format.subprotocol()]).open(),
            format,
            number: 0,
            waiting: VecDeque::new(),
        }
    }

    /// Connects with this token.
    #[track_caller]
    pub(crate) fn connected(client: &mut TestClient, format: Format, token: &str) -> (WsClient, Reply) {
        let mut ws = WsClient::open(client, format);
        let reply = ws.request(connect(token));
        assert!(reply.connect.is_some(), "{reply:?}");
        (ws, reply)
    }

    /// Sends commands in one message. Returns the last one's number.
    pub(crate) fn send(&mut self, commands: impl IntoIterator<Item = Command>) -> u32 {
        let mut message = Vec::new();
        for mut command in commands {
            self.number += 1;
            command.id = self.number;
            self.format.write(&command, &mut message).expect("JSON");
        }
        match self.format {
            Format::Json => self.socket.send_text(String::from_utf8(message).expect("a text")),
            Format::Protobuf => self.socket.send_binary(message),
        }
        self.number
    }

    /// Returns the reply to a command; pushes before it are queued.
    #[track_caller]
    pub(crate) fn request(&mut self, command: Command) -> Reply {
        let number = self.send([command]);
        self.reply(number)
    }

    #[track_caller]
    pub(crate) fn reply(&mut self, number: u32) -> Reply {
        loop {
            if let Some(at) = self.waiting.iter().position(|reply| reply.id == number) {
                return self.waiting.remove(at).expect("it is there");
            }
            self.receive();
        }
    }

    /// Returns the next push, except for pings.
    #[track_caller]
    pub(crate) fn push(&mut self) -> Push {
        loop {
            let mut waiting = self.waiting.iter();
            if let Some(at) = waiting.position(|reply| reply.push.is_some()) {
                let reply = self.waiting.remove(at).expect("it is there");
                return reply.push.expect("a push");
            }
            self.receive();
        }
    }

    #[track_caller]
    fn receive(&mut self) {
        let message = self.socket.message();
        self.take(message.data());
    }

    /// Handles a received message.
    pub(crate) fn take(&mut self, message: &[u8]) {
        let message = Bytes::copy_from_slice(message);
        for reply in Replies::new(self.format, message) {
            let reply = reply.expect("a reply");
            if reply == Reply::default() {
                let mut pong = Vec::new();
                self.format.write(&Command::default(), &mut pong).expect("JSON");
                match self.format {
                    Format::Json => self.socket.send_text("{}"),
                    Format::Protobuf => self.socket.send_binary(&pong),
                }
            } else {
                self.waiting.push_back(reply)
            }
        }
    }

    /// Handles all received messages, and answers pings.
    pub(crate) fn receive_all(&mut self) {
        while let Ok(Some(event)) = self.socket.event_now() {
            match event {
                TestEvent::Message(message) => self.take(message.data()),
                TestEvent::Ping(_) | TestEvent::Pong(_) => {}
                over => panic!("expected it to go on, found {over:?}"),
            }
        }
    }

    /// Returns whether no received message is left.
    pub(crate) fn is_quiet(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Advances time, and answers pings meanwhile.
    pub(crate) fn wait(&mut self, client: &mut TestClient, seconds: u64) {
        for _ in 0..seconds {
            client.advance(Duration::from_secs(1));
            self.receive_all();
        }
    }
}

pub(crate) fn connect(token: &str) -> Command {
    Command {
        connect: Some(ConnectRequest {
            token: token.to_owned(),
            ..ConnectRequest::default()
        }),
        ..Command::default()
    }
}

pub(crate) fn subscribe(channel: &str, token: &str) -> Command {
    Command {
        subscribe: Some(SubscribeRequest {
            channel: channel.to_owned(),
            token: token.to_owned(),
            ..SubscribeRequest::default()
        }),
        ..Command::default()
    }
}

pub(crate) fn refresh(token: &str) -> Command {
    let token = token.to_owned();
    Command {
        refresh: Some(RefreshRequest { token }),
        ..Command::default()
    }
}

pub(crate) fn sub_refresh(channel: &str, token: &str) -> Command {
    let (channel, token) = (channel.to_owned(), token.to_owned());
    Command {
        sub_refresh: Some(SubRefreshRequest { channel, token }),
        ..Command::default()
    }
}

/// Returns the code of the error; 0 without one.
pub(crate) fn code(reply: &Reply) -> u32 {
    reply.error.as_ref().map_or(0, |Error { code, .. }| *code)
}
