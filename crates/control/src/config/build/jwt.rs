//! Tokens (JWT): their providers, and the requirements of rules.

use std::sync::Arc;
use std::time::Duration;

use ringmain_gateway::limits as gateway_limits;
use ringmain_gateway::model::{
    self, ClaimHeader, ClaimPath, ClaimRule, CredentialSource, HeaderName, JwtAlgorithm, JwtKeys, KeySet,
    Policy, RemoteKeys, Target,
};

use super::{Builder, field_value, list_items, parsed_items, parsed_value, time_value};
use crate::config::document::{self, Field, OneOrManyField};
use crate::config::error::{FilePosition, quote, suggest};
use crate::config::fields::{OrderedMap, Parsed, ShortOrFull, Spanned};
use crate::config::scalars::{PageUrl, UpstreamTarget, is_path};

/// The keys that locate a page: `url`, or `to` and `path`.
pub(super) struct PageKeys {
    pub(super) url: Field<Parsed<PageUrl>>,
    pub(super) to: Field<Parsed<UpstreamTarget>>,
    pub(super) path: Field<String>,
}

impl Builder<'_> {
    pub(super) fn build_jwt_providers(&mut self, providers: OrderedMap<document::JwtProviderSection>) {
        for (key, at) in providers.0 {
            let Some(name) = key.value else { continue };
            let before = self.errors.count();
            let part = at.value.filter(|_| at.is_valid);
            let built = part.and_then(|part| self.build_jwt_provider(&name, part, key.position));
            // A rule that requires tokens of an invalid provider must not be served without.
            let built = built.filter(|_| self.errors.count() == before);
            self.providers.insert(name, built.map(Arc::new));
        }
    }

    fn build_jwt_provider(
        &mut self,
        name: &str,
        part: document::JwtProviderSection,
        position: FilePosition,
    ) -> Option<model::JwtProvider> {
        let issuer = field_value(part.issuer).filter(|issuer| !issuer.is_empty());
        let Some(issuer) = issuer else {
            self.errors
                .report(position, "the key `issuer`: the `iss` of its tokens", "none");
            return None;
        };
        let mut algorithms = parsed_items(part.algorithms);
        if algorithms.is_empty() {
            let public = JwtAlgorithm::ALL
                .into_iter()
                .filter(|known| known.is_asymmetric());
            algorithms.extend(public);
        }
        let keys = match (part.jwks, part.keys) {
            (Some(jwks), None) => JwtKeys::Remote(self.build_remote_keys(jwks)?),
            (None, keys @ Some(_)) => {
                let file = self.read_file(&keys)?;
                let position = keys.map_or(position, |at| at.position);
                match KeySet::parse(&file) {
                    Ok(set) => JwtKeys::Set(set),
                    Err(message) => {
                        self.errors.report_message(position, &message);
                        return None;
                    }
                }
            }
            (both, _) => {
                let found = if both.is_some() { "both" } else { "neither" };
                self.errors.report(position, "either `jwks` or `keys`", found);
                return None;
            }
        };
        let mut from: Vec<CredentialSource> = parsed_items(part.header)
            .into_iter()
            .map(CredentialSource::Header)
            .collect();
        from.extend(
            shared_strings(part.query)
                .into_iter()
                .map(CredentialSource::Query),
        );
        from.extend(
            shared_strings(part.cookie)
                .into_iter()
                .map(CredentialSource::Cookie),
        );
        if from.is_empty() {
            from.extend(HeaderName::parse("Authorization").map(CredentialSource::Header));
        }
        Some(model::JwtProvider {
            name: name.into(),
            issuer: issuer.into(),
            audiences: shared_strings(part.audience),
            algorithms,
            keys,
            leeway: time_value(part.leeway).unwrap_or(Duration::from_secs(30)),
            from,
        })
    }

    fn build_remote_keys(
        &mut self,
        at: Spanned<ShortOrFull<Parsed<PageUrl>, document::JwksSection>>,
    ) -> Option<RemoteKeys> {
        let position = at.position;
        let part = match at.value? {
            ShortOrFull::Short(url) => document::JwksSection {
                url: Some(Spanned {
                    value: Some(url),
                    position,
                    is_valid: at.is_valid,
                }),
                ..document::JwksSection::default()
            },
            ShortOrFull::Full(part) => part,
        };
        let page = PageKeys {
            url: part.url,
            to: part.to,
            path: part.path,
        };
        let (upstream, path) = self.resolve_page(page, position)?;
        let refresh_position = part.refresh.as_ref().map(|at| at.position);
        let stale_position = part.stale.as_ref().map(|at| at.position);
        let refresh = self.at_least(part.refresh, gateway_limits::KEYS_LEAST, Duration::from_mins(10));
        let stale = time_value(part.stale).unwrap_or(Duration::from_hours(24));
        if stale < refresh {
            let expected = format!(
                "`stale` of at least `refresh`, {refresh:?}: tokens are rejected while the keys are older"
            );
            let at = stale_position.or(refresh_position).unwrap_or(position);
            self.errors.report(at, expected, format!("{stale:?}"));
        }
        Some(RemoteKeys {
            upstream,
            host: parsed_value(part.host),
            path,
            refresh,
            stale,
        })
    }

    /// Resolves the target of the gateway's own requests: a URL, or `to` and `path`.
    pub(super) fn resolve_page(
        &mut self,
        keys: PageKeys,
        position: FilePosition,
    ) -> Option<(Target, Arc<str>)> {
        let (to, path) = match (keys.url, keys.to, keys.path) {
            (Some(url), None, None) => {
                let page = url.value?.0;
                (UpstreamTarget::Url(page.origin), page.path)
            }
            (None, Some(to), Some(path)) => {
                let text = path.value?;
                if !is_path(&text) {
                    let expected = "a path that begins with `/`, escaped where it needs to be";
                    self.errors.report(path.position, expected, quote(&text));
                }
                (to.value?.0, text)
            }
            _ => {
                let expected = "either `url`, or `to` and `path`";
                self.errors.report(position, expected, "something else");
                return None;
            }
        };
        let upstream = self.resolve_target(Spanned {
            value: Some(to),
            position,
            is_valid: true,
        });
        Some((upstream, path.into()))
    }

    fn at_least(
        &self,
        at: Field<Parsed<crate::config::scalars::Time>>,
        min: Duration,
        default: Duration,
    ) -> Duration {
        let Some(at) = at else { return default };
        let span = at.value.map_or(default, |time| time.0.0);
        if span < min {
            let expected = format!("a time of at least {min:?}");
            self.errors.report(at.position, expected, format!("{span:?}"));
        }
        span
    }

    /// Returns the provider of this name, or reports an error.
    pub(super) fn resolve_provider(
        &self,
        position: FilePosition,
        name: &str,
    ) -> Option<Arc<model::JwtProvider>> {
        match self.providers.get(name) {
            Some(Some(provider)) => return Some(Arc::clone(provider)),
            Some(None) => {
                let found = format!("{}, which is invalid", quote(name));
                self.errors.report(position, "a valid provider of tokens", found);
            }
            None => {
                let suggestion = suggest(name, self.providers.keys().map(String::as_str));
                let advice = suggestion
                    .map(|name| format!("did you mean `{name}`?"))
                    .unwrap_or_default();
                let expected = "the name of one of `jwt_providers` of this file".to_owned();
                self.errors
                    .report_part(position, "", expected, quote(name), &advice);
            }
        }
        None
    }

    pub(super) fn build_jwt(&mut self, part: document::JwtSection, position: FilePosition) -> Option<Policy> {
        let mut providers: Vec<Arc<model::JwtProvider>> = Vec::new();
        let named = list_items(part.provider);
        if named.is_empty() {
            let expected = "the key `provider` with the name of at least one of `jwt_providers`";
            self.errors.report(position, expected, "none");
        }
        for at in named {
            let Some(name) = at.value else { continue };
            let Some(provider) = self.resolve_provider(at.position, &name) else {
                continue;
            };
            if providers.iter().any(|other| other.issuer == provider.issuer) {
                let expected = "providers with different issuers";
                self.errors.report(at.position, expected, quote(&provider.issuer));
                continue;
            }
            providers.push(provider);
        }
        let scopes = list_items(part.scopes);
        for at in &scopes {
            // RFC 6749 §3.3: one scope, without spaces.
            let scope = at.value.as_deref().unwrap_or("x");
            let is_scope = |byte: u8| byte.is_ascii_graphic() && byte != b'"' && byte != b'\\';
            if scope.is_empty() || !scope.bytes().all(is_scope) {
                self.errors
                    .report(at.position, "a scope, without spaces and quotes", quote(scope));
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
            hide: field_value(part.hide).unwrap_or(false),
        })))
    }
}

fn shared_strings(names: OneOrManyField<String>) -> Vec<Arc<str>> {
    let texts = list_items(names).into_iter().filter_map(|at| at.value);
    texts.map(Into::into).collect()
}
