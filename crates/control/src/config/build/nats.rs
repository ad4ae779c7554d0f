//! Consumers of NATS.

use std::sync::Arc;

use ringmain_gateway::limits::NAME_BYTES;
use ringmain_gateway::model::{self, ChannelTemplate, NatsAccess, NatsLogin, NatsTls, Secret};

use super::{Builder, text, texts, value};
use crate::config::document::{self, Maybe};
use crate::config::error::{Position, quoted};
use crate::config::fields::Pairs;
use crate::limits::NATS_CONSUMERS;
use crate::nats;

impl Builder<'_> {
    pub(super) fn push_nats(&mut self, push: &mut model::Push, parts: Pairs<document::Nats>) {
        if let Some((key, _)) = parts.0.get(NATS_CONSUMERS) {
            let expected = format!("at most {NATS_CONSUMERS} of them");
            self.errors
                .tell(key.position, expected, parts.0.len().to_string());
        }
        for (key, at) in parts.0 {
            let Some(name) = key.value else { continue };
            if name.is_empty() || name.len() > NAME_BYTES {
                let expected = format!("a name of 1 to {NAME_BYTES} bytes");
                self.errors.tell(key.position, expected, quoted(&name));
                continue;
            }
            let built = at.value.and_then(|part| self.nats(part, key.position));
            if let Some(built) = built {
                push.nats.insert(name.into(), Arc::new(built));
            }
        }
    }

    fn nats(&self, part: document::Nats, position: Position) -> Option<model::Nats> {
        for (is_there, expected) in [
            (part.servers.is_some(), "the key `servers` with at least one"),
            (part.subjects.is_some(), "the key `subjects` with at least one"),
        ] {
            if !is_there {
                self.errors.tell(position, expected, "none");
            }
        }
        let channel_at = part.channel.as_ref().map(|at| at.position);
        let channel = text(part.channel).unwrap_or_else(ChannelTemplate::subject);
        self.check_namespace(channel_at, &channel);
        if let Some(position) = channel_at.filter(|_| !channel.reads_subject_only()) {
            let expected = "a channel's name with parts of the subject alone: core NATS has no keys, and headers are not read";
            self.errors.tell(position, expected, "`{key}` or `{header:NAME}`");
        }
        let (servers, subjects) = (texts(part.servers), texts(part.subjects));
        let login = self.nats_login(part.user, part.password, part.token, part.credentials);
        let tls = part.tls.and_then(|at| at.value).map(|part| self.nats_tls(part));
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
            readiness: value(part.readiness).unwrap_or(true),
        })
    }

    /// `None`: it is wrong, which was told.
    pub(super) fn nats_login(
        &self,
        user: Maybe<String>,
        password: Maybe<String>,
        token: Maybe<String>,
        credentials: Maybe<String>,
    ) -> Option<NatsLogin> {
        let secret = |text: String| Secret::new(text.into_bytes());
        match (user, password, token, credentials) {
            (None, None, None, None) => Some(NatsLogin::Nobody),
            (Some(user), Some(password), None, None) => Some(NatsLogin::User {
                user: user.value?.into(),
                password: secret(password.value?),
            }),
            (None, None, Some(token), None) => Some(NatsLogin::Token(secret(token.value?))),
            (None, None, None, credentials @ Some(_)) => {
                let file = self.file(&credentials)?;
                self.is_private(&credentials);
                if let Err(expected) = nats::check_credentials(&file) {
                    let position = credentials.map(|at| at.position)?;
                    self.errors
                        .tell_message(position, super::push::after_expected(expected));
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
                let (names, positions): (Vec<&str>, Vec<Position>) = set.unzip();
                let expected = "either `user` and `password`, or `token`, or `credentials`";
                let found = match &names[..] {
                    [name] => format!("{name} alone"),
                    names => names.join(" and "),
                };
                self.errors.tell(*positions.first()?, expected, found);
                None
            }
        }
    }

    pub(super) fn nats_tls(&self, part: document::NatsTls) -> NatsTls {
        let authorities = part.authorities.is_some().then(|| {
            let names = self.known(part.authorities, &self.authorities, "authorities");
            let all = &self.built.config.authorities;
            let named = all.iter().filter(|it| names.contains(&it.name));
            named.flat_map(|it| it.pem.iter().copied()).collect()
        });
        let certificate = part
            .certificate
            .and_then(|at| self.known_name(&at, &self.certificates, "a certificate"));
        let all = &self.built.config.certificates;
        NatsTls {
            server_name: text(part.server_name).map(|name| name.as_str().into()),
            authorities,
            certificate: certificate.and_then(|name| all.iter().find(|it| it.name == name).cloned()),
        }
    }
}
