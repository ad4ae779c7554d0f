//! Consumers of NATS.

use std::sync::Arc;

use ringmain_gateway::limits::NAME_BYTES;
use ringmain_gateway::model::{self, ChannelTemplate, NatsAccess, NatsLogin, NatsTls, Secret};

use super::{Builder, field_value, parsed_items, parsed_value};
use crate::config::document::{self, Field};
use crate::config::error::{FilePosition, quote};
use crate::config::fields::OrderedMap;
use crate::limits::NATS_CONSUMERS;
use crate::nats;

impl Builder<'_> {
    pub(super) fn build_nats_consumers(
        &mut self,
        push: &mut model::Push,
        parts: OrderedMap<document::NatsSection>,
    ) {
        if let Some((key, _)) = parts.0.get(NATS_CONSUMERS) {
            let expected = format!("at most {NATS_CONSUMERS} consumers");
            self.errors
                .report(key.position, expected, parts.0.len().to_string());
        }
        for (key, at) in parts.0 {
            let Some(name) = key.value else { continue };
            if name.is_empty() || name.len() > NAME_BYTES {
                let expected = format!("a name of 1 to {NAME_BYTES} bytes");
                self.errors.report(key.position, expected, quote(&name));
                continue;
            }
            let built = at.value.and_then(|part| self.build_nats(part, key.position));
            if let Some(built) = built {
                push.nats.insert(name.into(), Arc::new(built));
            }
        }
    }

    fn build_nats(&self, part: document::NatsSection, position: FilePosition) -> Option<model::Nats> {
        for (is_set, expected) in [
            (part.servers.is_some(), "the key `servers` with at least one"),
            (part.subjects.is_some(), "the key `subjects` with at least one"),
        ] {
            if !is_set {
                self.errors.report(position, expected, "none");
            }
        }
        let channel_at = part.channel.as_ref().map(|at| at.position);
        let channel = parsed_value(part.channel).unwrap_or_else(ChannelTemplate::subject);
        self.check_namespace(channel_at, &channel);
        if let Some(position) = channel_at.filter(|_| !channel.reads_subject_only()) {
            let expected = "a channel's name with parts of the subject alone: core NATS has no keys, and headers are not read";
            self.errors
                .report(position, expected, "`{key}` or `{header:NAME}`");
        }
        let (servers, subjects) = (parsed_items(part.servers), parsed_items(part.subjects));
        let login = self.build_nats_login(part.user, part.password, part.token, part.credentials);
        let tls = part
            .tls
            .and_then(|at| at.value)
            .map(|part| self.build_nats_tls(part));
        if servers.is_empty() || subjects.is_empty() {
            return None;
        }
        Some(model::Nats {
            access: NatsAccess {
                servers,
                login: login?,
                tls,
            },
            subjects: subjects.into_iter().map(|filter| filter.0.into()).collect(),
            channel,
            readiness: field_value(part.readiness).unwrap_or(true),
        })
    }

    /// Builds the credentials. `None`: an error was reported.
    pub(super) fn build_nats_login(
        &self,
        user: Field<String>,
        password: Field<String>,
        token: Field<String>,
        credentials: Field<String>,
    ) -> Option<NatsLogin> {
        let secret = |text: String| Secret::new(text.into_bytes());
        match (user, password, token, credentials) {
            (None, None, None, None) => Some(NatsLogin::Anonymous),
            (Some(user), Some(password), None, None) => Some(NatsLogin::User {
                user: user.value?.into(),
                password: secret(password.value?),
            }),
            (None, None, Some(token), None) => Some(NatsLogin::Token(secret(token.value?))),
            (None, None, None, credentials @ Some(_)) => {
                let file = self.read_file(&credentials)?;
                self.warn_if_public(&credentials);
                if let Err(expected) = nats::check_credentials(&file) {
                    let position = credentials.map(|at| at.position)?;
                    self.errors
                        .report_message(position, super::push::after_expected(expected));
                    return None;
                }
                Some(NatsLogin::Credentials(Secret::new(file)))
            }
            (user, password, token, credentials) => {
                let keys = [
                    ("`user`", user),
                    ("`password`", password),
                    ("`token`", token),
                    ("`credentials`", credentials),
                ];
                let set = keys
                    .iter()
                    .filter_map(|(key, at)| Some((*key, at.as_ref()?.position)));
                let (names, positions): (Vec<&str>, Vec<FilePosition>) = set.unzip();
                let expected = "either `user` and `password`, or `token`, or `credentials`";
                let found = match &names[..] {
                    [name] => format!("{name} alone"),
                    names => names.join(" and "),
                };
                self.errors.report(*positions.first()?, expected, found);
                None
            }
        }
    }

    pub(super) fn build_nats_tls(&self, part: document::NatsTlsSection) -> NatsTls {
        let authorities = part.authorities.is_some().then(|| {
            let names = self.resolve_names(part.authorities, &self.authority_names, "authorities");
            let all = &self.built.config.authorities;
            let named = all.iter().filter(|it| names.contains(&it.name));
            named.flat_map(|it| it.pem.iter().copied()).collect()
        });
        let certificate = part
            .certificate
            .and_then(|at| self.resolve_name(&at, &self.certificate_names, "a certificate"));
        let all = &self.built.config.certificates;
        NatsTls {
            server_name: parsed_value(part.server_name).map(|name| name.as_str().into()),
            authorities,
            certificate: certificate.and_then(|name| all.iter().find(|it| it.name == name).cloned()),
        }
    }
}
