//! The TLS of an address: certificates from all its listeners of one kind, and the demands on client certificates.

use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ringmain_engine::Addr;
use ringmain_tls::{
    Acceptor, ClientCertificates, ConfigError, KeyPair, Pem, PreparedSettings, ServerSettings, Version,
};

use crate::model::{Authorities, Certificate, ClientCertificateMode, Config, Listener, Name, TlsVersion};
use crate::table::{ConfigPart, Consequence, Problem};

/// The certificates and authorities of a configuration, which many listeners may refer to.
pub(super) struct TlsParts<'c> {
    config: &'c Config,
    /// By name, once a listener has asked for one.
    certificates: OnceCell<BTreeMap<&'c str, &'c Arc<Certificate>>>,
}

impl<'c> TlsParts<'c> {
    pub(super) fn new(config: &'c Config) -> TlsParts<'c> {
        TlsParts {
            config,
            certificates: OnceCell::new(),
        }
    }

    /// Returns the certificate of this name. Of two with the same name the first one counts.
    fn certificate(&self, name: &str) -> Option<&'c Arc<Certificate>> {
        let by_name = self.certificates.get_or_init(|| {
            let all = self.config.certificates.iter().rev();
            all.map(|certificate| (&*certificate.name, certificate)).collect()
        });
        by_name.get(name).copied()
    }
}

/// The TLS of an address.
#[derive(Debug)]
pub(super) struct AddressTls {
    pub(super) acceptor: Acceptor,
    inputs: Mutex<AddressTlsInputs>,
}

/// The inputs of the TLS settings: equal inputs give equal settings.
#[derive(Clone, Debug, PartialEq, Eq)]
struct AddressTlsInputs {
    /// The first is for clients that send no SNI.
    certificates: Vec<Arc<Certificate>>,
    clients: Option<ClientDemands>,
    minimum: TlsVersion,
    /// The sessions carry HTTP.
    is_http: bool,
}

impl AddressTls {
    /// Builds TLS with the usable certificates; `None` without any.
    pub(super) fn open(
        parts: &TlsParts<'_>,
        listeners: &[&Arc<Listener>],
        now: Duration,
        problems: &mut Vec<Problem>,
    ) -> Option<AddressTls> {
        let first = listeners.first()?;
        let mut inputs = AddressTlsInputs::collect(parts, listeners)
            .map_err(|problem| problems.push(problem))
            .ok()?;
        let mut acceptor = Acceptor::new(&inputs.server_settings(), now);
        if acceptor.is_err() {
            // An expired certificate must not disable the others.
            inputs.certificates.retain(|certificate| {
                let single = AddressTlsInputs {
                    certificates: vec![Arc::clone(certificate)],
                    clients: None,
                    minimum: TlsVersion::Tls12,
                    is_http: inputs.is_http,
                };
                let refused = Acceptor::new(&single.server_settings(), now).err();
                problems.extend(
                    refused
                        .iter()
                        .map(|refused| certificate_problem(certificate, refused)),
                );
                refused.is_none()
            });
            if !inputs.certificates.is_empty() {
                acceptor = Acceptor::new(&inputs.server_settings(), now);
            }
        }
        match acceptor {
            Ok(acceptor) => Some(AddressTls {
                acceptor,
                inputs: Mutex::new(inputs),
            }),
            Err(refused) => {
                problems.push(tls_problem(&first.name, &refused, Consequence::Omitted));
                None
            }
        }
    }

    /// Builds the TLS of another configuration. `None`: it is unchanged, or its errors are among the problems.
    pub(super) fn prepare(
        &self,
        parts: &TlsParts<'_>,
        listeners: &[&Arc<Listener>],
        now: Duration,
        problems: &mut Vec<Problem>,
    ) -> Option<PreparedTls> {
        let inputs = AddressTlsInputs::collect(parts, listeners).map_err(|problem| {
            problems.push(Problem {
                consequence: Consequence::Unchanged,
                ..problem
            });
        });
        let inputs = inputs.ok()?;
        if *self.lock_inputs() == inputs {
            return None;
        }
        let prepared = self.acceptor.prepare(&inputs.server_settings(), now);
        let prepared = prepared.map_err(|refused| {
            problems.push(tls_problem(&listeners[0].name, &refused, Consequence::Unchanged))
        });
        Some(PreparedTls {
            inputs,
            prepared: prepared.ok()?,
        })
    }

    /// Switches new sessions to prepared settings.
    pub(super) fn apply(&self, addr: &Addr, next: PreparedTls) {
        let reload = self.acceptor.apply(next.prepared);
        for line in reload.to_string().lines() {
            log::info!("certificates of {addr}: {line}");
        }
        *self.lock_inputs() = next.inputs;
    }

    /// Logs probable mistakes in the configuration.
    pub(super) fn log_warnings(&self) {
        for warning in self.acceptor.warnings() {
            log::warn!("{warning}");
        }
    }

    fn lock_inputs(&self) -> std::sync::MutexGuard<'_, AddressTlsInputs> {
        self.inputs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// TLS settings that were built and checked, and that no session uses yet.
#[derive(Debug)]
pub(super) struct PreparedTls {
    inputs: AddressTlsInputs,
    prepared: PreparedSettings,
}

fn certificate_problem(certificate: &Certificate, refused: &ConfigError) -> Problem {
    Problem {
        part: ConfigPart::Certificate(certificate.name.clone()),
        field: "chain",
        expected: "a certificate that can be shown, with its key".to_owned(),
        found: join_diagnostics(refused),
        consequence: Consequence::Omitted,
    }
}

fn tls_problem(listener: &Name, refused: &ConfigError, outcome: Consequence) -> Problem {
    Problem {
        part: ConfigPart::Listener(listener.clone()),
        field: "tls",
        expected: "what TLS can be spoken with".to_owned(),
        found: join_diagnostics(refused),
        consequence: outcome,
    }
}

fn join_diagnostics(refused: &ConfigError) -> String {
    let all: Vec<String> = refused.0.iter().map(ToString::to_string).collect();
    all.join("; ")
}

impl AddressTlsInputs {
    /// Collects the inputs from all listeners of an address, which share a handshake: the SNI that selects one is part of that handshake. Of
    /// several minimum versions the newest applies.
    fn collect(parts: &TlsParts<'_>, listeners: &[&Arc<Listener>]) -> Result<AddressTlsInputs, Problem> {
        // A client without SNI receives the certificate of the listener for all names.
        let any = listeners.iter().filter(|listener| listener.hostnames.is_empty());
        let named = listeners.iter().filter(|listener| !listener.hostnames.is_empty());
        let mut certificates: Vec<Arc<Certificate>> = Vec::new();
        let mut names: BTreeSet<&str> = BTreeSet::new();
        for tls in any.chain(named).filter_map(|listener| listener.tls.as_ref()) {
            for name in &tls.certificates {
                if let Some(found) = parts.certificate(name).filter(|_| names.insert(name)) {
                    certificates.push(Arc::clone(found));
                }
            }
        }
        let minimum = listeners
            .iter()
            .filter_map(|listener| Some(listener.tls.as_ref()?.minimum));
        Ok(AddressTlsInputs {
            certificates,
            clients: client_demands(parts.config, listeners)?,
            minimum: minimum.max().unwrap_or_default(),
            is_http: listeners.iter().any(|listener| listener.protocol.is_http()),
        })
    }

    fn server_settings(&self) -> ServerSettings {
        let pair = |certificate: &Arc<Certificate>| KeyPair {
            chain: parse_pem(&certificate.name, "chain", &certificate.chain),
            key: parse_pem(&certificate.name, "key", certificate.key.expose()),
        };
        let client_certificates = match &self.clients {
            None => ClientCertificates::Off,
            Some((authorities, mode)) => {
                let names: Vec<&str> = authorities.iter().map(|set| &*set.name).collect();
                let authorities_pem = Pem {
                    source: format!("authorities `{}`", names.join("`, `")),
                    bytes: authorities
                        .iter()
                        .map(|set| &*set.pem)
                        .collect::<Vec<_>>()
                        .join(&b'\n'),
                };
                match mode {
                    ClientCertificateMode::Required => ClientCertificates::Required(authorities_pem),
                    ClientCertificateMode::Optional => ClientCertificates::Optional(authorities_pem),
                    ClientCertificateMode::Unchecked => ClientCertificates::Unchecked(authorities_pem),
                }
            }
        };
        ServerSettings {
            certificates: self.certificates.iter().map(pair).collect(),
            client_certificates,
            minimum_version: match self.minimum {
                TlsVersion::Tls12 => Version::Tls12,
                TlsVersion::Tls13 => Version::Tls13,
            },
            alpn: if self.is_http {
                ringmain_tls::http_protocols()
            } else {
                Vec::new()
            },
            ..ServerSettings::default()
        }
    }
}

/// Authorities for client certificates, and the mode for clients without a certificate of one of these.
type ClientDemands = (Vec<Arc<Authorities>>, ClientCertificateMode);

/// Returns the demands of the handshake. Where listeners of an address differ, the handshake has their common demands, and the others are
/// checked for each request ([`rejects_certificate`](super::rejects_certificate)).
fn client_demands(config: &Config, listeners: &[&Arc<Listener>]) -> Result<Option<ClientDemands>, Problem> {
    let with_clients =
        |listener: &&Arc<Listener>| Some((listener.name.clone(), listener.tls.as_ref()?.clients.clone()?));
    let with_clients: Vec<_> = listeners.iter().filter_map(with_clients).collect();
    let Some((_, first)) = with_clients.first() else {
        return Ok(None);
    };
    if let Some((name, _)) = with_clients
        .iter()
        .find(|(_, clients)| clients.authorities != first.authorities)
    {
        return Err(Problem {
            part: ConfigPart::Listener(name.clone()),
            field: "tls.clients",
            expected: "the same authorities at all listeners of an address that ask for certificates"
                .to_owned(),
            found: "others".to_owned(),
            consequence: Consequence::Omitted,
        });
    }
    let any = |mode| with_clients.iter().any(|(_, clients)| clients.mode == mode);
    let mode = if any(ClientCertificateMode::Unchecked) {
        ClientCertificateMode::Unchecked
    } else if any(ClientCertificateMode::Optional) || with_clients.len() < listeners.len() {
        ClientCertificateMode::Optional
    } else {
        ClientCertificateMode::Required
    };
    let authorities = config
        .authorities
        .iter()
        .filter(|set| first.authorities.contains(&set.name));
    Ok(Some((authorities.cloned().collect(), mode)))
}

fn parse_pem(name: &str, part: &str, bytes: &[u8]) -> Pem {
    Pem {
        source: format!("{part} of certificate `{name}`"),
        bytes: bytes.to_vec(),
    }
}
