//! Listeners.

use std::sync::Arc;

use ringmain_gateway::model::{
    self, Addr, ClientAddress, ClientCertificateMode, ClientHeader, EscapedSlashes, HttpLimits, ListenerTls,
    Paths, Protocol, TlsVersion,
};
use ringmain_gateway::table::Place;

use super::{Builder, put, text, texts, value};
use crate::config::document;
use crate::config::document::{Maybe, Some1};
use crate::config::scalars::Size;
use crate::config::fields::{Pairs, Switch, Text};

/// With nothing but a name, addresses and a protocol.
fn plain(name: &str, addresses: Vec<Addr>, protocol: Protocol) -> model::Listener {
    model::Listener {
        name: name.into(),
        addresses,
        protocol,
        hostnames: Vec::new(),
        tls: None,
        proxy_protocol: None,
        redirect_to_https: None,
        client_address: ClientAddress::default(),
        paths: Paths::default(),
        limits: HttpLimits::default(),
        policies: Vec::new(),
    }
}

impl Builder<'_> {
    pub(super) fn short_listener(&mut self, listen: Some1<Text<Addr>>) {
        let Some(position) = listen.as_ref().map(|at| at.position) else {
            return;
        };
        let addresses = texts(listen);
        if !addresses.is_empty() {
            self.built
                .places
                .insert(Place::Listener("default".into()), position);
            let listener = plain("default", addresses, Protocol::Http);
            self.built.config.listeners.push(Arc::new(listener));
        }
    }

    pub(super) fn listeners(&mut self, listeners: Pairs<document::Listener>) {
        self.each(listeners, Place::Listener, |builder, name, part, position| {
            let addresses = texts(part.address);
            if addresses.is_empty() {
                builder.errors.tell(position, "the key `address`", "none");
            }
            let protocol = match value(part.protocol) {
                Some(document::Protocol::Http) => Protocol::Http,
                Some(document::Protocol::H2c) => Protocol::H2c,
                Some(document::Protocol::Https) => Protocol::Https,
                Some(document::Protocol::Tcp) => Protocol::Tcp,
                Some(document::Protocol::Tls) => Protocol::Tls,
                Some(document::Protocol::TlsPassthrough) => Protocol::TlsPassthrough,
                None if part.tls.is_some() => Protocol::Https,
                None => Protocol::Http,
            };
            let mut listener = plain(&name, addresses, protocol);
            listener.hostnames = texts(part.hosts);
            listener.tls = value(part.tls).map(|tls| builder.listener_tls(tls));
            listener.proxy_protocol = value(part.proxy_protocol).map(|part| {
                let mut proxy = model::ProxyProtocol {
                    from: texts(part.from),
                    ..model::ProxyProtocol::default()
                };
                put(&mut proxy.timeout, text(part.timeout).map(|time| time.0));
                proxy
            });
            let redirect = value(part.redirect_to_https).and_then(Switch::settings);
            listener.redirect_to_https = redirect.map(|part| {
                let mut redirect = model::HttpsRedirect::default();
                put(&mut redirect.port, value(part.port));
                put(&mut redirect.status, value(part.status));
                redirect
            });
            if let Some(part) = value(part.client_address) {
                listener.client_address = client_address(part);
            }
            put(&mut listener.paths.merge_slashes, value(part.merge_slashes));
            listener.paths.escaped_slashes = value(part.escaped_slashes).map(|slashes| match slashes {
                document::EscapedSlashes::Keep => EscapedSlashes::Keep,
                document::EscapedSlashes::Decode => EscapedSlashes::Decode,
                document::EscapedSlashes::Reject => EscapedSlashes::Reject,
            });
            if let Some(part) = value(part.limits) {
                builder.http_limits(&mut listener.limits, part);
            }
            builder.built.config.listeners.push(Arc::new(listener));
        });
    }

    fn listener_tls(&self, part: document::ListenerTls) -> ListenerTls {
        ListenerTls {
            certificates: self.known(part.certificates, &self.certificates, "a certificate"),
            clients: value(part.clients).map(|part| model::ClientCertificates {
                authorities: self.known(part.authorities, &self.authorities, "authorities"),
                mode: match self.client_mode(part.mode) {
                    None | Some(document::ClientCertificateMode::Required) => ClientCertificateMode::Required,
                    Some(document::ClientCertificateMode::Optional) => ClientCertificateMode::Optional,
                    Some(document::ClientCertificateMode::Unchecked) => ClientCertificateMode::Unchecked,
                },
            }),
            minimum: text(part.minimum).unwrap_or(TlsVersion::Tls12),
        }
    }

    fn client_mode(
        &self,
        mode: Maybe<document::ClientCertificateMode>,
    ) -> Option<document::ClientCertificateMode> {
        let position = mode.as_ref().map(|at| at.position);
        let mode = value(mode);
        if let (Some(document::ClientCertificateMode::Unchecked), Some(position)) = (mode, position) {
            let text = "`mode: unchecked` admits every client, with any certificate or none; `required` and `optional` do not";
            self.errors.warn(position, text.to_owned());
        }
        mode
    }

    /// A size that is no larger than a model's number.
    pub(super) fn rate(&self, target: &mut u32, at: Maybe<Text<Size>>) {
        let Some(position) = at.as_ref().map(|at| at.position) else {
            return;
        };
        match text(at).map(|size| u32::try_from(size.0)) {
            Some(Ok(size)) => *target = size,
            Some(Err(_)) => self.errors.tell(position, "a size below 4GiB", "a larger one"),
            None => {}
        }
    }

    fn http_limits(&self, limits: &mut HttpLimits, part: document::HttpLimits) {
        for (target, at) in [
            (&mut limits.head_bytes, part.head),
            (&mut limits.rate_bytes, part.minimum_rate),
        ] {
            self.rate(target, at);
        }
        put(&mut limits.headers, value(part.headers));
        put(
            &mut limits.head_timeout,
            text(part.head_timeout).map(|time| time.0),
        );
        put(&mut limits.keep_alive, text(part.keep_alive).map(|time| time.0));
        limits.requests_per_connection = value(part.requests_per_connection);
    }
}

fn client_address(part: document::ClientAddress) -> ClientAddress {
    ClientAddress {
        trusted: texts(part.trusted),
        header: match text(part.header) {
            None => ClientHeader::XForwardedFor,
            Some(name) if name.as_str().eq_ignore_ascii_case("x-forwarded-for") => {
                ClientHeader::XForwardedFor
            }
            Some(name) if name.as_str().eq_ignore_ascii_case("forwarded") => ClientHeader::Forwarded,
            Some(name) => ClientHeader::Named(name),
        },
        hops: value(part.hops),
    }
}
