//! A client for the TLS target: rustls does its handshake, then it seals whatever it is told to. Judges nothing.

use std::sync::Arc;

use aws_lc_rs::aead::{AES_128_GCM, Aad, LessSafeKey, Nonce as Unique, UnboundKey};
use ringmain_wire::tls::{Clock, Pem, Server, Session};
use rustls::client::UnbufferedClientConnection;
use rustls::crypto::cipher::{Iv, Nonce, make_tls12_aad, make_tls13_aad};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::unbuffered::ConnectionState;
use rustls::{
    ClientConfig, ConnectionTrafficSecrets, ContentType, ProtocolVersion, RootCertStore,
    SupportedProtocolVersion,
};

/// A client of rustls's with one suite of one version, which trusts `authority`.
pub(crate) fn config(
    version: &'static SupportedProtocolVersion,
    authority: &Pem,
    clock: &Clock,
) -> Arc<ClientConfig> {
    let mut provider = rustls::crypto::aws_lc_rs::default_provider();
    provider
        .cipher_suites
        .retain(|suite| format!("{suite:?}").contains("AES_128_GCM"));
    let mut roots = RootCertStore::empty();
    roots
        .add(CertificateDer::from_pem_slice(&authority.bytes).expect("PEM"))
        .expect("an authority");
    let builder = ClientConfig::builder_with_details(Arc::new(provider), Arc::new(clock.clone()));
    let builder = builder.with_protocol_versions(&[version]).expect("suites");
    let mut config = builder.with_root_certificates(roots).with_no_client_auth();
    config.enable_secret_extraction = true;
    config.resumption = rustls::client::Resumption::disabled();
    Arc::new(config)
}

/// A client after its handshake.
pub(crate) struct Peer {
    key: LessSafeKey,
    iv: Iv,
    next: u64,
    inner: bool,
}

impl Peer {
    /// Runs a handshake with a session of `server`'s, and gives both ends.
    pub(crate) fn connect(config: &Arc<ClientConfig>, server: &Server) -> (Self, Session) {
        let name = ServerName::try_from("localhost").expect("a name");
        let mut client = UnbufferedClientConnection::new(config.clone(), name).expect("a client");
        let mut session = server.session();
        let mut input = Vec::new();
        loop {
            let status = client.process_tls_records(&mut input);
            let discard = status.discard;
            let mut sent = Vec::new();
            let mut over = false;
            match status.state.expect("a handshake in order") {
                ConnectionState::EncodeTlsData(mut data) => {
                    sent.resize(20_000, 0);
                    let written = data.encode(&mut sent).expect("room");
                    sent.truncate(written);
                }
                ConnectionState::TransmitTlsData(data) => data.done(),
                ConnectionState::WriteTraffic(_) => over = true,
                _ => {}
            }
            input.drain(..discard);
            while !sent.is_empty() {
                let step = session.receive(&mut sent, &mut input);
                sent.drain(..step.consumed);
            }
            if over && !session.is_handshaking() && input.is_empty() {
                break;
            }
        }
        let inner = client.protocol_version() == Some(ProtocolVersion::TLSv1_3);
        let (secrets, _) = client.dangerous_into_kernel_connection().expect("over");
        let (next, ConnectionTrafficSecrets::Aes128Gcm { key, iv }) = secrets.tx else {
            panic!("one suite is offered");
        };
        let key = LessSafeKey::new(UnboundKey::new(&AES_128_GCM, key.as_ref()).expect("a key"));
        let peer = Self { key, iv, next, inner };
        (peer, session)
    }

    /// Appends a record of `kind` with `content` in it.
    pub(crate) fn seal(&mut self, kind: u8, content: &[u8], wire: &mut Vec<u8>) {
        let nonce = Nonce::new(&self.iv, self.next).0;
        let unique = Unique::assume_unique_for_key(nonce);
        let mut body = content.to_vec();
        let (outer, explicit) = if self.inner {
            body.push(kind);
            let aad = Aad::from(make_tls13_aad(body.len() + 16));
            self.key
                .seal_in_place_append_tag(unique, aad, &mut body)
                .expect("sealed");
            (23, &nonce[..0])
        } else {
            let aad = make_tls12_aad(
                self.next,
                ContentType::from(kind),
                ProtocolVersion::TLSv1_2,
                body.len(),
            );
            self.key
                .seal_in_place_append_tag(unique, Aad::from(aad), &mut body)
                .expect("sealed");
            (kind, &nonce[4..])
        };
        self.next += 1;
        wire.extend_from_slice(&[outer, 3, 3]);
        wire.extend_from_slice(&((explicit.len() + body.len()) as u16).to_be_bytes());
        wire.extend_from_slice(explicit);
        wire.extend_from_slice(&body);
    }
}
