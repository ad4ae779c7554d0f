//! Tokens as an application signs them, and a client that shows them, in either format.

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

/// Nobody without a token. Besides `kept`, the namespaces `users` and `closed` are as it is, for those whom they are for.
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

/// With so many workers.
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

/// What time it is where tokens are looked at, in seconds since 1970.
pub(crate) fn now(client: &mut TestClient) -> u64 {
    client.get("/now").send().text().parse().expect("a number")
}

/// A client on a WebSocket.
pub(crate) struct Talker {
    pub(crate) socket: TestSocket,
    format: Format,
    number: u32,
    waiting: VecDeque<Reply>,
}

impl Talker {
    pub(crate) fn open(client: &mut TestClient, format: Format) -> Talker {
        let opening = client.ws("/connection/websocket");
        Talker {
            socket: opening.protocols(&[format.subprotocol()]).open(),
            format,
            number: 0,
            waiting: VecDeque::new(),
        }
    }

    /// One that is connected by this token.
    #[track_caller]
    pub(crate) fn connected(client: &mut TestClient, format: Format, token: &str) -> (Talker, Reply) {
        let mut talker = Talker::open(client, format);
        let reply = talker.ask(connect(token));
        assert!(reply.connect.is_some(), "{reply:?}");
        (talker, reply)
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

    /// The answer to a command; pushes before it wait.
    #[track_caller]
    pub(crate) fn ask(&mut self, command: Command) -> Reply {
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

    /// The next that was not asked for, pings aside.
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

    /// Takes a message that was looked at.
    pub(crate) fn take(&mut self, message: &[u8]) {
        let message = Bytes::copy_from_slice(message);
        for reply in Replies::new(self.format, message) {
            let reply = reply.expect("a reply");
            match reply == Reply::default() {
                true => {
                    let mut pong = Vec::new();
                    self.format.write(&Command::default(), &mut pong).expect("JSON");
                    match self.format {
                        Format::Json => self.socket.send_text("{}"),
                        Format::Protobuf => self.socket.send_binary(&pong),
                    }
                }
                false => self.waiting.push_back(reply),
            }
        }
    }

    /// Takes what has come, and answers pings.
    pub(crate) fn look(&mut self) {
        while let Ok(Some(event)) = self.socket.event_now() {
            match event {
                TestEvent::Message(message) => self.take(message.data()),
                TestEvent::Ping(_) | TestEvent::Pong(_) => {}
                over => panic!("expected it to go on, found {over:?}"),
            }
        }
    }

    /// Whether nothing has come that was not looked for.
    pub(crate) fn is_quiet(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Lets time pass, and answers pings meanwhile.
    pub(crate) fn wait(&mut self, client: &mut TestClient, seconds: u64) {
        for _ in 0..seconds {
            client.advance(Duration::from_secs(1));
            self.look();
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

/// The code of what went wrong; 0 if nothing did.
pub(crate) fn code(reply: &Reply) -> u32 {
    reply.error.as_ref().map_or(0, |Error { code, .. }| *code)
}
