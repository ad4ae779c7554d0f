//! A subscriber of the push server, byte by byte.

use std::io::{Read, Write};
use std::net::TcpStream;

use serde_json::Value;

use crate::PATIENCE;

/// A client of our push server on a WebSocket, in JSON.
#[derive(Debug)]
pub struct Subscriber {
    stream: TcpStream,
}

impl Subscriber {
    /// Connects, and subscribes to these channels.
    #[track_caller]
    pub fn to(addr: &str, channels: &[&str]) -> Subscriber {
        let stream = TcpStream::connect(addr).expect("a gateway");
        stream.set_read_timeout(Some(PATIENCE)).expect("a time limit");
        let mut subscriber = Subscriber { stream };
        let opening = format!(
            "GET /connection/websocket HTTP/1.1\r\nHost: {addr}\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\
             Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
        );
        subscriber
            .stream
            .write_all(opening.as_bytes())
            .expect("it is read");
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            subscriber.stream.read_exact(&mut byte).expect("a head");
            head.push(byte[0]);
        }
        assert!(
            head.starts_with(b"HTTP/1.1 101 "),
            "{}",
            String::from_utf8_lossy(&head)
        );
        subscriber.send(r#"{"id":1,"connect":{}}"#);
        assert!(subscriber.receive()["connect"].is_object());
        for (id, channel) in (2..).zip(channels) {
            subscriber.send(&format!(r#"{{"id":{id},"subscribe":{{"channel":"{channel}"}}}}"#));
            let answer = subscriber.receive();
            assert!(answer["subscribe"].is_object(), "{answer}");
        }
        subscriber
    }

    /// Sends a command, masked by zeroes.
    pub fn send(&mut self, text: &str) {
        let length = u8::try_from(text.len()).expect("a short one");
        assert!(length < 126);
        let mut frame = vec![0x81, 0x80 | length, 0, 0, 0, 0];
        frame.extend(text.as_bytes());
        self.stream.write_all(&frame).expect("it is read");
    }

    /// Receives the next message.
    #[track_caller]
    pub fn receive(&mut self) -> Value {
        let mut head = [0; 2];
        self.stream.read_exact(&mut head).expect("a frame");
        assert_eq!(head[0], 0x81, "a text, all of it");
        let length = match head[1] {
            126 => {
                let mut long = [0; 2];
                self.stream.read_exact(&mut long).expect("a length");
                u16::from_be_bytes(long)
            }
            short => u16::from(short),
        };
        let mut text = vec![0; usize::from(length)];
        self.stream.read_exact(&mut text).expect("a payload");
        serde_json::from_slice(&text).expect("JSON")
    }

    /// Receives the end of the session. Returns the code of its disconnect.
    #[track_caller]
    pub fn disconnect(&mut self) -> u16 {
        let mut head = [0; 4];
        self.stream.read_exact(&mut head).expect("a frame");
        assert_eq!(head[0], 0x88, "a close frame");
        u16::from_be_bytes([head[2], head[3]])
    }

    /// Returns the code of a disconnect that has arrived, without waiting for one.
    #[track_caller]
    pub fn try_disconnect(&mut self) -> Option<u16> {
        self.stream.set_nonblocking(true).expect("a socket");
        let peeked = self.stream.peek(&mut [0; 4]);
        self.stream.set_nonblocking(false).expect("a socket");
        match peeked {
            Ok(_) => Some(self.disconnect()),
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => None,
            Err(error) => panic!("{error}"),
        }
    }

    /// Receives the next publication: its channel and data.
    #[track_caller]
    pub fn publication(&mut self) -> (String, Value) {
        let mut push = self.receive();
        let channel = push["push"]["channel"].as_str().expect("a channel").to_owned();
        (channel, push["push"]["pub"]["data"].take())
    }
}
