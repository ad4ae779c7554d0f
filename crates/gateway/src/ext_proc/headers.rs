//! The heads of an exchange, as a processor receives them.

use ringmain_web::Request;
use ringmain_wire::h1::{Framing, Known};

use super::messages::{HeaderMap, HeaderValue};
use crate::fault::Fault;
use crate::filter::{FilterError, FilterFault, RequestHead, ResponseHead};
use crate::policy::PolicyInput;
use crate::proxy::{
    ConnectionOptions, FieldTreatment, ProxyField, client_address, client_scheme, forwarded_uri,
    is_trusted_peer, treatment,
};

/// The parts of a request that its fields do not have, or that clients may forge.
pub(super) struct RequestOrigin {
    method: String,
    scheme: &'static str,
    host: String,
    uri: String,
    client: Option<String>,
    is_trusted: bool,
}

impl RequestOrigin {
    /// Returns those of a request. `query`: the one that policies have set in place of the client's.
    pub(super) fn new(at: &PolicyInput<'_, '_>, query: Option<&str>) -> RequestOrigin {
        let PolicyInput { route, req, .. } = *at;
        let mut uri = forwarded_uri(route, req);
        if let Some(query) = query {
            uri.truncate(uri.find('?').unwrap_or(uri.len()));
            if !query.is_empty() {
                uri.push('?');
                uri.push_str(query);
            }
        }
        RequestOrigin {
            method: req.method().as_str().to_owned(),
            scheme: client_scheme(route.listener, req),
            host: req.host().unwrap_or_default().to_owned(),
            uri,
            client: client_address(route.listener, req).map(|client| client.to_string()),
            is_trusted: is_trusted_peer(route.listener, req),
        }
    }

    /// Returns the head of a request as the upstream receives it: without fields of the connection, with those of the gateway in place of
    /// the client's.
    ///
    /// # Errors
    /// [`Fault::ConnectionOptions`]: `Connection` lists too many options.
    pub(super) fn request_headers(&self, head: &RequestHead<'_>) -> Result<HeaderMap, FilterError> {
        let req: &Request<'_> = head.about.req;
        let (target, host) = (head.edits.target.as_deref(), head.edits.host.as_deref());
        let mut headers = Vec::new();
        let mut add = |name: &str, value: &[u8]| headers.push(header(name, value));
        add(":method", self.method.as_bytes());
        add(":path", target.unwrap_or(&self.uri).as_bytes());
        add(":authority", host.unwrap_or(&self.host).as_bytes());
        add(":scheme", self.scheme.as_bytes());
        let options = ConnectionOptions::parse(&req.head().fields)
            .map_err(|fault: Fault| -> FilterError { Box::new(FilterFault(fault)) })?;
        for (name, value) in head.fields() {
            let known = Known::of(name.as_bytes());
            let is_forwarded = match treatment(known, name.as_bytes()) {
                FieldTreatment::EndToEnd => true,
                FieldTreatment::Proxy(ProxyField::Other | ProxyField::Via) => self.is_trusted,
                FieldTreatment::Proxy(_) | FieldTreatment::HopByHop => false,
            };
            if is_forwarded && !options.lists(known, name.as_bytes()) {
                add(name, value);
            }
        }
        if let Framing::Length(length) = req.head().framing {
            add("content-length", length.to_string().as_bytes());
        }
        add("x-forwarded-proto", self.scheme.as_bytes());
        add("x-forwarded-host", self.host.as_bytes());
        if let Some(client) = &self.client {
            add("x-forwarded-for", client.as_bytes());
        }
        Ok(HeaderMap { headers })
    }
}

/// Returns the head of a response.
pub(super) fn response_headers(head: &ResponseHead<'_>) -> HeaderMap {
    let status = header(":status", head.status().to_string().as_bytes());
    let fields = head.fields().map(|(name, value)| header(name, value));
    HeaderMap {
        headers: std::iter::once(status).chain(fields).collect(),
    }
}

fn header(name: &str, value: &[u8]) -> HeaderValue {
    HeaderValue {
        key: name.to_ascii_lowercase(),
        value: String::new(),
        raw_value: value.to_vec(),
    }
}
