//! What rules do: forwarding, redirects, answers, files, and what is done around them.

use std::sync::Arc;

use ringmain_gateway::limits;
use ringmain_gateway::model::{
    self, Action, Affinity, AffinityBy, Answer, Body, Cors, ErrorPage, Forward, HeaderValue, Mirror,
    PathRewrite, Policy, Retry, RetryOn, StatusRange, WeightedBackend,
};

use super::routes::Backends;
use super::{Builder, list, put, text, texts, value};
use crate::config::document::{self, Maybe};
use crate::config::error::Position;
use crate::config::scalars::Condition;
use crate::config::fields::{At, Either, Pairs, Switch, Text};

const TEXT: &str = "text/plain; charset=utf-8";
const HTML: &str = "text/html; charset=utf-8";

impl Builder<'_> {
    /// All of a rule but its matches and its name.
    pub(super) fn rest_of_rule(
        &mut self,
        rule: &mut model::Rule,
        mut part: document::Rule,
        position: Position,
    ) {
        if let Some(changes) = value(part.request_headers.take()) {
            rule.request_headers = self.header_changes(changes);
        }
        if let Some(changes) = value(part.response_headers.take()) {
            (rule.response_headers, rule.status_headers) = self.response_headers(changes);
        }
        for at in list(part.error_pages.take()) {
            let position = at.position;
            if let Some(page) = at.value {
                self.error_page(&mut rule.error_pages, page, position);
            }
        }
        if let Some(at) = part.cors.take()
            && let Some(cors) = self.cors(at)
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
        if actions.iter().filter(|is| **is).count() != 1 {
            let found = if actions.contains(&true) {
                "several"
            } else {
                "none"
            };
            let expected = "one of the keys `to`, `redirect`, `respond`, `files` and `push`";
            return self.errors.tell(position, expected, found);
        }
        if part.to.is_none() {
            self.only_with_to(&part);
        }
        if let Some(redirect) = value(part.redirect.take()) {
            rule.action = Action::Redirect(self.redirect(redirect, position));
        } else if let Some(at) = part.respond.take() {
            let position = at.position;
            let answer = match at.value {
                Some(Either::Short(status)) => self.answer(Some(status), None, &None, None, TEXT),
                Some(Either::Full(part)) => {
                    let (status, kind) = (value(part.status), text(part.content_type));
                    self.one_body(&part.body, &part.file, position);
                    let file = part.file;
                    self.answer(status, kind, &file, value(part.body), TEXT)
                }
                None => return,
            };
            rule.action = Action::Answer(answer);
        } else if let Some(at) = part.files.take() {
            if let Some(files) = self.files(at) {
                rule.action = Action::Files(files);
            }
        } else if let Some(at) = part.push.take() {
            if let Some(action) = self.push_at(at) {
                rule.action = action;
            }
        } else {
            rule.action = Action::Forward(Box::new(self.forward(part)));
        }
    }

    /// Keys that say how a request is sent on mean nothing where none is.
    fn only_with_to(&self, part: &document::Rule) {
        let given = [
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
        for (key, position) in given {
            if let Some(position) = position {
                let expected = format!("the key `{key}` only beside `to`");
                self.errors.tell(position, expected, "it beside another action");
            }
        }
    }

    fn forward(&mut self, part: document::Rule) -> Forward {
        let mut forward = Forward::to("");
        forward.backends.clear();
        self.backends(&mut forward, part.to);
        if let Some(at) = part.rewrite {
            forward.rewrite = self.rewrite(at);
        }
        for at in list(part.mirror) {
            if let Some(mirror) = self.mirror(at) {
                forward.mirrors.push(mirror);
            }
        }
        put(&mut forward.body.request, self.body);
        put(&mut forward.timeouts.request, self.request_timeout);
        if let Some(part) = value(part.timeouts) {
            let timeouts = &mut forward.timeouts;
            put(&mut timeouts.request, text(part.request).map(|time| time.0));
            put(&mut timeouts.per_try, text(part.per_try).map(|time| time.0));
            put(&mut timeouts.idle, text(part.idle).map(|time| time.0));
            self.rate(&mut timeouts.minimum_rate, part.minimum_rate);
        }
        if let Some(part) = value(part.body) {
            put(&mut forward.body.request, text(part.request).map(|size| size.0));
            put(&mut forward.body.response, text(part.response).map(|size| size.0));
        }
        forward.retry = value(part.retry).and_then(Switch::settings).map(retry);
        let least = std::time::Duration::from_millis(1);
        forward.hedge = self.ranged_time("hedge", &part.hedge, least, std::time::Duration::MAX);
        if let Some(at) = part.affinity {
            forward.affinity = self.affinity(at).map(Box::new);
        }
        if let Some(upgrades) = value(part.upgrades) {
            forward.upgrades = upgrades.into_values().into_iter().map(Arc::from).collect();
        }
        put(&mut forward.grpc_web, value(part.grpc_web));
        put(&mut forward.replace_errors, value(part.replace_errors));
        forward
    }

    pub(super) fn backends(&mut self, forward: &mut Forward, backends: Backends) {
        for at in list(backends) {
            let position = at.position;
            let to = |value| At {
                value,
                position,
                clean: true,
            };
            let backend = match at.value {
                Some(Either::Short(Text(target))) => WeightedBackend {
                    target: self.target(to(Some(target))),
                    ..WeightedBackend::new("")
                },
                Some(Either::Full(part)) => {
                    let Some(target) = part.to else {
                        self.errors.tell(position, "the key `to`", "none");
                        continue;
                    };
                    let target = At {
                        value: target.value.map(|text| text.0),
                        position: target.position,
                        clean: target.clean,
                    };
                    let mut backend = WeightedBackend {
                        target: self.target(target),
                        ..WeightedBackend::new("")
                    };
                    put(&mut backend.weight, value(part.weight));
                    if let Some(changes) = value(part.request_headers) {
                        backend.request_headers = self.header_changes(changes);
                    }
                    if let Some(changes) = value(part.response_headers) {
                        (backend.response_headers, backend.status_headers) = self.response_headers(changes);
                    }
                    if let Some(at) = part.rewrite {
                        backend.rewrite = self.rewrite(at);
                    }
                    if let Some(at) = part.affinity {
                        backend.affinity = self.affinity(at).map(Box::new);
                    }
                    backend
                }
                None => continue,
            };
            forward.backends.push(backend);
        }
    }

    fn mirror(&mut self, at: At<Either<Text<super::super::scalars::To>, document::Mirror>>) -> Option<Mirror> {
        let position = at.position;
        let (to, part) = match at.value? {
            Either::Short(Text(to)) => (Some(to), document::Mirror::default()),
            Either::Full(mut part) => (text(part.to.take()), part),
        };
        if to.is_none() {
            self.errors.tell(position, "the key `to`", "none");
        }
        let mut mirror = Mirror::to("");
        mirror.target = self.target(At {
            value: to,
            position,
            clean: true,
        });
        put(&mut mirror.share, text(part.share).map(|share| share.0));
        put(&mut mirror.body_bytes, text(part.body).map(|size| size.0));
        Some(mirror)
    }

    fn cors(&self, at: At<document::Cors>) -> Option<Cors> {
        let part = at.value?;
        let origins: Vec<_> = texts(part.origins);
        if origins.is_empty() && at.clean {
            self.errors
                .tell(at.position, "the key `origins` with at least one", "none");
        }
        let mut cors = Cors {
            origins,
            methods: texts(part.methods),
            request_headers: texts(part.headers),
            exposed_headers: texts(part.expose),
            credentials: value(part.credentials).unwrap_or(false),
            max_age: text(part.max_age).map(|time| time.0),
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

    fn header_changes(&self, part: document::HeaderChanges) -> model::HeaderChanges {
        let values = |pairs: Pairs<Text<HeaderValue>>| {
            let pairs = pairs.0.into_iter();
            let pairs = pairs.filter_map(|(key, at)| Some((self.header_name(&key)?, at.value?.0)));
            pairs.collect()
        };
        model::HeaderChanges {
            remove: texts(part.remove),
            set: values(part.set),
            add: values(part.add),
        }
    }

    fn response_headers(
        &self,
        part: document::ResponseHeaders,
    ) -> (model::HeaderChanges, Vec<model::StatusHeaders>) {
        let changes = self.header_changes(document::HeaderChanges {
            remove: part.remove,
            set: part.set,
            add: part.add,
        });
        let mut by_status = Vec::new();
        for at in list(part.by_status) {
            let position = at.position;
            let Some(part) = at.value else { continue };
            let statuses: Vec<StatusRange> = texts(part.status);
            if statuses.is_empty() && at.clean {
                self.errors.tell(position, "the key `status`", "none");
            }
            let changes = self.header_changes(document::HeaderChanges {
                remove: part.remove,
                set: part.set,
                add: part.add,
            });
            by_status.push(model::StatusHeaders { statuses, changes });
        }
        (changes, by_status)
    }

    fn rewrite(&self, at: At<document::Rewrite>) -> model::Rewrite {
        let Some(part) = at.value else {
            return model::Rewrite::default();
        };
        model::Rewrite {
            host: text(part.host),
            path: self.path_rewrite(part.path, part.prefix),
        }
    }

    fn path_rewrite(
        &self,
        path: Maybe<Text<model::Path>>,
        prefix: Maybe<Text<model::Path>>,
    ) -> Option<PathRewrite> {
        if let (Some(_), Some(prefix)) = (&path, &prefix) {
            self.errors
                .tell(prefix.position, "either `path` or `prefix`", "both");
        }
        let path = text(path).map(PathRewrite::Full);
        path.or_else(|| text(prefix).map(PathRewrite::Prefix))
    }

    fn redirect(&self, part: document::Redirect, position: Position) -> model::Redirect {
        let mut redirect = model::Redirect {
            https: value(part.scheme).map(|scheme| scheme == document::Scheme::Https),
            host: text(part.host),
            port: value(part.port),
            path: self.path_rewrite(part.path, part.prefix),
            ..model::Redirect::default()
        };
        put(&mut redirect.status, value(part.status));
        let nothing = redirect.https.is_none() && redirect.host.is_none() && redirect.port.is_none();
        if nothing && redirect.path.is_none() {
            let expected = "another URL: at least one of `scheme`, `host`, `port`, `path` and `prefix`";
            self.errors
                .tell(position, expected, "the same one, again and again");
        }
        redirect
    }

    fn one_body(&self, body: &Maybe<String>, file: &Maybe<String>, position: Position) {
        if body.is_some() && file.is_some() {
            self.errors
                .tell(position, "at most one of `body` and `file`", "both");
        }
    }

    fn answer(
        &self,
        status: Option<u16>,
        content_type: Option<HeaderValue>,
        file: &Maybe<String>,
        body: Option<String>,
        default: &str,
    ) -> Answer {
        let body = self.file(file).or_else(|| body.map(String::into_bytes));
        let content_type =
            content_type.or_else(|| body.as_ref().and_then(|_| HeaderValue::parse(default).ok()));
        Answer {
            status: status.unwrap_or(200),
            content_type,
            body: Body(body.unwrap_or_default().into()),
        }
    }

    fn error_page(&self, pages: &mut Vec<ErrorPage>, part: document::ErrorPage, position: Position) {
        self.one_body(&part.body, &part.file, position);
        if part.body.is_none() && part.file.is_none() {
            self.errors
                .tell(position, "one of the keys `body` and `file`", "neither");
        }
        let default = if part.file.is_some() { HTML } else { TEXT };
        let answer = self.answer(
            None,
            text(part.content_type),
            &part.file,
            value(part.body),
            default,
        );
        let statuses: Vec<StatusRange> = texts(part.status);
        if statuses.is_empty() {
            self.errors.tell(position, "the key `status`", "none");
        }
        pages.extend(statuses.into_iter().map(|statuses| ErrorPage {
            statuses,
            answer: answer.clone(),
        }));
    }

    fn files(&self, at: At<Either<String, document::Files>>) -> Option<model::Files> {
        let position = at.position;
        let part = match at.value? {
            Either::Short(root) => return Some(model::Files::of(self.path(&root))),
            Either::Full(part) => part,
        };
        let Some(root) = value(part.root) else {
            self.errors.tell(position, "the key `root`", "none");
            return None;
        };
        let mut files = model::Files::of(self.path(&root));
        put(&mut files.strip_prefix, value(part.strip_prefix));
        if part.index.is_some() {
            let index = list(part.index).into_iter();
            files.index = index.filter_map(|at| at.value).map(Arc::from).collect();
        }
        files.fallback = text(part.fallback);
        files.max_age = text(part.max_age).map(|time| time.0);
        files.types = self.file_types(part.types, position);
        put(&mut files.dot_files, value(part.dot_files));
        Some(files)
    }

    fn file_types(
        &self,
        pairs: Pairs<Text<HeaderValue>>,
        position: Position,
    ) -> Vec<(Arc<str>, HeaderValue)> {
        if pairs.0.len() > limits::FILE_TYPES {
            let expected = format!("at most {} types", limits::FILE_TYPES);
            self.errors.tell(position, &expected, pairs.0.len().to_string());
            return Vec::new();
        }
        let mut types = Vec::new();
        for (extension, kind) in pairs.0 {
            let (Some(name), Some(Text(kind))) = (extension.value, kind.value) else {
                continue;
            };
            if name.is_empty() || name.contains(['.', '/']) {
                let expected = "a file extension without a dot, such as `usdz`";
                self.errors
                    .tell(extension.position, expected, format!("`{name}`"));
            } else if !kind.as_str().contains('/') {
                let expected = "a media type such as `model/vnd.usdz+zip`";
                self.errors
                    .tell(extension.position, expected, format!("`{}`", kind.as_str()));
            } else {
                types.push((name.to_ascii_lowercase().into(), kind));
            }
        }
        types
    }

    fn affinity(&self, at: At<document::Affinity>) -> Option<Affinity> {
        let part = at.value?;
        let source = value(part.source).unwrap_or(false);
        let given = [part.cookie.is_some(), part.header.is_some(), source];
        if given.iter().filter(|given| **given).count() != 1 {
            let found = if given.contains(&true) { "several" } else { "none" };
            self.errors
                .tell(at.position, "one of `cookie`, `header` and `source: true`", found);
            return None;
        }
        let by = match (value(part.cookie), text(part.header)) {
            (Some(Either::Short(name)), _) => AffinityBy::Cookie(model::Cookie {
                name: name.into(),
                ..model::Cookie::default()
            }),
            (Some(Either::Full(part)), _) => {
                let mut cookie = model::Cookie::default();
                put(&mut cookie.name, value(part.name).map(Into::into));
                put(&mut cookie.path, value(part.path).map(Into::into));
                cookie.max_age = text(part.max_age).map(|time| time.0);
                AffinityBy::Cookie(cookie)
            }
            (None, Some(name)) => AffinityBy::Header(name),
            (None, None) => AffinityBy::Source,
        };
        Some(Affinity {
            by,
            lasts: text(part.lasts).map(|time| time.0),
            idle: text(part.idle).map(|time| time.0),
        })
    }
}

fn retry(part: document::Retry) -> Retry {
    let mut retry = Retry::default();
    put(&mut retry.attempts, value(part.attempts));
    put(
        &mut retry.backoff_least,
        text(part.backoff_least).map(|time| time.0),
    );
    put(&mut retry.backoff, text(part.backoff).map(|time| time.0));
    put(
        &mut retry.backoff_most,
        text(part.backoff_most).map(|time| time.0),
    );
    if part.on.is_some() {
        let mut on = RetryOn {
            connect: false,
            ..RetryOn::default()
        };
        for condition in texts(part.on) {
            match condition {
                Condition::Connect => on.connect = true,
                Condition::Reset => on.reset = true,
                Condition::Timeout => on.timeout = true,
                Condition::Status(statuses) => on.statuses.push(statuses),
            }
        }
        retry.on = on;
    }
    retry
}
