//! Actions of rules: forwarding, redirects, direct responses, files, and their options.

use std::sync::Arc;

use ringmain_gateway::limits;
use ringmain_gateway::model::{
    self, Action, Affinity, AffinityBy, Cors, DirectResponse, ErrorPage, Forward, HeaderValue, Mirror,
    PathRewrite, Policy, Retry, RetryOn, StaticBody, StatusRange, WeightedBackend,
};

use super::routes::Backends;
use super::{Builder, field_value, list_items, parsed_items, parsed_value, set_if_some, time_value};
use crate::config::document::{self, Field};
use crate::config::error::FilePosition;
use crate::config::fields::{OrderedMap, Parsed, ShortOrFull, Spanned, Switch};
use crate::config::scalars::RetryCondition;

const TEXT: &str = "text/plain; charset=utf-8";
const HTML: &str = "text/html; charset=utf-8";

impl Builder<'_> {
    /// Builds a rule without its matches and its name.
    pub(super) fn build_action(
        &mut self,
        rule: &mut model::Rule,
        mut part: document::RuleSection,
        position: FilePosition,
    ) {
        if let Some(changes) = field_value(part.request_headers.take()) {
            rule.request_headers = self.build_header_changes(changes);
        }
        if let Some(changes) = field_value(part.response_headers.take()) {
            (rule.response_headers, rule.status_headers) = self.build_response_headers(changes);
        }
        for at in list_items(part.error_pages.take()) {
            let position = at.position;
            if let Some(page) = at.value {
                self.add_error_page(&mut rule.error_pages, page, position);
            }
        }
        if let Some(at) = part.cors.take()
            && let Some(cors) = self.build_cors(at)
        {
            rule.policies.push(Policy::Cors(Arc::new(cors)));
        }
        let actions = [
            part.to.is_some(),
            part.redirect.is_some(),
            part.respond.is_some(),
            part.files.is_some(),
            part.push.is_some(),
        ];
        if actions.iter().filter(|is_set| **is_set).count() != 1 {
            let found = if actions.contains(&true) {
                "several"
            } else {
                "none"
            };
            let expected = "one of the keys `to`, `redirect`, `respond`, `files` and `push`";
            return self.errors.report(position, expected, found);
        }
        if part.to.is_none() {
            self.reject_without_to(&part);
        }
        if let Some(redirect) = field_value(part.redirect.take()) {
            rule.action = Action::Redirect(self.build_redirect(redirect, position));
        } else if let Some(at) = part.respond.take() {
            if let Some(response) = self.build_direct_response(at) {
                rule.action = Action::Respond(response);
            }
        } else if let Some(at) = part.files.take() {
            if let Some(files) = self.build_files(at) {
                rule.action = Action::Files(files);
            }
        } else if let Some(at) = part.push.take() {
            if let Some(action) = self.build_push_action(at) {
                rule.action = action;
            }
        } else {
            rule.action = Action::Forward(Box::new(self.build_forward(part)));
        }
    }

    fn build_direct_response(
        &self,
        at: Spanned<ShortOrFull<u16, document::RespondSection>>,
    ) -> Option<DirectResponse> {
        let part = match at.value? {
            ShortOrFull::Short(status) => {
                return Some(self.build_response(Some(status), None, &None, None, TEXT));
            }
            ShortOrFull::Full(part) => part,
        };
        self.check_single_body(&part.body, &part.file, at.position);
        let (status, content_type) = (field_value(part.status), parsed_value(part.content_type));
        Some(self.build_response(status, content_type, &part.file, field_value(part.body), TEXT))
    }

    /// Rejects keys of forwarding in rules with another action, where they would have no effect.
    fn reject_without_to(&self, part: &document::RuleSection) {
        let keys = [
            ("rewrite", part.rewrite.as_ref().map(|at| at.position)),
            ("mirror", part.mirror.as_ref().map(|at| at.position)),
            ("timeouts", part.timeouts.as_ref().map(|at| at.position)),
            ("body", part.body.as_ref().map(|at| at.position)),
            ("retry", part.retry.as_ref().map(|at| at.position)),
            ("hedge", part.hedge.as_ref().map(|at| at.position)),
            ("affinity", part.affinity.as_ref().map(|at| at.position)),
            ("upgrades", part.upgrades.as_ref().map(|at| at.position)),
            ("grpc_web", part.grpc_web.as_ref().map(|at| at.position)),
            (
                "replace_errors",
                part.replace_errors.as_ref().map(|at| at.position),
            ),
        ];
        for (key, position) in keys {
            if let Some(position) = position {
                let expected = format!("the key `{key}` only beside `to`");
                self.errors.report(position, expected, "it beside another action");
            }
        }
    }

    fn build_forward(&mut self, part: document::RuleSection) -> Forward {
        let mut forward = Forward::to("");
        forward.backends.clear();
        self.add_backends(&mut forward, part.to);
        if let Some(at) = part.rewrite {
            forward.rewrite = self.build_rewrite(at);
        }
        for at in list_items(part.mirror) {
            if let Some(mirror) = self.build_mirror(at) {
                forward.mirrors.push(mirror);
            }
        }
        set_if_some(&mut forward.body.request, self.default_body_limit);
        set_if_some(&mut forward.timeouts.request, self.default_request_timeout);
        if let Some(part) = field_value(part.timeouts) {
            let timeouts = &mut forward.timeouts;
            set_if_some(
                &mut timeouts.request,
                parsed_value(part.request).map(|time| time.0),
            );
            set_if_some(
                &mut timeouts.per_try,
                parsed_value(part.per_try).map(|time| time.0),
            );
            set_if_some(&mut timeouts.idle, parsed_value(part.idle).map(|time| time.0));
            self.set_byte_rate(&mut timeouts.minimum_rate, part.minimum_rate);
        }
        if let Some(part) = field_value(part.body) {
            set_if_some(
                &mut forward.body.request,
                parsed_value(part.request).map(|size| size.0),
            );
            set_if_some(
                &mut forward.body.response,
                parsed_value(part.response).map(|size| size.0),
            );
        }
        forward.retry = field_value(part.retry)
            .and_then(Switch::settings)
            .map(build_retry);
        let min = std::time::Duration::from_millis(1);
        forward.hedge = self.check_time_range("hedge", &part.hedge, min, std::time::Duration::MAX);
        if let Some(at) = part.affinity {
            forward.affinity = self.build_affinity(at).map(Box::new);
        }
        if let Some(upgrades) = field_value(part.upgrades) {
            forward.upgrades = upgrades.into_values().into_iter().map(Arc::from).collect();
        }
        set_if_some(&mut forward.grpc_web, field_value(part.grpc_web));
        set_if_some(&mut forward.replace_errors, field_value(part.replace_errors));
        forward
    }

    pub(super) fn add_backends(&mut self, forward: &mut Forward, backends: Backends) {
        for at in list_items(backends) {
            let position = at.position;
            let to = |value| Spanned {
                value,
                position,
                is_valid: true,
            };
            let backend = match at.value {
                Some(ShortOrFull::Short(Parsed(target))) => WeightedBackend {
                    target: self.resolve_target(to(Some(target))),
                    ..WeightedBackend::new("")
                },
                Some(ShortOrFull::Full(part)) => {
                    let Some(target) = part.to else {
                        self.errors.report(position, "the key `to`", "none");
                        continue;
                    };
                    let target = Spanned {
                        value: target.value.map(|text| text.0),
                        position: target.position,
                        is_valid: target.is_valid,
                    };
                    let mut backend = WeightedBackend {
                        target: self.resolve_target(target),
                        ..WeightedBackend::new("")
                    };
                    set_if_some(&mut backend.weight, field_value(part.weight));
                    if let Some(changes) = field_value(part.request_headers) {
                        backend.request_headers = self.build_header_changes(changes);
                    }
                    if let Some(changes) = field_value(part.response_headers) {
                        (backend.response_headers, backend.status_headers) =
                            self.build_response_headers(changes);
                    }
                    if let Some(at) = part.rewrite {
                        backend.rewrite = self.build_rewrite(at);
                    }
                    if let Some(at) = part.affinity {
                        backend.affinity = self.build_affinity(at).map(Box::new);
                    }
                    backend
                }
                None => continue,
            };
            forward.backends.push(backend);
        }
    }

    fn build_mirror(
        &mut self,
        at: Spanned<ShortOrFull<Parsed<super::super::scalars::UpstreamTarget>, document::MirrorSection>>,
    ) -> Option<Mirror> {
        let position = at.position;
        let (to, part) = match at.value? {
            ShortOrFull::Short(Parsed(to)) => (Some(to), document::MirrorSection::default()),
            ShortOrFull::Full(mut part) => (parsed_value(part.to.take()), part),
        };
        if to.is_none() {
            self.errors.report(position, "the key `to`", "none");
        }
        let mut mirror = Mirror::to("");
        mirror.target = self.resolve_target(Spanned {
            value: to,
            position,
            is_valid: true,
        });
        set_if_some(
            &mut mirror.share,
            parsed_value(part.share).map(|fraction| fraction.0),
        );
        set_if_some(&mut mirror.body_bytes, parsed_value(part.body).map(|size| size.0));
        Some(mirror)
    }

    fn build_cors(&self, at: Spanned<document::CorsSection>) -> Option<Cors> {
        let part = at.value?;
        let origins: Vec<_> = parsed_items(part.origins);
        if origins.is_empty() && at.is_valid {
            self.errors
                .report(at.position, "the key `origins` with at least one", "none");
        }
        let mut cors = Cors {
            origins,
            methods: parsed_items(part.methods),
            request_headers: parsed_items(part.headers),
            exposed_headers: parsed_items(part.expose),
            credentials: field_value(part.credentials).unwrap_or(false),
            max_age: time_value(part.max_age),
            ..Cors::default()
        };
        cors.any_method = cors.methods.iter().any(|method| method.as_str() == "*");
        cors.methods.retain(|method| method.as_str() != "*");
        cors.any_request_header = cors.request_headers.iter().any(|name| name.as_str() == "*");
        cors.request_headers.retain(|name| name.as_str() != "*");
        if cors.credentials && cors.exposed_headers.iter().any(|name| name.as_str() == "*") {
            let text = "`expose: '*'` has no effect with `credentials: true`, where browsers take it for the name of a header: list the headers";
            self.errors.warn(at.position, text.to_owned());
        }
        Some(cors)
    }

    fn build_header_changes(&self, part: document::HeaderChangesSection) -> model::HeaderChanges {
        let values = |pairs: OrderedMap<Parsed<HeaderValue>>| {
            let pairs = pairs.0.into_iter();
            let pairs = pairs.filter_map(|(key, at)| Some((self.header_name(&key)?, at.value?.0)));
            pairs.collect()
        };
        model::HeaderChanges {
            remove: parsed_items(part.remove),
            set: values(part.set),
            add: values(part.add),
        }
    }

    fn build_response_headers(
        &self,
        part: document::ResponseHeadersSection,
    ) -> (model::HeaderChanges, Vec<model::StatusHeaders>) {
        let changes = self.build_header_changes(document::HeaderChangesSection {
            remove: part.remove,
            set: part.set,
            add: part.add,
        });
        let mut by_status = Vec::new();
        for at in list_items(part.by_status) {
            let position = at.position;
            let Some(part) = at.value else { continue };
            let statuses: Vec<StatusRange> = parsed_items(part.status);
            if statuses.is_empty() && at.is_valid {
                self.errors.report(position, "the key `status`", "none");
            }
            let changes = self.build_header_changes(document::HeaderChangesSection {
                remove: part.remove,
                set: part.set,
                add: part.add,
            });
            by_status.push(model::StatusHeaders { statuses, changes });
        }
        (changes, by_status)
    }

    fn build_rewrite(&self, at: Spanned<document::RewriteSection>) -> model::Rewrite {
        let Some(part) = at.value else {
            return model::Rewrite::default();
        };
        model::Rewrite {
            host: parsed_value(part.host),
            path: self.build_path_rewrite(part.path, part.prefix),
        }
    }

    fn build_path_rewrite(
        &self,
        path: Field<Parsed<model::Path>>,
        prefix: Field<Parsed<model::Path>>,
    ) -> Option<PathRewrite> {
        if let (Some(_), Some(prefix)) = (&path, &prefix) {
            self.errors
                .report(prefix.position, "either `path` or `prefix`", "both");
        }
        let path = parsed_value(path).map(PathRewrite::Full);
        path.or_else(|| parsed_value(prefix).map(PathRewrite::Prefix))
    }

    fn build_redirect(&self, part: document::RedirectSection, position: FilePosition) -> model::Redirect {
        let mut redirect = model::Redirect {
            https: field_value(part.scheme).map(|scheme| scheme == document::Scheme::Https),
            host: parsed_value(part.host),
            port: field_value(part.port),
            path: self.build_path_rewrite(part.path, part.prefix),
            ..model::Redirect::default()
        };
        set_if_some(&mut redirect.status, field_value(part.status));
        let is_unchanged = redirect.https.is_none() && redirect.host.is_none() && redirect.port.is_none();
        if is_unchanged && redirect.path.is_none() {
            let expected = "at least one of `scheme`, `host`, `port`, `path` and `prefix`";
            self.errors
                .report(position, expected, "none, which is a redirect loop");
        }
        redirect
    }

    fn check_single_body(&self, body: &Field<String>, file: &Field<String>, position: FilePosition) {
        if body.is_some() && file.is_some() {
            self.errors
                .report(position, "at most one of `body` and `file`", "both");
        }
    }

    fn build_response(
        &self,
        status: Option<u16>,
        content_type: Option<HeaderValue>,
        file: &Field<String>,
        body: Option<String>,
        default: &str,
    ) -> DirectResponse {
        let body = self.read_file(file).or_else(|| body.map(String::into_bytes));
        let content_type =
            content_type.or_else(|| body.as_ref().and_then(|_| HeaderValue::parse(default).ok()));
        DirectResponse {
            status: status.unwrap_or(200),
            content_type,
            body: StaticBody(body.unwrap_or_default().into()),
        }
    }

    fn add_error_page(
        &self,
        pages: &mut Vec<ErrorPage>,
        part: document::ErrorPageSection,
        position: FilePosition,
    ) {
        self.check_single_body(&part.body, &part.file, position);
        if part.body.is_none() && part.file.is_none() {
            self.errors
                .report(position, "one of the keys `body` and `file`", "neither");
        }
        let default = if part.file.is_some() { HTML } else { TEXT };
        let response = self.build_response(
            None,
            parsed_value(part.content_type),
            &part.file,
            field_value(part.body),
            default,
        );
        let statuses: Vec<StatusRange> = parsed_items(part.status);
        if statuses.is_empty() {
            self.errors.report(position, "the key `status`", "none");
        }
        pages.extend(statuses.into_iter().map(|statuses| ErrorPage {
            statuses,
            response: response.clone(),
        }));
    }

    fn build_files(&self, at: Spanned<ShortOrFull<String, document::FilesSection>>) -> Option<model::Files> {
        let position = at.position;
        let part = match at.value? {
            ShortOrFull::Short(root) => return Some(model::Files::of(self.resolve_path(&root))),
            ShortOrFull::Full(part) => part,
        };
        let Some(root) = field_value(part.root) else {
            self.errors.report(position, "the key `root`", "none");
            return None;
        };
        let mut files = model::Files::of(self.resolve_path(&root));
        set_if_some(&mut files.strip_prefix, field_value(part.strip_prefix));
        if part.index.is_some() {
            let index = list_items(part.index).into_iter();
            files.index = index.filter_map(|at| at.value).map(Arc::from).collect();
        }
        files.fallback = parsed_value(part.fallback);
        files.max_age = time_value(part.max_age);
        files.types = self.build_file_types(part.types, position);
        set_if_some(&mut files.dot_files, field_value(part.dot_files));
        Some(files)
    }

    fn build_file_types(
        &self,
        pairs: OrderedMap<Parsed<HeaderValue>>,
        position: FilePosition,
    ) -> Vec<(Arc<str>, HeaderValue)> {
        if pairs.0.len() > limits::FILE_TYPES {
            let expected = format!("at most {} types", limits::FILE_TYPES);
            self.errors.report(position, &expected, pairs.0.len().to_string());
            return Vec::new();
        }
        let mut types = Vec::new();
        for (extension, kind) in pairs.0 {
            let (Some(name), Some(Parsed(kind))) = (extension.value, kind.value) else {
                continue;
            };
            if name.is_empty() || name.contains(['.', '/']) {
                let expected = "a file extension without a dot, such as `usdz`";
                self.errors
                    .report(extension.position, expected, format!("`{name}`"));
            } else if !kind.as_str().contains('/') {
                let expected = "a media type such as `model/vnd.usdz+zip`";
                self.errors
                    .report(extension.position, expected, format!("`{}`", kind.as_str()));
            } else {
                types.push((name.to_ascii_lowercase().into(), kind));
            }
        }
        types
    }

    fn build_affinity(&self, at: Spanned<document::AffinitySection>) -> Option<Affinity> {
        let part = at.value?;
        let source = field_value(part.source).unwrap_or(false);
        let keys = [part.cookie.is_some(), part.header.is_some(), source];
        if keys.iter().filter(|is_set| **is_set).count() != 1 {
            let found = if keys.contains(&true) { "several" } else { "none" };
            self.errors
                .report(at.position, "one of `cookie`, `header` and `source: true`", found);
            return None;
        }
        let by = match (field_value(part.cookie), parsed_value(part.header)) {
            (Some(ShortOrFull::Short(name)), _) => AffinityBy::Cookie(model::Cookie {
                name: name.into(),
                ..model::Cookie::default()
            }),
            (Some(ShortOrFull::Full(part)), _) => {
                let mut cookie = model::Cookie::default();
                set_if_some(&mut cookie.name, field_value(part.name).map(Into::into));
                set_if_some(&mut cookie.path, field_value(part.path).map(Into::into));
                cookie.max_age = time_value(part.max_age);
                AffinityBy::Cookie(cookie)
            }
            (None, Some(name)) => AffinityBy::Header(name),
            (None, None) => AffinityBy::Source,
        };
        Some(Affinity {
            by,
            lasts: time_value(part.lasts),
            idle: time_value(part.idle),
        })
    }
}

fn build_retry(part: document::RetrySection) -> Retry {
    let mut retry = Retry::default();
    set_if_some(&mut retry.attempts, field_value(part.attempts));
    set_if_some(&mut retry.backoff_min, time_value(part.backoff_min));
    set_if_some(&mut retry.backoff, time_value(part.backoff));
    set_if_some(&mut retry.backoff_max, time_value(part.backoff_max));
    if part.on.is_some() {
        let mut on = RetryOn {
            connect: false,
            ..RetryOn::default()
        };
        for condition in parsed_items(part.on) {
            match condition {
                RetryCondition::Connect => on.connect = true,
                RetryCondition::Reset => on.reset = true,
                RetryCondition::Timeout => on.timeout = true,
                RetryCondition::Status(statuses) => on.statuses.push(statuses),
            }
        }
        retry.on = on;
    }
    retry
}
