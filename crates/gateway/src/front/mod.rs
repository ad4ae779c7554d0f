//! Where clients come in, as the engine has it: its listeners by their numbers, each with an address and its TLS.
//!
//! The engine opens listeners at its start and numbers them; configurations come and go. What a number stands for in the one
//! that holds is found here. Knows no requests.

use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ringmain_engine::Addr;
use ringmain_tls::{Acceptor, ClientCertificates, Counts, KeyPair, Pem, Refused, ServerSettings, Version};
use ringmain_web::{App, Entrance, Limits};

use crate::model::{
    Authorities, Certificate, ClientCertificateMode, Config, Listener, Name, Network, Protocol, TlsVersion,
};
use crate::table::{AddressId, Outcome, Place, Problem, Table};

#[cfg(test)]
mod tests;

/// The engine's listeners, in their order.
#[derive(Debug)]
pub(crate) struct Fronts(Box<[Front]>);

/// One of them. What it is stays: only what its TLS is made of changes.
#[derive(Debug)]
struct Front {
    addr: Addr,
    tls: Option<FrontTls>,
    proxied: Option<FrontProxied>,
}

/// What comes in there begins with a PROXY protocol header.
#[derive(Debug)]
struct FrontProxied {
    /// Who may say who the client is.
    from: Arc<Mutex<Vec<Network>>>,
    timeout: Duration,
}

#[derive(Debug)]
struct FrontTls {
    acceptor: Acceptor,
    made_of: Mutex<MadeOf>,
}

/// What TLS is made of: the same makes the same.
#[derive(Clone, Debug, PartialEq, Eq)]
struct MadeOf {
    /// The one for clients that ask for no name first.
    certificates: Vec<Arc<Certificate>>,
    clients: Option<(Vec<Arc<Authorities>>, bool)>,
    minimum: TlsVersion,
}

impl Fronts {
    /// What a table has listened at, as far as it can be. `now` is wall time since 1970.
    pub(crate) fn open<P>(table: &Table<P>, now: Duration) -> (Fronts, Vec<Problem>) {
        let mut problems = Vec::new();
        let mut fronts = Vec::new();
        for (addr, listeners) in places(table) {
            let tls = match listeners[0].protocol {
                Protocol::Http => None,
                _ => match FrontTls::open(table.config(), &listeners, now, &mut problems) {
                    Some(tls) => Some(tls),
                    None => continue,
                },
            };
            let proxied = listeners[0].proxy_protocol.as_ref().map(|proxied| FrontProxied {
                from: Arc::new(Mutex::new(proxied.from.clone())),
                timeout: proxied.timeout,
            });
            fronts.push(Front { addr, tls, proxied });
        }
        (Fronts(fronts.into()), problems)
    }

    /// Follows a new table. What cannot be followed stays as it was, and is told.
    pub(crate) fn follow<P>(&self, table: &Table<P>, now: Duration) -> Vec<Problem> {
        let mut problems = Vec::new();
        for (front, id) in self.0.iter().zip(self.ids(table)) {
            let Some(id) = id else { continue };
            let listeners: Vec<_> = table.addresses().listeners(id).map(|(_, it)| it).collect();
            let told = listeners[0].proxy_protocol.as_ref();
            if let (Some(proxied), Some(told)) = (&front.proxied, told) {
                let mut from = proxied.from.lock().unwrap_or_else(PoisonError::into_inner);
                from.clone_from(&told.from);
            }
            if let Some(tls) = &front.tls {
                tls.follow(&front.addr, table.config(), &listeners, now, &mut problems);
            }
        }
        problems
    }

    /// What the engine's listeners stand for in a table, by their numbers. `None`: it has no such address any more.
    pub(crate) fn ids<P>(&self, table: &Table<P>) -> Box<[Option<AddressId>]> {
        let mut left: Vec<(AddressId, &Addr, bool)> = kinds(table).collect();
        let mut take = |front: &Front| {
            // Port 0 may stand there several times: each is another one, in their order.
            let proxied = |id| {
                let (_, listener) = table.addresses().listeners(id).next()?;
                Some(listener.proxy_protocol.is_some())
            };
            // What stands before all else is fixed with the listener.
            let same = |(id, addr, secure): &(AddressId, &Addr, bool)| {
                **addr == front.addr
                    && *secure == front.tls.is_some()
                    && proxied(*id) == Some(front.proxied.is_some())
            };
            let found = left.iter().position(same)?;
            Some(left.remove(found).0)
        };
        self.0.iter().map(&mut take).collect()
    }

    /// Addresses of a table that the engine does not listen at.
    pub(crate) fn unheard<P>(&self, table: &Table<P>) -> Vec<Addr> {
        let ids = self.ids(table);
        let heard = |id: &AddressId| ids.contains(&Some(*id));
        let all = table.addresses().iter();
        all.filter(|(id, ..)| !heard(id))
            .map(|(_, addr, _)| addr.clone())
            .collect()
    }

    /// The addresses to listen at.
    pub(crate) fn addrs(&self) -> Vec<Addr> {
        self.0.iter().map(|front| front.addr.clone()).collect()
    }

    /// An application with what comes in where.
    pub(crate) fn apply(&self, mut app: App) -> App {
        for (number, front) in (0..).zip(&self.0) {
            let mut entrance = match &front.tls {
                Some(tls) => Entrance::https(&tls.acceptor),
                None => Entrance::http(),
            };
            if let Some(proxied) = &front.proxied {
                let from = Arc::clone(&proxied.from);
                let trusts = move |peer: Option<IpAddr>| {
                    let from = from.lock().unwrap_or_else(PoisonError::into_inner);
                    // Who reaches a Unix socket was let through by its permissions.
                    peer.is_none_or(|peer| from.iter().any(|network| network.contains(peer)))
                };
                entrance = entrance.proxied(trusts, proxied.timeout);
            }
            app = app.listener(number, entrance);
        }
        app
    }

    /// Handshakes of all of them.
    pub(crate) fn handshakes(&self) -> Counts {
        let mut sum = Counts::default();
        for tls in self.0.iter().filter_map(|front| front.tls.as_ref()) {
            let counts = tls.acceptor.counts();
            sum.begun += counts.begun;
            sum.finished += counts.finished;
            sum.resumed += counts.resumed;
            sum.failed += counts.failed;
        }
        sum
    }
}

/// Addresses whose connections are looked into, and whether they speak TLS.
fn kinds<P>(table: &Table<P>) -> impl Iterator<Item = (AddressId, &Addr, bool)> {
    let all = table.addresses().iter();
    all.filter_map(|(id, addr, _)| {
        let (_, listener) = table.addresses().listeners(id).next()?;
        let secure = listener.protocol == Protocol::Https;
        (secure || listener.protocol == Protocol::Http).then_some((id, addr, secure))
    })
}

fn places<P>(table: &Table<P>) -> impl Iterator<Item = (Addr, Vec<&Arc<Listener>>)> {
    kinds(table).map(|(id, addr, _)| {
        let listeners = table.addresses().listeners(id).map(|(_, listener)| listener);
        (addr.clone(), listeners.collect())
    })
}

impl FrontTls {
    /// With the certificates that can be shown; without any there is none.
    fn open(
        config: &Config,
        listeners: &[&Arc<Listener>],
        now: Duration,
        problems: &mut Vec<Problem>,
    ) -> Option<FrontTls> {
        let mut made_of = MadeOf::of(config, listeners)
            .map_err(|problem| problems.push(problem))
            .ok()?;
        let mut made = Acceptor::new(&made_of.settings(), now);
        if made.is_err() {
            // One that has expired must not take the others with it.
            made_of.certificates.retain(|certificate| {
                let alone = MadeOf {
                    certificates: vec![Arc::clone(certificate)],
                    clients: None,
                    minimum: TlsVersion::Tls12,
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
            Ok(acceptor) => {
                for warning in acceptor.warnings() {
                    log::warn!("{warning}");
                }
                Some(FrontTls {
                    acceptor,
                    made_of: Mutex::new(made_of),
                })
            }
            Err(refused) => {
                problems.push(wrong_tls(&listeners[0].name, &refused, Outcome::LeftOut));
                None
            }
        }
    }

    fn follow(
        &self,
        addr: &Addr,
        config: &Config,
        listeners: &[&Arc<Listener>],
        now: Duration,
        problems: &mut Vec<Problem>,
    ) {
        let next = match MadeOf::of(config, listeners) {
            Ok(next) => next,
            Err(problem) => {
                return problems.push(Problem {
                    outcome: Outcome::AsBefore,
                    ..problem
                });
            }
        };
        let mut made_of = self.made_of.lock().unwrap_or_else(PoisonError::into_inner);
        if *made_of == next {
            return;
        }
        match self.acceptor.reload(&next.settings(), now) {
            Ok(reload) => {
                for line in reload.to_string().lines() {
                    log::info!("certificates of {addr}: {line}");
                }
                *made_of = next;
            }
            Err(refused) => {
                problems.push(wrong_tls(&listeners[0].name, &refused, Outcome::AsBefore));
            }
        }
    }
}

fn wrong_certificate(certificate: &Certificate, refused: &Refused) -> Problem {
    Problem {
        place: Place::Certificate(certificate.name.clone()),
        part: "chain",
        expected: "a certificate that can be shown, with its key".to_owned(),
        found: findings(refused),
        outcome: Outcome::LeftOut,
    }
}

fn wrong_tls(listener: &Name, refused: &Refused, outcome: Outcome) -> Problem {
    Problem {
        place: Place::Listener(listener.clone()),
        part: "tls",
        expected: "what TLS can be spoken with".to_owned(),
        found: findings(refused),
        outcome,
    }
}

fn findings(refused: &Refused) -> String {
    let all: Vec<String> = refused.0.iter().map(ToString::to_string).collect();
    all.join("; ")
}

impl MadeOf {
    /// Of all listeners of an address together: who comes in is told them apart by when the handshake is under way. Of the
    /// oldest versions the newest counts.
    fn of(config: &Config, listeners: &[&Arc<Listener>]) -> Result<MadeOf, Problem> {
        // Who asks for no name gets the certificate of the listener for all names.
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
        })
    }

    fn settings(&self) -> ServerSettings {
        let pair = |certificate: &Arc<Certificate>| KeyPair {
            chain: pem(&certificate.name, "chain", &certificate.chain),
            key: pem(&certificate.name, "key", certificate.key.expose()),
        };
        let client_certificates = match &self.clients {
            None => ClientCertificates::Off,
            Some((authorities, required)) => {
                let names: Vec<&str> = authorities.iter().map(|it| &*it.name).collect();
                let together = Pem {
                    source: format!("authorities `{}`", names.join("`, `")),
                    bytes: authorities
                        .iter()
                        .map(|it| &*it.pem)
                        .collect::<Vec<_>>()
                        .join(&b'\n'),
                };
                if *required {
                    ClientCertificates::Required(together)
                } else {
                    ClientCertificates::Optional(together)
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
            alpn: vec![b"http/1.1".to_vec()],
            ..ServerSettings::default()
        }
    }
}

/// Authorities of clients, and whether each client must have a certificate by one of them.
type Asked = (Vec<Arc<Authorities>>, bool);

/// What clients are asked for, and whether all of them must have it. Where listeners of an address differ, nobody must, and each
/// request is looked at ([`wants_certificate`]).
fn clients(config: &Config, listeners: &[&Arc<Listener>]) -> Result<Option<Asked>, Problem> {
    let asking = |it: &&Arc<Listener>| Some((it.name.clone(), it.tls.as_ref()?.clients.clone()?));
    let asking: Vec<_> = listeners.iter().filter_map(asking).collect();
    let Some((_, first)) = asking.first() else {
        return Ok(None);
    };
    let tell = |name: &Name, expected: &str, found: &str| Problem {
        place: Place::Listener(name.clone()),
        part: "tls.clients",
        expected: expected.to_owned(),
        found: found.to_owned(),
        outcome: Outcome::LeftOut,
    };
    let mut required = asking.len() == listeners.len();
    for (name, clients) in &asking {
        if clients.authorities != first.authorities {
            let expected = "the same authorities at all listeners of an address that ask for certificates";
            return Err(tell(name, expected, "others"));
        }
        match clients.mode {
            ClientCertificateMode::Required => {}
            ClientCertificateMode::Optional => required = false,
            ClientCertificateMode::Unchecked => {
                return Err(tell(name, "the mode `required` or `optional`", "`unchecked`"));
            }
        }
    }
    let wanted = config
        .authorities
        .iter()
        .filter(|it| first.authorities.contains(&it.name));
    Ok(Some((wanted.cloned().collect(), required)))
}

fn pem(name: &str, part: &str, bytes: &[u8]) -> Pem {
    Pem {
        source: format!("{part} of certificate `{name}`"),
        bytes: bytes.to_vec(),
    }
}

/// Whether a listener must have seen a certificate of its client.
pub(crate) fn wants_certificate(listener: &Listener) -> bool {
    let clients = listener.tls.as_ref().and_then(|tls| tls.clients.as_ref());
    clients.is_some_and(|clients| clients.mode == ClientCertificateMode::Required)
}

/// What connections may take: of each limit the widest of all listeners, since the process has one set of them.
pub(crate) fn limits(listeners: &[Arc<Listener>]) -> Limits {
    let mut limits = Limits {
        // How long a body may be is the rule's to say.
        streamed_body_bytes: None,
        ..Limits::default()
    };
    let http: Vec<_> = listeners.iter().filter(|it| it.protocol.is_http()).collect();
    let Some(first) = http.first() else {
        return limits;
    };
    let mut widest = first.limits;
    for other in http.iter().map(|it| &it.limits) {
        widest.head_bytes = widest.head_bytes.max(other.head_bytes);
        widest.headers = widest.headers.max(other.headers);
        widest.head_timeout = widest.head_timeout.max(other.head_timeout);
        widest.keep_alive = widest.keep_alive.max(other.keep_alive);
        widest.rate_bytes = widest.rate_bytes.min(other.rate_bytes);
        widest.requests_per_connection = match (widest.requests_per_connection, other.requests_per_connection)
        {
            (Some(one), Some(two)) => Some(one.max(two)),
            _ => None,
        };
    }
    limits.http1.head_bytes = widest.head_bytes;
    limits.http1.start_line_bytes = limits.http1.start_line_bytes.min(widest.head_bytes);
    limits.http1.fields = widest.headers;
    limits.header_timeout = widest.head_timeout;
    limits.idle_timeout = widest.keep_alive;
    limits.rate_bytes = widest.rate_bytes;
    limits.requests_per_connection = widest.requests_per_connection;
    // Behind proxies all clients have a few addresses.
    let proxied = |it: &&Arc<Listener>| !it.client_address.trusted.is_empty() || it.proxy_protocol.is_some();
    if http.iter().any(proxied) {
        limits.connections_per_address = None;
    }
    limits
}
