//! An HTTP/2 client over a test's connection: the codec's other role.

use std::collections::BTreeMap;
use std::time::Duration;

use ringmain_tls::ClientSettings;
use ringmain_wire::h1::{FieldBlock, Method};
use ringmain_wire::h2::{Connection, ErrorCode, Event, HeadBuffer, Limits, Request, Role, Stream};

use crate::support::tls::{connector_of, development, localhost, trusting};
use crate::support::{Client, End, Server, Setting};

/// The response received on a stream so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Got {
    pub(crate) interim: Vec<u16>,
    pub(crate) status: u16,
    pub(crate) fields: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
    pub(crate) trailers: Vec<(String, String)>,
    pub(crate) end: bool,
    /// Its head was its end.
    pub(crate) bare: bool,
    pub(crate) reset: Option<ErrorCode>,
}

impl Got {
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        let found = self.fields.iter().find(|(there, _)| there == name);
        found.map(|(_, value)| value.as_str())
    }

    pub(crate) fn text(&self) -> &str {
        str::from_utf8(&self.body).expect("text")
    }

    #[track_caller]
    pub(crate) fn expect(&self, status: u16, body: &str) {
        assert_eq!(
            (self.status, self.text(), self.end),
            (status, body, true),
            "{self:?}"
        );
    }
}

pub(crate) struct Http2 {
    pub(crate) client: Client,
    pub(crate) wire: Connection,
    heads: HeadBuffer,
    pub(crate) out: Vec<u8>,
    got: BTreeMap<u32, Got>,
    /// Bodies that are not all sent.
    going: Vec<(Stream, Vec<u8>)>,
    pub(crate) away: Option<(u32, ErrorCode)>,
    /// Received data is consumed, except bodies, which stay within their windows.
    pub(crate) hungry: bool,
    /// The authority of the requests that follow.
    pub(crate) authority: String,
}

pub(crate) fn fields(all: &[(&str, &str)]) -> FieldBlock {
    let mut block = FieldBlock::new();
    for (name, value) in all {
        block.push(name, value.as_bytes()).expect("a field");
    }
    block
}

fn told<'f>(fields: impl Iterator<Item = ringmain_wire::h1::Field<'f>>) -> Vec<(String, String)> {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    fields
        .map(|field| (text(field.name), text(field.value)))
        .collect()
}

impl Http2 {
    pub(crate) fn new(setting: &Setting, server: &Server) -> Http2 {
        Http2::with(setting, server, &Limits::INTERNET)
    }

    pub(crate) fn with(setting: &Setting, server: &Server, limits: &Limits) -> Http2 {
        let mut client = Client::new(server.addr);
        if setting.tls {
            let settings = ClientSettings {
                alpn: vec![b"h2".to_vec()],
                ..trusting(&development().authority)
            };
            client = client
                .secure(&connector_of(&settings), &localhost())
                .expect("a handshake");
        }
        Http2::over(client, limits)
    }

    pub(crate) fn over(client: Client, limits: &Limits) -> Http2 {
        let mut out = Vec::new();
        Http2 {
            client,
            wire: Connection::new(Role::Client, limits, Duration::ZERO, &mut out),
            heads: HeadBuffer::new(limits),
            out,
            got: BTreeMap::new(),
            going: Vec::new(),
            away: None,
            hungry: true,
            authority: "localhost".to_owned(),
        }
    }

    pub(crate) fn flush(&mut self) {
        let out = std::mem::take(&mut self.out);
        self.client.send(out);
    }

    /// Begins a request.
    pub(crate) fn head(&mut self, method: &str, path: &str, block: &FieldBlock, end: bool) -> Stream {
        self.head_for(None, method, path, block, end)
    }

    /// Asks for another protocol on a stream.
    pub(crate) fn extended(&mut self, protocol: &str, path: &str, block: &FieldBlock, end: bool) -> Stream {
        self.head_for(Some(protocol), "CONNECT", path, block, end)
    }

    fn head_for(
        &mut self,
        protocol: Option<&str>,
        method: &str,
        path: &str,
        block: &FieldBlock,
        end: bool,
    ) -> Stream {
        let request = Request {
            method: Method::new(method),
            scheme: "http",
            authority: &self.authority,
            path,
            protocol,
        };
        let stream = self
            .wire
            .request(&request, block, None, end, &mut self.out)
            .expect("a stream");
        self.got.insert(stream.id(), Got::default());
        stream
    }

    /// A request without a body.
    pub(crate) fn get(&mut self, path: &str) -> Stream {
        self.head("GET", path, &FieldBlock::new(), true)
    }

    /// A request with a body.
    pub(crate) fn post(&mut self, path: &str, body: &[u8]) -> Stream {
        let stream = self.head("POST", path, &FieldBlock::new(), false);
        self.going.push((stream, body.to_vec()));
        self.push();
        stream
    }

    /// A body for a head that was sent, and its end.
    pub(crate) fn send_body(&mut self, stream: Stream, body: &[u8]) {
        self.going.push((stream, body.to_vec()));
        self.push();
    }

    /// Part of a body, which must fit into the windows.
    pub(crate) fn send_piece(&mut self, stream: Stream, piece: &[u8], end: bool) {
        let sent = self.wire.data(stream, piece, end, &mut self.out);
        assert_eq!(sent, Ok(piece.len()));
        self.flush();
    }

    /// Sends bodies as far as the windows permit.
    fn push(&mut self) {
        for (stream, body) in &mut self.going {
            // A stream that was reset is closed.
            let sent = self
                .wire
                .data(*stream, body, true, &mut self.out)
                .unwrap_or(body.len());
            body.drain(..sent);
        }
        self.going.retain(|(_, body)| !body.is_empty());
    }

    /// Returns the response received on a stream so far.
    pub(crate) fn so_far(&self, stream: Stream) -> Got {
        self.got[&stream.id()].clone()
    }

    /// Takes the bytes of a stream's body received since the last call.
    pub(crate) fn take_body(&mut self, stream: Stream) -> Vec<u8> {
        std::mem::take(&mut self.got.get_mut(&stream.id()).expect("asked").body)
    }

    /// Ends this side of the connection.
    #[allow(dead_code, reason = "for the gateway's tests, which share this file")]
    pub(crate) fn finish(&mut self) {
        self.flush();
        self.client.finish();
    }

    /// Gives a stream up.
    pub(crate) fn reset(&mut self, stream: Stream) {
        self.wire.reset(stream, ErrorCode::CANCEL, &mut self.out);
        self.flush();
    }

    /// Waits for the end of a stream.
    pub(crate) fn wait(&mut self, stream: Stream) -> Got {
        self.wait_for(stream, |got| got.end || got.reset.is_some())
    }

    pub(crate) fn wait_for(&mut self, stream: Stream, done: impl Fn(&Got) -> bool) -> Got {
        while !done(&self.got[&stream.id()]) {
            assert!(
                self.turn(),
                "the connection ended: {:?} {:?}",
                self.so_far(stream),
                self.away
            );
        }
        self.so_far(stream)
    }

    /// One request and its answer.
    pub(crate) fn ask(&mut self, path: &str) -> Got {
        let stream = self.get(path);
        self.wait(stream)
    }

    /// Sends what there is, receives once and takes it; `false`: the end.
    pub(crate) fn turn(&mut self) -> bool {
        self.flush();
        if self.client.receive().expect("bytes or the end") == 0 {
            return false;
        }
        let input = std::mem::take(self.client.kept());
        let mut at = 0;
        loop {
            let step = self
                .wire
                .receive(&input[at..], Duration::ZERO, &mut self.heads, &mut self.out)
                .expect("a server that keeps the rules");
            at += step.consumed;
            match step.event {
                Event::NeedMore => break,
                Event::Response { stream, head, end } => {
                    let got = self.got.get_mut(&stream.id()).expect("asked");
                    if head.status < 200 {
                        got.interim.push(head.status);
                        continue;
                    }
                    assert_eq!(got.status, 0, "one head");
                    (got.status, got.end, got.bare) = (head.status, end, end);
                    got.fields = told(head.fields.iter());
                }
                Event::Data { stream, data, end } => {
                    let got = self.got.get_mut(&stream.id()).expect("asked");
                    got.body.extend_from_slice(data);
                    got.end = end;
                    if self.hungry {
                        self.wire.consume(stream, data.len(), &mut self.out);
                    }
                }
                Event::Trailers { stream, fields } => {
                    let got = self.got.get_mut(&stream.id()).expect("asked");
                    (got.trailers, got.end) = (told(fields.iter()), true);
                }
                Event::Reset { stream, code } => {
                    self.got.get_mut(&stream.id()).expect("asked").reset = Some(code);
                }
                Event::GoAway { last, code } => self.away = Some((last, code)),
                Event::Window { .. } | Event::Settings => {}
                other => panic!("{other:?}"),
            }
        }
        *self.client.kept() = input[at..].to_vec();
        self.push();
        true
    }

    /// Waits until the server has closed in order.
    pub(crate) fn expect_end(&mut self) {
        while self.turn() {}
        let (rest, end) = self.client.rest();
        assert_eq!((rest.len(), end), (0, End::Orderly));
    }
}
