//! Rows of listeners and certificates.

use std::sync::Arc;
use std::time::Duration;

use ringmain_gateway::model::{Config, Protocol};
use ringmain_gateway::{Gateway, ListenerReport};
use serde::Serialize;

use crate::limits::{CERTIFICATE_WARNING, DASHBOARD_CERTIFICATES};

/// An address with its listeners.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct ListenerRow {
    /// The names of its listeners.
    pub(super) names: Vec<String>,
    pub(super) address: String,
    pub(super) protocols: Vec<&'static str>,
    /// It is listened on.
    pub(super) is_open: bool,
    /// Open connections. `None`: they are not counted.
    pub(super) connections: Option<u64>,
}

impl ListenerRow {
    /// `connections` returns those of a listener of the engine.
    pub(super) fn of(report: &ListenerReport, connections: impl Fn(u32) -> Option<u64>) -> ListenerRow {
        ListenerRow {
            names: report.names.iter().map(ToString::to_string).collect(),
            address: report.addr.to_string(),
            protocols: report.protocols.iter().map(|it| protocol_label(*it)).collect(),
            is_open: report.is_open,
            connections: report.number.and_then(connections),
        }
    }
}

/// Returns the word of the configuration for a protocol.
fn protocol_label(protocol: Protocol) -> &'static str {
    match protocol {
        Protocol::Http => "http",
        Protocol::H2c => "h2c",
        Protocol::Https => "https",
        Protocol::Tcp => "tcp",
        Protocol::Tls => "tls",
        Protocol::TlsPassthrough => "tls_passthrough",
        Protocol::Udp => "udp",
    }
}

/// A configured certificate.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct CertificateFacts {
    /// The name of its entry.
    pub(super) name: String,
    /// The DNS names and addresses that it is valid for.
    pub(super) hosts: Vec<String>,
    pub(super) not_before: u64,
    pub(super) not_after: u64,
}

/// The certificates of a configuration: read once for each, not for each snapshot.
#[derive(Debug, Default)]
pub(super) struct CertificateCache {
    of: Option<Arc<Config>>,
    certificates: Arc<[CertificateFacts]>,
}

impl CertificateCache {
    /// Returns the certificates of the served configuration, in its order.
    pub(super) fn read(&mut self, gateway: &Gateway) -> Arc<[CertificateFacts]> {
        let table = gateway.table();
        let config = table.config();
        if self.of.as_ref().is_none_or(|of| !Arc::ptr_eq(of, config)) {
            self.of = Some(Arc::clone(config));
            let facts = |(name, certificate): (ringmain_gateway::model::Name, ringmain_tls::Certificate)| {
                CertificateFacts {
                    name: name.to_string(),
                    hosts: certificate.names,
                    not_before: certificate.not_before,
                    not_after: certificate.not_after,
                }
            };
            self.certificates = gateway.certificates().into_iter().map(facts).collect();
        }
        Arc::clone(&self.certificates)
    }
}

#[derive(Serialize)]
pub(super) struct CertificateRow<'a> {
    name: &'a str,
    hosts: &'a [String],
    /// The end of its validity, in seconds since the Unix epoch.
    expires_at: u64,
    /// `valid`, `expiring`, `expired` or `not_yet_valid`.
    state: &'static str,
    /// Whole days until it expires; negative once it has.
    days_left: i64,
}

/// Returns the rows of certificates, those that expire first first, and the number of further ones.
pub(super) fn certificate_rows(
    certificates: &[CertificateFacts],
    wall: Duration,
) -> (Vec<CertificateRow<'_>>, usize) {
    let now = wall.as_secs();
    let mut rows: Vec<CertificateRow<'_>> = certificates
        .iter()
        .map(|it| CertificateRow {
            name: &it.name,
            hosts: &it.hosts,
            expires_at: it.not_after,
            state: certificate_state(it, now),
            days_left: (it.not_after.cast_signed() - now.cast_signed()).div_euclid(86_400),
        })
        .collect();
    rows.sort_by(|one, other| {
        let by_time = one.expires_at.cmp(&other.expires_at);
        by_time.then_with(|| one.name.cmp(other.name))
    });
    let more = rows.len().saturating_sub(DASHBOARD_CERTIFICATES);
    rows.truncate(DASHBOARD_CERTIFICATES);
    (rows, more)
}

fn certificate_state(certificate: &CertificateFacts, now: u64) -> &'static str {
    if now > certificate.not_after {
        "expired"
    } else if now < certificate.not_before {
        "not_yet_valid"
    } else if certificate.not_after - now < CERTIFICATE_WARNING.as_secs() {
        "expiring"
    } else {
        "valid"
    }
}
