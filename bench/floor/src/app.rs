//! What a floor answers: the bytes back, one constant HTTP response, or parsed requests.
//!
//! Must not know of sockets. The loops are compiled once for each of these, so that none
//! pays for another.

use std::mem::MaybeUninit;

/// Header fields of one request that [`Bare`] takes.
const FIELDS: usize = 32;
/// As long as the product's own Server field, so that both send the same number of bytes.
const JSON: &[u8] =
    b"HTTP/1.1 200 OK\r\nServer: ringmain\r\nContent-Type: application/json\r\nContent-Length: 27\r\nDate: ";
const PLAINTEXT: &[u8] =
    b"HTTP/1.1 200 OK\r\nServer: ringmain\r\nContent-Type: text/plain\r\nContent-Length: 13\r\nDate: ";
const JSON_BODY: &[u8] = b"{\"message\":\"Hello, World!\"}";
const PLAINTEXT_BODY: &[u8] = b"Hello, World!";
const HEAD_END: &[u8] = b"\r\n\r\n";

/// One kind of answer.
pub trait App {
    /// Called once a turn of the loop, before the answers of that turn.
    fn begin_turn(&mut self) {}

    /// Appends to `out` the answer to what stands whole in `data`. Returns the bytes used.
    fn answer(&self, data: &[u8], out: &mut Vec<u8>) -> usize;
}

/// Hands `data` to the app, behind what an earlier call left over in `rest`.
#[inline]
pub fn take(app: &impl App, rest: &mut Vec<u8>, data: &[u8], out: &mut Vec<u8>) {
    if rest.is_empty() {
        let used = app.answer(data, out);
        if used < data.len() {
            rest.extend_from_slice(&data[used..]);
        }
    } else {
        rest.extend_from_slice(data);
        let used = app.answer(rest, out);
        rest.drain(..used);
    }
}

/// The bytes back.
pub struct Echo;

impl App for Echo {
    #[inline]
    fn answer(&self, data: &[u8], out: &mut Vec<u8>) -> usize {
        out.extend_from_slice(data);
        data.len()
    }
}

/// One response, built at the start, for each block that ends as a head ends: neither
/// parses nor builds anything, so no HTTP server can cost less.
pub struct Constant {
    response: Vec<u8>,
}

impl Constant {
    pub fn new() -> Self {
        let mut date = Date::default();
        date.refresh();
        Self {
            response: [JSON, &date.text, HEAD_END, JSON_BODY].concat(),
        }
    }
}

impl App for Constant {
    #[inline]
    fn answer(&self, data: &[u8], out: &mut Vec<u8>) -> usize {
        if data.ends_with(HEAD_END) {
            out.extend_from_slice(&self.response);
            return data.len();
        }
        0
    }
}

/// Parses each request by httparse and answers by its path, with the date of the turn: the
/// least that may be called a server. What is malformed is dropped without an answer.
#[derive(Default)]
pub struct Bare {
    date: Date,
}

impl App for Bare {
    fn begin_turn(&mut self) {
        self.date.refresh();
    }

    #[inline]
    fn answer(&self, data: &[u8], out: &mut Vec<u8>) -> usize {
        let mut used = 0;
        while used < data.len() {
            let mut fields = [const { MaybeUninit::uninit() }; FIELDS];
            let mut request = httparse::Request::new(&mut []);
            let parser = httparse::ParserConfig::default();
            match parser.parse_request_with_uninit_headers(&mut request, &data[used..], &mut fields) {
                Ok(httparse::Status::Complete(bytes)) => used += bytes,
                Ok(httparse::Status::Partial) => return used,
                Err(_) => return data.len(),
            }
            let json = request.path == Some("/json");
            out.extend_from_slice(if json { JSON } else { PLAINTEXT });
            out.extend_from_slice(&self.date.text);
            out.extend_from_slice(HEAD_END);
            out.extend_from_slice(if json { JSON_BODY } else { PLAINTEXT_BODY });
        }
        used
    }
}

/// The value of the Date field, formatted anew only when the second has changed.
#[derive(Default)]
struct Date {
    second: libc::time_t,
    text: [u8; 29],
}

impl Date {
    fn refresh(&mut self) {
        // SAFETY: zeroed is a valid value of both; strftime writes at most the buffer's length,
        // which the format with its closing zero just fills.
        unsafe {
            let mut now: libc::timespec = std::mem::zeroed();
            libc::clock_gettime(libc::CLOCK_REALTIME_COARSE, &mut now);
            if now.tv_sec == self.second {
                return;
            }
            self.second = now.tv_sec;
            let mut calendar: libc::tm = std::mem::zeroed();
            libc::gmtime_r(&now.tv_sec, &mut calendar);
            let mut text = [0u8; 30];
            let format = c"%a, %d %b %Y %H:%M:%S GMT";
            let written = libc::strftime(text.as_mut_ptr().cast(), text.len(), format.as_ptr(), &calendar);
            assert_eq!(written, self.text.len(), "the length of an HTTP date");
            self.text.copy_from_slice(&text[..written]);
        }
    }
}
