//! The TLS of an address: certificates from all its listeners of one kind, and the demands on client certificates.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ringmain_engine::Addr;
use ringmain_tls::{
    Acceptor, ClientCertificates, ConfigError, KeyPair, Pem, PreparedSettings, ServerSettings, Version,
};

use crate::model::{Authorities, Certificate, ClientCertificateMode, Config, Listener, Name, TlsVersion};
use crate::table::{Outcome, Place, Problem};

/// The TLS of an address.
#[derive(Debug)]
pub(super) struct FrontTls {
    pub(super) acceptor: Acceptor,
    made_of: Mutex<MadeOf>,
}

/// The inputs of the TLS settings: equal inputs give equal settings.
#[derive(Clone, Debug, PartialEq, Eq)]
struct MadeOf {
    /// The first is for clients that send no SNI.
    certificates: Vec<Arc<Certificate>>,
    clients: Option<ClientDemands>,
    minimum: TlsVersion,
    /// HTTP is spoken over this TLS.
    is_http: bool,
}

impl FrontTls {
    /// Builds TLS with the usable certificates; `None` without any.
    pub(super) fn open(
        config: &Config,
        listeners: &[&Arc<Listener>],
        now: Duration,
        problems: &mut Vec<Problem>,
    ) -> Option<FrontTls> {
        let first = listeners.first()?;
        let mut made_of = MadeOf::of(config, listeners)
            .map_err(|problem| problems.push(problem))
            .ok()?;
        let mut made = Acceptor::new(&made_of.settings(), now);
        if made.is_err() {
            // An expired certificate must not disable the others.
            made_of.certificates.retain(|certificate| {
                let alone = MadeOf {
                    certificates: vec![Arc::clone(certificate)],
                    clients: None,
                    minimum: TlsVersion::Tls12,
                    is_http: made_of.is_http,
                };
                let refused = Acceptor::new(&alone.settings(), now).err();
                problems.extend(
                    refused
                        .iter()
                        .map(|refused| wrong_certificate(certificate, refused)),
                );
                refused.is_none()
            });
            if !made_of.certificates.is_empty() {
                made = Acceptor::new(&made_of.settings(), now);
            }
        }
        match made {
            Ok(acceptor) => Some(FrontTls {
                acceptor,
                made_of: Mutex::new(made_of),
            }),
            Err(refused) => {
                problems.push(wrong_tls(&first.name, &refused, Outcome::LeftOut));
                None
            }
        }
    }

    /// Builds the TLS of another configuration. `None`: it is unchanged, or its errors are among the problems.
    pub(super) fn prepare(
        &self,
        config: &Config,
        listeners: &[&Arc<Listener>],
        now: Duration,
        problems: &mut Vec<Problem>,
    ) -> Option<NextTls> {
        let made_of = MadeOf::of(config, listeners).map_err(|problem| {
            problems.push(Problem {
                outcome: Outcome::AsBefore,
                ..problem
            });
        });
        let made_of = made_of.ok()?;
        if *self.made_of() == made_of {
            return None;
        }
        let prepared = self.acceptor.prepare(&made_of.settings(), now);
        let prepared = prepared
            .map_err(|refused| problems.push(wrong_tls(&listeners[0].name, &refused, Outcome::AsBefore)));
        Some(NextTls {
            made_of,
            prepared: prepared.ok()?,
        })
    }

    /// Switches new sessions to prepared settings.
    pub(super) fn apply(&self, addr: &Addr, next: NextTls) {
        let reload = self.acceptor.apply(next.prepared);
        for line in reload.to_string().lines() {
            log::info!("certificates of {addr}: {line}");
        }
        *self.made_of() = next.made_of;
    }

    /// Logs probable mistakes in the configuration.
    pub(super) fn warn(&self) {
        for warning in self.acceptor.warnings() {
            log::warn!("{warning}");
        }
    }

    fn made_of(&self) -> std::sync::MutexGuard<'_, MadeOf> {
        self.made_of.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// TLS settings that were built and checked, and that no session uses yet.
#[derive(Debug)]
pub(super) struct NextTls {
    made_of: MadeOf,
    prepared: PreparedSettings,
}

fn wrong_certificate(certificate: &Certificate, refused: &ConfigError) -> Problem {
    Problem {
        place: Place::Certificate(certificate.name.clone()),
        part: "chain",
        expected: "a certificate that can be shown, with its key".to_owned(),
        found: findings(refused),
        outcome: Outcome::LeftOut,
    }
}

fn wrong_tls(listener: &Name, refused: &ConfigError, outcome: Outcome) -> Problem {
    Problem {
        place: Place::Listener(listener.clone()),
        part: "tls",
        expected: "what TLS can be spoken with".to_owned(),
        found: findings(refused),
        outcome,
    }
}

fn findings(refused: &ConfigError) -> String {
    let all: Vec<String> = refused.0.iter().map(ToString::to_string).collect();
    all.join("; ")
}

impl MadeOf {
    /// Collects the inputs from all listeners of an address, which share a handshake: the SNI that selects one is part of that handshake. Of
    /// several minimum versions the newest applies.
    fn of(config: &Config, listeners: &[&Arc<Listener>]) -> Result<MadeOf, Problem> {
        // A client without SNI receives the certificate of the listener for all names.
        let any = listeners.iter().filter(|it| it.hostnames.is_empty());
        let named = listeners.iter().filter(|it| !it.hostnames.is_empty());
        let mut certificates: Vec<Arc<Certificate>> = Vec::new();
        for tls in any.chain(named).filter_map(|it| it.tls.as_ref()) {
            for name in &tls.certificates {
                let found = config.certificates.iter().find(|it| it.name == *name);
                let new = found.filter(|it| certificates.iter().all(|other| other.name != it.name));
                certificates.extend(new.cloned());
            }
        }
        let minimum = listeners.iter().filter_map(|it| Some(it.tls.as_ref()?.minimum));
        Ok(MadeOf {
            certificates,
            clients: clients(config, listeners)?,
            minimum: minimum.max().unwrap_or_default(),
            is_http: listeners.iter().any(|it| it.protocol.is_http()),
        })
    }

    fn settings(&self) -> ServerSettings {
        let pair = |certificate: &Arc<Certificate>| KeyPair {
            chain: pem(&certificate.name, "chain", &certificate.chain),
            key: pem(&certificate.name, "key", certificate.key.expose()),
        };
        let client_certificates = match &self.clients {
            None => ClientCertificates::Off,
            Some((authorities, mode)) => {
                let names: Vec<&str> = authorities.iter().map(|it| &*it.name).collect();
                let together = Pem {
                    source: format!("authorities `{}`", names.join("`, `")),
                    bytes: authorities
                        .iter()
                        .map(|it| &*it.pem)
                        .collect::<Vec<_>>()
                        .join(&b'\n'),
                };
                match mode {
                    ClientCertificateMode::Required => ClientCertificates::Required(together),
                    ClientCertificateMode::Optional => ClientCertificates::Optional(together),
                    ClientCertificateMode::Unchecked => ClientCertificates::Unchecked(together),
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
            alpn: match self.is_http {
                true => ringmain_tls::http_protocols(),
                false => Vec::new(),
            },
            ..ServerSettings::default()
        }
    }
}

/// Authorities for client certificates, and the mode for clients without a certificate of one of these.
type ClientDemands = (Vec<Arc<Authorities>>, ClientCertificateMode);

/// Returns the demands of the handshake. Where listeners of an address differ, the handshake has their common demands, and the others are
/// checked for each request ([`refuses_certificate`](super::refuses_certificate)).
fn clients(config: &Config, listeners: &[&Arc<Listener>]) -> Result<Option<ClientDemands>, Problem> {
    let asking = |it: &&Arc<Listener>| Some((it.name.clone(), it.tls.as_ref()?.clients.clone()?));
    let asking: Vec<_> = listeners.iter().filter_map(asking).collect();
    let Some((_, first)) = asking.first() else {
        return Ok(None);
    };
    if let Some((name, _)) = asking
        .iter()
        .find(|(_, clients)| clients.authorities != first.authorities)
    {
        return Err(Problem {
            place: Place::Listener(name.clone()),
            part: "tls.clients",
            expected: "the same authorities at all listeners of an address that ask for certificates"
                .to_owned(),
            found: "others".to_owned(),
            outcome: Outcome::LeftOut,
        });
    }
    let any = |mode| asking.iter().any(|(_, clients)| clients.mode == mode);
    let mode = if any(ClientCertificateMode::Unchecked) {
        ClientCertificateMode::Unchecked
    } else if any(ClientCertificateMode::Optional) || asking.len() < listeners.len() {
        ClientCertificateMode::Optional
    } else {
        ClientCertificateMode::Required
    };
    let wanted = config
        .authorities
        .iter()
        .filter(|it| first.authorities.contains(&it.name));
    Ok(Some((wanted.cloned().collect(), mode)))
}

fn pem(name: &str, part: &str, bytes: &[u8]) -> Pem {
    Pem {
        source: format!("{part} of certificate `{name}`"),
        bytes: bytes.to_vec(),
    }
}
