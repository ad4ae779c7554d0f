//! What a handshake agreed on. Owns the form in which it is told; agrees on nothing itself.

use std::sync::OnceLock;

use rustls::pki_types::CertificateDer;
use rustls::{CommonState, HandshakeKind};

use super::certificate::certificate_principal;
use super::version::Version;

/// What was agreed on, once the handshake is over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    /// The application protocol, such as `http/1.1` or `h2`; `None` if the client asked for none.
    pub alpn: Option<Vec<u8>>,
    /// The name that the client asked for (SNI), in lower case; `None` if it asked for none, or for an address.
    pub server_name: Option<String>,
    /// Whether an earlier session was resumed: no certificate was sent or checked this time.
    pub resumed: bool,
    /// The version of the protocol.
    pub version: Version,
    /// The cipher suite by its IANA name.
    pub suite: &'static str,
    /// The group of the key exchange by its IANA name; `None` where a resumed session of TLS 1.2 had none.
    pub group: Option<&'static str>,
    /// The peer's certificates in DER, its own first, which are valid; empty if it showed none.
    pub peer_certificates: Vec<Vec<u8>>,
    /// The same of a client whose certificate is not valid, which
    /// [`ClientCertificates::Unchecked`](super::ClientCertificates::Unchecked) admits: they prove nothing.
    pub unverified_certificates: Vec<Vec<u8>>,
    principal: OnceLock<Option<Box<str>>>,
}

impl Facts {
    /// What `state` knows; `None` before the handshake is over.
    pub(super) fn of(state: &CommonState, server_name: Option<&str>) -> Option<Self> {
        let certificates = state.peer_certificates().unwrap_or_default();
        let group = state.negotiated_key_exchange_group();
        Some(Self {
            alpn: state.alpn_protocol().map(<[u8]>::to_vec),
            server_name: server_name.map(str::to_owned),
            resumed: state.handshake_kind()? == HandshakeKind::Resumed,
            version: Version::of(state.protocol_version()?)?,
            suite: super::suites::name(state.negotiated_cipher_suite()?.suite()),
            group: group.and_then(|group| group.name().as_str()),
            peer_certificates: certificates
                .iter()
                .map(|one: &CertificateDer<'_>| one.to_vec())
                .collect(),
            unverified_certificates: Vec::new(),
            principal: OnceLock::new(),
        })
    }

    /// Returns the name that the peer's certificate is known by: its first URI, such as a SPIFFE ID, else its first DNS name, else its
    /// subject. `None` without a valid certificate. The certificate is parsed at the first call.
    #[must_use]
    pub fn peer_principal(&self) -> Option<&str> {
        let parse = || certificate_principal(self.peer_certificates.first()?).map(String::into_boxed_str);
        self.principal.get_or_init(parse).as_deref()
    }
}
