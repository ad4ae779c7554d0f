//! One client: its connection, its frames, and the messages of the protocol.

use std::io;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::io::Errno;
use rustix::net::{self, AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, sockopt};
use serde::Deserialize;
use serde_json::json;

use crate::beliefs::{Publication, Subscribed, Subscription};
use crate::{Action, SharedState, now};

/// The longest delay before a client reconnects, in seconds.
const RECONNECT_LIMIT: f64 = 4.0;
const HANDSHAKE_TIME: Duration = Duration::from_secs(20);
const RESUBSCRIBE_DELAY: Duration = Duration::from_millis(100);
/// The addresses that clients connect from.
const SOURCES: usize = 8;
const HEAD: &[u8] =
    b"GET /connection/websocket HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
    Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n";

const TEXT: u8 = 1;
const CLOSE: u8 = 8;
const PING: u8 = 9;
const PONG: u8 = 10;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Closed,
    /// The head of the response is missing.
    Connecting,
    /// The reply to `connect` is missing.
    Greeting,
    Open,
    /// It does not reconnect.
    Ended,
}

#[derive(Deserialize)]
struct Message<'a> {
    id: Option<u64>,
    #[serde(borrow)]
    push: Option<Push<'a>>,
    error: Option<ReplyError>,
    #[serde(borrow)]
    subscribe: Option<Subscribed<'a>>,
}

#[derive(Deserialize)]
struct Push<'a> {
    channel: Option<&'a str>,
    #[serde(borrow, rename = "pub")]
    publication: Option<Publication<'a>>,
    unsubscribe: Option<Code>,
    disconnect: Option<Code>,
}

#[derive(Deserialize)]
struct Code {
    #[serde(default)]
    code: u32,
}

#[derive(Deserialize)]
struct ReplyError {
    #[serde(default)]
    code: u32,
    #[serde(default)]
    temporary: bool,
}

/// See the module.
pub(crate) struct Client {
    pub(crate) index: usize,
    pub(crate) subscriptions: Vec<Subscription>,
    pub(crate) port: u16,
    token: Option<String>,
    socket: Option<OwnedFd>,
    state: State,
    inbound: Vec<u8>,
    outbound: Vec<u8>,
    fragments: Vec<u8>,
    /// The subscriptions that were requested, by the number of the command.
    requests: Vec<(u64, usize)>,
    number: u64,
    attempts: u32,
    /// Changes with each connection, and with its end.
    life: u32,
}

/// The reason for which a connection has ended.
enum End {
    Code(u32),
    Text(String),
}

impl End {
    fn text(text: impl Into<String>) -> End {
        End::Text(text.into())
    }
}

impl Client {
    pub(crate) fn new(index: usize, channels: Vec<u32>, token: Option<String>) -> Client {
        Client {
            index,
            subscriptions: channels.into_iter().map(Subscription::new).collect(),
            port: 0,
            token,
            socket: None,
            state: State::Closed,
            inbound: Vec::new(),
            outbound: Vec::new(),
            fragments: Vec::new(),
            requests: Vec::new(),
            number: 1,
            attempts: 0,
            life: 0,
        }
    }

    pub(crate) fn is_ended(&self) -> bool {
        self.state == State::Ended
    }

    /// Returns the port that the client is connected to.
    pub(crate) fn open_port(&self) -> Option<u16> {
        (self.state == State::Open).then_some(self.port)
    }

    pub(crate) fn act(&mut self, action: Action, shared: &mut SharedState) {
        match action {
            Action::Connect { life, .. } if life == self.life && self.socket.is_none() => {
                if let Err(error) = self.connect(shared) {
                    self.close(&End::text(error.to_string()), shared);
                }
            }
            Action::GiveUp { life, .. }
                if life == self.life && self.socket.is_some() && self.state != State::Open =>
            {
                self.close(&End::text("no response"), shared);
            }
            Action::Subscribe {
                life, subscription, ..
            } if life == self.life && self.state == State::Open => {
                self.request(&[subscription], shared);
                self.flush_or_close(shared);
            }
            _ => {}
        }
    }

    fn connect(&mut self, shared: &mut SharedState) -> io::Result<()> {
        self.life += 1;
        let drawn = shared.draw() as usize;
        self.port = shared.ports[drawn % shared.ports.len()];
        self.inbound.clear();
        self.fragments.clear();
        self.requests.clear();
        self.outbound.clear();
        self.outbound.extend_from_slice(HEAD);
        self.state = State::Connecting;
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let socket = net::socket_with(AddressFamily::INET, SocketType::STREAM, flags, None)?;
        sockopt::set_tcp_nodelay(&socket, true)?;
        // The kernel searches for a free port much longer where most of those of an address are used.
        let source = Ipv4Addr::new(127, 0, 1, 1 + (self.index % SOURCES) as u8);
        net::bind(&socket, &SocketAddrV4::new(source, 0))?;
        match net::connect(&socket, &SocketAddrV4::new(Ipv4Addr::LOCALHOST, self.port)) {
            Ok(()) | Err(Errno::INPROGRESS) => {}
            Err(error) => return Err(error.into()),
        }
        let flags = EventFlags::IN | EventFlags::OUT;
        epoll::add(
            &shared.epoll,
            &socket,
            EventData::new_u64(self.index as u64),
            flags,
        )?;
        self.socket = Some(socket);
        let give_up = Action::GiveUp {
            client: self.index,
            life: self.life,
        };
        shared.at(now() + HANDSHAKE_TIME, give_up);
        Ok(())
    }

    pub(crate) fn ready(&mut self, events: EventFlags, shared: &mut SharedState, buffer: &mut [u8]) {
        if events.contains(EventFlags::OUT) {
            self.flush_or_close(shared);
        }
        if !events.intersects(EventFlags::IN | EventFlags::HUP | EventFlags::ERR) {
            return;
        }
        let Some(socket) = &self.socket else { return };
        let end = match net::recv(socket, &mut *buffer, RecvFlags::empty()) {
            Ok((0, _)) => Err(End::text("end")),
            Ok((length, _)) => self.receive(&buffer[..length], shared),
            Err(Errno::AGAIN | Errno::INTR) => Ok(()),
            Err(error) => Err(End::text(error.to_string())),
        };
        match end {
            Ok(()) => self.flush_or_close(shared),
            Err(end) => self.close(&end, shared),
        }
    }

    fn flush_or_close(&mut self, shared: &mut SharedState) {
        if let Err(error) = self.flush(shared) {
            self.close(&End::text(error.to_string()), shared);
        }
    }

    fn flush(&mut self, shared: &SharedState) -> io::Result<()> {
        let Some(socket) = &self.socket else { return Ok(()) };
        if self.outbound.is_empty() {
            return Ok(());
        }
        match net::send(socket, &self.outbound, SendFlags::NOSIGNAL) {
            Ok(sent) => drop(self.outbound.drain(..sent)),
            // The connection is not there yet, or its buffer is full.
            Err(Errno::AGAIN | Errno::NOTCONN) => {}
            Err(error) => return Err(error.into()),
        }
        let mut flags = EventFlags::IN;
        flags.set(EventFlags::OUT, !self.outbound.is_empty());
        epoll::modify(
            &shared.epoll,
            socket,
            EventData::new_u64(self.index as u64),
            flags,
        )?;
        Ok(())
    }

    /// Forgets the connection. Codes from 3500 to 3999 and from 4500 end the client.
    fn close(&mut self, end: &End, shared: &mut SharedState) {
        // Closing the descriptor removes it from the set.
        self.socket = None;
        self.life += 1;
        let was = std::mem::replace(&mut self.state, State::Closed);
        for subscription in &mut self.subscriptions {
            subscription.is_live = false;
        }
        if was == State::Connecting {
            shared.beliefs.counts.refused += 1;
        }
        let reason = match end {
            End::Code(code) => code.to_string(),
            End::Text(text) => text.clone(),
        };
        *shared.beliefs.closes.entry(reason).or_default() += 1;
        if matches!(end, End::Code(3500..4000 | 4500..)) {
            self.state = State::Ended;
            return;
        }
        let (low, high) = shared.reconnect;
        let limit = (high * f64::from(1_u32 << self.attempts.min(6))).min(RECONNECT_LIMIT);
        self.attempts += 1;
        let delay = shared.draw_between(low, limit);
        let connect = Action::Connect {
            client: self.index,
            life: self.life,
        };
        shared.at(now() + Duration::from_secs_f64(delay), connect);
    }

    fn receive(&mut self, bytes: &[u8], shared: &mut SharedState) -> Result<(), End> {
        let mut inbound = std::mem::take(&mut self.inbound);
        inbound.extend_from_slice(bytes);
        let mut taken = 0;
        if self.state == State::Connecting {
            let Some(end) = inbound.windows(4).position(|window| window == b"\r\n\r\n") else {
                self.inbound = inbound;
                return Ok(());
            };
            let head = String::from_utf8_lossy(&inbound[..end]);
            let status = head.lines().next().unwrap_or_default();
            if !status.contains(" 101 ") {
                return Err(End::text(status));
            }
            taken = end + 4;
            self.state = State::Greeting;
            let connect = match &self.token {
                Some(token) => json!({"id": 1, "connect": {"token": token}}),
                None => json!({"id": 1, "connect": {}}),
            };
            self.frame(TEXT, connect.to_string().as_bytes());
        }
        while let Some((operation, is_final, start, end)) = frame_in(&inbound[taken..]) {
            let data = &inbound[taken + start..taken + end];
            taken += end;
            self.take_frame(operation, is_final, data, shared)?;
        }
        inbound.drain(..taken);
        self.inbound = inbound;
        Ok(())
    }

    fn take_frame(
        &mut self,
        operation: u8,
        is_final: bool,
        data: &[u8],
        shared: &mut SharedState,
    ) -> Result<(), End> {
        match operation {
            CLOSE => {
                return Err(match data {
                    [first, second, ..] => End::Code(u32::from(u16::from_be_bytes([*first, *second]))),
                    _ => End::text("end"),
                });
            }
            PING => self.frame(PONG, data),
            0..=2 if is_final && self.fragments.is_empty() => return self.take_messages(data, shared),
            0..=2 => {
                self.fragments.extend_from_slice(data);
                if is_final {
                    let whole = std::mem::take(&mut self.fragments);
                    return self.take_messages(&whole, shared);
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn take_messages(&mut self, data: &[u8], shared: &mut SharedState) -> Result<(), End> {
        let now = now();
        for line in data.split(|byte| *byte == b'\n') {
            match line {
                b"" => {}
                b"{}" => self.frame(TEXT, b"{}"),
                line => {
                    let message = serde_json::from_slice(line);
                    let message: Message<'_> = message.map_err(|error| End::text(error.to_string()))?;
                    self.take_message(message, shared, now)?;
                }
            }
        }
        Ok(())
    }

    fn take_message(
        &mut self,
        message: Message<'_>,
        shared: &mut SharedState,
        now: Duration,
    ) -> Result<(), End> {
        let Message {
            id,
            push,
            error,
            subscribe,
        } = message;
        if let Some(push) = push {
            return self.take_push(&push, shared, now);
        }
        if id == Some(1) {
            if let Some(error) = error {
                shared.beliefs.counts.errors += 1;
                return Err(End::text(format!("error {}", error.code)));
            }
            (self.state, self.attempts) = (State::Open, 0);
            shared.beliefs.counts.connects += 1;
            let all: Vec<usize> = (0..self.subscriptions.len()).collect();
            self.request(&all, shared);
            return Ok(());
        }
        let position = self.requests.iter().position(|(number, _)| Some(*number) == id);
        let Some((_, index)) = position.map(|position| self.requests.swap_remove(position)) else {
            return Ok(());
        };
        if let Some(error) = error {
            shared.beliefs.counts.errors += 1;
            if !error.temporary {
                let text = format!("not subscribed: error {}", error.code);
                shared
                    .beliefs
                    .fault(self.index, self.subscriptions[index].channel, &text);
            }
            self.subscribe_at(now + RESUBSCRIBE_DELAY, index, shared);
        } else if let Some(result) = subscribe {
            let subscription = &mut self.subscriptions[index];
            shared.beliefs.subscribed(self.index, subscription, &result, now);
        }
        Ok(())
    }

    fn take_push(&mut self, push: &Push<'_>, shared: &mut SharedState, now: Duration) -> Result<(), End> {
        if let Some(Code { code }) = push.disconnect {
            return Err(End::Code(code));
        }
        let channel = push
            .channel
            .and_then(|channel| shared.beliefs.channels.find(channel));
        let own = |subscription: &Subscription| Some(subscription.channel) == channel;
        let index = self.subscriptions.iter().position(own);
        if let Some(publication) = &push.publication {
            match index.map(|index| &mut self.subscriptions[index]) {
                Some(subscription) if subscription.is_live => {
                    shared
                        .beliefs
                        .publication(self.index, subscription, publication, now);
                }
                _ => {
                    let channel = channel.unwrap_or(u32::MAX);
                    shared
                        .beliefs
                        .fault(self.index, channel, "a publication without a subscription");
                }
            }
        } else if let (Some(Code { code }), Some(index)) = (&push.unsubscribe, index) {
            self.subscriptions[index].is_live = false;
            if *code >= 2500 {
                shared.beliefs.counts.notified += 1;
                self.subscribe_at(now, index, shared);
            }
        }
        Ok(())
    }

    fn subscribe_at(&self, when: Duration, subscription: usize, shared: &mut SharedState) {
        let subscribe = Action::Subscribe {
            client: self.index,
            life: self.life,
            subscription,
        };
        shared.at(when, subscribe);
    }

    /// Requests subscriptions, in one frame.
    fn request(&mut self, indices: &[usize], shared: &SharedState) {
        let mut lines = Vec::new();
        for index in indices {
            self.number += 1;
            self.requests.push((self.number, *index));
            let subscription = &self.subscriptions[*index];
            let channel = shared.beliefs.channels.text(subscription.channel);
            let mut body = json!({"channel": channel, "recoverable": true, "positioned": true});
            if let Some(epoch) = subscription.epoch {
                body["recover"] = true.into();
                body["epoch"] = shared.beliefs.epochs.text(epoch).into();
                body["offset"] = subscription.offset.into();
            }
            lines.push(json!({"id": self.number, "subscribe": body}).to_string());
        }
        self.frame(TEXT, lines.join("\n").as_bytes());
    }

    /// Appends a frame, with a mask of zeros.
    fn frame(&mut self, operation: u8, data: &[u8]) {
        self.outbound.push(0x80 | operation);
        match data.len() {
            length @ 0..126 => self.outbound.push(0x80 | length as u8),
            length @ 126..65536 => {
                self.outbound.push(0x80 | 126);
                self.outbound.extend_from_slice(&(length as u16).to_be_bytes());
            }
            length => {
                self.outbound.push(0x80 | 127);
                self.outbound.extend_from_slice(&(length as u64).to_be_bytes());
            }
        }
        self.outbound.extend_from_slice(&[0; 4]);
        self.outbound.extend_from_slice(data);
    }
}

/// Returns the operation of the first frame, whether it is the last of its message, and the range of its data. `None`: it is not complete.
fn frame_in(bytes: &[u8]) -> Option<(u8, bool, usize, usize)> {
    let [first, second, ..] = *bytes else { return None };
    let (length, start): (usize, usize) = match second & 127 {
        126 => (
            usize::from(u16::from_be_bytes(bytes.get(2..4)?.try_into().ok()?)),
            4,
        ),
        127 => (
            u64::from_be_bytes(bytes.get(2..10)?.try_into().ok()?) as usize,
            10,
        ),
        length => (usize::from(length), 2),
    };
    let end = start.checked_add(length)?;
    (bytes.len() >= end).then_some((first & 15, first & 128 != 0, start, end))
}
