//! The server's end of TLS over a blocking socket: the layer of `ringmain-tls`, moved by reads and writes.

use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;

use ringmain_engine::{Layer, LayerEvent};
use ringmain_tls::Tls;

use crate::rounds::support::Duplex;

pub(crate) struct Secured {
    stream: TcpStream,
    session: Tls,
    established: bool,
    ended: bool,
    /// Whether it says so when it ends.
    announces: bool,
    received: Vec<u8>,
    plain: Vec<u8>,
}

impl Secured {
    pub(crate) fn new(stream: TcpStream, session: Tls) -> Secured {
        Secured {
            stream,
            session,
            established: false,
            ended: false,
            announces: true,
            received: Vec::new(),
            plain: Vec::new(),
        }
    }

    /// Reads once, and does what follows from it.
    fn pump(&mut self) -> io::Result<()> {
        let mut piece = vec![0; 16 * 1024];
        let count = self.stream.read(&mut piece)?;
        self.ended |= count == 0;
        self.received.extend_from_slice(&piece[..count]);
        loop {
            let mut wire = Vec::new();
            let step = self.session.receive(&mut self.received, &mut wire);
            if let LayerEvent::Plain(range) = step.event.clone() {
                self.plain.extend_from_slice(&self.received[range]);
            }
            self.received.drain(..step.consumed);
            self.stream.write_all(&wire)?;
            match step.event {
                LayerEvent::NeedMore => return Ok(()),
                LayerEvent::Nothing | LayerEvent::Plain(_) => {}
                LayerEvent::Established => self.established = true,
                LayerEvent::End => self.ended = true,
                LayerEvent::Failed | LayerEvent::Refused => return Err(ErrorKind::ConnectionReset.into()),
            }
        }
    }
}

impl Read for Secured {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        while self.plain.is_empty() && !self.ended {
            self.pump()?;
        }
        let count = self.plain.len().min(into.len());
        into[..count].copy_from_slice(&self.plain[..count]);
        self.plain.drain(..count);
        Ok(count)
    }
}

impl Write for Secured {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        while !self.established && !self.ended {
            self.pump()?;
        }
        let mut wire = Vec::new();
        let sent = self.session.send(bytes, &mut wire);
        sent.map_err(|_| io::Error::from(ErrorKind::BrokenPipe))?;
        self.stream.write_all(&wire)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Duplex for Secured {
    fn cut(&mut self) {
        self.announces = false;
    }
}

impl Drop for Secured {
    fn drop(&mut self) {
        if self.established && self.announces {
            let mut wire = Vec::new();
            self.session.end(&mut wire);
            // A client that is gone needs no goodbye.
            let _ = self.stream.write_all(&wire);
        }
    }
}
