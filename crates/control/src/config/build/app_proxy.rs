//! Requests of push to the application.

use std::time::Duration;

use ringmain_gateway::model::{HeaderName, PushEvent, PushNamespace, PushProxy, PushQuery};
use ringmain_push::limits::PROXY_TIMEOUT_MAX;

use super::jwt::PageKeys;
use super::{Builder, field_value, list_items, parsed_value, set_if_some};
use crate::config::document::{self, Field, OneOrManyField};
use crate::config::error::quote;
use crate::config::fields::{Parsed, ShortOrFull, Spanned};
use crate::config::scalars::{PageUrl, Time};

impl Builder<'_> {
    pub(super) fn build_push_proxy(&mut self, at: Spanned<document::PushProxySection>) -> PushProxy {
        let mut proxy = PushProxy::default();
        let position = at.position;
        let Some(part) = at.value else { return proxy };
        let timeout = self.proxy_timeout(part.timeout, Duration::from_secs(1));
        for (event, asked) in [
            (PushEvent::Connect, part.connect),
            (PushEvent::Refresh, part.refresh),
            (PushEvent::Rpc, part.rpc),
            (PushEvent::Subscribe, part.subscribe),
            (PushEvent::Publish, part.publish),
            (PushEvent::SubRefresh, part.sub_refresh),
        ] {
            let endpoint = asked.and_then(|at| self.build_proxy_endpoint(at, timeout));
            proxy.events.extend(endpoint.map(|endpoint| (event, endpoint)));
        }
        if proxy.events.is_empty() {
            let expected =
                "at least one of `connect`, `refresh`, `rpc`, `subscribe`, `publish` and `sub_refresh`";
            self.errors.report(position, expected, "none");
        }
        proxy.headers = self.forwarded_headers(part.headers);
        proxy.emulated_headers = self.forwarded_headers(part.emulated_headers);
        for (key, at) in part.own_headers.0 {
            let position = key.position;
            if let (Some(name), Some(value)) = (self.header_name(&key), at.value) {
                if !PushProxy::may_send(&name) {
                    self.errors.report(position, FORWARDABLE, quote(name.as_str()));
                }
                proxy.own_headers.push((name, value.0));
            }
        }
        set_if_some(&mut proxy.binary, field_value(part.binary));
        proxy
    }

    /// Sets the events for which a namespace queries the application: subscribing, publishing, refreshing subscriptions.
    pub(super) fn set_proxied_events(
        &self,
        namespace: &mut PushNamespace,
        switches: [Field<bool>; 3],
        proxy: &PushProxy,
    ) {
        let [subscribe, publish, sub_refresh] = switches;
        for (is_enabled, event, key) in [
            (&mut namespace.subscribe_proxy, PushEvent::Subscribe, subscribe),
            (&mut namespace.publish_proxy, PushEvent::Publish, publish),
            (
                &mut namespace.sub_refresh_proxy,
                PushEvent::SubRefresh,
                sub_refresh,
            ),
        ] {
            let Some(at) = key else { continue };
            *is_enabled = at.value.unwrap_or(false);
            if *is_enabled && !proxy.events.contains_key(&event) {
                let name = event.name();
                let expected = format!("the key `proxy.{name}` of push beside `{name}_proxy`");
                self.errors.report(at.position, expected, "none");
            }
        }
    }

    fn build_proxy_endpoint(
        &mut self,
        at: Spanned<ShortOrFull<Parsed<PageUrl>, document::PushEndpointSection>>,
        timeout: Duration,
    ) -> Option<PushQuery> {
        let position = at.position;
        let part = match at.value? {
            ShortOrFull::Short(url) => document::PushEndpointSection {
                url: Some(Spanned {
                    value: Some(url),
                    position,
                    is_valid: at.is_valid,
                }),
                ..document::PushEndpointSection::default()
            },
            ShortOrFull::Full(part) => part,
        };
        let timeout = self.proxy_timeout(part.timeout, timeout);
        let page = PageKeys {
            url: part.url,
            to: part.to,
            path: part.path,
        };
        let (upstream, path) = self.resolve_page(page, position)?;
        Some(PushQuery {
            upstream,
            host: parsed_value(part.host),
            path,
            timeout,
        })
    }

    fn proxy_timeout(&self, at: Field<Parsed<Time>>, default: Duration) -> Duration {
        let Some(at) = at else { return default };
        let timeout = at.value.map_or(default, |time| time.0.0);
        if timeout.is_zero() || timeout > PROXY_TIMEOUT_MAX {
            let expected = format!("a time above 0 and at most {PROXY_TIMEOUT_MAX:?}");
            self.errors.report(at.position, expected, format!("{timeout:?}"));
        }
        timeout
    }

    fn forwarded_headers(&self, names: OneOrManyField<Parsed<HeaderName>>) -> Vec<HeaderName> {
        let mut problems = Vec::new();
        for at in list_items(names) {
            let position = at.position;
            let Some(Parsed(name)) = at.value else { continue };
            if !PushProxy::may_send(&name) {
                self.errors.report(position, FORWARDABLE, quote(name.as_str()));
            }
            problems.push(name);
        }
        problems
    }
}

const FORWARDABLE: &str = "a header that requests to the application may have: not `Content-Type`, and none of the connection or the message";
