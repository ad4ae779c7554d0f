//! Upstreams, written out or as a URL.

use std::sync::Arc;

use ringmain_gateway::model::{
    self, ActiveHealth, Balance, ClaimPath, Distance, Endpoint, EndpointLocation, HashKey, HealthCheck,
    PushBalance, StatusRange, Target, TlsVersion, Trust,
};
use ringmain_gateway::table::ConfigPart;

use super::{
    Builder, field_value, list_items, parsed_items, parsed_value, set_if_some, time_value, zone_name,
};
use crate::config::document;
use crate::config::error::{FilePosition, quote};
use crate::config::fields::{OrderedMap, Parsed, ShortOrFull, Spanned, Switch};
use crate::config::scalars::{UpstreamTarget, UpstreamUrl};

impl Builder<'_> {
    pub(super) fn build_upstreams(
        &mut self,
        upstreams: OrderedMap<ShortOrFull<Parsed<UpstreamUrl>, document::UpstreamSection>>,
    ) {
        self.for_each_part(
            upstreams,
            ConfigPart::Upstream,
            |builder, name, part, position| {
                let upstream = match part {
                    ShortOrFull::Short(Parsed(url)) => builder.upstream_from_url(&name, url, position),
                    ShortOrFull::Full(part) => builder.build_upstream(&name, part, position),
                };
                builder.built.config.upstreams.push(Arc::new(upstream));
            },
        );
    }

    /// Resolves a target, and adds the upstream of a URL.
    pub(super) fn resolve_target(&mut self, at: Spanned<UpstreamTarget>) -> Target {
        let broken_target = || Target::Broken {
            reason: "no such upstream".into(),
        };
        match at.value {
            Some(UpstreamTarget::Upstream(ref name)) => {
                let at = Spanned {
                    value: Some(name.clone()),
                    position: at.position,
                    is_valid: at.is_valid,
                };
                let name = self.resolve_name(
                    &at,
                    &self.upstream_names,
                    "an upstream (or a URL such as http://127.0.0.1:3000)",
                );
                name.map_or_else(broken_target, Target::Upstream)
            }
            Some(UpstreamTarget::Url(url)) => {
                let name = url.text.clone();
                if self.inline_upstreams.insert(name.clone()) {
                    let upstream = self.upstream_from_url(&name, url, at.position);
                    self.built
                        .positions
                        .insert(ConfigPart::Upstream(name.as_str().into()), at.position);
                    self.built.config.upstreams.push(Arc::new(upstream));
                }
                Target::Upstream(name.into())
            }
            None => broken_target(),
        }
    }

    fn upstream_from_url(&self, name: &str, url: UpstreamUrl, position: FilePosition) -> model::Upstream {
        let mut upstream = model::Upstream::new(name, vec![Endpoint::new(url.at.clone())]);
        if url.tls {
            if !matches!(url.at, EndpointLocation::Host { .. }) {
                let expected = "a host name in an https URL, for the verification of its certificate (for an IP address, write an \
                                upstream with `tls: {server_name: …}`)";
                self.errors.report(position, expected, quote(&url.text));
            }
            upstream.tls = Some(model::UpstreamTls::default());
        }
        if url.http2 {
            upstream.protocol = model::UpstreamProtocol::Http2;
        }
        upstream
    }

    fn build_upstream(
        &self,
        name: &str,
        part: document::UpstreamSection,
        position: FilePosition,
    ) -> model::Upstream {
        let endpoints = list_items(part.endpoints);
        let endpoints = endpoints.into_iter().filter_map(|at| self.build_endpoint(at));
        let mut upstream = model::Upstream::new(name, endpoints.collect());
        if upstream.endpoints.is_empty() {
            self.errors
                .report(position, "the key `endpoints` with at least one", "none");
        }
        set_if_some(
            &mut upstream.protocol,
            field_value(part.protocol).map(convert_protocol),
        );
        upstream.tls = field_value(part.tls)
            .and_then(Switch::settings)
            .map(|part| self.build_upstream_tls(part));
        upstream.proxy_protocol = field_value(part.proxy_protocol).map(|version| match version {
            document::ProxyProtocolVersion::V1 => model::ProxyProtocolVersion::V1,
            document::ProxyProtocolVersion::V2 => model::ProxyProtocolVersion::V2,
        });
        set_if_some(
            &mut upstream.balance,
            field_value(part.balance).map(convert_balance),
        );
        upstream.hash_balance_factor = field_value(part.hash_balance_factor);
        if let Some(zones) = part.zones {
            if !self.has_zone {
                let expected = "the top-level key `zone` with the zone of this process";
                self.errors.report(zones.position, expected, "`zones` without it");
            }
            upstream.zones = zones.value.map(|zones| match zones {
                document::ZonePreference::Prefer => model::ZonePreference::Prefer,
                document::ZonePreference::Balance => model::ZonePreference::Balance,
            });
        }
        if let Some(part) = field_value(part.pool) {
            set_pool(&mut upstream.pool, part);
        }
        set_if_some(&mut upstream.connect_timeout, time_value(part.connect_timeout));
        upstream.slow_start = field_value(part.slow_start)
            .and_then(Switch::settings)
            .map(|part| {
                let mut start = model::SlowStart::default();
                set_if_some(&mut start.window, time_value(part.window));
                set_if_some(&mut start.from_percent, field_value(part.from_percent));
                start
            });
        if let Some(part) = field_value(part.health) {
            set_health(&mut upstream.health, part);
        }
        if let Some(part) = field_value(part.retry_budget) {
            set_if_some(&mut upstream.retry_budget.percent, field_value(part.percent));
            set_if_some(&mut upstream.retry_budget.least, field_value(part.least));
            set_if_some(
                &mut upstream.retry_budget.least_interval,
                time_value(part.least_interval),
            );
            upstream.retry_budget.interval = time_value(part.interval);
        }
        upstream
    }

    fn build_endpoint(
        &self,
        at: Spanned<ShortOrFull<Parsed<EndpointLocation>, document::EndpointSection>>,
    ) -> Option<Endpoint> {
        match at.value? {
            ShortOrFull::Short(Parsed(location)) => Some(Endpoint::new(location)),
            ShortOrFull::Full(part) => {
                let Some(location) = parsed_value(part.at) else {
                    self.errors.report(at.position, "the key `at`", "none");
                    return None;
                };
                let mut endpoint = Endpoint::new(location);
                set_if_some(&mut endpoint.weight, field_value(part.weight));
                set_if_some(&mut endpoint.draining, field_value(part.draining));
                endpoint.zone = zone_name(self.errors, part.zone);
                if self.zone.is_some() && endpoint.zone == self.zone {
                    endpoint.distance = Distance::Zone;
                }
                Some(endpoint)
            }
        }
    }

    fn build_upstream_tls(&self, part: document::UpstreamTlsSection) -> model::UpstreamTls {
        model::UpstreamTls {
            server_name: parsed_value(part.server_name),
            subject_names: parsed_items(part.subject_names),
            trust: match part.authorities {
                None => Trust::System,
                names @ Some(_) => {
                    Trust::Authorities(self.resolve_names(names, &self.authority_names, "authorities"))
                }
            },
            certificate: part
                .certificate
                .and_then(|at| self.resolve_name(&at, &self.certificate_names, "a certificate")),
            minimum: parsed_value(part.minimum).unwrap_or(TlsVersion::Tls12),
        }
    }
}

fn convert_protocol(part: document::UpstreamProtocol) -> model::UpstreamProtocol {
    match part {
        document::UpstreamProtocol::Http1 => model::UpstreamProtocol::Http1,
        document::UpstreamProtocol::Http2 => model::UpstreamProtocol::Http2,
        document::UpstreamProtocol::Auto => model::UpstreamProtocol::Auto,
    }
}

fn convert_balance(part: document::Balance) -> Balance {
    let key = |key| match key {
        document::HashKey::Cookie(name) => HashKey::Cookie(name.into()),
        document::HashKey::Header(Parsed(name)) => HashKey::Header(name),
        document::HashKey::Source => HashKey::Source,
        document::HashKey::Path => HashKey::Path,
        document::HashKey::Query(name) => HashKey::Query(name.into()),
        document::HashKey::Identity => HashKey::Identity,
        document::HashKey::Claim(path) => HashKey::Claim(ClaimPath(path.into())),
    };
    match part {
        document::Balance::RoundRobin => Balance::RoundRobin,
        document::Balance::LeastRequest => Balance::LeastRequest,
        document::Balance::Random => Balance::Random,
        document::Balance::PeakEwma(part) => Balance::PeakEwma {
            half_life: time_value(part.half_life).unwrap_or(std::time::Duration::from_secs(5)),
        },
        document::Balance::RingHash(part) => Balance::RingHash(key(part)),
        document::Balance::Maglev(part) => Balance::Maglev(key(part)),
        document::Balance::Push(part) => Balance::Push(PushBalance {
            key: field_value(part.key).map(key),
        }),
    }
}

fn set_pool(pool: &mut model::Pool, part: document::PoolSection) {
    set_if_some(&mut pool.client_share, field_value(part.client_share));
    set_if_some(&mut pool.connections, field_value(part.connections));
    set_if_some(&mut pool.pending, field_value(part.pending));
    set_if_some(&mut pool.requests, field_value(part.requests));
    set_if_some(&mut pool.retries, field_value(part.retries));
    set_if_some(&mut pool.idle, time_value(part.idle));
    pool.requests_per_connection = field_value(part.requests_per_connection);
    set_if_some(
        &mut pool.streams_per_connection,
        field_value(part.streams_per_connection),
    );
}

fn set_health(health: &mut model::Health, part: document::HealthSection) {
    set_if_some(&mut health.panic_percent, field_value(part.panic_percent));
    health.active = field_value(part.active).and_then(Switch::settings).map(|part| {
        let (host, status) = (parsed_value(part.host), parsed_value(part.status));
        let check = field_value(part.path).map_or(HealthCheck::Connect, |target| HealthCheck::Http {
            target: target.into(),
            host,
            statuses: status.unwrap_or(StatusRange {
                first: 200,
                last: 299,
            }),
        });
        let mut active = ActiveHealth::new(check);
        set_if_some(&mut active.every, time_value(part.every));
        set_if_some(&mut active.timeout, time_value(part.timeout));
        set_if_some(&mut active.healthy_after, field_value(part.healthy_after));
        set_if_some(&mut active.unhealthy_after, field_value(part.unhealthy_after));
        active.port = field_value(part.port);
        active
    });
    health.outliers = field_value(part.outliers).and_then(Switch::settings).map(|part| {
        let mut outliers = model::OutlierDetection::default();
        set_if_some(&mut outliers.consecutive, field_value(part.consecutive));
        outliers.failure_percent = field_value(part.failure_percent);
        set_if_some(&mut outliers.least_requests, field_value(part.least_requests));
        set_if_some(&mut outliers.interval, time_value(part.interval));
        set_if_some(&mut outliers.ejected, time_value(part.ejected));
        set_if_some(&mut outliers.max_ejected_time, time_value(part.max_ejected_time));
        set_if_some(
            &mut outliers.max_ejected_percent,
            field_value(part.max_ejected_percent),
        );
        outliers
    });
}
