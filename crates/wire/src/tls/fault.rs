//! What can go wrong with a session, with the alert that tells the peer, and in words that a stranger can act on.
//!
//! Owns the one table of faults and what rustls's errors mean in it.

use rustls::pki_types::ServerName;
use rustls::{AlertDescription, CertificateError, Error, InvalidMessage, PeerIncompatible, PeerMisbehaved};
use x509_parser::time::ASN1Time;

use super::handshake::Handshake;
use super::identity::NoneOfThem;
use super::limits::{NAME_SHOWN, NAMES_SHOWN};
use super::plain;
use crate::faults::faults;

/// Whose fault it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Blame {
    /// The other side broke a rule, or is not what it should be.
    Peer,
    /// This side: its keys are used up, or it is set up wrongly.
    Us,
}

/// Why a session failed. Nothing is read from it or written to it any more.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected {}; found {found} ({})", .kind.expected(), .kind.section())]
pub struct Fault {
    /// The rule.
    pub kind: FaultKind,
    /// What was found instead. What the peer wrote is escaped and of bounded length.
    pub found: String,
}

// The one table of faults: the alert that tells the peer, 0 if none does, what was expected, where that stands. Within a
// handshake rustls speaks, whose alert may say more.
faults! {
    /// The rules.
    enum FaultKind;

    /// What came is not TLS: plain HTTP, as a rule.
    NotTls 0 "a record of TLS" "RFC 8446 §5.1",
    /// A client begins with a request of HTTP in the clear.
    PlainHttp 0 "TLS on this port" "RFC 8446 §5.1",
    /// A record beyond its limit.
    Record 22 "records of at most 2^14 bytes of content" "RFC 8446 §5.1",
    /// A message that is not in its form.
    Decode 50 "messages in their form" "RFC 8446 §4",
    /// A message or record that has no place where it stands.
    Unexpected 10 "messages in their order" "RFC 8446 §4",
    /// A record that was not protected with its keys.
    Decrypt 20 "records protected with the keys agreed on" "RFC 8446 §5.2",
    /// A message that says what it must not.
    Illegal 47 "parameters that were agreed on" "RFC 8446 §6.2",
    /// No version in common.
    Version 70 "TLS 1.2 or 1.3, as far as both sides allow them" "RFC 8446 §4.1.3",
    /// No suite, group or signature scheme in common.
    Parameters 40 "a cipher suite, a group and a signature scheme in common" "RFC 8446 §4.1.1",
    /// No application protocol in common.
    Alpn 120 "an application protocol in common" "RFC 7301 §3.2",
    /// A client asks for a name that this server does not serve.
    Name 112 "the name of a certificate that is served here" "RFC 6066 §3",
    /// A client asks for a name that no host has: with other characters than letters, digits, hyphens and underscores, a
    /// label that begins or ends with a hyphen, a wildcard.
    ServerName 47 "one server name that is a DNS name" "RFC 6066 §3",
    /// A peer that shows no certificate, where it has to.
    CertificateMissing 116 "a certificate of the peer" "RFC 8446 §4.4.2.4",
    /// A certificate for other names.
    CertificateName 42 "a certificate for the name that was asked for" "RFC 9525 §6",
    /// A certificate whose time is over.
    CertificateExpired 45 "a certificate that is valid now" "RFC 5280 §4.1.2.5",
    /// A certificate whose time has not come.
    CertificateNotYetValid 45 "a certificate that is valid already" "RFC 5280 §4.1.2.5",
    /// A certificate of an authority that is not trusted.
    CertificateIssuer 48 "a certificate issued by a trusted authority" "RFC 5280 §6.1",
    /// A certificate that does not do for another reason.
    Certificate 42 "a certificate in order" "RFC 5280 §6.1",
    /// The peer refused, and said so by an alert.
    Refused 0 "a peer that agrees" "RFC 8446 §6.2",
    /// More records and messages without data than are taken in a row.
    Flood 10 "data now and then" "RFC 8446 §4.6.3",
    /// More bytes of handshake than are taken.
    HandshakeTooLong 50 "a handshake within its limit of bytes" "RFC 8446 §4",
    /// The connection ended within the handshake.
    Left 0 "a handshake to its end" "RFC 8446 §6.1",
    /// The connection ended without close_notify.
    Truncated 0 "a close_notify before the end of the connection" "RFC 8446 §6.1",
    /// An error of this side.
    Ours 80 "to be able to go on" "RFC 8446 §6.2",
}

impl FaultKind {
    /// The alert that tells the peer; `None` if there is nothing to say or nobody to tell.
    #[must_use]
    pub const fn alert(self) -> Option<u8> {
        match self.row().0 {
            0 => None,
            alert => Some(alert as u8),
        }
    }

    /// Whose fault it is.
    #[must_use]
    pub const fn blame(self) -> Blame {
        match self {
            Self::Ours => Blame::Us,
            _ => Blame::Peer,
        }
    }
}

impl Fault {
    pub(super) fn new(kind: FaultKind, found: impl Into<String>) -> Self {
        Self {
            kind,
            found: found.into(),
        }
    }

    pub(super) fn unexpected(found: impl Into<String>) -> Self {
        Self::new(FaultKind::Unexpected, found)
    }

    /// A session that has failed without a word, which it does not.
    pub(super) fn unknown() -> Self {
        Self::new(FaultKind::Ours, "a session that was given up")
    }

    /// Something else than TLS, from its first bytes.
    pub(super) fn not_tls(bytes: &[u8]) -> Self {
        let hint = if plain::is_http(bytes) == Some(true) || bytes.starts_with(b"HTTP") {
            ": plain HTTP, where HTTPS is spoken"
        } else {
            ""
        };
        Self::new(FaultKind::NotTls, format!("\"{}\"{hint}", first(bytes)))
    }

    /// A request in the clear, from its first bytes.
    pub(super) fn plain_http(bytes: &[u8]) -> Self {
        let text = format!("plain HTTP (\"{}\")", first(bytes));
        Self::new(FaultKind::PlainHttp, text)
    }

    /// The peer's alert.
    pub(super) fn refused(alert: u8) -> Self {
        let name = AlertDescription::from(alert);
        let hint = match name {
            AlertDescription::UnknownCA => ": it does not trust the authority of our certificate",
            AlertDescription::CertificateExpired => ": our certificate has expired, or its clock is wrong",
            AlertDescription::BadCertificate | AlertDescription::CertificateUnknown => {
                ": our certificate does not do, often for its name or its authority"
            }
            AlertDescription::CertificateRequired => ": it asks for a client certificate",
            AlertDescription::UnrecognisedName | AlertDescription::AccessDenied => {
                ": it does not serve the name that was asked for, or not to us"
            }
            AlertDescription::ProtocolVersion => ": it speaks no version of TLS in common with us",
            AlertDescription::HandshakeFailure => ": it has no suite, group or certificate that we take",
            AlertDescription::NoApplicationProtocol => ": it speaks none of the protocols that we offer",
            _ => "",
        };
        let name = match name {
            AlertDescription::Unknown(_) => "unknown".to_owned(),
            known => format!("{known:?}"),
        };
        Self::new(FaultKind::Refused, format!("the alert {name} ({alert}){hint}"))
    }

    /// What an error means that rustls had within a handshake.
    pub(super) fn in_handshake(error: &Error, handshake: &Handshake) -> Self {
        match error {
            // rustls has no error of its own for it; there is no other `General` before a certificate is chosen.
            Error::General(text) if handshake.is_server() && text.contains("certificate chain resolved") => {
                let found = match handshake.server_name() {
                    Some(name) => format!("\"{}\"", cut(name)),
                    None => "no name".to_owned(),
                };
                Self::new(FaultKind::Name, found)
            }
            // RFC 8446 §4.2.1: what it misses came with TLS 1.2.
            Error::PeerIncompatible(PeerIncompatible::SignatureAlgorithmsExtensionRequired)
                if handshake.is_old() =>
            {
                Self::new(FaultKind::Version, "a hello of an older version")
            }
            error => Self::of(error),
        }
    }

    /// What an error of rustls's means.
    pub(super) fn of(error: &Error) -> Self {
        match error {
            Error::InvalidCertificate(error) => Self::of_certificate(error),
            Error::AlertReceived(alert) => Self::refused(u8::from(*alert)),
            Error::NoCertificatesPresented => Self::new(FaultKind::CertificateMissing, "none"),
            Error::NoApplicationProtocol => Self::new(FaultKind::Alpn, "other protocols in the offer (ALPN)"),
            Error::PeerIncompatible(why) => Self::of_incompatible(why),
            Error::PeerMisbehaved(why) => Self::of_misbehaved(why),
            Error::InvalidMessage(InvalidMessage::MessageTooLarge) | Error::PeerSentOversizedRecord => {
                Self::new(FaultKind::Record, "a larger one")
            }
            Error::InvalidMessage(
                InvalidMessage::HandshakePayloadTooLarge | InvalidMessage::CertificatePayloadTooLarge,
            ) => Self::new(FaultKind::HandshakeTooLong, format!("{error}")),
            Error::InvalidMessage(
                InvalidMessage::UnknownProtocolVersion | InvalidMessage::InvalidContentType,
            ) => Self::new(FaultKind::NotTls, format!("{error}")),
            Error::InvalidMessage(_) => Self::new(FaultKind::Decode, format!("{error}")),
            Error::DecryptError => Self::new(FaultKind::Decrypt, "a record that its keys do not open"),
            Error::InappropriateMessage { .. } | Error::InappropriateHandshakeMessage { .. } => {
                Self::unexpected(format!("{error}"))
            }
            error => Self::new(FaultKind::Ours, format!("{error}")),
        }
    }

    fn of_incompatible(why: &PeerIncompatible) -> Self {
        let kind = match why {
            PeerIncompatible::ServerDoesNotSupportTls12Or13
            | PeerIncompatible::ServerTlsVersionIsDisabledByOurConfig
            | PeerIncompatible::SupportedVersionsExtensionRequired
            | PeerIncompatible::Tls12NotOffered
            | PeerIncompatible::Tls12NotOfferedOrEnabled => FaultKind::Version,
            _ => FaultKind::Parameters,
        };
        Self::new(kind, format!("{why:?}"))
    }

    fn of_misbehaved(why: &PeerMisbehaved) -> Self {
        if let PeerMisbehaved::ServerNameMustContainOneHostName = why {
            let found =
                "a server name (SNI) that is no DNS name: rustls refuses it before a certificate is chosen";
            return Self::new(FaultKind::ServerName, found);
        }
        let kind = match why {
            PeerMisbehaved::TooManyEmptyFragments
            | PeerMisbehaved::TooManyKeyUpdateRequests
            | PeerMisbehaved::TooManyRenegotiationRequests
            | PeerMisbehaved::TooManyWarningAlertsReceived => FaultKind::Flood,
            PeerMisbehaved::KeyEpochWithPendingFragment
            | PeerMisbehaved::MessageInterleavedWithHandshakeMessage
            | PeerMisbehaved::IllegalMiddleboxChangeCipherSpec => FaultKind::Unexpected,
            PeerMisbehaved::SelectedUnofferedApplicationProtocol => FaultKind::Alpn,
            PeerMisbehaved::AttemptedDowngradeToTls12WhenTls13IsSupported => FaultKind::Version,
            _ => FaultKind::Illegal,
        };
        Self::new(kind, format!("{why:?}"))
    }

    fn of_certificate(error: &CertificateError) -> Self {
        use CertificateError as E;
        match error {
            E::NotValidForNameContext { expected, presented } => {
                let found = format!(
                    "one for {}; \"{}\" was asked for",
                    names(presented),
                    name(expected)
                );
                Self::new(FaultKind::CertificateName, found)
            }
            E::NotValidForName => Self::new(FaultKind::CertificateName, "one for other names"),
            E::ExpiredContext { not_after, time } => {
                let (end, now) = (moment(not_after.as_secs()), moment(time.as_secs()));
                Self::new(
                    FaultKind::CertificateExpired,
                    format!("one that expired on {end}; now it is {now}"),
                )
            }
            E::Expired => Self::new(FaultKind::CertificateExpired, "one that has expired"),
            E::NotValidYetContext { not_before, time } => {
                let (start, now) = (moment(not_before.as_secs()), moment(time.as_secs()));
                let found = format!("one that is valid from {start}; now it is {now}");
                Self::new(FaultKind::CertificateNotYetValid, found)
            }
            E::NotValidYet => Self::new(FaultKind::CertificateNotYetValid, "one that is not valid yet"),
            E::UnknownIssuer => {
                let found = "one whose issuer is unknown here; if it is right, add the authority that issued it \
                             (the peer may also leave out certificates between the two)";
                Self::new(FaultKind::CertificateIssuer, found)
            }
            E::Other(other) if other.0.is::<NoneOfThem>() => {
                Self::new(FaultKind::CertificateName, format!("{}", other.0))
            }
            // The TLS library has these reasons as values of another crate, with no words for people.
            E::Other(other) if format!("{:?}", other.0).contains("CaUsedAsEndEntity") => {
                let found = "one that says it is an authority's (basicConstraints CA:TRUE), as `openssl req -x509` makes them; trust \
                             that very certificate, or make one with -addext basicConstraints=critical,CA:FALSE";
                Self::new(FaultKind::Certificate, found)
            }
            error => Self::new(FaultKind::Certificate, format!("{error}")),
        }
    }
}

/// A moment in seconds since 1970, as a date for people.
pub(super) fn moment(seconds: u64) -> String {
    let time = i64::try_from(seconds)
        .ok()
        .and_then(|seconds| ASN1Time::from_timestamp(seconds).ok());
    time.map_or_else(|| format!("second {seconds} since 1970"), |time| time.to_string())
}

fn name(name: &ServerName<'_>) -> String {
    cut(&name.to_str())
}

/// Names as rustls writes them, `DnsName("a.example")`, as a list for people.
fn names(presented: &[String]) -> String {
    if presented.is_empty() {
        return "no name at all (it has no subjectAltName)".to_owned();
    }
    let plain = |name: &String| cut(name.split('"').nth(1).unwrap_or(name));
    list(presented.iter().map(plain))
}

/// Names with commas; of many, how many more there are.
pub(super) fn list(names: impl ExactSizeIterator<Item = String>) -> String {
    let more = names.len().saturating_sub(NAMES_SHOWN);
    let mut text = names.take(NAMES_SHOWN).collect::<Vec<_>>().join(", ");
    if more > 0 {
        text.push_str(&format!(" and {more} more"));
    }
    text
}

/// A name that somebody else wrote: escaped and of bounded length.
pub(super) fn cut(name: &str) -> String {
    let mut text: String = name
        .chars()
        .take(NAME_SHOWN)
        .flat_map(char::escape_default)
        .collect();
    if name.chars().nth(NAME_SHOWN).is_some() {
        text.push('…');
    }
    text
}

/// The first bytes of what a peer sent, escaped.
fn first(bytes: &[u8]) -> String {
    bytes[..bytes.len().min(5)].escape_ascii().to_string()
}
