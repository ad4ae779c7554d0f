//! Bytes to and from a server, with or without TLS. All futures are cancel-safe: received and unsent data stays buffered.

use std::io;
use std::net::SocketAddr;

use ringmain_tls::{PeerName, Session};
use ringmain_wire::tls::{Client, Event};
use tokio::net::TcpStream;

/// Bytes that are read at a time.
const READ_BYTES: usize = 64 << 10;

pub(super) struct NatsStream {
    tcp: TcpStream,
    /// The buffer of reads.
    chunk: Box<[u8]>,
    /// Data to be sent, as on the wire.
    wire: Vec<u8>,
    tls: Option<TlsState>,
}

struct TlsState {
    session: Session,
    /// Received records that are not decrypted yet.
    sealed: Vec<u8>,
    ended: bool,
}

/// The outcome of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReadOutcome {
    /// Perhaps some bytes.
    Some,
    /// There will be no more.
    End,
}

impl NatsStream {
    pub(super) async fn connect(host: &str, port: u16) -> io::Result<NatsStream> {
        let addrs: Vec<SocketAddr> = tokio::net::lookup_host((host, port)).await?.collect();
        let tcp = TcpStream::connect(&*addrs).await?;
        tcp.set_nodelay(true)?;
        Ok(NatsStream {
            tcp,
            chunk: vec![0; READ_BYTES].into(),
            wire: Vec::new(),
            tls: None,
        })
    }

    /// Performs the TLS handshake: all later data is encrypted.
    pub(super) async fn secure(&mut self, client: &Client, peer: &PeerName) -> io::Result<()> {
        let mut session = client.session(peer);
        session.begin(&mut self.wire);
        self.tls = Some(TlsState {
            session,
            sealed: Vec::new(),
            ended: false,
        });
        self.flush().await?;
        let mut no_plaintext = Vec::new();
        while self.tls.as_ref().is_some_and(|tls| tls.session.is_handshaking()) {
            if self.read(&mut no_plaintext).await? == ReadOutcome::End {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        if no_plaintext.is_empty() {
            Ok(())
        } else {
            Err(io::Error::other(
                "expected no data before the client authenticates",
            ))
        }
    }

    /// Reads available data, or waits for some.
    pub(super) async fn read(&mut self, buffer: &mut Vec<u8>) -> io::Result<ReadOutcome> {
        let read = loop {
            self.tcp.readable().await?;
            match self.tcp.try_read(&mut self.chunk) {
                Ok(read) => break read,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        };
        let bytes = &self.chunk[..read];
        let Some(tls) = &mut self.tls else {
            buffer.extend_from_slice(bytes);
            return Ok(if read == 0 {
                ReadOutcome::End
            } else {
                ReadOutcome::Some
            });
        };
        if read == 0 {
            tls.session.ended().map_err(io::Error::other)?;
            return Ok(ReadOutcome::End);
        }
        tls.sealed.extend_from_slice(bytes);
        let opened = tls.open(buffer, &mut self.wire);
        let ended = tls.ended;
        // An alert explains the end of the connection; failing to send it is no further error.
        let sent = self.flush().await;
        opened.and(sent)?;
        Ok(if ended {
            ReadOutcome::End
        } else {
            ReadOutcome::Some
        })
    }

    /// Buffers data for [`NatsStream::flush`].
    pub(super) fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        match &mut self.tls {
            None => self.wire.extend_from_slice(bytes),
            Some(tls) => tls
                .session
                .send(bytes, &mut self.wire)
                .map_err(io::Error::other)?,
        }
        Ok(())
    }

    /// Returns the number of bytes that are not sent yet.
    pub(super) fn waiting(&self) -> usize {
        self.wire.len()
    }

    /// Sends all that waits.
    pub(super) async fn flush(&mut self) -> io::Result<()> {
        let mut sent = 0;
        while sent < self.wire.len() {
            match self.tcp.try_write(&self.wire[sent..]) {
                Ok(written) => sent += written,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.wire.drain(..sent);
                    sent = 0;
                    self.tcp.writable().await?;
                }
                Err(error) => return Err(error),
            }
        }
        self.wire.clear();
        Ok(())
    }
}

impl TlsState {
    /// Decrypts received records. The rest is less than a record, or a handshake message.
    fn open(&mut self, buffer: &mut Vec<u8>, wire: &mut Vec<u8>) -> io::Result<()> {
        let mut used = 0;
        loop {
            let start = used;
            let step = self.session.receive(&mut self.sealed[start..], wire);
            used += step.consumed;
            match step.event {
                Event::Plain(range) => {
                    buffer.extend_from_slice(&self.sealed[start + range.start..start + range.end]);
                }
                Event::Nothing if step.consumed > 0 => {}
                Event::Established => {}
                Event::End => self.ended = true,
                Event::Nothing | Event::NeedMore => break,
                Event::Failed => {
                    let fault = self.session.fault().cloned();
                    return Err(fault.map_or_else(|| io::ErrorKind::InvalidData.into(), io::Error::other));
                }
            }
        }
        self.sealed.drain(..used);
        Ok(())
    }
}
