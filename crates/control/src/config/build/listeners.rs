//! Listeners.

use std::sync::Arc;

use ringmain_gateway::model::{
    self, Addr, ClientAddress, ClientCertificateMode, ClientHeader, EscapedSlashes, HttpLimits, ListenerTls,
    Paths, Protocol, TlsVersion,
};
use ringmain_gateway::table::ConfigPart;

use super::{Builder, field_value, parsed_items, parsed_value, set_if_some, time_value};
use crate::config::document;
use crate::config::document::{Field, OneOrManyField};
use crate::config::fields::{OrderedMap, Parsed, Switch};
use crate::config::scalars::ByteSize;

/// Creates a listener with defaults for everything except name, addresses and protocol.
fn plain_listener(name: &str, addresses: Vec<Addr>, protocol: Protocol) -> model::Listener {
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
    pub(super) fn add_default_listener(&mut self, listen: OneOrManyField<Parsed<Addr>>) {
        let Some(position) = listen.as_ref().map(|at| at.position) else {
            return;
        };
        let addresses = parsed_items(listen);
        if !addresses.is_empty() {
            self.built
                .positions
                .insert(ConfigPart::Listener("default".into()), position);
            let listener = plain_listener("default", addresses, Protocol::Http);
            self.built.config.listeners.push(Arc::new(listener));
        }
    }

    pub(super) fn build_listeners(&mut self, listeners: OrderedMap<document::ListenerSection>) {
        self.for_each_part(
            listeners,
            ConfigPart::Listener,
            |builder, name, part, position| {
                let addresses = parsed_items(part.address);
                if addresses.is_empty() {
                    builder.errors.report(position, "the key `address`", "none");
                }
                let protocol = match field_value(part.protocol) {
                    Some(document::Protocol::Http) => Protocol::Http,
                    Some(document::Protocol::H2c) => Protocol::H2c,
                    Some(document::Protocol::Https) => Protocol::Https,
                    Some(document::Protocol::Tcp) => Protocol::Tcp,
                    Some(document::Protocol::Tls) => Protocol::Tls,
                    Some(document::Protocol::TlsPassthrough) => Protocol::TlsPassthrough,
                    Some(document::Protocol::Udp) => Protocol::Udp,
                    None if part.tls.is_some() => Protocol::Https,
                    None => Protocol::Http,
                };
                let mut listener = plain_listener(&name, addresses, protocol);
                listener.hostnames = parsed_items(part.hosts);
                listener.tls = field_value(part.tls).map(|tls| builder.build_listener_tls(tls));
                listener.proxy_protocol = field_value(part.proxy_protocol).map(|part| {
                    let mut proxy = model::ProxyProtocol {
                        from: parsed_items(part.from),
                        ..model::ProxyProtocol::default()
                    };
                    set_if_some(&mut proxy.timeout, time_value(part.timeout));
                    proxy
                });
                let redirect = field_value(part.redirect_to_https).and_then(Switch::settings);
                listener.redirect_to_https = redirect.map(|part| {
                    let mut redirect = model::HttpsRedirect::default();
                    set_if_some(&mut redirect.port, field_value(part.port));
                    set_if_some(&mut redirect.status, field_value(part.status));
                    redirect
                });
                if let Some(part) = field_value(part.client_address) {
                    listener.client_address = client_address(part);
                }
                set_if_some(&mut listener.paths.merge_slashes, field_value(part.merge_slashes));
                listener.paths.escaped_slashes =
                    field_value(part.escaped_slashes).map(|slashes| match slashes {
                        document::EscapedSlashes::Keep => EscapedSlashes::Keep,
                        document::EscapedSlashes::Decode => EscapedSlashes::Decode,
                        document::EscapedSlashes::Reject => EscapedSlashes::Reject,
                    });
                if let Some(part) = field_value(part.limits) {
                    builder.set_http_limits(&mut listener.limits, part);
                }
                builder.built.config.listeners.push(Arc::new(listener));
            },
        );
    }

    fn build_listener_tls(&self, part: document::ListenerTlsSection) -> ListenerTls {
        ListenerTls {
            certificates: self.resolve_names(part.certificates, &self.certificate_names, "a certificate"),
            clients: field_value(part.clients).map(|part| model::ClientCertificates {
                authorities: self.resolve_names(part.authorities, &self.authority_names, "authorities"),
                mode: match self.client_certificate_mode(part.mode) {
                    None | Some(document::ClientCertificateMode::Required) => ClientCertificateMode::Required,
                    Some(document::ClientCertificateMode::Optional) => ClientCertificateMode::Optional,
                    Some(document::ClientCertificateMode::Unchecked) => ClientCertificateMode::Unchecked,
                },
            }),
            minimum: parsed_value(part.minimum).unwrap_or(TlsVersion::Tls12),
        }
    }

    fn client_certificate_mode(
        &self,
        mode: Field<document::ClientCertificateMode>,
    ) -> Option<document::ClientCertificateMode> {
        let position = mode.as_ref().map(|at| at.position);
        let mode = field_value(mode);
        if let (Some(document::ClientCertificateMode::Unchecked), Some(position)) = (mode, position) {
            let text = "`mode: unchecked` admits every client, with any certificate or none; `required` and `optional` do not";
            self.errors.warn(position, text.to_owned());
        }
        mode
    }

    /// Sets a rate in bytes, at most the maximum of the model's type.
    pub(super) fn set_byte_rate(&self, target: &mut u32, at: Field<Parsed<ByteSize>>) {
        let Some(position) = at.as_ref().map(|at| at.position) else {
            return;
        };
        match parsed_value(at).map(|size| u32::try_from(size.0)) {
            Some(Ok(size)) => *target = size,
            Some(Err(_)) => self.errors.report(position, "a size below 4GiB", "a larger one"),
            None => {}
        }
    }

    fn set_http_limits(&self, limits: &mut HttpLimits, part: document::HttpLimitsSection) {
        for (target, at) in [
            (&mut limits.head_bytes, part.head),
            (&mut limits.rate_bytes, part.minimum_rate),
        ] {
            self.set_byte_rate(target, at);
        }
        set_if_some(&mut limits.headers, field_value(part.headers));
        set_if_some(&mut limits.head_timeout, time_value(part.head_timeout));
        set_if_some(&mut limits.keep_alive, time_value(part.keep_alive));
        limits.requests_per_connection = field_value(part.requests_per_connection);
    }
}

fn client_address(part: document::ClientAddressSection) -> ClientAddress {
    ClientAddress {
        trusted: parsed_items(part.trusted),
        header: match parsed_value(part.header) {
            None => ClientHeader::XForwardedFor,
            Some(name) if name.as_str().eq_ignore_ascii_case("x-forwarded-for") => {
                ClientHeader::XForwardedFor
            }
            Some(name) if name.as_str().eq_ignore_ascii_case("forwarded") => ClientHeader::Forwarded,
            Some(name) => ClientHeader::Named(name),
        },
        hops: field_value(part.hops),
    }
}
