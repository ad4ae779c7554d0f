//! Tokens: who signs them, and what rules want of them.

use std::sync::Arc;
use std::time::Duration;

use ringmain_gateway::limits as gateway_limits;
use ringmain_gateway::model::{
    self, ClaimHeader, ClaimPath, ClaimRule, HeaderName, JwtAlgorithm, JwtKeys, KeyPlace, KeySet, Policy,
    RemoteKeys, Target,
};

use super::{Builder, list, text, texts, value};
use crate::config::document::{self, Maybe, Some1};
use crate::config::error::{Position, quoted, suggestion};
use crate::config::scalars::{PageUrl, To, is_path};
use crate::config::fields::{At, Either, Pairs, Text};

impl Builder<'_> {
    pub(super) fn jwt_providers(&mut self, providers: Pairs<document::JwtProvider>) {
        for (key, at) in providers.0 {
            let Some(name) = key.value else { continue };
            let before = self.errors.count();
            let part = at.value.filter(|_| at.clean);
            let built = part.and_then(|part| self.jwt_provider(&name, part, key.position));
            // A rule that wants tokens of one that is wrong must not be served without.
            let built = built.filter(|_| self.errors.count() == before);
            self.providers.insert(name, built.map(Arc::new));
        }
    }

    fn jwt_provider(
        &mut self,
        name: &str,
        part: document::JwtProvider,
        position: Position,
    ) -> Option<model::JwtProvider> {
        let issuer = value(part.issuer).filter(|issuer| !issuer.is_empty());
        let Some(issuer) = issuer else {
            self.errors
                .tell(position, "the key `issuer`: what `iss` of its tokens is", "none");
            return None;
        };
        let mut algorithms = texts(part.algorithms);
        if algorithms.is_empty() {
            let public = JwtAlgorithm::ALL
                .into_iter()
                .filter(|known| known.is_asymmetric());
            algorithms.extend(public);
        }
        let keys = match (part.jwks, part.keys) {
            (Some(jwks), None) => JwtKeys::Remote(self.remote_keys(jwks)?),
            (None, keys @ Some(_)) => {
                let file = self.file(&keys)?;
                let position = keys.map_or(position, |at| at.position);
                match KeySet::parse(&file) {
                    Ok(set) => JwtKeys::Set(set),
                    Err(message) => {
                        self.errors.tell_message(position, &message);
                        return None;
                    }
                }
            }
            (both, _) => {
                let found = if both.is_some() { "both" } else { "neither" };
                self.errors.tell(position, "either `jwks` or `keys`", found);
                return None;
            }
        };
        let mut from: Vec<KeyPlace> = texts(part.header).into_iter().map(KeyPlace::Header).collect();
        from.extend(arcs(part.query).into_iter().map(KeyPlace::Query));
        from.extend(arcs(part.cookie).into_iter().map(KeyPlace::Cookie));
        if from.is_empty() {
            from.extend(HeaderName::parse("Authorization").map(KeyPlace::Header));
        }
        Some(model::JwtProvider {
            name: name.into(),
            issuer: issuer.into(),
            audiences: arcs(part.audience),
            algorithms,
            keys,
            leeway: text(part.leeway).map_or(Duration::from_secs(30), |time| time.0),
            from,
        })
    }

    fn remote_keys(&mut self, at: At<Either<Text<PageUrl>, document::Jwks>>) -> Option<RemoteKeys> {
        let position = at.position;
        let part = match at.value? {
            Either::Short(url) => document::Jwks {
                url: Some(At {
                    value: Some(url),
                    position,
                    clean: at.clean,
                }),
                ..document::Jwks::default()
            },
            Either::Full(part) => part,
        };
        let (upstream, path) = self.page((part.url, part.to, part.path), position)?;
        let (said, longest) = (
            part.refresh.as_ref().map(|at| at.position),
            part.stale.as_ref().map(|at| at.position),
        );
        let refresh = self.least(part.refresh, gateway_limits::KEYS_LEAST, Duration::from_mins(10));
        let stale = text(part.stale).map_or(Duration::from_hours(24), |time| time.0);
        if stale < refresh {
            let expected = format!(
                "`stale` of at least `refresh`, {refresh:?}: older keys let nobody in until they are fetched again"
            );
            let at = longest.or(said).unwrap_or(position);
            self.errors.tell(at, expected, format!("{stale:?}"));
        }
        Some(RemoteKeys {
            upstream,
            host: text(part.host),
            path,
            refresh,
            stale,
        })
    }

    /// Whom the gateway asks itself, and for what: by a URL, or by `to` and `path`.
    pub(super) fn page(
        &mut self,
        said: (Maybe<Text<PageUrl>>, Maybe<Text<To>>, Maybe<String>),
        position: Position,
    ) -> Option<(Target, Arc<str>)> {
        let (to, path) = match said {
            (Some(url), None, None) => {
                let page = url.value?.0;
                (To::Url(page.at), page.path)
            }
            (None, Some(to), Some(path)) => {
                let text = path.value?;
                if !is_path(&text) {
                    let expected = "a path that begins with `/`, escaped where it needs to be";
                    self.errors.tell(path.position, expected, quoted(&text));
                }
                (to.value?.0, text)
            }
            _ => {
                let expected = "either `url`, or `to` and `path`";
                self.errors.tell(position, expected, "something else");
                return None;
            }
        };
        let upstream = self.target(At {
            value: Some(to),
            position,
            clean: true,
        });
        Some((upstream, path.into()))
    }

    fn least(
        &self,
        at: Maybe<Text<crate::config::scalars::Time>>,
        least: Duration,
        default: Duration,
    ) -> Duration {
        let Some(at) = at else { return default };
        let span = at.value.map_or(default, |time| time.0.0);
        if span < least {
            let expected = format!("a time of at least {least:?}");
            self.errors.tell(at.position, expected, format!("{span:?}"));
        }
        span
    }

    /// The provider that is named so; that there is none is told.
    pub(super) fn provider(&self, position: Position, name: &str) -> Option<Arc<model::JwtProvider>> {
        match self.providers.get(name) {
            Some(Some(provider)) => return Some(Arc::clone(provider)),
            Some(None) => {
                let found = format!("{}, which is wrong", quoted(name));
                self.errors
                    .tell(position, "a provider of tokens that is right", found);
            }
            None => {
                let meant = suggestion(name, self.providers.keys().map(String::as_str));
                let advice = meant
                    .map(|name| format!("did you mean `{name}`?"))
                    .unwrap_or_default();
                let expected = "the name of one of `jwt_providers` of this file".to_owned();
                self.errors.add(position, "", expected, quoted(name), &advice);
            }
        }
        None
    }

    pub(super) fn jwt(&mut self, part: document::Jwt, position: Position) -> Option<Policy> {
        let mut providers: Vec<Arc<model::JwtProvider>> = Vec::new();
        let named = list(part.provider);
        if named.is_empty() {
            let expected = "the key `provider` with the name of at least one of `jwt_providers`";
            self.errors.tell(position, expected, "none");
        }
        for at in named {
            let Some(name) = at.value else { continue };
            let Some(provider) = self.provider(at.position, &name) else {
                continue;
            };
            if providers.iter().any(|other| other.issuer == provider.issuer) {
                let expected = "providers with different issuers";
                self.errors.tell(at.position, expected, quoted(&provider.issuer));
                continue;
            }
            providers.push(provider);
        }
        let scopes = list(part.scopes);
        for at in &scopes {
            // RFC 6749 §3.3: a scope, not a list of them.
            let scope = at.value.as_deref().unwrap_or("x");
            let is_scope = |byte: u8| byte.is_ascii_graphic() && byte != b'"' && byte != b'\\';
            if scope.is_empty() || !scope.bytes().all(is_scope) {
                self.errors
                    .tell(at.position, "a scope, without spaces and quotes", quoted(scope));
            }
        }
        let claims = part.claims.0.into_iter().filter_map(|(key, at)| {
            let any_of = at.into_list().into_iter().filter_map(|at| at.value);
            Some(ClaimRule {
                claim: ClaimPath(key.value?.into()),
                any_of: any_of.map(Into::into).collect(),
            })
        });
        let claims = claims.collect();
        let headers = part.headers.0.into_iter().filter_map(|(key, at)| {
            Some(ClaimHeader {
                name: self.header_name(&key)?,
                claim: ClaimPath(at.value?.into()),
            })
        });
        let headers = headers.collect();
        Some(Policy::Jwt(Arc::new(model::Jwt {
            providers,
            scopes: scopes
                .into_iter()
                .filter_map(|at| at.value)
                .map(Into::into)
                .collect(),
            claims,
            headers,
            hide: value(part.hide).unwrap_or(false),
        })))
    }
}

fn arcs(some: Some1<String>) -> Vec<Arc<str>> {
    let texts = list(some).into_iter().filter_map(|at| at.value);
    texts.map(Into::into).collect()
}
