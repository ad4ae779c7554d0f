//! Queries to the application about push clients: over HTTP, through an upstream.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use ringmain_push::limits::PROXY_RESPONSE_BYTES;
use ringmain_push::{Application, ProxyError, ProxyEvent, ProxyRequest, ResponseFuture};
use ringmain_web::Request;
use ringmain_wire::h1::{FieldBlock, Method};

use super::super::hop_by_hop::{FieldTreatment, eq_folded, treatment};
use super::super::{RequestRoute, client_address, client_scheme, request};
use crate::compile::plan::Plan;
use crate::gateway::Worker;
use crate::model::{ClientHeader, Config, HeaderName, PushProxy, PushQuery, Target};
use crate::policy::http_client::{ServiceRequest, send_request};
use crate::policy::{Cleared, ReservedHeaders};
use crate::upstream::UpstreamState;
use crate::upstream::registry::UpstreamRegistry;

/// The queries to the application, with their upstreams.
#[derive(Debug, Default)]
pub(crate) struct PushQueries {
    proxy: PushProxy,
    /// Headers that policies of any rule write for these upstreams: no client may set them.
    reserved_headers: Vec<HeaderName>,
    /// `Err`: the reason why there is no upstream.
    upstreams: BTreeMap<ProxyEvent, Result<Arc<UpstreamState>, Arc<str>>>,
}

impl PushQueries {
    /// Compiles the queries of a configuration; one without push leaves them unchanged.
    pub(crate) fn compile(
        config: &Config,
        registry: &UpstreamRegistry,
        guards: &ReservedHeaders,
        last: Option<&Arc<PushQueries>>,
    ) -> Arc<PushQueries> {
        let Some(push) = &config.push else {
            return last.cloned().unwrap_or_default();
        };
        let events = push.proxy.events.iter();
        let upstreams = events.map(|(event, endpoint)| {
            let upstream = match &endpoint.upstream {
                Target::Upstream(name) => {
                    let route = registry.find(name).cloned();
                    route.ok_or_else(|| format!("the upstream `{name}` is not configured").into())
                }
                Target::Broken { reason } => Err(Arc::clone(reason)),
            };
            (*event, upstream)
        });
        let endpoints = push.proxy.events.values();
        Arc::new(PushQueries {
            reserved_headers: endpoints
                .flat_map(|endpoint| guards.reserved_for(&endpoint.upstream))
                .cloned()
                .collect(),
            upstreams: upstreams.collect(),
            proxy: push.proxy.clone(),
        })
    }

    /// Returns whether there are no queries.
    pub(crate) fn is_empty(&self) -> bool {
        self.upstreams.is_empty()
    }

    fn find_upstream(&self, event: ProxyEvent) -> Result<(&PushQuery, &Arc<UpstreamState>), ProxyError> {
        let endpoint = self.proxy.events.get(&event);
        match (endpoint, self.upstreams.get(&event)) {
            (Some(endpoint), Some(Ok(upstream))) => Ok((endpoint, upstream)),
            (_, Some(Err(error))) => Err(ProxyError(error.to_string())),
            _ => Err(ProxyError(
                "no upstream is configured for this event any more".to_owned(),
            )),
        }
    }
}

/// The queries of one session, with the headers of its client's request.
pub(super) struct PushApplication {
    worker: Rc<Worker>,
    fields: FieldBlock,
    /// Headers that its client may not set in a connect command, either.
    reserved_headers: Box<[HeaderName]>,
}

impl PushApplication {
    pub(super) fn of(
        worker: &Rc<Worker>,
        queries: &PushQueries,
        route: &RequestRoute<'_>,
        plan: &Plan,
        cleared: &Cleared,
        req: &Request<'_>,
    ) -> PushApplication {
        let drops = plan
            .policies
            .consumed_headers()
            .iter()
            .chain(&queries.reserved_headers);
        let is_dropped = |name: &str| {
            drops
                .clone()
                .any(|drop| eq_folded(name.as_bytes(), drop.as_str()))
        };
        let mut application = PushApplication {
            worker: Rc::clone(worker),
            fields: FieldBlock::new(),
            reserved_headers: drops
                .clone()
                .filter(|drop| queries.proxy.emulated_headers.contains(drop))
                .cloned()
                .collect(),
        };
        for name in queries.proxy.headers.iter().map(HeaderName::as_str) {
            if !is_dropped(name) {
                application.copy_header(name, route, req);
            }
        }
        application.fields.append(cleared.upstream_headers());
        application
    }

    /// Copies a header of the client, or the gateway's own value for it.
    fn copy_header(&mut self, name: &str, route: &RequestRoute<'_>, req: &Request<'_>) {
        let own = match &route.listener.client_address.header {
            ClientHeader::Named(own) => Some(own.as_str()),
            ClientHeader::XForwardedFor | ClientHeader::Forwarded => None,
        };
        let is_name = |other: &str| name.eq_ignore_ascii_case(other);
        if is_name("X-Forwarded-For") || own.is_some_and(is_name) {
            if let Some(client) = client_address(route.listener, req) {
                self.add_header(name, client.to_string().as_bytes());
            }
        } else if is_name("X-Forwarded-Proto") {
            self.add_header(name, client_scheme(route.listener, req).as_bytes());
        } else if is_name("X-Forwarded-Host") {
            if let Some(host) = req.host() {
                self.add_header(name, host.as_bytes());
            }
        } else {
            let trusted = request::is_trusted_peer(route.listener, req);
            for (known, field) in req.head().fields.iter_known() {
                let is_named = field.name.eq_ignore_ascii_case(name.as_bytes());
                let is_forwarded = match treatment(known, field.name) {
                    FieldTreatment::EndToEnd => true,
                    FieldTreatment::Proxy(_) => trusted,
                    FieldTreatment::HopByHop => false,
                };
                if is_named && is_forwarded {
                    self.add_header(name, field.value);
                }
            }
        }
    }

    fn add_header(&mut self, name: &str, value: &[u8]) {
        // Parsed values are valid; a field that frames a message is rejected, as intended.
        let _ = self.fields.push(name, value);
    }

    /// Builds the header fields of a query.
    fn query_fields(&self, proxy: &PushProxy, request: &ProxyRequest) -> FieldBlock {
        let mut fields = self.fields.clone();
        let has = |fields: &FieldBlock, name: &str| {
            fields.iter().any(|(found, _)| found.eq_ignore_ascii_case(name))
        };
        for (name, value) in request.emulated.iter() {
            let is_name = |other: &HeaderName| eq_folded(name.as_bytes(), other.as_str());
            let is_allowed = proxy
                .emulated_headers
                .iter()
                .any(|other| name.eq_ignore_ascii_case(other.as_str()));
            // Headers of the request take precedence.
            if is_allowed && !has(&fields, name) && !self.reserved_headers.iter().any(is_name) {
                let _ = fields.push(name, value.as_bytes());
            }
        }
        for (name, value) in &proxy.own_headers {
            fields.remove(name.as_str());
            let _ = fields.push(name.as_str(), value.as_str().as_bytes());
        }
        for (name, value) in [("User-Agent", "ringmain"), ("Accept", "application/json")] {
            if !has(&fields, name) {
                let _ = fields.push(name, value.as_bytes());
            }
        }
        fields.remove("Content-Type");
        let _ = fields.push("Content-Type", b"application/json");
        fields
    }
}

impl Application for PushApplication {
    fn send(&self, request: ProxyRequest) -> ResponseFuture {
        let worker = Rc::clone(&self.worker);
        let queries = Arc::clone(&worker.view().push_queries);
        let fields = self.query_fields(&queries.proxy, &request);
        Box::pin(async move {
            let (endpoint, upstream) = queries.find_upstream(request.event)?;
            let endpoints = ServiceRequest {
                method: Method::Post,
                target: &endpoint.path,
                host: endpoint.host.as_ref().map(|host| host.as_str()),
                fields: &fields,
                body: &request.body,
                // These have side effects: an application that stores publications would store a retried one twice.
                may_retry: !matches!(request.event, ProxyEvent::Rpc | ProxyEvent::Publish),
                response_limit: PROXY_RESPONSE_BYTES as u64,
                until: worker.cx.now().after(request.timeout),
                ignore_health: false,
            };
            let result = send_request(&worker, upstream, &endpoints).await;
            let result = result.map_err(|fault| ProxyError(fault.to_string()))?;
            match result.status {
                200 => Ok(result.body),
                status => Err(ProxyError(format!("expected the status 200, found {status}"))),
            }
        })
    }
}
