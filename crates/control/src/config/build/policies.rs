//! Policies that a request must pass before a rule's action.

use std::sync::Arc;
use std::time::Duration;

use ringmain_gateway::model::{
    self, ApiKey, AuthzRequest, CredentialSource, HeaderName, PasswordHash, Policy, User,
};
use ringmain_gateway::table::ConfigPart;

use super::traffic::TrafficSections;
use super::{Builder, field_value, list_items, parsed_items, parsed_value, time_value};
use crate::config::document::{self, Field};
use crate::config::error::{FilePosition, quote};
use crate::config::fields::{ParseScalar, Parsed, Spanned, Switch};
use crate::config::scalars::{KeyDigest, UpstreamTarget, is_path};

impl Builder<'_> {
    /// Returns a rule's policies: its own, and those of other kinds of its route. Counters without a name are named after their
    /// `place`.
    pub(super) fn build_policies(
        &mut self,
        part: Field<document::PoliciesSection>,
        route: &[Policy],
        place: &ConfigPart,
    ) -> Vec<Policy> {
        let mut all = route.to_vec();
        let Some(part) = field_value(part) else { return all };
        self.record_policy_positions(&part, place);
        self.replace_policy(&mut all, part.addresses, Self::build_addresses, |policy| {
            matches!(policy, Policy::Addresses(_))
        });
        self.replace_policy(
            &mut all,
            part.client_certificate,
            Self::build_client_certificate,
            |policy| matches!(policy, Policy::ClientCertificate(_)),
        );
        self.replace_policy(&mut all, part.basic, Self::build_basic_auth, |policy| {
            matches!(policy, Policy::Basic(_))
        });
        self.replace_policy(&mut all, part.api_keys, Self::build_api_keys, |policy| {
            matches!(policy, Policy::ApiKeys(_))
        });
        self.replace_policy(&mut all, part.jwt, Self::build_jwt, |policy| {
            matches!(policy, Policy::Jwt(_))
        });
        if let Some(satisfy) = field_value(part.satisfy) {
            all.retain(|policy| *policy != Policy::SatisfyAny);
            all.extend((satisfy == document::Satisfy::Any).then_some(Policy::SatisfyAny));
        }
        self.replace_policy(&mut all, part.authz, Self::build_external_auth, |policy| {
            matches!(policy, Policy::ExternalAuth(_))
        });
        self.replace_policy(
            &mut all,
            part.rate_limit_service,
            Self::build_rate_service,
            |policy| matches!(policy, Policy::RateService(_)),
        );
        self.add_traffic_policies(
            &mut all,
            TrafficSections {
                rate_limit: part.rate_limit,
                concurrency: part.concurrency,
                shed: part.shed,
                inject: part.inject,
            },
            place,
        );
        self.replace_policy(&mut all, part.ext_proc, Self::build_processor, |policy| {
            matches!(policy, Policy::Processor(_))
        });
        self.add_filters(&mut all, part.filters);
        all
    }

    /// Records the position of each kind of policy, for problems that are found by compilation.
    fn record_policy_positions(&mut self, part: &document::PoliciesSection, place: &ConfigPart) {
        fn of<T>(at: &Field<T>) -> Option<FilePosition> {
            at.as_ref().map(|at| at.position)
        }
        let all = [
            ("addresses", of(&part.addresses)),
            ("client_certificate", of(&part.client_certificate)),
            ("basic", of(&part.basic)),
            ("api_keys", of(&part.api_keys)),
            ("jwt", of(&part.jwt)),
            ("satisfy", of(&part.satisfy)),
            ("authz", of(&part.authz)),
            ("rate_limit", of(&part.rate_limit)),
            ("rate_limit_service", of(&part.rate_limit_service)),
            ("concurrency", of(&part.concurrency)),
            ("shed", of(&part.shed)),
            ("inject", of(&part.inject)),
            ("ext_proc", of(&part.ext_proc)),
            ("filters", of(&part.filters)),
        ];
        for (kind, position) in all {
            if let Some(position) = position {
                self.built
                    .policy_positions
                    .insert((place.clone(), kind), position);
            }
        }
    }

    /// Replaces one kind of policy.
    pub(super) fn replace_policy<P: Default>(
        &mut self,
        all: &mut Vec<Policy>,
        part: Field<Switch<P>>,
        build: impl FnOnce(&mut Self, P, FilePosition) -> Option<Policy>,
        matches: impl Fn(&Policy) -> bool,
    ) {
        let Some(at) = part else { return };
        all.retain(|policy| !matches(policy));
        let position = at.position;
        if let Some(part) = at.value.and_then(Switch::settings) {
            all.extend(build(self, part, position));
        }
    }

    fn build_addresses(
        &mut self,
        part: document::AddressesSection,
        position: FilePosition,
    ) -> Option<Policy> {
        let (allow, deny) = (parsed_items(part.allow), parsed_items(part.deny));
        if allow.is_empty() && deny.is_empty() {
            let expected = "at least one network to `allow` or to `deny`";
            self.errors.report(position, expected, "none");
        }
        Some(Policy::Addresses(Arc::new(model::Addresses { allow, deny })))
    }

    fn build_client_certificate(
        &mut self,
        part: document::ClientCertificateSection,
        _: FilePosition,
    ) -> Option<Policy> {
        Some(Policy::ClientCertificate(Arc::new(model::ClientCertificate {
            required: field_value(part.required).unwrap_or(false),
            chain: field_value(part.chain).unwrap_or(false),
            fingerprint: parsed_value(part.fingerprint),
            verification: parsed_value(part.verification),
        })))
    }

    fn build_basic_auth(
        &mut self,
        part: document::BasicAuthSection,
        position: FilePosition,
    ) -> Option<Policy> {
        let realm = part
            .realm
            .as_ref()
            .and_then(|at| Some((at.value.as_deref()?, at.position)));
        let plain = |realm: &str| {
            !realm.is_empty() && realm.chars().all(|it| !it.is_control() && !"\"\\".contains(it))
        };
        if let Some((realm, position)) = realm.filter(|(realm, _)| !plain(realm)) {
            let expected = "a text without quotes, backslashes and control characters";
            self.errors.report(position, expected, quote(realm));
        }
        let realm = realm.map_or("ringmain", |(realm, _)| realm).into();
        let mut users = Vec::new();
        let errors = self.errors.count();
        for (name, at) in part.users.0 {
            if let (Some(text), Some(Parsed(password))) = (name.value, at.value) {
                self.add_user(&mut users, &text, password, name.position, "");
            }
        }
        for (number, line, position) in self.file_lines(part.file) {
            let place = format!("line {number} of the file: ");
            let Some((name, hash)) = line.split_once(':') else {
                self.errors
                    .report(position, "lines `NAME:HASH`", format!("{place}no colon"));
                continue;
            };
            match PasswordHash::parse(hash) {
                Ok(password) => self.add_user(&mut users, name, password, position, &place),
                Err(fault) => {
                    let found = format!("{place}{}", fault.found);
                    self.errors.report(position, fault.expected, found);
                }
            }
        }
        self.check_unique(users.iter().map(|user| &*user.name), "users", position);
        let expected = "at least one of the `users`, or of a `file`";
        self.check_credential_count(users.len(), expected, position, errors);
        Some(Policy::Basic(Arc::new(model::BasicAuth {
            realm,
            users: users.into(),
            user_header: parsed_value(part.user_header),
            hide: field_value(part.hide).unwrap_or(true),
        })))
    }

    fn build_external_auth(
        &mut self,
        part: document::ExternalAuthSection,
        position: FilePosition,
    ) -> Option<Policy> {
        let grpc = field_value(part.grpc).and_then(Switch::settings);
        let is_grpc = grpc.is_some();
        let target = match grpc {
            Some(grpc) => {
                for (key, is_set) in [
                    ("path", part.path.is_some()),
                    ("prefix", part.prefix.is_some()),
                    ("client_headers", part.client_headers.is_some()),
                ] {
                    if is_set {
                        let expected = "a service over gRPC, which decides on paths and headers by itself";
                        self.errors.report(position, expected, format!("the key `{key}`"));
                    }
                }
                AuthzRequest::Grpc(Arc::new(grpc_check(grpc)))
            }
            None => self.build_http_authz(part.path, part.prefix, position)?,
        };
        let upstream = self.resolve_service(part.to, position, is_grpc)?;
        let timeout = time_value(part.timeout).unwrap_or(Duration::from_secs(1));
        if timeout.is_zero() {
            self.errors.report(position, "a `timeout` above 0", "0");
        }
        let failure_status = field_value(part.failure_status);
        if let Some(status) = failure_status.filter(|status| !(400..=599).contains(status)) {
            let expected = "a `failure_status` from 400 to 599";
            self.errors.report(position, expected, status.to_string());
        }
        Some(Policy::ExternalAuth(Arc::new(model::ExternalAuth {
            host: parsed_value(part.host),
            body: parsed_value(part.body).map_or(0, |size| size.0),
            request_headers: parsed_items(part.request_headers),
            upstream_headers: parsed_items(part.upstream_headers),
            client_headers: parsed_items(part.client_headers),
            identity: parsed_value(part.identity),
            timeout,
            fail_open: field_value(part.on_failure) == Some(document::OnFailure::Allow),
            failure_status,
            ..model::ExternalAuth::new(upstream, target)
        })))
    }

    /// Returns the form of a query over HTTP.
    fn build_http_authz(
        &self,
        fixed: Field<String>,
        prefix: Field<String>,
        position: FilePosition,
    ) -> Option<AuthzRequest> {
        let path = |at: Field<String>| {
            let at = at?;
            let text = at.value?;
            let has_valid_path = is_path(&text);
            if !has_valid_path {
                let expected = "a path that begins with `/`, escaped where it needs to be";
                self.errors.report(at.position, expected, quote(&text));
            }
            has_valid_path.then_some(text)
        };
        Some(match (fixed, prefix) {
            (Some(_), Some(_)) => {
                self.errors.report(position, "either `path` or `prefix`", "both");
                return None;
            }
            (fixed @ Some(_), None) => AuthzRequest::Path(path(fixed)?.into()),
            (None, prefix @ Some(_)) => {
                let prefix = path(prefix)?;
                if prefix.contains('?') {
                    let expected = "a `prefix` without a query, since the request's path follows it";
                    self.errors.report(position, expected, quote(&prefix));
                }
                AuthzRequest::Prefix(prefix.trim_end_matches('/').into())
            }
            (None, None) => AuthzRequest::Prefix("".into()),
        })
    }

    /// Returns the upstream of an external service. `None`: an error was reported.
    pub(super) fn resolve_service(
        &mut self,
        to: Field<Parsed<UpstreamTarget>>,
        position: FilePosition,
        is_grpc: bool,
    ) -> Option<model::Target> {
        let Some(to) = to else {
            self.errors.report(position, "the key `to`", "none");
            return None;
        };
        let to_position = to.position;
        let upstream = self.resolve_target(Spanned {
            value: to.value.map(|text| text.0),
            position: to_position,
            is_valid: to.is_valid,
        });
        if is_grpc {
            self.check_http2(&upstream, to_position);
        }
        Some(upstream)
    }

    /// Checks that an upstream that is queried over gRPC uses HTTP/2.
    fn check_http2(&self, target: &model::Target, position: FilePosition) {
        let model::Target::Upstream(name) = target else {
            return;
        };
        let upstreams = &self.built.config.upstreams;
        let upstream = upstreams.iter().find(|upstream| upstream.name == *name);
        if upstream.is_some_and(|upstream| upstream.protocol == model::UpstreamProtocol::Http1) {
            let expected = "an upstream with HTTP/2, which gRPC requires: `protocol: http2`, or a URL such as h2c://127.0.0.1:9000";
            self.errors
                .report(position, expected, format!("{} with HTTP/1.1", quote(name)));
        }
    }

    fn add_user(
        &self,
        users: &mut Vec<User>,
        name: &str,
        password: PasswordHash,
        at: FilePosition,
        place: &str,
    ) {
        if name.is_empty() || name.contains(':') || name.chars().any(char::is_control) {
            let found = format!("{place}{}", quote(name));
            return self.errors.report(at, "a user's name, without a colon", found);
        }
        users.push(User {
            name: name.into(),
            password,
        });
    }

    fn build_api_keys(&mut self, part: document::ApiKeysSection, position: FilePosition) -> Option<Policy> {
        let mut from: Vec<CredentialSource> = parsed_items(part.header)
            .into_iter()
            .map(CredentialSource::Header)
            .collect();
        let named = |names| {
            list_items(names)
                .into_iter()
                .filter_map(|at: Spanned<String>| at.value)
        };
        from.extend(named(part.query).map(|name| CredentialSource::Query(name.into())));
        from.extend(named(part.cookie).map(|name| CredentialSource::Cookie(name.into())));
        if from.is_empty() {
            from.extend(HeaderName::parse("X-API-Key").map(CredentialSource::Header));
        }
        let mut keys = Vec::new();
        let errors = self.errors.count();
        for (name, at) in part.keys.0 {
            let digests = at.into_list().into_iter().filter_map(|at| at.value);
            if let Some(consumer) = name.value {
                let consumer: Arc<str> = consumer.into();
                keys.extend(digests.map(|Parsed(KeyDigest(digest))| ApiKey {
                    consumer: Arc::clone(&consumer),
                    digest,
                }));
            }
        }
        for (number, line, position) in self.file_lines(part.file) {
            let (name, digest) = line.split_once([' ', '\t']).unwrap_or((&line, ""));
            match KeyDigest::parse(digest.trim()) {
                Ok(KeyDigest(digest)) => keys.push(ApiKey {
                    consumer: name.into(),
                    digest,
                }),
                Err(_) => {
                    let expected = "lines `NAME sha256:HEX`, with 64 hexadecimal digits";
                    let found = format!("line {number} of the file: something else");
                    self.errors.report(position, expected, found);
                }
            }
        }
        self.check_unique(keys.iter().map(|key| key.digest), "keys", position);
        let expected = "at least one of the `keys`, or of a `file`";
        self.check_credential_count(keys.len(), expected, position, errors);
        Some(Policy::ApiKeys(Arc::new(model::ApiKeys {
            from,
            keys: keys.into(),
            consumer_header: parsed_value(part.consumer_header),
            hide: field_value(part.hide).unwrap_or(true),
        })))
    }

    fn check_unique<T: Ord>(&self, all: impl Iterator<Item = T>, kind: &str, position: FilePosition) {
        let mut all: Vec<T> = all.collect();
        let before = all.len();
        all.sort();
        all.dedup();
        if all.len() < before {
            let found = format!("{} repeated", before - all.len());
            self.errors
                .report(position, format!("{kind} that are all different"), found);
        }
    }

    /// Checks the number of credentials. `errors` is the number of errors before they were read: no further error is reported after
    /// one.
    fn check_credential_count(&self, count: usize, expected: &str, position: FilePosition, errors: usize) {
        let limit = ringmain_gateway::limits::CREDENTIALS;
        if count == 0 {
            if self.errors.count() == errors {
                self.errors.report(position, expected, "none");
            }
        } else if count > limit {
            self.errors
                .report(position, format!("at most {limit}"), count.to_string());
        }
    }

    /// Returns the lines of a file that are not empty or comments, with their numbers from 1 and the position of the file's key.
    fn file_lines(&self, file: Field<String>) -> Vec<(usize, String, FilePosition)> {
        let Some(bytes) = self.read_file(&file) else {
            return Vec::new();
        };
        let position = file.map_or(FilePosition::START, |at| at.position);
        let Ok(text) = String::from_utf8(bytes) else {
            self.errors
                .report(position, "a file of text (UTF-8)", "one that is none");
            return Vec::new();
        };
        let lines = (1..)
            .zip(text.lines())
            .map(|(number, line)| (number, line.trim()));
        let entries = lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
        entries
            .map(|(number, line)| (number, line.to_owned(), position))
            .collect()
    }
}

fn grpc_check(part: document::GrpcCheckSection) -> model::GrpcCheck {
    let context = part.context.0.into_iter();
    let context = context.filter_map(|(name, at)| Some((name.value?, at.value?)));
    model::GrpcCheck {
        context: context.collect(),
        partial_body: field_value(part.partial_body).unwrap_or(false),
        raw_body: field_value(part.raw_body).unwrap_or(false),
        certificate: field_value(part.certificate).unwrap_or(false),
        identity_metadata: field_value(part.identity_metadata).map(Into::into),
    }
}
