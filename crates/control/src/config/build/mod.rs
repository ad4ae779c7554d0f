//! From the document to the model: what values mean together, and what becomes of parts that are wrong.

mod actions;
mod traffic;
mod filters;
mod jwt;
mod kubernetes;
mod listeners;
mod nats;
mod policies;
mod app_proxy;
mod push;
mod routes;
mod sources;
mod upstreams;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;

use ringmain_gateway::LOG_FIELDS;
use ringmain_gateway::model::{self, Config, Name};
use ringmain_gateway::table::Place;
use ringmain_web::access_log::Template;

use super::document::{Document, Maybe, Some1};
use super::error::{Errors, Position, quoted, suggestion};
use super::expand;
use super::yaml::Pair;
use super::fields::{At, Either, OneOrMany, Pairs, Text};
use super::{Kubernetes, Sources};

/// What a document means.
pub(super) struct Built {
    pub(super) config: Config,
    pub(super) kubernetes: Option<Arc<Kubernetes>>,
    pub(super) places: BTreeMap<Place, Position>,
    /// Where `access_log` is.
    pub(super) log: Position,
    /// Where policies stand, by whose they are and by their kind.
    pub(super) policies: BTreeMap<(Place, &'static str), Position>,
    /// Names of parts that are there in the file and not in the configuration.
    pub(super) left_out: BTreeSet<String>,
    /// Listeners and upstreams whose TLS settings name a part that was left out.
    pub(super) incomplete: BTreeSet<Place>,
}

struct Builder<'b> {
    sources: &'b Sources<'b>,
    errors: &'b Errors<'b>,
    built: Built,
    /// What the file names, right or not.
    listeners: BTreeSet<String>,
    upstreams: BTreeSet<String>,
    certificates: BTreeSet<String>,
    authorities: BTreeSet<String>,
    /// Who signs tokens; `None`: it is wrong.
    providers: BTreeMap<String, Option<Arc<model::JwtProvider>>>,
    /// Whether the file says what is pushed, right or not.
    pushes: bool,
    /// The namespaces of its channels, right or not.
    namespaces: BTreeSet<String>,
    /// Upstreams that were made of a URL.
    inline: BTreeSet<String>,
    /// What `limits` has for rules that have no `body.request` and no `timeouts.request`.
    body: Option<Option<u64>>,
    request_timeout: Option<Option<std::time::Duration>>,
}

/// Translates a document. `routes` are its routes, which were not read with the rest of it.
pub(super) fn build(
    document: Document,
    routes: &[Pair<'_>],
    sources: &Sources<'_>,
    errors: &Errors<'_>,
) -> Built {
    let mut builder = Builder {
        sources,
        errors,
        built: Built {
            config: Config::default(),
            kubernetes: None,
            places: BTreeMap::new(),
            log: Position::START,
            policies: BTreeMap::new(),
            left_out: BTreeSet::new(),
            incomplete: BTreeSet::new(),
        },
        listeners: names(&document.listeners),
        upstreams: names(&document.upstreams),
        certificates: names(&document.certificates),
        authorities: names(&document.authorities),
        providers: BTreeMap::new(),
        pushes: document.push.is_some(),
        namespaces: BTreeSet::new(),
        inline: BTreeSet::new(),
        body: None,
        request_timeout: None,
    };
    if document.listen.is_some() {
        builder.listeners.insert("default".to_owned());
    }
    // Routes have some of them for defaults.
    builder.limits(document.limits);
    builder.certificates(document.certificates);
    builder.authorities(document.authorities);
    builder.upstreams(document.upstreams);
    builder.short_listener(document.listen);
    builder.listeners(document.listeners);
    builder.jwt_providers(document.jwt_providers);
    builder.push(document.push);
    builder.routes(routes);
    builder.short_route(document.to);
    builder.streams(document.streams);
    builder.process(document.admin, document.access_log);
    let has_gateways = document.kubernetes.is_some();
    builder.kubernetes(document.kubernetes);
    if builder.listeners.is_empty() && !has_gateways {
        let expected = "somewhere to listen: the key `listen`, `listeners` or `kubernetes`";
        errors.tell(Position::START, expected, "none");
    }
    builder.find_incomplete();
    builder.built
}

fn names<V>(pairs: &Pairs<V>) -> BTreeSet<String> {
    pairs
        .0
        .iter()
        .filter_map(|(name, _)| name.value.clone())
        .collect()
}

/// A value that was told to be wrong is as if it were not there: its part is not used anyway.
fn value<T>(maybe: Maybe<T>) -> Option<T> {
    maybe.and_then(|at| at.value)
}

fn text<T>(maybe: Maybe<Text<T>>) -> Option<T> {
    value(maybe).map(|text| text.0)
}

fn list<T>(some: Some1<T>) -> Vec<At<T>> {
    some.map(At::<OneOrMany<T>>::into_list).unwrap_or_default()
}

fn texts<T>(some: Some1<Text<T>>) -> Vec<T> {
    list(some)
        .into_iter()
        .filter_map(|at| at.value)
        .map(|text| text.0)
        .collect()
}

/// A number of which 0 would let nothing pass.
fn positive(errors: &Errors<'_>, at: Maybe<u32>) -> Option<u32> {
    let position = at.as_ref()?.position;
    let number = value(at)?;
    if number == 0 {
        errors.tell(position, format!("a whole number from 1 to {}", u32::MAX), "`0`");
    }
    Some(number)
}

/// Puts a value in place of a default.
fn put<T>(target: &mut T, value: Option<T>) {
    if let Some(value) = value {
        *target = value;
    }
}

impl Builder<'_> {
    /// A part is wrong, and nothing of it is used.
    fn leave_out(&mut self, place: &Place) {
        let config = &mut self.built.config;
        let name = match place {
            Place::Listener(name) => {
                config.listeners.retain(|it| it.name != *name);
                name
            }
            Place::Upstream(name) => {
                config.upstreams.retain(|it| it.name != *name);
                name
            }
            Place::Certificate(name) => {
                config.certificates.retain(|it| it.name != *name);
                name
            }
            Place::Authorities(name) => {
                config.authorities.retain(|it| it.name != *name);
                name
            }
            Place::Route(..) | Place::Stream(_) | Place::Push => return,
        };
        self.built.left_out.insert(name.to_string());
    }

    /// Finds the listeners and upstreams that cannot be used because a certificate or authorities have an error.
    fn find_incomplete(&mut self) {
        let Built {
            config,
            left_out,
            incomplete,
            ..
        } = &mut self.built;
        let is_left_out = |name: &Name| left_out.contains(&**name);
        for listener in &config.listeners {
            let Some(tls) = &listener.tls else { continue };
            let authorities = tls.clients.iter().flat_map(|clients| &clients.authorities);
            if tls.certificates.iter().chain(authorities).any(is_left_out) {
                incomplete.insert(Place::Listener(listener.name.clone()));
            }
        }
        for upstream in &config.upstreams {
            let Some(tls) = &upstream.tls else { continue };
            let authorities = match &tls.trust {
                model::Trust::Authorities(names) => &names[..],
                model::Trust::System => &[],
            };
            if tls.certificate.iter().chain(authorities).any(is_left_out) {
                incomplete.insert(Place::Upstream(upstream.name.clone()));
            }
        }
    }

    /// Parts by name, each kept if it is right: `build` says what it is, or has told why it is nothing.
    fn each<V>(
        &mut self,
        pairs: Pairs<V>,
        place: impl Fn(Name) -> Place,
        mut build: impl FnMut(&mut Self, Name, V, Position),
    ) {
        for (key, at) in pairs.0 {
            let Some(name) = key.value else { continue };
            let position = key.position;
            let name = Name::from(name);
            let place = place(name.clone());
            self.built.places.insert(place.clone(), position);
            let most = ringmain_gateway::limits::NAME_BYTES;
            if name.is_empty() || name.len() > most {
                self.errors
                    .tell(position, format!("a name of 1 to {most} bytes"), quoted(&name));
            }
            let before = self.errors.count();
            match at.value {
                Some(part) if at.clean && !name.is_empty() && name.len() <= most => {
                    build(self, name, part, position);
                    if self.errors.count() > before {
                        self.leave_out(&place);
                    }
                }
                _ => self.leave_out(&place),
            }
        }
    }

    /// Names of parts of the file. Others are told, with what was probably meant.
    fn known(&self, names: Some1<String>, known: &BTreeSet<String>, what: &str) -> Vec<Name> {
        let names = list(names).into_iter();
        names.filter_map(|at| self.known_name(&at, known, what)).collect()
    }

    fn known_name(&self, at: &At<String>, known: &BTreeSet<String>, what: &str) -> Option<Name> {
        let name = at.value.as_ref()?;
        if known.contains(name) {
            return Some(name.as_str().into());
        }
        let meant = suggestion(name, known.iter().map(String::as_str));
        let advice = meant
            .map(|name| format!("did you mean `{name}`?"))
            .unwrap_or_default();
        self.errors.add(
            at.position,
            "",
            format!("the name of {what} of this file"),
            quoted(name),
            &advice,
        );
        None
    }

    /// A path, relative to the file.
    fn path(&self, path: &str) -> PathBuf {
        self.sources.folder.join(path)
    }

    fn file(&self, at: &Maybe<String>) -> Option<Vec<u8>> {
        let at = at.as_ref()?;
        expand::read(at.value.as_ref()?, at.position, self.sources, self.errors)
    }

    fn certificates(&mut self, certificates: Pairs<super::document::Certificate>) {
        self.each(
            certificates,
            Place::Certificate,
            |builder, name, part, position| {
                if part.chain.is_none() || part.key.is_none() {
                    builder
                        .errors
                        .tell(position, "the keys `chain` and `key`", "not both");
                }
                let (chain, key) = (builder.file(&part.chain), builder.file(&part.key));
                builder.is_private(&part.key);
                for (at, file) in [(&part.chain, &chain), (&part.key, &key)] {
                    builder.is_pem(at, file.as_deref());
                }
                if let (Some(chain), Some(key)) = (chain, key) {
                    let certificate = model::Certificate {
                        name,
                        chain: chain.into(),
                        key: model::Secret::new(key),
                    };
                    builder.built.config.certificates.push(Arc::new(certificate));
                }
            },
        );
    }

    fn authorities(&mut self, authorities: Pairs<String>) {
        self.each(
            authorities,
            Place::Authorities,
            |builder, name, path, position| {
                let Some(pem) = expand::read(&path, position, builder.sources, builder.errors) else {
                    return;
                };
                let at = At {
                    value: Some(path),
                    position,
                    clean: true,
                };
                builder.is_pem(&Some(at), Some(&pem));
                let authorities = model::Authorities {
                    name,
                    pem: pem.into(),
                };
                builder.built.config.authorities.push(Arc::new(authorities));
            },
        );
    }

    /// Warns of a file with a secret that every user of the host may read.
    pub(super) fn is_private(&self, at: &Maybe<String>) {
        if let Some(at) = at
            && let Some(path) = &at.value
            && (self.sources.is_public)(path)
        {
            let text = format!(
                "every user of this host may read {}, which holds a secret: chmod o-r {path}",
                quoted(path)
            );
            self.errors.warn(at.position, text);
        }
    }

    /// The first look: what it holds is for who uses it.
    fn is_pem(&self, at: &Maybe<String>, file: Option<&[u8]>) {
        const BEGIN: &[u8] = b"-----BEGIN ";
        if let (Some(at), Some(file)) = (at, file)
            && !file.windows(BEGIN.len()).any(|window| window == BEGIN)
        {
            let path = at.value.as_deref().unwrap_or_default();
            self.errors.tell(
                at.position,
                "a PEM file",
                format!("{}, which is none", quoted(path)),
            );
        }
    }

    fn process(
        &mut self,
        admin: Maybe<super::document::Admin>,
        log: Maybe<Either<Text<model::LogDestination>, super::document::AccessLog>>,
    ) {
        if let Some(admin) = admin.filter(|admin| admin.clean) {
            let position = admin.position;
            let part = admin.value.unwrap_or_default();
            let addresses = texts(part.address);
            if addresses.is_empty() {
                self.errors.tell(position, "the key `address`", "none");
            }
            let metrics = texts(part.metrics);
            self.are_free(position, &addresses, &metrics);
            self.built.config.admin = Some(model::Admin {
                addresses,
                hosts: texts(part.hosts),
                token: part.token.and_then(|at| self.api_key(at)),
                metrics,
            });
        }
        if let Some(log) = &log {
            self.built.log = log.position;
        }
        self.built.config.access_log =
            log.filter(|log| log.clean)
                .and_then(|log| log.value)
                .map(|log| match log {
                    Either::Short(Text(to)) => model::AccessLog {
                        to: self.destination(to),
                        format: model::AccessLogFormat::default(),
                    },
                    Either::Full(log) => model::AccessLog {
                        to: text(log.to).map_or(model::LogDestination::Stdout, |to| self.destination(to)),
                        format: self.log_format(log.format),
                    },
                });
    }

    /// Refuses addresses of the administration that something else listens at.
    fn are_free(&self, position: Position, addresses: &[model::Addr], metrics: &[model::Addr]) {
        let any_port = |addr: &model::Addr| matches!(addr, model::Addr::Inet(addr) if addr.port() == 0);
        for (number, addr) in addresses.iter().chain(metrics).enumerate() {
            let listeners = &self.built.config.listeners;
            let listener = listeners.iter().find(|it| it.addresses.contains(addr));
            let again = addresses.iter().chain(metrics).take(number).any(|it| it == addr);
            let found = match listener {
                _ if any_port(addr) => continue,
                Some(listener) => format!("`{addr}`, as listener `{}` has", listener.name),
                None if again => format!("`{addr}` twice"),
                None => continue,
            };
            self.errors
                .tell(position, "addresses that nothing else listens at", found);
        }
    }

    fn limits(&mut self, limits: Maybe<super::document::Limits>) {
        let Some(limits) = value(limits) else { return };
        let errors = self.errors;
        let target = &mut self.built.config.limits;
        target.connections = positive(errors, limits.connections);
        target.upstream_connections = positive(errors, limits.upstream_connections);
        let per_address = text(limits.connections_per_address).map(|number| match number.0 {
            Some(most) => model::PerAddress::AtMost(most),
            None => model::PerAddress::Off,
        });
        put(&mut target.per_address, per_address);
        put(&mut target.drain, text(limits.drain).map(|time| time.0));
        self.body = text(limits.body).map(|size| size.0);
        self.request_timeout = text(limits.request_timeout).map(|time| time.0);
    }

    fn log_format(&self, format: Maybe<String>) -> model::AccessLogFormat {
        let position = format.as_ref().map_or(Position::START, |at| at.position);
        match value(format).as_deref() {
            None | Some("json") => model::AccessLogFormat::Json,
            Some("combined") => model::AccessLogFormat::Combined,
            Some(text) => {
                if let Err(fault) = Template::parse(text, &LOG_FIELDS) {
                    let expected = "`json`, `combined` or a line with fields in it as `{name}`";
                    self.errors.tell(position, expected, fault.to_string());
                    return model::AccessLogFormat::Json;
                }
                model::AccessLogFormat::Template(text.into())
            }
        }
    }

    fn destination(&self, to: model::LogDestination) -> model::LogDestination {
        match to {
            model::LogDestination::File(path) => model::LogDestination::File(self.sources.folder.join(path)),
            other => other,
        }
    }
}
