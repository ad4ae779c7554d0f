//! A client on a plain socket that allocates nothing once it is open, so that only the server's allocations are counted.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// The time limit of expected messages: a guard against hanging, never a measure.
const PATIENCE: Duration = Duration::from_secs(30);

/// Bytes of the longest message to a client here.
const MOST: usize = 16 * 1024;

/// Commands as they follow a frame's header.
pub(crate) struct Said {
    bytes: [u8; 128],
    length: usize,
}

pub(crate) struct Client {
    stream: TcpStream,
    is_binary: bool,
}

impl Said {
    fn new() -> Said {
        Said {
            bytes: [0; 128],
            length: 0,
        }
    }

    fn put(&mut self, bytes: &[u8]) {
        self.bytes[self.length..self.length + bytes.len()].copy_from_slice(bytes);
        self.length += bytes.len();
    }

    /// Encodes `connect` as command 1.
    fn connect(is_binary: bool) -> Said {
        let mut said = Said::new();
        if is_binary {
            // A command of four bytes: number 1, an empty connect request.
            said.put(&[4, 0x08, 1, 0x22, 0])
        } else {
            said.put(br#"{"id":1,"connect":{}}"#)
        }
        said
    }

    /// Encodes `subscribe` as command 2.
    fn subscribe(is_binary: bool, channel: &[u8]) -> Said {
        let mut said = Said::new();
        let length = channel.len() as u8;
        if is_binary {
            said.put(&[length + 6, 0x08, 2, 0x2A, length + 2, 0x0A, length]);
            said.put(channel);
        } else {
            said.put(br#"{"id":2,"subscribe":{"channel":""#);
            said.put(channel);
            said.put(br#""}}"#);
        }
        said
    }
}

impl Client {
    /// Opens a WebSocket and connects, without a subscription.
    pub(crate) fn open(addr: SocketAddr, is_binary: bool) -> Client {
        let stream = TcpStream::connect(addr).expect("the server listens");
        stream.set_nodelay(true).expect("a socket");
        stream.set_read_timeout(Some(PATIENCE)).expect("a socket");
        let mut client = Client { stream, is_binary };
        let protocol: &[u8] = if is_binary {
            b"Sec-WebSocket-Protocol: centrifuge-protobuf\r\n"
        } else {
            b""
        };
        for part in [
            b"GET /connection/websocket HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n",
            protocol,
            b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
        ] {
            client.stream.write_all(part).expect("the server takes it");
        }
        let mut head = [0; 1024];
        let mut length = 0;
        while !head[..length].ends_with(b"\r\n\r\n") {
            client.publish_many(&mut head[length..=length]);
            length += 1;
        }
        assert!(head.starts_with(b"HTTP/1.1 101"), "the socket opens");
        client.send_commands(&Said::connect(is_binary));
        client.answered(1);
        client
    }

    /// Subscribes to a channel.
    pub(crate) fn subscribe(&mut self, channel: &[u8]) {
        self.send_commands(&Said::subscribe(self.is_binary, channel));
        self.answered(2);
    }

    fn send_commands(&mut self, said: &Said) {
        let mut frame = [0; 6 + 128];
        frame[0] = if self.is_binary { 0x82 } else { 0x81 };
        frame[1] = 0x80 | u8::try_from(said.length).expect("a short frame");
        // Masked with zeroes: unchanged.
        frame[6..6 + said.length].copy_from_slice(&said.bytes[..said.length]);
        let whole = &frame[..6 + said.length];
        self.stream.write_all(whole).expect("the server takes it");
    }

    /// Waits for the reply to a command, which is the next message.
    fn answered(&mut self, number: u8) {
        let mut message = [0; MOST];
        let length = self.message(&mut message);
        let begins: &[u8] = match (self.is_binary, number) {
            (true, _) => &[0x08, number],
            (false, 1) => br#"{"id":1,"connect":{"#,
            (false, _) => br#"{"id":2,"subscribe":{"#,
        };
        // Behind its length, where it has one.
        let from = usize::from(self.is_binary);
        let found = &message[from..length];
        let text = String::from_utf8_lossy(&message[..length]);
        assert!(
            found.starts_with(begins),
            "expected an answer to {number}, found {text}"
        );
    }

    /// Reads a message. Returns its length.
    pub(crate) fn message(&mut self, message: &mut [u8]) -> usize {
        let mut head = [0; 4];
        self.publish_many(&mut head[..2]);
        let length = match head[1] {
            126 => {
                self.publish_many(&mut head[2..]);
                usize::from(u16::from_be_bytes([head[2], head[3]]))
            }
            short => usize::from(short),
        };
        self.publish_many(&mut message[..length]);
        length
    }

    fn publish_many(&mut self, buffer: &mut [u8]) {
        let mut filled = 0;
        while filled < buffer.len() {
            match self.stream.read(&mut buffer[filled..]) {
                Ok(0) => panic!("the end after {filled} bytes"),
                Ok(count) => filled += count,
                // Work of a ring that this thread has probed.
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => panic!("expected {} bytes, found {error}", buffer.len()),
            }
        }
    }
}
