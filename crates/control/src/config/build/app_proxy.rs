//! What push asks its application.

use std::time::Duration;

use ringmain_gateway::model::{HeaderName, PushAsk, PushEvent, PushNamespace, PushProxy};
use ringmain_push::limits::ANSWER_WITHIN;

use super::{Builder, list, put, text, value};
use crate::config::document::{self, Maybe, Some1};
use crate::config::error::quoted;
use crate::config::scalars::{PageUrl, Time};
use crate::config::fields::{At, Either, Text};

impl Builder<'_> {
    pub(super) fn push_proxy(&mut self, at: At<document::PushProxy>) -> PushProxy {
        let mut proxy = PushProxy::default();
        let position = at.position;
        let Some(part) = at.value else { return proxy };
        let within = self.answer_within(part.timeout, Duration::from_secs(1));
        for (event, asked) in [
            (PushEvent::Connect, part.connect),
            (PushEvent::Refresh, part.refresh),
            (PushEvent::Rpc, part.rpc),
            (PushEvent::Subscribe, part.subscribe),
            (PushEvent::Publish, part.publish),
            (PushEvent::SubRefresh, part.sub_refresh),
        ] {
            let ask = asked.and_then(|at| self.push_ask(at, within));
            proxy.events.extend(ask.map(|ask| (event, ask)));
        }
        if proxy.events.is_empty() {
            let expected =
                "at least one of `connect`, `refresh`, `rpc`, `subscribe`, `publish` and `sub_refresh`";
            self.errors.tell(position, expected, "none");
        }
        proxy.headers = self.told_headers(part.headers);
        proxy.emulated_headers = self.told_headers(part.emulated_headers);
        for (key, at) in part.own_headers.0 {
            let position = key.position;
            if let (Some(name), Some(value)) = (self.header_name(&key), at.value) {
                if !PushProxy::may_tell(&name) {
                    self.errors.tell(position, TOLD, quoted(name.as_str()));
                }
                proxy.own_headers.push((name, value.0));
            }
        }
        put(&mut proxy.binary, value(part.binary));
        proxy
    }

    /// What a namespace has the application asked about: subscriptions, publications, whether subscriptions go on.
    pub(super) fn asks_about(
        &self,
        namespace: &mut PushNamespace,
        wanted: [Maybe<bool>; 3],
        proxy: &PushProxy,
    ) {
        let [subscribe, publish, sub_refresh] = wanted;
        for (is_wanted, event, wants) in [
            (&mut namespace.subscribe_proxy, PushEvent::Subscribe, subscribe),
            (&mut namespace.publish_proxy, PushEvent::Publish, publish),
            (
                &mut namespace.sub_refresh_proxy,
                PushEvent::SubRefresh,
                sub_refresh,
            ),
        ] {
            let Some(at) = wants else { continue };
            *is_wanted = at.value.unwrap_or(false);
            if *is_wanted && !proxy.events.contains_key(&event) {
                let name = event.name();
                let expected = format!("the key `proxy.{name}` of push beside `{name}_proxy`: who is asked");
                self.errors.tell(at.position, expected, "none");
            }
        }
    }

    fn push_ask(
        &mut self,
        at: At<Either<Text<PageUrl>, document::PushAsk>>,
        within: Duration,
    ) -> Option<PushAsk> {
        let position = at.position;
        let part = match at.value? {
            Either::Short(url) => document::PushAsk {
                url: Some(At {
                    value: Some(url),
                    position,
                    clean: at.clean,
                }),
                ..document::PushAsk::default()
            },
            Either::Full(part) => part,
        };
        let timeout = self.answer_within(part.timeout, within);
        let (upstream, path) = self.page((part.url, part.to, part.path), position)?;
        Some(PushAsk {
            upstream,
            host: text(part.host),
            path,
            timeout,
        })
    }

    fn answer_within(&self, at: Maybe<Text<Time>>, default: Duration) -> Duration {
        let Some(at) = at else { return default };
        let within = at.value.map_or(default, |time| time.0.0);
        if within.is_zero() || within > ANSWER_WITHIN {
            let expected = format!("a time of more than nothing and at most {ANSWER_WITHIN:?}");
            self.errors.tell(at.position, expected, format!("{within:?}"));
        }
        within
    }

    fn told_headers(&self, names: Some1<Text<HeaderName>>) -> Vec<HeaderName> {
        let mut told = Vec::new();
        for at in list(names) {
            let position = at.position;
            let Some(Text(name)) = at.value else { continue };
            if !PushProxy::may_tell(&name) {
                self.errors.tell(position, TOLD, quoted(name.as_str()));
            }
            told.push(name);
        }
        told
    }
}

const TOLD: &str =
    "a header that a question may have: not `Content-Type`, and none of the connection or the message";
