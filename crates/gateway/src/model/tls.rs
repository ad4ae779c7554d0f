//! Certificates and trust, for clients and for upstreams.

use std::sync::Arc;

use super::{Hostname, Name, Secret};

/// A certificate with its key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Certificate {
    /// Unique among certificates.
    pub name: Name,
    /// The certificate, then its intermediates, in PEM.
    pub chain: Arc<[u8]>,
    /// Its private key, in PEM.
    pub key: Secret,
}

/// A set of certificate authorities.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Authorities {
    /// Unique among sets of authorities.
    pub name: Name,
    /// Their certificates, in PEM.
    pub pem: Arc<[u8]>,
}

/// TLS settings of a listener that terminates TLS.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListenerTls {
    /// Names of certificates, at least one. Of those that cover the SNI an exact name takes precedence over a wildcard; if none does, or
    /// without SNI, the first is presented.
    pub certificates: Vec<Name>,
    /// Client certificates. Default: `None`, none is requested.
    pub clients: Option<ClientCertificates>,
    /// The oldest accepted version. Default: TLS 1.2.
    pub minimum: TlsVersion,
}

/// The verification of client certificates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientCertificates {
    /// Sets of authorities that certificates are verified against, at least one.
    pub authorities: Vec<Name>,
    /// The handling of clients without a valid certificate.
    pub mode: ClientCertificateMode,
}

/// The handling of clients without a valid certificate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ClientCertificateMode {
    /// The handshake fails.
    #[default]
    Required,
    /// A client without a certificate is admitted unauthenticated; an invalid certificate fails the handshake.
    Optional,
    /// All clients are admitted. An invalid certificate counts as none, and upstreams receive it only with
    /// [`verification`](super::ClientCertificate::verification), which marks it as such. `AllowInsecureFallback` of the Gateway API.
    Unchecked,
}

/// A TLS version.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum TlsVersion {
    /// RFC 5246.
    #[default]
    Tls12,
    /// RFC 8446.
    Tls13,
}

/// TLS settings for an upstream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UpstreamTls {
    /// The name that is sent as SNI and that the certificate is verified for. Default: `None`, the endpoint's hostname; an endpoint without
    /// one is not connected to, since its identity could not be verified.
    pub server_name: Option<Hostname>,
    /// Names, one of which the certificate must have in place of the server name, which is only sent as SNI then. An endpoint without a
    /// hostname needs no server name then. Default: none, the server name.
    pub subject_names: Vec<SubjectName>,
    /// The trusted authorities.
    pub trust: Trust,
    /// The client certificate, if the upstream requests one. Default: `None`.
    pub certificate: Option<Name>,
    /// The oldest accepted version. Default: TLS 1.2.
    pub minimum: TlsVersion,
}

/// A name of a certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SubjectName {
    /// A host, without `*.`; a certificate for a wildcard that covers it matches, too.
    Host(Hostname),
    /// A URI, such as a SPIFFE ID; compared byte by byte.
    Uri(Arc<str>),
}

/// The authorities that an upstream's certificate is verified against.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Trust {
    /// The system's.
    #[default]
    System,
    /// These sets of authorities, at least one.
    Authorities(Vec<Name>),
}
