//! The versions of TLS that are spoken.

use rustls::{ProtocolVersion, SupportedProtocolVersion};

/// A version of TLS. Older ones are not spoken at all (RFC 8996).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum Version {
    /// TLS 1.2 (RFC 5246), with suites of ECDHE and an AEAD only.
    #[default]
    Tls12,
    /// TLS 1.3 (RFC 8446).
    Tls13,
}

impl Version {
    /// The name: `TLSv1.2` or `TLSv1.3`, as OpenSSL and nginx write it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Tls12 => "TLSv1.2",
            Self::Tls13 => "TLSv1.3",
        }
    }

    /// This version and those above it.
    pub(super) const fn and_later(self) -> &'static [&'static SupportedProtocolVersion] {
        const BOTH: &[&SupportedProtocolVersion] = &[&rustls::version::TLS13, &rustls::version::TLS12];
        match self {
            Self::Tls12 => BOTH,
            Self::Tls13 => BOTH.split_at(1).0,
        }
    }

    pub(super) const fn of(version: ProtocolVersion) -> Option<Self> {
        match version {
            ProtocolVersion::TLSv1_2 => Some(Self::Tls12),
            ProtocolVersion::TLSv1_3 => Some(Self::Tls13),
            _ => None,
        }
    }
}
