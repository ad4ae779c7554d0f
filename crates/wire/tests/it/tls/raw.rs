//! A peer that says what no honest one would: rustls does its handshake, then records are sealed here, whatever is in them.

use std::sync::Arc;

use aws_lc_rs::aead::{AES_128_GCM, Aad, LessSafeKey, Nonce as Unique, UnboundKey};
use rustls::client::{ClientConnectionData, UnbufferedClientConnection};
use rustls::crypto::cipher::{Iv, Nonce, make_tls12_aad, make_tls13_aad};
use rustls::kernel::KernelConnection;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::server::{ServerConnectionData, UnbufferedServerConnection};
use rustls::unbuffered::ConnectionState;
use rustls::{
    ClientConfig, ConnectionTrafficSecrets, ContentType, ProtocolVersion, RootCertStore, ServerConfig,
    SupportedProtocolVersion,
};

use crate::tls::support::{End, World};

pub(crate) const ALERT: u8 = 21;
pub(crate) const HANDSHAKE: u8 = 22;
pub(crate) const DATA: u8 = 23;

/// Keys of one direction.
struct Keys {
    key: LessSafeKey,
    iv: Iv,
    next: u64,
}

impl Keys {
    fn new(next: u64, secrets: ConnectionTrafficSecrets) -> Self {
        let ConnectionTrafficSecrets::Aes128Gcm { key, iv } = secrets else {
            panic!("one suite is offered");
        };
        let key = UnboundKey::new(&AES_128_GCM, key.as_ref()).expect("a key");
        Self {
            key: LessSafeKey::new(key),
            iv,
            next,
        }
    }
}

enum Kernel {
    Client(KernelConnection<ClientConnectionData>),
    Server(KernelConnection<ServerConnectionData>),
}

/// A peer after its handshake.
pub(crate) struct Raw {
    kernel: Kernel,
    sent: Keys,
    received: Keys,
    tls13: bool,
}

/// rustls's cryptography with one suite of each version.
fn provider() -> Arc<rustls::crypto::CryptoProvider> {
    let mut provider = rustls::crypto::aws_lc_rs::default_provider();
    provider
        .cipher_suites
        .retain(|suite| format!("{suite:?}").contains("AES_128_GCM"));
    Arc::new(provider)
}

pub(crate) fn roots(world: &World) -> RootCertStore {
    let mut roots = RootCertStore::empty();
    let der = CertificateDer::from_pem_slice(world.authority.pem.as_bytes()).expect("PEM");
    roots.add(der).expect("an authority");
    roots
}

/// Runs a handshake between rustls's connection and ours, and says what rustls has left to send.
macro_rules! handshake {
    ($raw:expr, $end:expr) => {
        let mut input = std::mem::take(&mut $end.wire);
        loop {
            let status = $raw.process_tls_records(&mut input);
            let discard = status.discard;
            let mut sent = Vec::new();
            let mut over = false;
            match status.state.expect("a handshake in order") {
                ConnectionState::EncodeTlsData(mut data) => {
                    sent.resize(100_000, 0);
                    let written = data.encode(&mut sent).expect("room");
                    sent.truncate(written);
                }
                ConnectionState::TransmitTlsData(data) => data.done(),
                ConnectionState::BlockedHandshake => {}
                ConnectionState::WriteTraffic(_) => over = true,
                state => panic!("{state:?}"),
            }
            input.drain(..discard);
            if !sent.is_empty() {
                $end.feed(&sent);
            }
            input.append(&mut $end.wire);
            if over && !$end.session.is_handshaking() && input.is_empty() {
                break;
            }
        }
    };
}

impl Raw {
    /// A client of `end`, which is a server.
    pub(crate) fn client(world: &World, version: &'static SupportedProtocolVersion, end: &mut End) -> Self {
        let builder = ClientConfig::builder_with_provider(provider());
        let builder = builder.with_protocol_versions(&[version]).expect("suites");
        let mut config = builder.with_root_certificates(roots(world)).with_no_client_auth();
        config.enable_secret_extraction = true;
        // The clock of rustls's own is real; certificates of the tests are not for now.
        config.time_provider = Arc::new(world.clock.clone());
        let name = ServerName::try_from("a.example").expect("a name");
        let mut raw = UnbufferedClientConnection::new(Arc::new(config), name).expect("a client");
        handshake!(raw, end);
        let (secrets, kernel) = raw.dangerous_into_kernel_connection().expect("over");
        Self {
            kernel: Kernel::Client(kernel),
            sent: Keys::new(secrets.tx.0, secrets.tx.1),
            received: Keys::new(secrets.rx.0, secrets.rx.1),
            tls13: version.version == ProtocolVersion::TLSv1_3,
        }
    }

    /// A server of `end`, which is a client.
    pub(crate) fn server(world: &World, version: &'static SupportedProtocolVersion, end: &mut End) -> Self {
        let pair = &world.server.certificates[0];
        let chain = CertificateDer::from_pem_slice(&pair.chain.bytes).expect("PEM");
        let key = PrivateKeyDer::from_pem_slice(&pair.key.bytes).expect("PEM");
        let builder = ServerConfig::builder_with_provider(provider());
        let builder = builder.with_protocol_versions(&[version]).expect("suites");
        let config = builder.with_no_client_auth().with_single_cert(vec![chain], key);
        let mut config = config.expect("a certificate");
        config.enable_secret_extraction = true;
        let mut raw = UnbufferedServerConnection::new(Arc::new(config)).expect("a server");
        handshake!(raw, end);
        let (secrets, kernel) = raw.dangerous_into_kernel_connection().expect("over");
        Self {
            kernel: Kernel::Server(kernel),
            sent: Keys::new(secrets.tx.0, secrets.tx.1),
            received: Keys::new(secrets.rx.0, secrets.rx.1),
            tls13: version.version == ProtocolVersion::TLSv1_3,
        }
    }

    /// A record of `kind` with `content` in it; in TLS 1.3 with `padding` behind it.
    pub(crate) fn seal(&mut self, kind: u8, content: &[u8], padding: usize) -> Vec<u8> {
        let mut body = content.to_vec();
        let nonce = Nonce::new(&self.sent.iv, self.sent.next).0;
        let unique = Unique::assume_unique_for_key(nonce);
        let (outer, explicit) = if self.tls13 {
            body.push(kind);
            body.resize(body.len() + padding, 0);
            let aad = Aad::from(make_tls13_aad(body.len() + 16));
            self.sent
                .key
                .seal_in_place_append_tag(unique, aad, &mut body)
                .expect("sealed");
            (DATA, &nonce[..0])
        } else {
            let (next, kind) = (self.sent.next, ContentType::from(kind));
            let aad = make_tls12_aad(next, kind, ProtocolVersion::TLSv1_2, body.len());
            self.sent
                .key
                .seal_in_place_append_tag(unique, Aad::from(aad), &mut body)
                .expect("sealed");
            (u8::from(kind), &nonce[4..])
        };
        self.sent.next += 1;
        let length = (explicit.len() + body.len()) as u16;
        [&[outer, 3, 3][..], &length.to_be_bytes(), explicit, &body].concat()
    }

    /// Opens one record off the front of `wire`: its kind and content.
    pub(crate) fn open(&mut self, wire: &mut Vec<u8>) -> (u8, Vec<u8>) {
        let length = usize::from(u16::from_be_bytes([wire[3], wire[4]]));
        let mut record: Vec<u8> = wire.drain(..5 + length).collect();
        let mut nonce = Nonce::new(&self.received.iv, self.received.next).0;
        let next = self.received.next;
        self.received.next += 1;
        if self.tls13 {
            let unique = Unique::assume_unique_for_key(nonce);
            let aad = Aad::from(make_tls13_aad(length));
            let plain = self
                .received
                .key
                .open_in_place(unique, aad, &mut record[5..])
                .expect("it opens");
            let (&kind, content) = plain.split_last().expect("a kind");
            return (kind, content.to_vec());
        }
        nonce[4..].copy_from_slice(&record[5..13]);
        let unique = Unique::assume_unique_for_key(nonce);
        let kind = ContentType::from(record[0]);
        let aad = make_tls12_aad(next, kind, ProtocolVersion::TLSv1_2, length - 24);
        let plain = self
            .received
            .key
            .open_in_place(unique, Aad::from(aad), &mut record[13..]);
        (u8::from(kind), plain.expect("it opens").to_vec())
    }

    /// New keys for what is sent.
    pub(crate) fn update_sent(&mut self) {
        let secrets = match &mut self.kernel {
            Kernel::Client(client) => client.update_tx_secret(),
            Kernel::Server(server) => server.update_tx_secret(),
        };
        let (next, secrets) = secrets.expect("TLS 1.3");
        self.sent = Keys::new(next, secrets);
    }

    /// New keys for what is received.
    pub(crate) fn update_received(&mut self) {
        let secrets = match &mut self.kernel {
            Kernel::Client(client) => client.update_rx_secret(),
            Kernel::Server(server) => server.update_rx_secret(),
        };
        let (next, secrets) = secrets.expect("TLS 1.3");
        self.received = Keys::new(next, secrets);
    }
}
