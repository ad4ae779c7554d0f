//! A test's WebSocket: the client's role of the codec, in virtual time.

use std::time::Duration;

use ringmain_wire::h1::{self, FieldTable, HeadScanner, Method, Parsed, RequestEncoder, parse_response};
use ringmain_wire::ws::{
    Close, CloseCode, Decoder, Deflater, Deflation, Encoder, Event, Inflater, Kind, Limits, Mask, Message,
    Misuse, Opening, Role,
};

use super::connection::RawConnection;
use super::reply::TestReply;
use super::{TestClient, TestError};
use crate::ws::OwnedMessage;

/// The opening handshake of a WebSocket, sent by [`open`](TestUpgrade::open).
#[must_use = "the handshake goes out by `open`"]
pub struct TestUpgrade<'c> {
    client: &'c mut TestClient,
    target: String,
    host: String,
    fields: Vec<(String, Vec<u8>)>,
    protocols: Vec<String>,
    deflation: Option<Deflation>,
}

/// An event on a [`TestSocket`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TestEvent {
    /// A whole message.
    Message(OwnedMessage),
    /// A ping, which was answered.
    Ping(Vec<u8>),
    /// A pong.
    Pong(Vec<u8>),
    /// The application's Close, which was answered unless this end had closed: its code (1005: none) and reason.
    Close(u16, String),
    /// The connection is closed, properly or by a reset.
    End,
}

/// A client's side of a WebSocket. It reads nothing by itself; dropping it closes the connection.
pub struct TestSocket {
    connection: RawConnection,
    protocol: Option<String>,
    deflation: Option<Deflation>,
    input: Vec<u8>,
    decoder: Decoder,
    encoder: Encoder,
    inflater: Inflater,
    deflater: Deflater,
    message: Vec<u8>,
    /// The last mask key: a test needs no random ones.
    key: u32,
    ended: bool,
}

impl<'c> TestUpgrade<'c> {
    pub(super) fn new(client: &'c mut TestClient, target: &str) -> TestUpgrade<'c> {
        TestUpgrade {
            client,
            target: target.into(),
            host: "localhost".into(),
            fields: Vec::new(),
            protocols: Vec::new(),
            deflation: None,
        }
    }

    /// Adds a field: `Origin`, `Authorization`, cookies.
    pub fn header(mut self, name: &str, value: impl AsRef<[u8]>) -> Self {
        self.fields.push((name.into(), value.as_ref().into()));
        self
    }

    /// Sets the host; default: `localhost`.
    pub fn host(mut self, host: &str) -> Self {
        self.host = host.into();
        self
    }

    /// Sets the subprotocols in order of preference.
    pub fn protocols(mut self, protocols: &[&str]) -> Self {
        self.protocols = protocols.iter().map(|&name| name.into()).collect();
        self
    }

    /// Offers permessage-deflate.
    pub fn deflate(mut self, options: Deflation) -> Self {
        self.deflation = Some(options);
        self
    }

    /// Opens the socket.
    ///
    /// # Panics
    /// If [`TestUpgrade::try_open`] fails, or the application refuses; the message has the reason.
    #[must_use]
    #[track_caller]
    pub fn open(self) -> TestSocket {
        let target = self.target.clone();
        match self.try_open() {
            Ok(Ok(socket)) => socket,
            Ok(Err(reply)) => panic!("{target}: expected 101, found {reply:?}"),
            Err(error) => panic!("{target}: {error}"),
        }
    }

    /// Expects the application to refuse, and returns its response.
    ///
    /// # Panics
    /// If [`TestUpgrade::try_open`] fails, or the application does not refuse.
    #[must_use]
    #[track_caller]
    pub fn refused(self) -> TestReply {
        let target = self.target.clone();
        match self.try_open() {
            Ok(Err(reply)) => reply,
            Ok(Ok(_)) => panic!("{target}: expected a refusal, found 101"),
            Err(error) => panic!("{target}: {error}"),
        }
    }

    /// Opens the socket, or returns the response that refuses it.
    ///
    /// # Errors
    /// No response in time, a broken connection, a response that violates the protocol, a request that cannot be encoded.
    pub fn try_open(self) -> Result<Result<TestSocket, TestReply>, TestError> {
        let protocols: Vec<&str> = self.protocols.iter().map(String::as_str).collect();
        let opening = Opening::new([7; 16], &protocols, self.deflation)
            .map_err(|misuse| TestError(format!("the handshake cannot be written: {misuse}")))?;
        let bytes = self
            .encode(&opening)
            .map_err(|misuse| TestError(format!("the handshake cannot be written: {misuse}")))?;
        let mut connection = self.client.separate()?;
        let head = connection.first_head(&bytes)?;
        let limits = h1::Limits::INTERNET;
        let mut table = FieldTable::new(&limits);
        let parsed = parse_response(&head, Method::Get, &limits, &mut HeadScanner::new(), &mut table);
        let Ok(Parsed::Complete { head, .. }) = parsed else {
            return Err(TestError("the answer's head breaks the protocol".into()));
        };
        if head.status != 101 {
            return connection.refusal().map(Err);
        }
        let opened = opening
            .conclude(&head)
            .map_err(|fault| TestError(fault.to_string()))?;
        let protocol = opened.protocol.map(Into::into);
        Ok(Ok(TestSocket::new(connection, protocol, opened.deflation)))
    }

    fn encode(&self, opening: &Opening<'_>) -> Result<Vec<u8>, h1::Misuse> {
        let mut out = Vec::new();
        let mut head = RequestEncoder::new(&mut out, Method::Get, &self.target, &self.host)?;
        for (name, value) in &self.fields {
            head.field(name, value)?;
        }
        opening.write_fields(&mut head)?;
        let _without_body = head.finish_with_upgrade(h1::Framing::None, b"websocket")?;
        Ok(out)
    }
}

impl TestSocket {
    fn new(connection: RawConnection, protocol: Option<String>, deflation: Option<Deflation>) -> TestSocket {
        // A test accepts everything that it is sent.
        let limits = Limits {
            frame_bytes: u64::MAX,
            message_bytes: u64::MAX,
            control_frames: u32::MAX,
        };
        let window = deflation.map_or(Deflation::SHARED.own_window, |deflation| deflation.own_window);
        TestSocket {
            connection,
            protocol,
            deflation,
            input: Vec::new(),
            decoder: Decoder::new(Role::Client, &limits, deflation),
            encoder: Encoder::new(Role::Client, deflation, usize::MAX),
            inflater: Inflater::new(4096),
            deflater: Deflater::new(window, 6),
            message: Vec::new(),
            key: 0,
            ended: false,
        }
    }

    /// Returns the subprotocol that the application has selected.
    #[must_use]
    pub fn protocol(&self) -> Option<&str> {
        self.protocol.as_deref()
    }

    /// Returns the negotiated parameters of permessage-deflate.
    #[must_use]
    pub fn deflation(&self) -> Option<Deflation> {
        self.deflation
    }

    /// Sends a message, deflated if that was negotiated.
    ///
    /// # Panics
    /// After a Close.
    #[track_caller]
    pub fn send(&mut self, message: Message<'_>) {
        let is_deflated = self.deflation.is_some();
        self.encode(|encoder, deflater, out, mask| {
            if is_deflated {
                encoder.deflated(out, message, deflater, mask)
            } else {
                encoder.message(out, message, mask)
            }
        });
    }

    /// Sends a text message.
    ///
    /// # Panics
    /// After a Close.
    #[track_caller]
    pub fn send_text(&mut self, text: impl AsRef<str>) {
        self.send(Message::Text(text.as_ref()));
    }

    /// Sends a binary message.
    ///
    /// # Panics
    /// After a Close.
    #[track_caller]
    pub fn send_binary(&mut self, bytes: impl AsRef<[u8]>) {
        self.send(Message::Binary(bytes.as_ref()));
    }

    /// Sends a fragment of a message; `last` ends it.
    ///
    /// # Panics
    /// After a Close, or if the fragments are of different kinds.
    #[track_caller]
    pub fn send_fragment(&mut self, fragment: Message<'_>, last: bool) {
        self.encode(|encoder, _, out, mask| encoder.fragment(out, fragment, last, mask));
    }

    /// Sends a ping.
    ///
    /// # Panics
    /// After a Close, or with more than 125 bytes.
    #[track_caller]
    pub fn ping(&mut self, data: impl AsRef<[u8]>) {
        self.encode(|encoder, _, out, mask| encoder.ping(out, data.as_ref(), mask));
    }

    /// Sends a Close.
    ///
    /// # Panics
    /// After another, or with a code that may not be sent.
    #[track_caller]
    pub fn close(&mut self, code: u16, reason: &str) {
        let code = CloseCode::new(code).expect("a code that may be sent");
        self.encode(|encoder, _, out, mask| encoder.close(out, Some(Close { code, reason }), mask));
    }

    /// Returns the connection: to send raw bytes, advance time or disconnect.
    pub fn connection(&mut self) -> &mut RawConnection {
        &mut self.connection
    }

    /// Waits for the next event.
    ///
    /// # Errors
    /// Nothing arrives in time, or the received bytes violate the protocol.
    pub fn event(&mut self) -> Result<TestEvent, TestError> {
        loop {
            if let Some(event) = self.decode()? {
                return Ok(event);
            }
            if self.ended {
                return Ok(TestEvent::End);
            }
            self.ended = self.connection.more("something on the socket", &mut self.input)?;
        }
    }

    /// Returns the next event that has already arrived, without waiting.
    ///
    /// # Errors
    /// The received bytes violate the protocol.
    pub fn event_now(&mut self) -> Result<Option<TestEvent>, TestError> {
        let received = self.connection.received();
        self.input.extend_from_slice(&received);
        self.decode()
    }

    /// Waits for the next message. Pings received before it are answered.
    ///
    /// # Panics
    /// If another event arrives, or none in time.
    #[track_caller]
    pub fn message(&mut self) -> OwnedMessage {
        loop {
            match self.event() {
                Ok(TestEvent::Message(message)) => return message,
                Ok(TestEvent::Ping(_)) => {}
                other => panic!("expected a message, found {other:?}"),
            }
        }
    }

    /// Waits for the next message, which must be text.
    ///
    /// # Panics
    /// As [`TestSocket::message`], and if the message is binary.
    #[track_caller]
    pub fn text(&mut self) -> String {
        match self.message() {
            OwnedMessage::Text(text) => text,
            other => panic!("expected a text, found {other:?}"),
        }
    }

    /// Waits for the application's Close; earlier events are dropped.
    ///
    /// # Panics
    /// If the connection ends without one, or nothing arrives in time.
    #[track_caller]
    pub fn closed(&mut self) -> (u16, String) {
        loop {
            match self.event() {
                Ok(TestEvent::Close(code, reason)) => return (code, reason),
                Ok(TestEvent::End) => panic!("expected a Close, found the end of the connection"),
                Ok(_) => {}
                Err(error) => panic!("expected a Close: {error}"),
            }
        }
    }

    /// Advances virtual time by `span`.
    pub fn advance(&mut self, span: Duration) {
        self.connection.advance(span);
    }

    fn decode(&mut self) -> Result<Option<TestEvent>, TestError> {
        loop {
            let step = self.decoder.decode(&mut self.input, Some(&mut self.inflater));
            let step = step.map_err(|fault| TestError(fault.to_string()))?;
            let consumed = step.consumed;
            let event = match step.event {
                Event::NeedMore | Event::NeedInflater => None,
                Event::Piece(piece) => {
                    self.message.extend_from_slice(piece.data);
                    let whole = piece.last.then(|| std::mem::take(&mut self.message));
                    whole.map(|bytes| TestEvent::Message(owned(piece.kind, bytes)))
                }
                Event::Ping(data) => Some(TestEvent::Ping(data.to_vec())),
                Event::Pong(data) => Some(TestEvent::Pong(data.to_vec())),
                Event::Close(close) => Some(match close {
                    Some(close) => TestEvent::Close(close.code.number(), close.reason.into()),
                    None => TestEvent::Close(1005, String::new()),
                }),
            };
            let more = event.is_none() && consumed > 0;
            self.input.drain(..consumed);
            if let Some(event) = event {
                self.answer(&event);
                return Ok(Some(event));
            }
            if !more {
                return Ok(None);
            }
        }
    }

    fn answer(&mut self, event: &TestEvent) {
        match event {
            TestEvent::Ping(data) if self.encoder.closing().may_send() => {
                self.encode(|encoder, _, out, mask| encoder.pong(out, data, mask));
            }
            TestEvent::Close(code, _) if self.encoder.close_received().may_send() => {
                let close = CloseCode::new(*code).map(|code| Close { code, reason: "" });
                self.encode(|encoder, _, out, mask| encoder.close(out, close, mask));
            }
            _ => {}
        }
    }

    #[track_caller]
    fn encode(
        &mut self,
        encode: impl FnOnce(&mut Encoder, &mut Deflater, &mut Vec<u8>, Mask<'_>) -> Result<(), Misuse>,
    ) {
        let key = &mut self.key;
        let mut next = || {
            *key = key.wrapping_mul(0x0019_660d).wrapping_add(0x3c6e_f35f);
            key.to_be_bytes()
        };
        let mut out = Vec::new();
        let encoded = encode(
            &mut self.encoder,
            &mut self.deflater,
            &mut out,
            Mask::Keys(&mut next),
        );
        encoded.expect("a test sends valid frames");
        // Bytes that were not accepted show in the application's reply.
        let _ = self.connection.send(out);
    }
}

fn owned(kind: Kind, bytes: Vec<u8>) -> OwnedMessage {
    match kind {
        Kind::Text => OwnedMessage::Text(String::from_utf8(bytes).expect("the decoder has checked it")),
        Kind::Binary => OwnedMessage::Binary(bytes),
    }
}

impl std::fmt::Debug for TestUpgrade<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "an upgrade at {}", self.target)
    }
}

impl std::fmt::Debug for TestSocket {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "TestSocket on {:?}", self.connection)
    }
}
