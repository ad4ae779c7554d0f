//! Filters of rules and backends.

use std::sync::Arc;
use std::time::Duration;

use ringmain_gateway::model::{
    Cors, Fraction, HeaderChanges, HeaderName, HeaderValue, Hostname, MethodName, Mirror, Origin, Path,
    PathRewrite, Policy, Redirect, Rewrite,
};

use super::Context;
use super::backend::Usage;
use super::condition::Fault;
use super::matches::Faults;
use crate::objects::{self, Filter, PathModifier};

/// The filters of a rule or a backend, translated.
#[derive(Default)]
pub(super) struct Filters {
    pub(super) request_headers: HeaderChanges,
    pub(super) response_headers: HeaderChanges,
    pub(super) rewrite: Rewrite,
    pub(super) redirect: Option<Redirect>,
    pub(super) mirrors: Vec<Mirror>,
    pub(super) policies: Vec<Policy>,
    /// A filter that is not supported: no request may pass.
    pub(super) faults: Faults,
    pub(super) unresolved: Option<Fault>,
}

impl Filters {
    pub(super) fn new(context: &mut Context<'_>, usage: &Usage<'_>, filters: &[Filter]) -> Filters {
        let mut found = Filters::default();
        let mut has_rewrite = false;
        for filter in filters {
            match filter.kind.as_str() {
                "RequestHeaderModifier" => {
                    let changes = filter.request_header_modifier.as_ref();
                    add_headers(&mut found.request_headers, changes, &mut found.faults);
                }
                "ResponseHeaderModifier" => {
                    let changes = filter.response_header_modifier.as_ref();
                    add_headers(&mut found.response_headers, changes, &mut found.faults);
                }
                "URLRewrite" => {
                    has_rewrite = true;
                    found.add_rewrite(filter.url_rewrite.as_ref());
                }
                "RequestRedirect" => found.add_redirect(filter.request_redirect.as_ref()),
                "RequestMirror" => found.add_mirror(context, usage, filter.request_mirror.as_ref()),
                "CORS" => found.add_cors(filter.cors.as_ref()),
                "ExternalAuth" => {
                    found.add_external_auth(context, usage, filter.external_auth.as_ref());
                }
                "ExtensionRef" => {
                    let message = "filters by extensionRef are not supported";
                    found.unresolved = Some(Fault::new("InvalidKind", message));
                    found.faults.add(message);
                }
                kind => found
                    .faults
                    .add(format!("filter of type {kind} is not supported")),
            }
        }
        if has_rewrite && found.redirect.is_some() {
            let message = "a rule has either RequestRedirect or URLRewrite";
            found.faults.0 = Some(Fault::new("IncompatibleFilters", message));
        }
        found
    }

    /// Adds the fault of filters that only rules may have, for those of a backend.
    pub(super) fn check_backend(&mut self) {
        if self.redirect.is_some() || !self.mirrors.is_empty() || !self.policies.is_empty() {
            self.faults
                .add("a backend has only filters of headers and URLRewrite");
        }
    }

    fn add_rewrite(&mut self, spec: Option<&objects::UrlRewrite>) {
        let Some(spec) = spec else {
            return self.faults.add("URLRewrite without urlRewrite");
        };
        let host = spec.hostname.as_deref();
        self.rewrite.host = host.and_then(|host| self.faults.read(Hostname::parse(host)));
        self.rewrite.path = spec
            .path
            .as_ref()
            .and_then(|path| path_rewrite(path, &mut self.faults));
    }

    fn add_redirect(&mut self, spec: Option<&objects::Redirect>) {
        let Some(spec) = spec else {
            return self.faults.add("RequestRedirect without requestRedirect");
        };
        let https = match spec.scheme.as_deref() {
            None => None,
            Some("http") => Some(false),
            Some("https") => Some(true),
            Some(scheme) => {
                return self
                    .faults
                    .add(format!("redirects to scheme {scheme} are not supported"));
            }
        };
        let host = spec.hostname.as_deref();
        self.redirect = Some(Redirect {
            https,
            host: host.and_then(|host| self.faults.read(Hostname::parse(host))),
            port: spec.port,
            listener_port: true,
            path: spec
                .path
                .as_ref()
                .and_then(|path| path_rewrite(path, &mut self.faults)),
            status: spec.status_code.unwrap_or(302),
        });
    }

    fn add_mirror(&mut self, context: &mut Context<'_>, usage: &Usage<'_>, spec: Option<&objects::Mirror>) {
        let Some(spec) = spec else {
            return self.faults.add("RequestMirror without requestMirror");
        };
        let backend = context.backend(usage, &spec.backend_ref);
        if let Some(fault) = backend.fault {
            self.unresolved.get_or_insert(fault);
        }
        let share = match (spec.percent, spec.fraction) {
            (Some(percent), _) => Fraction {
                part: percent,
                of: 100,
            },
            (None, Some(fraction)) => Fraction {
                part: fraction.numerator,
                of: fraction.denominator.unwrap_or(100),
            },
            (None, None) => Fraction::ALL,
        };
        if share.of == 0 || share.part > share.of {
            return self
                .faults
                .add(format!("a mirror of {} out of {} requests", share.part, share.of));
        }
        if share.part > 0 {
            let mut mirror = Mirror::to("");
            mirror.target = backend.target;
            mirror.share = share;
            self.mirrors.push(mirror);
        }
    }

    fn add_cors(&mut self, spec: Option<&objects::Cors>) {
        let Some(spec) = spec else {
            return self.faults.add("CORS without cors");
        };
        let faults = &mut self.faults;
        let is_any = |list: &[String]| list.iter().any(|entry| entry == "*");
        let (any_method, any_header) = (is_any(&spec.allow_methods), is_any(&spec.allow_headers));
        let mut headers = |list: &[String]| -> Vec<HeaderName> {
            list.iter()
                .filter_map(|name| faults.read(HeaderName::parse(name)))
                .collect()
        };
        let exposed_headers = headers(&spec.expose_headers);
        let request_headers = if any_header {
            Vec::new()
        } else {
            headers(&spec.allow_headers)
        };
        let origins = spec.allow_origins.iter();
        let methods = spec.allow_methods.iter().filter(|method| *method != "*");
        let cors = Cors {
            origins: origins
                .filter_map(|origin| faults.read(Origin::parse(origin)))
                .collect(),
            methods: methods
                .filter_map(|method| faults.read(MethodName::parse(method)))
                .collect(),
            any_method,
            request_headers,
            any_request_header: any_header,
            exposed_headers,
            credentials: spec.allow_credentials.unwrap_or(false),
            max_age: Some(Duration::from_secs(u64::from(spec.max_age.unwrap_or(5)))),
        };
        self.policies.push(Policy::Cors(Arc::new(cors)));
    }
}

fn add_headers(changes: &mut HeaderChanges, spec: Option<&objects::HeaderModifier>, faults: &mut Faults) {
    let Some(spec) = spec else {
        return faults.add("a filter of headers without changes");
    };
    let mut pairs = |list: &[objects::HeaderPair]| {
        let mut found: Vec<(HeaderName, HeaderValue)> = Vec::new();
        for pair in list {
            let name = faults.read(HeaderName::parse(&pair.name));
            let value = faults.read(HeaderValue::parse(&pair.value));
            // Of entries for one name the first counts.
            found.extend(
                name.zip(value)
                    .filter(|(name, _)| found.iter().all(|(other, _)| other != name)),
            );
        }
        found
    };
    let (set, add) = (pairs(&spec.set), pairs(&spec.add));
    changes.set.extend(set);
    changes.add.extend(add);
    let names = spec.remove.iter();
    changes
        .remove
        .extend(names.filter_map(|name| faults.read(HeaderName::parse(name))));
}

fn path_rewrite(spec: &PathModifier, faults: &mut Faults) -> Option<PathRewrite> {
    let slash = |text: Option<&str>| text.filter(|text| !text.is_empty()).unwrap_or("/").to_owned();
    match spec.kind.as_str() {
        "ReplaceFullPath" => {
            let path = slash(spec.replace_full_path.as_deref());
            faults.read(Path::parse(&path)).map(PathRewrite::Full)
        }
        "ReplacePrefixMatch" => {
            let path = slash(spec.replace_prefix_match.as_deref());
            faults.read(Path::parse(&path)).map(PathRewrite::Prefix)
        }
        kind => {
            faults.add(format!("path modifier of type {kind} is not supported"));
            None
        }
    }
}
