//! Upstreams, written out or as a URL.

use std::sync::Arc;

use ringmain_gateway::model::{
    self, ActiveHealth, Balance, Endpoint, HashKey, HealthCheck, StatusRange, Target, TlsVersion, Trust,
    Where,
};
use ringmain_gateway::table::Place;

use super::{Builder, list, put, text, texts, value};
use crate::config::document;
use crate::config::error::{Position, quoted};
use crate::config::scalars::{To, Url};
use crate::config::fields::{At, Either, Pairs, Switch, Text};

impl Builder<'_> {
    pub(super) fn upstreams(&mut self, upstreams: Pairs<Either<Text<Url>, document::Upstream>>) {
        self.each(upstreams, Place::Upstream, |builder, name, part, position| {
            let upstream = match part {
                Either::Short(Text(url)) => builder.of_url(&name, url, position),
                Either::Full(part) => builder.upstream(&name, part, position),
            };
            builder.built.config.upstreams.push(Arc::new(upstream));
        });
    }

    /// Who a target is.
    pub(super) fn target(&mut self, at: At<To>) -> Target {
        let broken = || Target::Broken {
            reason: "there is no such upstream".into(),
        };
        match at.value {
            Some(To::Upstream(ref name)) => {
                let at = At {
                    value: Some(name.clone()),
                    position: at.position,
                    clean: at.clean,
                };
                let name = self.known_name(
                    &at,
                    &self.upstreams,
                    "an upstream (or a URL such as http://127.0.0.1:3000)",
                );
                name.map_or_else(broken, Target::Upstream)
            }
            Some(To::Url(url)) => {
                let name = url.text.clone();
                if self.inline.insert(name.clone()) {
                    let upstream = self.of_url(&name, url, at.position);
                    self.built
                        .places
                        .insert(Place::Upstream(name.as_str().into()), at.position);
                    self.built.config.upstreams.push(Arc::new(upstream));
                }
                Target::Upstream(name.into())
            }
            None => broken(),
        }
    }

    fn of_url(&self, name: &str, url: Url, position: Position) -> model::Upstream {
        let mut upstream = model::Upstream::new(name, vec![Endpoint::new(url.at.clone())]);
        if url.tls {
            if !matches!(url.at, Where::Host { .. }) {
                let expected = "a host's name in a URL of https, which its certificate is checked for (for an address write an \
                                upstream with `tls: {server_name: …}`)";
                self.errors.tell(position, expected, quoted(&url.text));
            }
            upstream.tls = Some(model::UpstreamTls::default());
        }
        if url.http2 {
            upstream.protocol = model::UpstreamProtocol::Http2;
        }
        upstream
    }

    fn upstream(&self, name: &str, part: document::Upstream, position: Position) -> model::Upstream {
        let endpoints = list(part.endpoints).into_iter().filter_map(|at| match at.value? {
            Either::Short(Text(place)) => Some(Endpoint::new(place)),
            Either::Full(part) => {
                let Some(place) = text(part.at) else {
                    self.errors.tell(at.position, "the key `at`", "none");
                    return None;
                };
                let mut endpoint = Endpoint::new(place);
                put(&mut endpoint.weight, value(part.weight));
                put(&mut endpoint.draining, value(part.draining));
                endpoint.zone = value(part.zone).map(Into::into);
                Some(endpoint)
            }
        });
        let mut upstream = model::Upstream::new(name, endpoints.collect());
        if upstream.endpoints.is_empty() {
            self.errors
                .tell(position, "the key `endpoints` with at least one", "none");
        }
        put(&mut upstream.protocol, value(part.protocol).map(protocol));
        upstream.tls = value(part.tls)
            .and_then(Switch::settings)
            .map(|part| self.upstream_tls(part));
        upstream.proxy_protocol = value(part.proxy_protocol).map(|version| match version {
            document::ProxyProtocolVersion::V1 => model::ProxyProtocolVersion::V1,
            document::ProxyProtocolVersion::V2 => model::ProxyProtocolVersion::V2,
        });
        put(&mut upstream.balance, value(part.balance).map(balance));
        if let Some(part) = value(part.pool) {
            pool(&mut upstream.pool, part);
        }
        put(
            &mut upstream.connect_timeout,
            text(part.connect_timeout).map(|time| time.0),
        );
        upstream.slow_start = value(part.slow_start).and_then(Switch::settings).map(|part| {
            let mut start = model::SlowStart::default();
            put(&mut start.window, text(part.window).map(|time| time.0));
            put(&mut start.from_percent, value(part.from_percent));
            start
        });
        if let Some(part) = value(part.health) {
            health(&mut upstream.health, part);
        }
        if let Some(part) = value(part.retry_budget) {
            put(&mut upstream.retry_budget.percent, value(part.percent));
            put(&mut upstream.retry_budget.least, value(part.least));
            put(
                &mut upstream.retry_budget.least_interval,
                text(part.least_interval).map(|time| time.0),
            );
            upstream.retry_budget.interval = text(part.interval).map(|time| time.0);
        }
        upstream
    }

    fn upstream_tls(&self, part: document::UpstreamTls) -> model::UpstreamTls {
        model::UpstreamTls {
            server_name: text(part.server_name),
            subject_names: texts(part.subject_names),
            trust: match part.authorities {
                None => Trust::System,
                names @ Some(_) => Trust::Authorities(self.known(names, &self.authorities, "authorities")),
            },
            certificate: part
                .certificate
                .and_then(|at| self.known_name(&at, &self.certificates, "a certificate")),
            minimum: text(part.minimum).unwrap_or(TlsVersion::Tls12),
        }
    }
}

fn protocol(part: document::UpstreamProtocol) -> model::UpstreamProtocol {
    match part {
        document::UpstreamProtocol::Http1 => model::UpstreamProtocol::Http1,
        document::UpstreamProtocol::Http2 => model::UpstreamProtocol::Http2,
        document::UpstreamProtocol::Auto => model::UpstreamProtocol::Auto,
    }
}

fn balance(part: document::Balance) -> Balance {
    let key = |key| match key {
        document::HashKey::Cookie(name) => HashKey::Cookie(name.into()),
        document::HashKey::Header(Text(name)) => HashKey::Header(name),
        document::HashKey::Source => HashKey::Source,
        document::HashKey::Path => HashKey::Path,
    };
    match part {
        document::Balance::RoundRobin => Balance::RoundRobin,
        document::Balance::LeastRequest => Balance::LeastRequest,
        document::Balance::Random => Balance::Random,
        document::Balance::PeakEwma(part) => Balance::PeakEwma {
            half_life: text(part.half_life).map_or(std::time::Duration::from_secs(5), |time| time.0),
        },
        document::Balance::RingHash(part) => Balance::RingHash(key(part)),
        document::Balance::Maglev(part) => Balance::Maglev(key(part)),
    }
}

fn pool(pool: &mut model::Pool, part: document::Pool) {
    put(&mut pool.client_share, value(part.client_share));
    put(&mut pool.connections, value(part.connections));
    put(&mut pool.pending, value(part.pending));
    put(&mut pool.requests, value(part.requests));
    put(&mut pool.retries, value(part.retries));
    put(&mut pool.idle, text(part.idle).map(|time| time.0));
    pool.requests_per_connection = value(part.requests_per_connection);
    put(
        &mut pool.streams_per_connection,
        value(part.streams_per_connection),
    );
}

fn health(health: &mut model::Health, part: document::Health) {
    put(&mut health.panic_percent, value(part.panic_percent));
    health.active = value(part.active).and_then(Switch::settings).map(|part| {
        let (host, status) = (text(part.host), text(part.status));
        let check = value(part.path).map_or(HealthCheck::Connect, |target| HealthCheck::Http {
            target: target.into(),
            host,
            statuses: status.unwrap_or(StatusRange {
                first: 200,
                last: 299,
            }),
        });
        let mut active = ActiveHealth::new(check);
        put(&mut active.every, text(part.every).map(|time| time.0));
        put(&mut active.timeout, text(part.timeout).map(|time| time.0));
        put(&mut active.healthy_after, value(part.healthy_after));
        put(&mut active.unhealthy_after, value(part.unhealthy_after));
        active.port = value(part.port);
        active
    });
    health.outliers = value(part.outliers).and_then(Switch::settings).map(|part| {
        let mut outliers = model::OutlierDetection::default();
        put(&mut outliers.consecutive, value(part.consecutive));
        outliers.failure_percent = value(part.failure_percent);
        put(&mut outliers.least_requests, value(part.least_requests));
        put(&mut outliers.interval, text(part.interval).map(|time| time.0));
        put(&mut outliers.ejected, text(part.ejected).map(|time| time.0));
        put(
            &mut outliers.ejected_most,
            text(part.ejected_most).map(|time| time.0),
        );
        put(&mut outliers.most_percent, value(part.most_percent));
        outliers
    });
}
