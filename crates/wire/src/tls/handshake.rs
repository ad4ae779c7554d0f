//! The handshake: rustls over the caller's buffer, a record at a time. Knows no traffic: when the handshake is over, keys and
//! facts are taken out of it and rustls's connection is dropped.

use std::sync::Arc;

use rustls::client::{ClientConnectionData, UnbufferedClientConnection};
use rustls::kernel::KernelConnection;
use rustls::server::{ServerConnectionData, UnbufferedServerConnection};
use rustls::unbuffered::{ConnectionState, UnbufferedConnectionCommon, UnbufferedStatus};
use rustls::{CommonState, Error, ExtractedSecrets};

use super::clients::ClientPolicy;
use super::facts::Facts;
use super::hello::Hello;
use super::limits::HEADER;

/// A handshake under way.
pub(super) struct Handshake {
    connection: Connection,
    /// Bytes from the front that rustls has read, and needs again since they are a part of a message: the caller shows them
    /// again, as rustls left them.
    held: usize,
    /// Bytes that came from the peer.
    pub(super) received: usize,
    /// A client's first message, read by servers.
    hello: Hello,
    /// The policy of a server that verifies certificates of clients after the handshake.
    clients: Option<Arc<ClientPolicy>>,
}

enum Connection {
    Client(UnbufferedClientConnection),
    Server(UnbufferedServerConnection),
}

/// What rustls still does once the handshake is over: new keys, and the tickets that a client is given.
pub(super) enum Kernel {
    Client(KernelConnection<ClientConnectionData>),
    Server(KernelConnection<ServerConnectionData>),
}

/// A handshake that is over.
pub(super) struct Done {
    pub(super) facts: Facts,
    pub(super) secrets: ExtractedSecrets,
    pub(super) kernel: Kernel,
    /// Records after which keys have to be changed.
    pub(super) limit: u64,
}

/// What came of a record.
#[derive(Debug)]
pub(super) struct Progress {
    /// Bytes from the front that are done with.
    pub(super) consumed: usize,
    /// How it goes on.
    pub(super) outcome: Outcome,
}

/// See [`Progress`].
#[derive(Debug)]
pub(super) enum Outcome {
    /// It goes on.
    More,
    /// rustls refused; the alert is written.
    Refused(Error),
}

impl Handshake {
    pub(super) fn client(connection: UnbufferedClientConnection) -> Self {
        Self::new(Connection::Client(connection))
    }

    pub(super) fn server(connection: UnbufferedServerConnection, clients: Option<Arc<ClientPolicy>>) -> Self {
        Self {
            clients,
            ..Self::new(Connection::Server(connection))
        }
    }

    fn new(connection: Connection) -> Self {
        Self {
            connection,
            held: 0,
            received: 0,
            hello: Hello::default(),
            clients: None,
        }
    }

    /// Bytes from the front that were read already and are to be shown again.
    pub(super) const fn held(&self) -> usize {
        self.held
    }

    /// Whether it began: whether the peer has sent a record.
    pub(super) const fn is_begun(&self) -> bool {
        self.received > 0
    }

    /// The name that the client asked a server for.
    pub(super) fn server_name(&self) -> Option<&str> {
        self.hello.server_name()
    }

    /// Whether the client's first message is from before TLS 1.2.
    pub(super) fn is_old(&self) -> bool {
        self.hello.is_old()
    }

    pub(super) fn is_server(&self) -> bool {
        matches!(self.connection, Connection::Server(_))
    }

    fn state(&self) -> &CommonState {
        match &self.connection {
            Connection::Client(client) => client,
            Connection::Server(server) => server,
        }
    }

    /// Whether keys for traffic can be taken out.
    pub(super) fn is_over(&self) -> bool {
        self.held == 0 && !self.state().is_handshaking()
    }

    /// Writes what has to be said without having read anything.
    pub(super) fn begin(&mut self, wire: &mut Vec<u8>) -> Progress {
        self.pump(&mut [], wire)
    }

    /// Reads one more record: `bytes` are those held, and the record.
    pub(super) fn record(&mut self, bytes: &mut [u8], wire: &mut Vec<u8>) -> Progress {
        self.received += bytes.len() - self.held;
        if self.is_server() {
            self.hello.record(&bytes[self.held..]);
        }
        let progress = self.pump(bytes, wire);
        self.held = bytes.len() - progress.consumed;
        progress
    }

    /// Makes rustls refuse, and say so: with the keys there are, which it alone has.
    pub(super) fn refuse(&mut self, wire: &mut Vec<u8>) {
        // Zeroes in place of what is held, which it takes for read; then the header of no record.
        let mut bytes = vec![0; self.held];
        bytes.extend_from_slice(&[0xff; HEADER]);
        let _ = self.pump(&mut bytes, wire);
    }

    fn pump(&mut self, bytes: &mut [u8], wire: &mut Vec<u8>) -> Progress {
        let held = self.held;
        match &mut self.connection {
            Connection::Client(client) => pump(&mut **client, held, bytes, wire),
            Connection::Server(server) => pump(&mut **server, held, bytes, wire),
        }
    }

    /// Takes out what goes on.
    pub(super) fn finish(self) -> Result<Done, Error> {
        let facts = Facts::of(self.state(), self.server_name());
        let suite = self.state().negotiated_cipher_suite();
        let (Some(mut facts), Some(suite)) = (facts, suite) else {
            return Err(Error::HandshakeNotComplete);
        };
        if let Some(clients) = &self.clients {
            clients.separate(&mut facts);
        }
        let (secrets, kernel) = match self.connection {
            Connection::Client(client) => {
                let (secrets, kernel) = client.dangerous_into_kernel_connection()?;
                (secrets, Kernel::Client(kernel))
            }
            Connection::Server(server) => {
                let (secrets, kernel) = server.dangerous_into_kernel_connection()?;
                (secrets, Kernel::Server(kernel))
            }
        };
        let limit = match suite {
            rustls::SupportedCipherSuite::Tls12(suite) => suite.common.confidentiality_limit,
            rustls::SupportedCipherSuite::Tls13(suite) => suite.common.confidentiality_limit,
        };
        Ok(Done {
            facts,
            secrets,
            kernel,
            limit,
        })
    }
}

/// The one call in which rustls's two roles differ.
trait Process {
    type Data;

    fn process<'c, 'i>(&'c mut self, bytes: &'i mut [u8]) -> UnbufferedStatus<'c, 'i, Self::Data>;
}

impl Process for UnbufferedConnectionCommon<ClientConnectionData> {
    type Data = ClientConnectionData;

    fn process<'c, 'i>(&'c mut self, bytes: &'i mut [u8]) -> UnbufferedStatus<'c, 'i, Self::Data> {
        self.process_tls_records(bytes)
    }
}

impl Process for UnbufferedConnectionCommon<ServerConnectionData> {
    type Data = ServerConnectionData;

    fn process<'c, 'i>(&'c mut self, bytes: &'i mut [u8]) -> UnbufferedStatus<'c, 'i, Self::Data> {
        self.process_tls_records(bytes)
    }
}

/// Lets rustls read `bytes`, of which it knows `held`, and write until it has nothing more to do.
fn pump(connection: &mut impl Process, held: usize, bytes: &mut [u8], wire: &mut Vec<u8>) -> Progress {
    let mut consumed = 0;
    let outcome = loop {
        let UnbufferedStatus { discard, state } = connection.process(&mut bytes[consumed..]);
        consumed += discard;
        match state {
            Ok(ConnectionState::EncodeTlsData(mut data)) => append(wire, |out| match data.encode(out) {
                Err(rustls::unbuffered::EncodeError::InsufficientSize(need)) => Some(need.required_size),
                _ => None,
            }),
            Ok(ConnectionState::TransmitTlsData(data)) => data.done(),
            Ok(
                ConnectionState::Closed
                | ConnectionState::BlockedHandshake
                | ConnectionState::WriteTraffic(_),
            ) => {
                break Outcome::More;
            }
            // Early data is off, and traffic is not rustls's, which is shown a record at a time.
            Ok(_) => break Outcome::Refused(Error::General("data within the handshake".to_owned())),
            Err(error) => break Outcome::Refused(error),
        }
    };
    if matches!(outcome, Outcome::Refused(_)) {
        let at = if consumed == 0 { held } else { 0 };
        alert(connection, at, bytes.len() - consumed, wire);
        consumed = bytes.len();
    }
    Progress { consumed, outcome }
}

/// Writes the alert that rustls made of its own error.
///
/// It wants its input again, and may have read it to `at` or to `end`; what is there now is the start of a record that never
/// comes, so that it reads nothing more.
fn alert(connection: &mut impl Process, at: usize, end: usize, wire: &mut Vec<u8>) {
    let mut input = vec![0; end];
    if let Some(header) = input.get_mut(at..at + HEADER) {
        header.copy_from_slice(&[22, 3, 3, 0x40, 0]);
    }
    while let Ok(ConnectionState::EncodeTlsData(mut data)) = connection.process(&mut input).state {
        append(wire, |out| match data.encode(out) {
            Err(rustls::unbuffered::EncodeError::InsufficientSize(need)) => Some(need.required_size),
            _ => None,
        });
    }
}

/// Appends what `encode` writes, which says first how much room it needs.
fn append(wire: &mut Vec<u8>, mut encode: impl FnMut(&mut [u8]) -> Option<usize>) {
    let start = wire.len();
    if let Some(need) = encode(&mut []) {
        wire.resize(start + need, 0);
        let refused = encode(&mut wire[start..]);
        debug_assert!(refused.is_none(), "it has the room that it asked for");
    }
}
