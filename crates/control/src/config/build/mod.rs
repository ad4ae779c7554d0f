//! From the document to the model: relations between values, and the handling of invalid parts.

mod actions;
mod app_proxy;
mod ext_proc;
mod filters;
mod jwt;
mod kubernetes;
mod listeners;
mod nats;
mod policies;
mod push;
mod push_cluster;
mod push_log;
mod rate_service;
mod routes;
mod sources;
mod traffic;
mod upstreams;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ringmain_gateway::LOG_FIELDS;
use ringmain_gateway::model::{self, Config, Name};
use ringmain_gateway::table::ConfigPart;
use ringmain_web::access_log::Template;

use super::document::{Document, Field, OneOrManyField};
use super::error::{Diagnostics, FilePosition, quote, suggest};
use super::expand;
use super::fields::{OneOrMany, OrderedMap, Parsed, ShortOrFull, Spanned};
use super::scalars::Time;
use super::yaml::YamlEntry;
use super::{ConfigEnvironment, KubernetesSource};

/// The configuration of a document, and the positions of its parts.
pub(super) struct BuiltConfig {
    pub(super) config: Config,
    pub(super) kubernetes: Option<Arc<KubernetesSource>>,
    pub(super) positions: BTreeMap<ConfigPart, FilePosition>,
    /// The position of `access_log`.
    pub(super) access_log_position: FilePosition,
    /// The positions of policies, by owner and kind.
    pub(super) policy_positions: BTreeMap<(ConfigPart, &'static str), FilePosition>,
    /// The names of parts of the file that are not in the configuration.
    pub(super) omitted_parts: BTreeSet<String>,
    /// Listeners and upstreams whose TLS settings name an omitted part.
    pub(super) incomplete: BTreeSet<ConfigPart>,
}

struct Builder<'b> {
    environment: &'b ConfigEnvironment<'b>,
    errors: &'b Diagnostics<'b>,
    built: BuiltConfig,
    /// The names of the parts in the file, valid or not.
    listener_names: BTreeSet<String>,
    upstream_names: BTreeSet<String>,
    /// The zone of this process.
    zone: Option<Arc<str>>,
    /// The file has the key `zone`, valid or not.
    has_zone: bool,
    certificate_names: BTreeSet<String>,
    authority_names: BTreeSet<String>,
    /// The providers of tokens; `None`: invalid.
    providers: BTreeMap<String, Option<Arc<model::JwtProvider>>>,
    /// The file has the key `push`, valid or not.
    has_push: bool,
    /// The namespaces of its channels, valid or not.
    namespaces: BTreeSet<String>,
    /// Upstreams that were made of a URL.
    inline_upstreams: BTreeSet<String>,
    /// The defaults of `body.request` and `timeouts.request`, from `limits`.
    default_body_limit: Option<Option<u64>>,
    default_request_timeout: Option<Option<Duration>>,
}

/// Builds the configuration of a document. `routes` are its routes, which are read one by one.
pub(super) fn build_config(
    document: Document,
    routes: &[YamlEntry<'_>],
    environment: &ConfigEnvironment<'_>,
    errors: &Diagnostics<'_>,
) -> BuiltConfig {
    let mut builder = Builder {
        environment,
        errors,
        built: BuiltConfig {
            config: Config::default(),
            kubernetes: None,
            positions: BTreeMap::new(),
            access_log_position: FilePosition::START,
            policy_positions: BTreeMap::new(),
            omitted_parts: BTreeSet::new(),
            incomplete: BTreeSet::new(),
        },
        listener_names: part_names(&document.listeners),
        upstream_names: part_names(&document.upstreams),
        has_zone: document.zone.is_some(),
        zone: zone_name(errors, document.zone),
        certificate_names: part_names(&document.certificates),
        authority_names: part_names(&document.authorities),
        providers: BTreeMap::new(),
        has_push: document.push.is_some(),
        namespaces: BTreeSet::new(),
        inline_upstreams: BTreeSet::new(),
        default_body_limit: None,
        default_request_timeout: None,
    };
    if document.listen.is_some() {
        builder.listener_names.insert("default".to_owned());
    }
    // First, since limits are defaults of routes.
    builder.build_limits(document.limits);
    builder.build_certificates(document.certificates);
    builder.build_authorities(document.authorities);
    builder.build_upstreams(document.upstreams);
    builder.add_default_listener(document.listen);
    builder.build_listeners(document.listeners);
    builder.build_jwt_providers(document.jwt_providers);
    builder.build_push(document.push);
    builder.build_routes(routes);
    builder.add_default_route(document.to);
    builder.build_streams(document.streams);
    builder.build_process(document.admin, document.access_log);
    builder.build_process_log(document.log);
    let has_gateways = document.kubernetes.is_some();
    builder.build_kubernetes(document.kubernetes);
    if builder.listener_names.is_empty() && !has_gateways {
        let expected = "a listener: the key `listen`, `listeners` or `kubernetes`";
        errors.report(FilePosition::START, expected, "none");
    }
    builder.find_incomplete();
    builder.built
}

fn part_names<V>(pairs: &OrderedMap<V>) -> BTreeSet<String> {
    pairs
        .0
        .iter()
        .filter_map(|(name, _)| name.value.clone())
        .collect()
}

/// Returns the value of a key; an invalid one counts as omitted, since its part is not used.
fn field_value<T>(maybe: Field<T>) -> Option<T> {
    maybe.and_then(|at| at.value)
}

fn time_value(field: Field<Parsed<Time>>) -> Option<Duration> {
    parsed_value(field).map(|time| time.0)
}

fn parsed_value<T>(maybe: Field<Parsed<T>>) -> Option<T> {
    field_value(maybe).map(|text| text.0)
}

fn list_items<T>(field: OneOrManyField<T>) -> Vec<Spanned<T>> {
    field.map(Spanned::<OneOrMany<T>>::into_list).unwrap_or_default()
}

fn parsed_items<T>(field: OneOrManyField<Parsed<T>>) -> Vec<T> {
    list_items(field)
        .into_iter()
        .filter_map(|at| at.value)
        .map(|text| text.0)
        .collect()
}

/// Returns a number of at least 1: with 0 nothing would pass.
fn positive_number(errors: &Diagnostics<'_>, at: Field<u32>) -> Option<u32> {
    let position = at.as_ref()?.position;
    let number = field_value(at)?;
    if number == 0 {
        errors.report(position, format!("a whole number from 1 to {}", u32::MAX), "`0`");
    }
    Some(number)
}

/// Returns the name of a zone. An empty one would silently be near to nothing.
fn zone_name(errors: &Diagnostics<'_>, at: Field<String>) -> Option<Arc<str>> {
    let position = at.as_ref()?.position;
    let name = field_value(at)?;
    if name.is_empty() || name.trim() != name {
        let expected = "the name of a zone, without spaces at its ends";
        errors.report(position, expected, quote(&name));
        return None;
    }
    Some(name.into())
}

/// Sets a value that is not omitted.
fn set_if_some<T>(target: &mut T, value: Option<T>) {
    if let Some(value) = value {
        *target = value;
    }
}

impl Builder<'_> {
    /// Removes an invalid part from the configuration.
    fn omit_part(&mut self, place: &ConfigPart) {
        let config = &mut self.built.config;
        let name = match place {
            ConfigPart::Listener(name) => {
                config.listeners.retain(|it| it.name != *name);
                name
            }
            ConfigPart::Upstream(name) => {
                config.upstreams.retain(|it| it.name != *name);
                name
            }
            ConfigPart::Certificate(name) => {
                config.certificates.retain(|it| it.name != *name);
                name
            }
            ConfigPart::Authorities(name) => {
                config.authorities.retain(|it| it.name != *name);
                name
            }
            ConfigPart::Route(..) | ConfigPart::Stream(_) | ConfigPart::Push => return,
        };
        self.built.omitted_parts.insert(name.to_string());
    }

    /// Finds the listeners and upstreams that cannot be used because a certificate or authorities have an error.
    fn find_incomplete(&mut self) {
        let BuiltConfig {
            config,
            omitted_parts,
            incomplete,
            ..
        } = &mut self.built;
        let is_left_out = |name: &Name| omitted_parts.contains(&**name);
        for listener in &config.listeners {
            let Some(tls) = &listener.tls else { continue };
            let authorities = tls.clients.iter().flat_map(|clients| &clients.authorities);
            if tls.certificates.iter().chain(authorities).any(is_left_out) {
                incomplete.insert(ConfigPart::Listener(listener.name.clone()));
            }
        }
        for upstream in &config.upstreams {
            let Some(tls) = &upstream.tls else { continue };
            let authorities = match &tls.trust {
                model::Trust::Authorities(names) => &names[..],
                model::Trust::System => &[],
            };
            if tls.certificate.iter().chain(authorities).any(is_left_out) {
                incomplete.insert(ConfigPart::Upstream(upstream.name.clone()));
            }
        }
    }

    /// Builds the parts of a map, by name; parts with errors are omitted.
    fn for_each_part<V>(
        &mut self,
        pairs: OrderedMap<V>,
        place: impl Fn(Name) -> ConfigPart,
        mut build: impl FnMut(&mut Self, Name, V, FilePosition),
    ) {
        for (key, at) in pairs.0 {
            let Some(name) = key.value else { continue };
            let position = key.position;
            let name = Name::from(name);
            let place = place(name.clone());
            self.built.positions.insert(place.clone(), position);
            let limit = ringmain_gateway::limits::NAME_BYTES;
            if name.is_empty() || name.len() > limit {
                self.errors
                    .report(position, format!("a name of 1 to {limit} bytes"), quote(&name));
            }
            let before = self.errors.count();
            match at.value {
                Some(part) if at.is_valid && !name.is_empty() && name.len() <= limit => {
                    build(self, name, part, position);
                    if self.errors.count() > before {
                        self.omit_part(&place);
                    }
                }
                _ => self.omit_part(&place),
            }
        }
    }

    /// Resolves the names of parts of the file. Unknown names are reported, with a suggestion.
    fn resolve_names(
        &self,
        names: OneOrManyField<String>,
        known: &BTreeSet<String>,
        kind: &str,
    ) -> Vec<Name> {
        let names = list_items(names).into_iter();
        names
            .filter_map(|at| self.resolve_name(&at, known, kind))
            .collect()
    }

    fn resolve_name(&self, at: &Spanned<String>, known: &BTreeSet<String>, kind: &str) -> Option<Name> {
        let name = at.value.as_ref()?;
        if known.contains(name) {
            return Some(name.as_str().into());
        }
        let suggestion = suggest(name, known.iter().map(String::as_str));
        let advice = suggestion
            .map(|name| format!("did you mean `{name}`?"))
            .unwrap_or_default();
        self.errors.report_part(
            at.position,
            "",
            format!("the name of {kind} of this file"),
            quote(name),
            &advice,
        );
        None
    }

    /// Resolves a path relative to the file.
    fn resolve_path(&self, path: &str) -> PathBuf {
        self.environment.folder.join(path)
    }

    fn read_file(&self, at: &Field<String>) -> Option<Vec<u8>> {
        let at = at.as_ref()?;
        expand::read_named_file(at.value.as_ref()?, at.position, self.environment, self.errors)
    }

    fn build_certificates(&mut self, certificates: OrderedMap<super::document::CertificateSection>) {
        self.for_each_part(
            certificates,
            ConfigPart::Certificate,
            |builder, name, part, position| {
                if part.chain.is_none() || part.key.is_none() {
                    builder
                        .errors
                        .report(position, "the keys `chain` and `key`", "not both");
                }
                let (chain, key) = (builder.read_file(&part.chain), builder.read_file(&part.key));
                builder.warn_if_public(&part.key);
                for (at, file) in [(&part.chain, &chain), (&part.key, &key)] {
                    builder.check_pem(at, file.as_deref());
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

    fn build_authorities(&mut self, authorities: OrderedMap<String>) {
        self.for_each_part(
            authorities,
            ConfigPart::Authorities,
            |builder, name, path, position| {
                let Some(pem) = expand::read_named_file(&path, position, builder.environment, builder.errors)
                else {
                    return;
                };
                let at = Spanned {
                    value: Some(path),
                    position,
                    is_valid: true,
                };
                builder.check_pem(&Some(at), Some(&pem));
                let authorities = model::Authorities {
                    name,
                    pem: pem.into(),
                };
                builder.built.config.authorities.push(Arc::new(authorities));
            },
        );
    }

    /// Warns of a file with a secret that every user of the host may read.
    pub(super) fn warn_if_public(&self, at: &Field<String>) {
        if let Some(at) = at
            && let Some(path) = &at.value
            && (self.environment.is_public)(path)
        {
            let text = format!(
                "every user of this host may read {}, which holds a secret: chmod o-r {path}",
                quote(path)
            );
            self.errors.warn(at.position, text);
        }
    }

    /// Checks that a file is PEM; its contents are checked when they are used.
    fn check_pem(&self, at: &Field<String>, file: Option<&[u8]>) {
        const BEGIN: &[u8] = b"-----BEGIN ";
        if let (Some(at), Some(file)) = (at, file)
            && !file.windows(BEGIN.len()).any(|window| window == BEGIN)
        {
            let path = at.value.as_deref().unwrap_or_default();
            self.errors.report(
                at.position,
                "a PEM file",
                format!("{}, which is none", quote(path)),
            );
        }
    }

    fn build_process(
        &mut self,
        admin: Field<ShortOrFull<Parsed<model::Addr>, super::document::AdminSection>>,
        log: Field<ShortOrFull<Parsed<model::LogDestination>, super::document::AccessLogSection>>,
    ) {
        if let Some(admin) = admin.filter(|admin| admin.is_valid) {
            let position = admin.position;
            let built = match admin.value {
                Some(ShortOrFull::Short(Parsed(address))) => model::Admin {
                    addresses: vec![address],
                    hosts: Vec::new(),
                    token: None,
                    metrics: Vec::new(),
                },
                Some(ShortOrFull::Full(part)) => self.build_admin(part, position),
                None => self.build_admin(super::document::AdminSection::default(), position),
            };
            self.check_admin_addresses(position, &built.addresses, &built.metrics);
            self.built.config.admin = Some(built);
        }
        if let Some(log) = &log {
            self.built.access_log_position = log.position;
        }
        self.built.config.access_log = log
            .filter(|log| log.is_valid)
            .and_then(|log| log.value)
            .map(|log| match log {
                ShortOrFull::Short(Parsed(to)) => model::AccessLog {
                    to: self.log_destination(to),
                    format: model::AccessLogFormat::default(),
                },
                ShortOrFull::Full(log) => model::AccessLog {
                    to: parsed_value(log.to)
                        .map_or(model::LogDestination::Stdout, |to| self.log_destination(to)),
                    format: self.build_log_format(log.format),
                },
            });
    }

    fn build_admin(&self, part: super::document::AdminSection, position: FilePosition) -> model::Admin {
        let addresses = parsed_items(part.address);
        if addresses.is_empty() {
            self.errors.report(position, "the key `address`", "none");
        }
        model::Admin {
            addresses,
            hosts: parsed_items(part.hosts),
            token: part.token.and_then(|at| self.check_api_key(at)),
            metrics: parsed_items(part.metrics),
        }
    }

    /// Refuses addresses of the administration that something else listens at.
    fn check_admin_addresses(
        &self,
        position: FilePosition,
        addresses: &[model::Addr],
        metrics: &[model::Addr],
    ) {
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
                .report(position, "addresses that nothing else listens at", found);
        }
    }

    fn build_limits(&mut self, limits: Field<super::document::LimitsSection>) {
        let Some(limits) = field_value(limits) else { return };
        let errors = self.errors;
        let target = &mut self.built.config.limits;
        target.connections = positive_number(errors, limits.connections);
        target.upstream_connections = positive_number(errors, limits.upstream_connections);
        set_if_some(
            &mut target.datagram_sessions,
            positive_number(errors, limits.udp_sessions),
        );
        let udp_per_address = parsed_value(limits.udp_sessions_per_address).map(|number| number.0);
        set_if_some(&mut target.datagram_sessions_per_address, udp_per_address);
        let per_address = parsed_value(limits.connections_per_address).map(|number| match number.0 {
            Some(limit) => model::PerAddressLimit::AtMost(limit),
            None => model::PerAddressLimit::Off,
        });
        set_if_some(&mut target.per_address, per_address);
        set_if_some(&mut target.drain, time_value(limits.drain));
        set_if_some(&mut target.drain_delay, time_value(limits.drain_delay));
        let position = limits.drain_spread.as_ref().map(|at| at.position);
        target.drain_spread = time_value(limits.drain_spread);
        if let (Some(position), Some(spread)) = (position, target.drain_spread)
            && spread > target.drain
        {
            let expected = format!("at most the time of `drain`, {:?}", target.drain);
            errors.report(position, expected, format!("`{spread:?}`"));
        }
        self.default_body_limit = parsed_value(limits.body).map(|size| size.0);
        self.default_request_timeout = parsed_value(limits.request_timeout).map(|time| time.0);
    }

    fn build_log_format(&self, format: Field<String>) -> model::AccessLogFormat {
        let position = format.as_ref().map_or(FilePosition::START, |at| at.position);
        match field_value(format).as_deref() {
            None | Some("json") => model::AccessLogFormat::Json,
            Some("combined") => model::AccessLogFormat::Combined,
            Some(text) => {
                if let Err(fault) = Template::parse(text, &LOG_FIELDS) {
                    let expected = "`json`, `combined` or a line with fields in it as `{name}`";
                    self.errors.report(position, expected, fault.to_string());
                    return model::AccessLogFormat::Json;
                }
                model::AccessLogFormat::Template(text.into())
            }
        }
    }

    fn build_process_log(&mut self, log: Field<super::document::ProcessLogSection>) {
        let format = field_value(log).and_then(|log| field_value(log.format));
        self.built.config.process_log.format = match format {
            None | Some(super::document::ProcessLogFormat::Text) => model::ProcessLogFormat::Text,
            Some(super::document::ProcessLogFormat::Json) => model::ProcessLogFormat::Json,
        };
    }

    fn log_destination(&self, to: model::LogDestination) -> model::LogDestination {
        match to {
            model::LogDestination::File(path) => {
                model::LogDestination::File(self.environment.folder.join(path))
            }
            other => other,
        }
    }
}
