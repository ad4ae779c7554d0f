//! A TLS client's first message, read without being answered: ours against rustls' own reader.
//!
//! The first two bytes of an input say where it is cut, the rest is what a client sends.

use std::io::Cursor;

use ringmain_wire::tls::{HelloScanner, Looked, NoHello, limits};
use rustls::server::Acceptor;

/// Laws: no panic; any cut gives the outcome of the whole, and so does one byte at a time; what is decided stays decided
/// whatever comes behind it; more is never asked for than may come; of a message that both readers take, both have
/// the same name and the same protocols.
///
/// # Panics
/// When a law is broken.
pub fn run(input: &[u8]) {
    let Some((cut, bytes)) = input.split_first_chunk::<2>() else {
        return;
    };
    let whole = HelloScanner::new().look(bytes);
    let cut = usize::from(u16::from_be_bytes(*cut)) % (bytes.len() + 1);
    let mut scanner = HelloScanner::new();
    match scanner.look(&bytes[..cut]) {
        Ok(Looked::NeedMore) => assert_eq!(scanner.look(bytes), whole, "cut at {cut}"),
        decided => assert_eq!(decided, whole, "cut at {cut}"),
    }
    let mut scanner = HelloScanner::new();
    let mut steps = (1..=bytes.len()).map(|end| scanner.look(&bytes[..end]));
    let decided = steps.find(|step| *step != Ok(Looked::NeedMore));
    assert_eq!(decided.unwrap_or(Ok(Looked::NeedMore)), whole, "byte by byte");
    match &whole {
        Ok(Looked::NeedMore) => assert!(bytes.len() < limits::HELLO_BYTES),
        Ok(Looked::Hello(hello)) => compare(hello, bytes),
        Err(NoHello::NotTls(_) | NoHello::TooLong) => {}
    }
}

fn compare(hello: &ringmain_wire::tls::Hello, bytes: &[u8]) {
    let mut acceptor = Acceptor::default();
    let mut rest = Cursor::new(bytes);
    while (rest.position() as usize) < bytes.len() {
        if acceptor.read_tls(&mut rest).is_err() {
            return;
        }
        match acceptor.accept() {
            Ok(None) => {}
            Ok(Some(accepted)) => {
                let theirs = accepted.client_hello();
                if let Some(name) = theirs.server_name() {
                    let name = name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase();
                    assert_eq!(hello.server_name.as_ref(), Some(&name));
                }
                if let Some(protocols) = theirs.alpn() {
                    let protocols: Vec<_> = protocols.map(<[u8]>::to_vec).collect();
                    assert_eq!(hello.alpn, protocols);
                }
                return;
            }
            // It knows of more that can be wrong.
            Err(_) => return,
        }
    }
}
