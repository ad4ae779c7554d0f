//! Certificates and who trusts whom, towards clients and towards upstreams.

use std::sync::Arc;

use super::{Hostname, Name, Secret};

/// A certificate with its key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Certificate {
    /// Unique among certificates.
    pub name: Name,
    /// PEM: the certificate, then those that lead to its authority.
    pub chain: Arc<[u8]>,
    /// PEM: its private key.
    pub key: Secret,
}

/// Authorities that certificates are checked by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Authorities {
    /// Unique among sets of authorities.
    pub name: Name,
    /// PEM: their certificates.
    pub pem: Arc<[u8]>,
}

/// TLS that ends at a listener.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListenerTls {
    /// By name, at least one. Of those whose names cover the SNI the exact one is shown, then a wildcard; if none does, or
    /// there is no SNI, the first.
    pub certificates: Vec<Name>,
    /// Certificates of clients. Default: `None`, none is asked for.
    pub clients: Option<ClientCertificates>,
    /// The oldest version that is spoken. Default TLS 1.2.
    pub minimum: TlsVersion,
}

/// Certificates that clients show.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientCertificates {
    /// Sets of authorities that they are checked by, at least one.
    pub authorities: Vec<Name>,
    /// What if they fail.
    pub mode: ClientCertificateMode,
}

/// What becomes of clients without a certificate that passes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ClientCertificateMode {
    /// The handshake fails.
    #[default]
    Required,
    /// A client without one comes in as nobody; the handshake of one with a wrong one fails.
    Optional,
    /// All clients are admitted. An invalid certificate counts as none, and upstreams receive it only with
    /// [`verification`](super::ClientCertificate::verification), which marks it as such. `AllowInsecureFallback` of the Gateway API.
    Unchecked,
}

/// A version of TLS.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum TlsVersion {
    /// RFC 5246.
    #[default]
    Tls12,
    /// RFC 8446.
    Tls13,
}

/// TLS towards an upstream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UpstreamTls {
    /// The name that is sent as SNI and that the certificate must be for. Default: `None`, the endpoint's hostname; an
    /// endpoint without one is then not connected to, since nothing would tell who it is.
    pub server_name: Option<Hostname>,
    /// Names, one of which the certificate must be for in place of the server name, which is then only sent as SNI; an
    /// endpoint without a hostname may do without one. Default: none, the server name.
    pub subject_names: Vec<SubjectName>,
    /// Who vouches.
    pub trust: Trust,
    /// The certificate that is shown if one is asked for. Default: `None`.
    pub certificate: Option<Name>,
    /// The oldest version that is spoken. Default TLS 1.2.
    pub minimum: TlsVersion,
}

/// A name of a certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SubjectName {
    /// A host, without `*.`; a certificate for `*.` and the rest of it does too.
    Host(Hostname),
    /// A URI, such as a SPIFFE identity; compared byte by byte.
    Uri(Arc<str>),
}

/// Who vouches for an upstream's certificate.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Trust {
    /// The authorities that this system trusts.
    #[default]
    System,
    /// These sets of authorities, at least one.
    Authorities(Vec<Name>),
}
