//! An upstream, a client, and their messages.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{self, Receiver};
use std::time::Duration;

/// The maximum time of a step before a test fails: a guard, not a measure.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// A message: its first line, its fields in small letters, its body.
#[derive(Clone, Debug)]
pub(crate) struct HttpMessage {
    pub(crate) first: String,
    fields: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl HttpMessage {
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        let found = self.fields.iter().find(|(found, _)| found == name);
        found.map(|(_, value)| value.as_str())
    }

    /// Reads a message with a length. `None`: the peer has closed the connection.
    fn read(reader: &mut impl BufRead) -> Option<HttpMessage> {
        let line = |reader: &mut dyn BufRead| {
            let mut line = String::new();
            reader.read_line(&mut line).ok().filter(|count| *count > 0)?;
            Some(line.trim_end().to_owned())
        };
        let first = line(reader)?;
        let mut fields = Vec::new();
        loop {
            let line = line(reader)?;
            if line.is_empty() {
                break;
            }
            let (name, value) = line.split_once(": ")?;
            fields.push((name.to_ascii_lowercase(), value.to_owned()));
        }
        let mut message = HttpMessage {
            first,
            fields,
            body: Vec::new(),
        };
        let length = message.field("content-length").and_then(|text| text.parse().ok());
        message.body = vec![0; length.unwrap_or(0)];
        reader.read_exact(&mut message.body).ok()?;
        Some(message)
    }
}

/// Answers each request with its body, or else with `answer`, as JSON; and passes on the requests.
pub(crate) fn upstream(answer: &'static str) -> (SocketAddr, Receiver<HttpMessage>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let addr = listener.local_addr().expect("it is bound");
    let (sender, seen) = mpsc::channel();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(stream) = stream else { return };
            let sender = sender.clone();
            std::thread::spawn(move || serve(stream, answer, &sender));
        }
    });
    (addr, seen)
}

fn serve(mut stream: TcpStream, answer: &str, seen: &mpsc::Sender<HttpMessage>) {
    let mut reader = BufReader::new(stream.try_clone().expect("a socket"));
    while let Some(message) = HttpMessage::read(&mut reader) {
        let body = if message.body.is_empty() {
            answer.as_bytes().to_vec()
        } else {
            message.body.clone()
        };
        let head = format!(
            "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nETag: \"1\"\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        // The test may have ended.
        let _ = seen.send(message);
        if stream.write_all(&[head.as_bytes(), &body].concat()).is_err() {
            return;
        }
    }
}

/// Sends one request on a new connection.
pub(crate) fn ask(addr: &str, method: &str, target: &str, body: &str) -> HttpMessage {
    let mut stream = TcpStream::connect(addr).expect("it listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("a socket");
    let length = if body.is_empty() {
        String::new()
    } else {
        format!("Content-Length: {}\r\n", body.len())
    };
    let text = format!(
        "{method} {target} HTTP/1.1\r\nHost: api\r\nAccept-Encoding: gzip\r\nX-Signature: forged\r\n{length}\r\n{body}"
    );
    stream.write_all(text.as_bytes()).expect("it is read");
    HttpMessage::read(&mut BufReader::new(stream)).expect("an answer")
}
