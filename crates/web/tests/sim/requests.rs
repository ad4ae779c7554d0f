//! Requests of clients, and the expected responses.

use ringmain_sim::World;
use ringmain_web::Limits;
use ringmain_web::testing::TestReply;

use crate::app::{EVENTS, account, event, pattern};

/// The kind of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Plain,
    Frame,
    Collect,
    Fail,
    Panic,
    PanicLater,
    PanicInHook,
    StoppedByHook,
    Sleep,
    Download,
    /// A download that its handler breaks off.
    Cut,
    Events,
    Collected,
    Stream,
    Echo,
    First,
    FastPath,
    Nowhere,
    /// Bytes that are not a request.
    Bad,
}

const KINDS: [Kind; 19] = [
    Kind::Plain,
    Kind::Frame,
    Kind::Collect,
    Kind::Fail,
    Kind::Panic,
    Kind::PanicLater,
    Kind::PanicInHook,
    Kind::StoppedByHook,
    Kind::Sleep,
    Kind::Download,
    Kind::Cut,
    Kind::Events,
    Kind::Collected,
    Kind::Stream,
    Kind::Echo,
    Kind::First,
    Kind::FastPath,
    Kind::Nowhere,
    Kind::Bad,
];

/// One request as it goes out.
#[derive(Debug)]
pub(crate) struct Ask {
    pub(crate) id: u64,
    pub(crate) kind: Kind,
    pub(crate) method: &'static str,
    pub(crate) bytes: Vec<u8>,
    /// Bytes of the head.
    pub(crate) head: usize,
    /// The body waits for `100 Continue`, or for the answer.
    pub(crate) expects: bool,
    /// `Connection: close`, or an old version that does not say otherwise.
    pub(crate) wants_close: bool,
    chunked: bool,
    body: Vec<u8>,
    length: usize,
    status: u16,
    too_large: bool,
}

/// Circumstances under which an answer may be another one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Slack {
    /// The client has slept, so deadlines may have passed.
    pub(crate) late: bool,
    /// The process is shutting down.
    pub(crate) draining: bool,
    /// Workers run only so many asynchronous requests.
    pub(crate) crowded: bool,
    /// No further request of this connection is answered.
    pub(crate) is_last: bool,
    /// The client has ended its side, with all of the request or within it.
    pub(crate) ended: bool,
}

impl Ask {
    /// The request with number `id`, with bodies of at most `most` bytes.
    pub(crate) fn draw(world: &World, id: u64, most: usize, limits: &Limits) -> Ask {
        let kind = match world.below(3) {
            0 => [Kind::Plain, Kind::Sleep, Kind::Collect, Kind::Stream][world.below(4)],
            _ => KINDS[world.below(KINDS.len())],
        };
        let mut ask = Ask {
            id,
            kind,
            method: "GET",
            bytes: Vec::new(),
            head: 0,
            expects: false,
            wants_close: world.below(12) == 0,
            chunked: false,
            body: Vec::new(),
            length: world.below(most + 1),
            status: 200,
            too_large: false,
        };
        if kind.has_body() {
            ask.method = "POST";
            ask.draw_body(world, most, limits);
        } else if kind.has_head() && world.below(5) == 0 {
            ask.method = "HEAD";
        }
        ask.status = match kind {
            Kind::Fail => [400, 404, 409, 500, 503][world.below(5)],
            Kind::Panic | Kind::PanicLater | Kind::PanicInHook => 500,
            Kind::Nowhere => 404,
            Kind::Bad => 400,
            _ if ask.too_large => 413,
            _ => 200,
        };
        let target = ask.target(world);
        ask.write(world, &target);
        ask
    }

    fn draw_body(&mut self, world: &World, most: usize, limits: &Limits) {
        let collected = matches!(self.kind, Kind::Collect | Kind::Collected | Kind::StoppedByHook);
        self.too_large = collected && world.below(10) == 0;
        let length = match world.below(4) {
            0 => 0,
            _ => self.length,
        };
        let length = if self.too_large {
            limits.body_bytes as usize + 1 + length
        } else if collected {
            length.min(limits.body_bytes as usize)
        } else {
            length
        };
        self.body = pattern(self.id, length);
        self.chunked = world.below(2) == 0;
        self.expects = length > 0 && world.below(4) == 0;
        let _ = most;
    }

    fn target(&self, world: &World) -> String {
        let ms = [0, 0, 1, 7, 40][world.below(5)];
        let path = match self.kind {
            Kind::Plain => "plain",
            Kind::Frame => "frame",
            Kind::Collect => "collect",
            Kind::Fail => "fail",
            Kind::Panic => "panic",
            Kind::PanicLater => "panics",
            Kind::PanicInHook => "hook",
            Kind::StoppedByHook => "stopped",
            Kind::Sleep => "sleep",
            Kind::Download => "download",
            Kind::Cut => "cut",
            Kind::Events => "events",
            Kind::Collected => "collected",
            Kind::Stream => "stream",
            Kind::Echo => "echo",
            Kind::First => "first",
            Kind::FastPath => "early",
            Kind::Nowhere | Kind::Bad => "nowhere",
        };
        format!(
            "/{path}/{}?n={}&ms={ms}&status={}&piece={}&sized={}&frames={}",
            self.id,
            self.length,
            self.status,
            1 + world.below(self.length / 2 + 1) + self.length / 20,
            world.below(2),
            world.below(2),
        )
    }

    fn write(&mut self, world: &World, target: &str) {
        let mut text = format!(
            "{} {target} HTTP/1.1\r\nHost: sim\r\nX-Id: {}\r\n",
            self.method, self.id
        );
        if self.kind == Kind::Bad {
            text.push_str("No field at all\r\n");
        }
        if self.wants_close {
            text.push_str("Connection: close\r\n");
        }
        if self.expects {
            text.push_str("Expect: 100-continue\r\n");
        }
        if self.kind.has_body() && self.chunked {
            text.push_str("Transfer-Encoding: chunked\r\n");
        } else if self.kind.has_body() {
            text.push_str(&format!("Content-Length: {}\r\n", self.body.len()));
        }
        text.push_str("\r\n");
        self.head = text.len();
        self.bytes = text.into_bytes();
        if !self.chunked {
            self.bytes.extend_from_slice(&self.body);
            return;
        }
        let piece = 1 + world.below(self.body.len() + 1);
        let few = self.body.len() / piece < 500;
        for chunk in self.body.chunks(piece) {
            // Few enough for the limit on the sum of their lengths.
            let extension = [";a=b", ""][if few { world.below(2) } else { 1 }];
            let line = format!("{:x}{extension}\r\n", chunk.len());
            self.bytes.extend_from_slice(line.as_bytes());
            self.bytes.extend_from_slice(chunk);
            self.bytes.extend_from_slice(b"\r\n");
        }
        self.bytes.extend_from_slice(
            [
                &b"0\r\n\r\n"[..],
                b"0\r\nX-Trailer: GET /plain/1 HTTP/1.1\r\n\r\n",
            ][world.below(2)],
        );
    }

    /// Checks that this response is valid, including whether the connection may or must end with it.
    pub(crate) fn check(&self, reply: &TestReply, slack: Slack) -> Result<(), String> {
        let refused = match reply.status() {
            503 => self.kind.waits() && slack.crowded && self.status != 503,
            408 => slack.late,
            413 => self.too_large,
            400 => self.kind == Kind::Bad,
            _ => false,
        };
        let id = reply.header("x-id");
        if !(refused && id.is_none()) && id != Some(&self.id.to_string()) {
            return Err(format!(
                "expected an answer to {}, found one to {id:?}: {reply:?}",
                self.id
            ));
        }
        if refused {
            return self.check_closing(reply, slack, true);
        }
        // A body that its client breaks off is the handler's to answer.
        let broken = slack.ended && self.kind.has_body() && reply.status() == 400;
        if reply.status() != self.status && !broken {
            return Err(format!(
                "expected status {}, found {}",
                self.status,
                reply.status()
            ));
        }
        if !broken {
            self.check_body(reply, slack)?;
        }
        if self.expects && reply.interim().len() > 1 || !self.expects && !reply.interim().is_empty() {
            return Err(format!("expected no interim answer, found {:?}", reply.interim()));
        }
        self.check_closing(reply, slack, broken)
    }

    fn check_closing(&self, reply: &TestReply, slack: Slack, refused: bool) -> Result<(), String> {
        let must = self.wants_close || slack.is_last || self.kind == Kind::Bad;
        let may = must || refused || slack.draining || slack.ended || self.may_close();
        match reply.closes() {
            true if !may => Err("the answer closes the connection without a cause".into()),
            false if must => Err("the answer should close the connection".into()),
            _ => Ok(()),
        }
    }

    /// Returns true if a response may leave part of the body unread.
    fn may_close(&self) -> bool {
        match self.kind {
            Kind::Echo | Kind::First | Kind::FastPath => true,
            Kind::Nowhere => self.chunked || self.expects || self.body.len() > 60_000,
            _ => false,
        }
    }

    fn check_body(&self, reply: &TestReply, slack: Slack) -> Result<(), String> {
        let body = reply.body();
        if self.method == "HEAD" {
            return expect(body, b"");
        }
        match self.kind {
            Kind::Plain | Kind::Frame | Kind::Sleep | Kind::Download => {
                expect(body, &pattern(self.id, self.length))
            }
            Kind::Collect | Kind::Collected | Kind::Stream | Kind::StoppedByHook => {
                expect(body, account(self.id, &self.body).as_bytes())
            }
            Kind::Echo => expect(body, &self.body),
            Kind::First => expect(body, format!("first {}", account(self.id, &self.body)).as_bytes()),
            Kind::FastPath => expect(body, account(self.id, b"").as_bytes()),
            Kind::Events => {
                let all: Vec<String> = (0..EVENTS)
                    .map(|number| format!("data: {}\n\n", event(self.id, number)))
                    .collect();
                let whole = all.concat();
                // A shutdown ends the stream behind any event.
                let ends_early = slack.draining || slack.ended;
                let fits = (0..=all.len()).any(|count| all[..count].concat().as_bytes() == body);
                if ends_early && fits {
                    return Ok(());
                }
                expect(body, whole.as_bytes())
            }
            Kind::Cut => Err("an answer that was broken off looks whole".into()),
            Kind::Fail | Kind::Panic | Kind::PanicLater | Kind::PanicInHook | Kind::Nowhere | Kind::Bad => {
                let status = format!("\"status\":{}", self.status);
                if String::from_utf8_lossy(body).contains(&status) {
                    Ok(())
                } else {
                    Err(format!(
                        "expected a problem with {status}, found {}",
                        body.escape_ascii()
                    ))
                }
            }
        }
    }
}

fn expect(found: &[u8], expected: &[u8]) -> Result<(), String> {
    if found == expected {
        return Ok(());
    }
    let same = found.iter().zip(expected).take_while(|(a, b)| a == b).count();
    Err(format!(
        "expected a body of {} bytes, found {} of which the first {same} are right",
        expected.len(),
        found.len()
    ))
}

impl Kind {
    fn has_body(self) -> bool {
        matches!(
            self,
            Kind::Collect
                | Kind::StoppedByHook
                | Kind::Collected
                | Kind::Stream
                | Kind::Echo
                | Kind::First
                | Kind::FastPath
                | Kind::Nowhere
        )
    }

    fn has_head(self) -> bool {
        matches!(
            self,
            Kind::Plain | Kind::Frame | Kind::Sleep | Kind::Download | Kind::Fail
        )
    }

    /// Returns true if its handler is asynchronous.
    fn waits(self) -> bool {
        matches!(
            self,
            Kind::PanicLater
                | Kind::PanicInHook
                | Kind::StoppedByHook
                | Kind::Sleep
                | Kind::Download
                | Kind::Cut
                | Kind::Events
                | Kind::Collected
                | Kind::Stream
                | Kind::Echo
                | Kind::First
                | Kind::FastPath
        )
    }
}
