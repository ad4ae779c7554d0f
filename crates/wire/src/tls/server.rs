//! A server's settings: checked as a whole, then made into what sessions are begun from. Reads no file and no clock.

use std::sync::Arc;

use aws_lc_rs::digest::{Context, SHA256};
use rustls::server::{NoServerSessionStorage, UnbufferedServerConnection, WebPkiClientVerifier};
use rustls::{RootCertStore, ServerConfig};

use super::certificate::{Certificate, Served};
use super::clients::{ClientPolicy, Demand};
use super::facts::Facts;
use super::fault::Fault;
use super::finding::{Finding, is_fatal};
use super::handshake::Handshake;
use super::key_log::KeyLog;
use super::names::Names;
use super::pem::{KeyPair, Pem};
use super::session::Session;
use super::suites;
use super::tickets::Tickets;
use super::version::Version;

/// Tickets that a client is sent at most after a handshake of TLS 1.3.
pub const TICKETS_SENT: usize = 8;

/// Whether clients have to show certificates.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ClientCertificates {
    /// They are not asked.
    #[default]
    Off,
    /// They are asked; one that is shown has to be issued by one of these authorities.
    Optional(Pem),
    /// They have to show one, issued by one of these authorities.
    Required(Pem),
    /// They are asked, and admitted whatever they show. One that none of these authorities has issued, or that has expired, is
    /// reported separately ([`Facts::unverified_certificates`]).
    Unchecked(Pem),
}

/// What a server wants. [`Default`] has no certificate yet, and is otherwise for the internet.
#[derive(Clone, Debug)]
pub struct ServerSettings {
    /// Certificates with their keys. The first one is for clients that ask for no name.
    pub certificates: Vec<KeyPair>,
    /// Whether a client that asks for a name that no certificate has is refused; else it gets the first certificate.
    pub refuse_unknown_names: bool,
    /// Whether clients have to show certificates.
    pub client_certificates: ClientCertificates,
    /// The lowest version that is spoken.
    pub minimum_version: Version,
    /// Cipher suites by their IANA names, the preferred first; none for all of [`suite_names`](super::suite_names).
    pub suites: Vec<String>,
    /// Application protocols, the preferred first, such as `h2` and `http/1.1`. A client that offers others alone is refused;
    /// one that offers none is not.
    pub alpn: Vec<Vec<u8>>,
    /// Tickets that a client is sent after a handshake of TLS 1.3, at most [`TICKETS_SENT`]; 0 for no resumption at all.
    pub tickets: usize,
    /// Where the secrets of sessions are written, if anywhere.
    pub key_log: Option<KeyLog>,
}

impl Default for ServerSettings {
    fn default() -> Self {
        Self {
            certificates: Vec::new(),
            refuse_unknown_names: false,
            client_certificates: ClientCertificates::Off,
            minimum_version: Version::Tls12,
            suites: Vec::new(),
            alpn: Vec::new(),
            // Browsers open a few connections at once, and use a ticket once (RFC 8446 §C.4).
            tickets: 2,
            key_log: None,
        }
    }
}

/// What a server's sessions are begun from. Immutable: changed settings make another one, and sessions keep theirs.
#[derive(Debug)]
pub struct Server {
    config: Arc<ServerConfig>,
    clients: Arc<ClientPolicy>,
    minimum_version: Version,
    certificates: Vec<Certificate>,
    warnings: Vec<Finding>,
}

impl ServerSettings {
    /// Makes what sessions are begun from. `serving` are fingerprints of certificates that are served now: one of these may have
    /// expired, since without it nothing would get better; any other must be valid.
    ///
    /// # Errors
    /// All that is wrong, warnings included, if anything is that forbids to serve.
    pub fn build(&self, tickets: &Tickets, serving: &[[u8; 32]]) -> Result<Server, Vec<Finding>> {
        let mut findings = Vec::new();
        let config = self.config(tickets, serving, &mut findings);
        match config {
            Some((config, clients, certificates)) if !is_fatal(&findings) => Ok(Server {
                config,
                clients: Arc::new(clients),
                minimum_version: self.minimum_version,
                certificates,
                warnings: findings,
            }),
            _ => Err(findings),
        }
    }

    fn config(
        &self,
        tickets: &Tickets,
        serving: &[[u8; 32]],
        findings: &mut Vec<Finding>,
    ) -> Option<(Arc<ServerConfig>, ClientPolicy, Vec<Certificate>)> {
        let provider = suites::provider(&self.suites).unwrap_or_else(|unknown| {
            findings.push(unknown_suites(&unknown));
            Arc::new(rustls::crypto::aws_lc_rs::default_provider())
        });
        check_alpn(&self.alpn, findings);
        if self.tickets > TICKETS_SENT {
            let text = format!("expected at most {TICKETS_SENT}; found {}", self.tickets);
            findings.push(Finding::error("tickets", text));
        }
        if self.certificates.is_empty() {
            findings.push(Finding::error(
                "certificates",
                "expected at least one certificate with its key; found none",
            ));
        }
        let now = tickets.clock().seconds();
        let read = |pair| Served::read(pair, &provider, now, serving, findings);
        let served: Vec<Served> = self.certificates.iter().filter_map(read).collect();
        let names = Names::new(&served, self.refuse_unknown_names, findings);
        let authorities = self.authorities(findings);
        let builder = ServerConfig::builder_with_details(provider.clone(), Arc::new(tickets.clock().clone()));
        let builder = match builder.with_protocol_versions(self.minimum_version.and_later()) {
            Ok(builder) => builder,
            Err(_) => {
                findings.push(unusable_suites(self.minimum_version));
                return None;
            }
        };
        let asked = match authorities? {
            None => None,
            Some((roots, demand)) => {
                let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
                let verifier = match demand {
                    Demand::Required => verifier,
                    Demand::Optional | Demand::Unchecked => verifier.allow_unauthenticated(),
                };
                match verifier.build() {
                    Ok(verifier) => Some((demand, verifier)),
                    Err(error) => {
                        findings.push(Finding::error("client_certificates", format!("{error}")));
                        return None;
                    }
                }
            }
        };
        let clients = ClientPolicy::new(asked, tickets.clock());
        let builder = match clients.handshake_verifier() {
            None => builder.with_no_client_auth(),
            Some(verifier) => builder.with_client_cert_verifier(verifier),
        };
        let mut config = builder.with_cert_resolver(Arc::new(names));
        self.complete(&mut config, tickets);
        let config = Arc::new(config);
        // So that no session fails for what is known now.
        if let Err(error) = UnbufferedServerConnection::new(config.clone()) {
            findings.push(Finding::error("settings", format!("{error}")));
        }
        let certificates = served.into_iter().map(|one| one.about).collect();
        Some((config, clients, certificates))
    }

    /// Sets what needs no check.
    fn complete(&self, config: &mut ServerConfig, tickets: &Tickets) {
        config.alpn_protocols.clone_from(&self.alpn);
        // Ours come first: what a client likes best may be what is cheapest to it alone.
        config.ignore_client_order = true;
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = self.tickets;
        if self.tickets > 0 {
            config.ticketer = Arc::new(tickets.bound(self.policy()));
        }
        config.max_early_data_size = 0;
        // Keys are taken out when a handshake is over: records are opened where they lie.
        config.enable_secret_extraction = true;
        if let Some(log) = &self.key_log {
            config.key_log = Arc::new(log.clone());
        }
    }

    /// Returns the authorities for clients and the demand on them; `None` when the authorities are invalid.
    #[expect(
        clippy::option_option,
        reason = "no authorities, and wrong ones, are two things"
    )]
    fn authorities(&self, findings: &mut Vec<Finding>) -> Option<Option<(RootCertStore, Demand)>> {
        let (pem, demand) = match &self.client_certificates {
            ClientCertificates::Off => return Some(None),
            ClientCertificates::Optional(pem) => (pem, Demand::Optional),
            ClientCertificates::Required(pem) => (pem, Demand::Required),
            ClientCertificates::Unchecked(pem) => (pem, Demand::Unchecked),
        };
        roots(pem, findings).map(|roots| Some((roots, demand)))
    }

    /// What is asked of clients, as a number: a ticket opens only where it is the same, since a resumed session shows no
    /// certificate again.
    fn policy(&self) -> [u8; 32] {
        let mut context = Context::new(&SHA256);
        match &self.client_certificates {
            ClientCertificates::Off => context.update(b"off"),
            ClientCertificates::Optional(pem) => {
                context.update(b"optional");
                context.update(&pem.bytes);
            }
            ClientCertificates::Required(pem) => {
                context.update(b"required");
                context.update(&pem.bytes);
            }
            ClientCertificates::Unchecked(pem) => {
                context.update(b"unchecked");
                context.update(&pem.bytes);
            }
        }
        let mut policy = [0; 32];
        policy.copy_from_slice(context.finish().as_ref());
        policy
    }
}

impl Server {
    /// A session for a connection that was accepted.
    #[must_use]
    pub fn session(&self) -> Session {
        match UnbufferedServerConnection::new(self.config.clone()) {
            Ok(connection) => {
                let clients = self.clients.is_unchecked().then(|| Arc::clone(&self.clients));
                Session::new(Handshake::server(connection, clients))
            }
            Err(error) => Session::failed(Fault::of(&error)),
        }
    }

    /// Returns whether a handshake by these settings would have had the same result: a version and a suite that are still spoken, with a
    /// client whose certificate, or lack of one, has the same outcome now. Verifies the certificate again.
    #[must_use]
    pub fn admits(&self, facts: &Facts) -> bool {
        let spoken = self.config.crypto_provider().cipher_suites.iter();
        facts.version >= self.minimum_version
            && spoken
                .map(|suite| suites::name(suite.suite()))
                .any(|name| name == facts.suite)
            && self.clients.admits(facts)
    }

    /// The certificates, the default one first.
    #[must_use]
    pub fn certificates(&self) -> &[Certificate] {
        &self.certificates
    }

    /// What is likely not meant, in the settings that this was made of.
    #[must_use]
    pub fn warnings(&self) -> &[Finding] {
        &self.warnings
    }
}

/// Authorities out of PEM; `None` when something is wrong with them.
pub(super) fn roots(pem: &Pem, findings: &mut Vec<Finding>) -> Option<RootCertStore> {
    let certificates = match pem.certificates() {
        Ok(certificates) => certificates,
        Err(finding) => {
            findings.push(finding);
            return None;
        }
    };
    let mut roots = RootCertStore::empty();
    let mut right = true;
    for (at, der) in certificates.into_iter().enumerate() {
        if let Err(error) = roots.add(der) {
            let text = format!(
                "expected certificates of authorities; found that certificate {} is none: {error}",
                at + 1
            );
            findings.push(Finding::error(&pem.source, text));
            right = false;
        }
    }
    right.then_some(roots)
}

pub(super) fn check_alpn(protocols: &[Vec<u8>], findings: &mut Vec<Finding>) {
    for protocol in protocols {
        // RFC 7301 §3.1.
        if protocol.is_empty() || protocol.len() > 255 {
            let text = format!(
                "expected protocols of 1 to 255 bytes; found one of {}",
                protocol.len()
            );
            findings.push(Finding::error("alpn", text));
        }
    }
}

pub(super) fn unknown_suites(unknown: &[String]) -> Finding {
    let known: Vec<&str> = suites::suite_names().collect();
    let unknown: Vec<String> = unknown.iter().map(|name| super::fault::cut(name)).collect();
    Finding::error(
        "suites",
        format!(
            "expected names out of {}; found {}",
            known.join(", "),
            unknown.join(", ")
        ),
    )
}

pub(super) fn unusable_suites(version: Version) -> Finding {
    let text = format!("expected a suite of {} or above; found none", version.name());
    Finding::error("suites", text)
}
