//! Secrets of sessions in the lines of SSLKEYLOGFILE, for whoever reads captures. Writes no file.

use std::fmt;
use std::sync::Arc;

/// Where lines go. Whoever has them can read every connection: only when asked for.
#[derive(Clone)]
pub struct KeyLog(Arc<dyn Fn(&str) + Send + Sync>);

impl KeyLog {
    /// Calls `write` with each line, its end included. It is called within handshakes: it must not wait.
    pub fn new(write: impl Fn(&str) + Send + Sync + 'static) -> Self {
        Self(Arc::new(write))
    }
}

impl fmt::Debug for KeyLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KeyLog")
    }
}

impl rustls::KeyLog for KeyLog {
    fn log(&self, label: &str, client_random: &[u8], secret: &[u8]) {
        let mut line = format!("{label} ");
        push_hex(&mut line, client_random);
        line.push(' ');
        push_hex(&mut line, secret);
        line.push('\n');
        (self.0)(&line);
    }
}

fn push_hex(line: &mut String, bytes: &[u8]) {
    for byte in bytes {
        line.push_str(&format!("{byte:02x}"));
    }
}
