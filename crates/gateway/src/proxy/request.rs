//! The request head for an upstream: written from the parsed parts, never copied.

use std::fmt::Write as _;
use std::net::IpAddr;

use ringmain_web::{Request, path};
use ringmain_wire::grpc::{ContentType, Dialect};
use ringmain_wire::h1::{BodyEncoder, FieldBlock, Framing, Known, Method, Misuse, RequestEncoder, Version};
use ringmain_wire::h2;
use ringmain_wire::ws::Challenge;

use super::grpc;
use super::hop_by_hop::{ConnectionOptions, FieldTreatment, ProxyField, eq_folded, treatment};
use super::path::{DecodedPath, forwarded_path, rest_after_prefix};
use super::request_body::UnsentRequest;
use super::trailers::TrailerFilter;
use crate::compile::plan::HeaderEdits;
use crate::fault::Fault;
use crate::gateway::scratch::WorkerScratch;
use crate::limits;
use crate::model::{ClientHeader, Hostname, Listener, PathRewrite, Rewrite};
use crate::policy::Cleared;
use crate::upstream::UpstreamEndpoint;
use crate::upstream::h2::H2Stream;
use crate::upstream::pool::UpstreamConn;

/// The protocol that HTTP/2 streams can switch to.
pub(super) const WEBSOCKET: &str = "websocket";

/// The sources of a head besides the request.
pub(super) struct UpstreamRequest<'a> {
    pub(super) listener: &'a Listener,
    pub(super) changes: &'a HeaderEdits,
    /// The result of the policies, with the fields that they add. The fields that they drop are among the changes.
    pub(super) cleared: &'a Cleared,
    pub(super) rule: &'a Rewrite,
    pub(super) backend: &'a Rewrite,
    /// Length of the rule's prefix in the normal path, bytes.
    pub(super) prefix: usize,
    /// The normal path, if it differs from the request's own.
    pub(super) decoded: DecodedPath,
    /// The protocol to offer in `Upgrade`.
    pub(super) upgrade: Option<&'a [u8]>,
    /// The key of a WebSocket that the client requests over HTTP/2, which has none of its own.
    pub(super) challenge: Option<Challenge>,
    /// Set if the client accepts trailers.
    pub(super) trailers: bool,
    /// The content type of a gRPC-Web request that is translated to gRPC.
    pub(super) grpc_web: Option<ContentType<'a>>,
}

/// The output of a head.
enum HeadWriter<'o> {
    /// An HTTP/1.1 head.
    Lines(RequestEncoder<'o>),
    /// HTTP/2 fields.
    Fields(&'o mut FieldBlock),
}

impl HeadWriter<'_> {
    fn write_field(&mut self, name: &str, value: &[u8]) -> Result<(), Misuse> {
        match self {
            HeadWriter::Lines(encoder) => encoder.field(name, value),
            HeadWriter::Fields(block) => block.push(name, value),
        }
    }

    fn write_block(&mut self, fields: &FieldBlock) {
        match self {
            HeadWriter::Lines(encoder) => encoder.block(fields),
            HeadWriter::Fields(block) => block.append(fields),
        }
    }

    fn accept_trailers(&mut self) -> Result<(), Misuse> {
        match self {
            HeadWriter::Lines(encoder) => {
                encoder.accept_trailers();
                Ok(())
            }
            // RFC 9113 §8.2.2: the only connection-specific field of HTTP/2.
            HeadWriter::Fields(block) => block.push("te", b"trailers"),
        }
    }
}

/// Appends a request's head to `scratch.out`.
pub(super) fn write_head(
    scratch: &mut WorkerScratch,
    req: &Request<'_>,
    endpoint: &UpstreamEndpoint,
    sending: &UpstreamRequest<'_>,
) -> Result<BodyEncoder, Fault> {
    let head = req.head();
    let WorkerScratch {
        out,
        text,
        path,
        host: target,
        ..
    } = scratch;
    write_rewritten_target(req, sending, path, target);
    let target = if target.is_empty() { req.target() } else { target };
    let host = authority(req, endpoint, sending);
    let encoder = RequestEncoder::new(out, head.method, target, host).map_err(encode_fault)?;
    let mut writer = HeadWriter::Lines(encoder);
    let framed = write_fields(&mut writer, req, sending, text)?;
    let HeadWriter::Lines(encoder) = writer else {
        return Err(Fault::BrokenRule);
    };
    let finished = match sending.upgrade {
        Some(protocol) => encoder.finish_with_upgrade(head.framing, protocol),
        None => encoder.finish(framed, true),
    };
    finished.map_err(encode_fault)
}

/// Writes a request's fields into `scratch.fields`, and its target into `scratch.host` (empty: the original target). Returns the framing of
/// its body and its authority.
pub(super) fn compose_head<'a>(
    scratch: &mut WorkerScratch,
    req: &'a Request<'_>,
    endpoint: &'a UpstreamEndpoint,
    sending: &UpstreamRequest<'a>,
) -> Result<(Framing, &'a str), Fault> {
    write_rewritten_target(req, sending, &mut scratch.path, &mut scratch.host);
    scratch.fields.clear();
    let framed = write_fields(
        &mut HeadWriter::Fields(&mut scratch.fields),
        req,
        sending,
        &mut scratch.text,
    )?;
    Ok((framed, authority(req, endpoint, sending)))
}

/// Returns whether a request is sent as an extended CONNECT on this stream: it opens a WebSocket, and the endpoint supports such requests
/// (RFC 8441). Otherwise it is sent without the switch of protocols, which HTTP/2 does not have.
pub(super) fn uses_extended_connect(
    req: &Request<'_>,
    sending: &UpstreamRequest<'_>,
    channel: &H2Stream,
) -> bool {
    let is_websocket = sending
        .upgrade
        .is_some_and(|protocol| protocol.eq_ignore_ascii_case(WEBSOCKET.as_bytes()));
    is_websocket
        && channel.supports_extended_connect()
        && (req.version() == Version::Http2 || Challenge::of(req.head()).is_some())
}

/// Sends a request's head on a connection. Returns the unsent part of the request. A connection that has just been closed is no error:
/// reading its response reports the precise fault.
///
/// # Errors
/// [`Fault::BrokenRule`] if the head cannot be written; nothing was sent. [`Fault::StreamRefused`] if the endpoint has lowered its limit of
/// streams.
pub(super) fn send_head(
    scratch: &mut WorkerScratch,
    req: &Request<'_>,
    endpoint: &UpstreamEndpoint,
    upstream_request: &UpstreamRequest<'_>,
    conn: &UpstreamConn,
) -> Result<UnsentRequest, Fault> {
    match conn {
        UpstreamConn::Http1(conn) => {
            scratch.out.clear();
            let encoder = write_head(scratch, req, endpoint, upstream_request)?;
            let _ = conn.stream.write_now(&scratch.out);
            scratch.out.clear();
            Ok(UnsentRequest::Http1(encoder))
        }
        UpstreamConn::H2(stream) => {
            let has_body = send_head_on_stream(scratch, req, endpoint, upstream_request, stream)?;
            Ok(if has_body {
                UnsentRequest::H2
            } else {
                UnsentRequest::Nothing
            })
        }
    }
}

/// Sends a request's head over HTTP/2. Returns whether a body follows.
fn send_head_on_stream(
    scratch: &mut WorkerScratch,
    req: &Request<'_>,
    endpoint: &UpstreamEndpoint,
    sending: &UpstreamRequest<'_>,
    channel: &H2Stream,
) -> Result<bool, Fault> {
    let (framed, authority) = compose_head(scratch, req, endpoint, sending)?;
    let host = if scratch.host.is_empty() {
        req.target()
    } else {
        &scratch.host
    };
    let connects = uses_extended_connect(req, sending, channel);
    if connects {
        // A stream has no key (RFC 8441 §5).
        scratch.fields.remove(Challenge::FIELD);
    }
    let request = h2::Request {
        method: if connects {
            Method::Connect
        } else {
            req.head().method
        },
        scheme: channel.scheme(),
        authority,
        path: host,
        protocol: connects.then_some(WEBSOCKET),
    };
    let length = match framed {
        Framing::Length(length) => Some(length),
        _ => None,
    };
    let bodiless = matches!(framed, Framing::None | Framing::Length(0));
    let end = bodiless && !connects;
    match channel.send_head(&request, &scratch.fields, length, end) {
        Ok(()) => Ok(!bodiless),
        // The limit was higher when this stream was chosen.
        Err(h2::Misuse::TooManyStreams) => Err(Fault::StreamRefused),
        Err(misuse) => {
            log::error!("a request's head cannot be sent over HTTP/2: {misuse}");
            Err(Fault::BrokenRule)
        }
    }
}

/// Writes the request target to `target`; empty: the original target.
fn write_rewritten_target(
    req: &Request<'_>,
    sending: &UpstreamRequest<'_>,
    scratch: &mut String,
    target: &mut String,
) {
    let edits = sending.cleared.edits();
    match edits.and_then(|edits| edits.target.as_deref()) {
        Some(edited) => edited.clone_into(target),
        None => write_target(req, sending, scratch, target),
    }
}

/// Returns the authority of the request.
fn authority<'a>(
    req: &'a Request<'_>,
    endpoint: &'a UpstreamEndpoint,
    sending: &UpstreamRequest<'a>,
) -> &'a str {
    let edits = sending.cleared.edits();
    let host_override = edits.and_then(|edits| edits.host.as_deref());
    let (backend, rule) = (sending.backend.host.as_ref(), sending.rule.host.as_ref());
    let rewritten = backend
        .map(Hostname::as_str)
        .or(sending.changes.host_override())
        .or(rule.map(Hostname::as_str));
    host_override
        .or(rewritten)
        .or_else(|| req.host())
        .unwrap_or(&endpoint.authority)
}

/// Writes all fields but those that frame the message. Returns the framing.
fn write_fields(
    encoder: &mut HeadWriter<'_>,
    req: &Request<'_>,
    sending: &UpstreamRequest<'_>,
    text: &mut Vec<u8>,
) -> Result<Framing, Fault> {
    let head = req.head();
    let edits = sending.cleared.edits();
    let trusted = is_trusted_peer(sending.listener, req);
    let mut claims = ProxyFields::default();
    let options = ConnectionOptions::parse(&head.fields)?;
    let own = match &sending.listener.client_address.header {
        ClientHeader::Named(name) => Some(name.as_str()),
        ClientHeader::XForwardedFor | ClientHeader::Forwarded => None,
    };
    let dropped = |name: &[u8]| {
        sending.changes.removes(name)
            || sending.cleared.has_replaced(name)
            || edits.is_some_and(|edits| edits.drops(name))
    };
    // Accepted from trusted proxies only, and only in this spelling.
    let is_forged = |name: &[u8]| {
        (sending.challenge.is_some() && Challenge::replaces(name))
            || own.is_some_and(|own| {
                eq_folded(name, own) && !(trusted && name.eq_ignore_ascii_case(own.as_bytes()))
            })
    };
    for (known, field) in head.fields.iter_known() {
        // Names are tokens, and so UTF-8.
        let Ok(name) = str::from_utf8(field.name) else {
            continue;
        };
        match treatment(known, field.name) {
            FieldTreatment::HopByHop => {}
            FieldTreatment::Proxy(claim) => {
                claims.record(claim);
                let is_appended = claim == ProxyField::Via
                    || (trusted && !matches!(claim, ProxyField::ForwardedFor | ProxyField::Forwarded));
                if is_appended && !dropped(field.name) {
                    encoder.write_field(name, field.value).map_err(encode_fault)?;
                }
            }
            FieldTreatment::EndToEnd
                if options.lists(known, field.name) || dropped(field.name) || is_forged(field.name) => {}
            FieldTreatment::EndToEnd if known == Some(Known::ContentType) && sending.grpc_web.is_some() => {}
            FieldTreatment::EndToEnd => encoder.write_field(name, field.value).map_err(encode_fault)?,
        }
    }
    claims.write(encoder, req, sending, trusted, text)?;
    write_added_fields(encoder, sending)?;
    let mut framed = edits.and_then(|edits| edits.framing).unwrap_or(head.framing);
    if let Some(kind) = sending.grpc_web {
        encoder
            .write_field("Content-Type", grpc::upstream_content_type(kind).as_bytes())
            .map_err(encode_fault)?;
        if kind.dialect == Dialect::WebText && framed != Framing::None {
            // The decoded body is shorter.
            framed = Framing::Chunked;
        }
    }
    // The upstream decides whether it wants the body (RFC 9110 §10.1.1), unless the client is sending it already.
    if head.expect_continue && framed != Framing::None && req.expects_continue() {
        encoder
            .write_field("Expect", b"100-continue")
            .map_err(encode_fault)?;
    }
    write_trailer_fields(encoder, req, sending, framed, text)?;
    Ok(request_framing(framed, req.method().as_str()))
}

/// Writes the fields that policies, the configuration and filters add, the latter with the highest precedence.
fn write_added_fields(encoder: &mut HeadWriter<'_>, sending: &UpstreamRequest<'_>) -> Result<(), Fault> {
    // Over HTTP/2 the upstream receives no WebSocket key: it responds to a GET.
    if let (Some(challenge), HeadWriter::Lines(lines)) = (&sending.challenge, &mut *encoder) {
        challenge.write_field(lines).map_err(encode_fault)?;
    }
    let Some(edits) = sending.cleared.edits() else {
        encoder.write_block(sending.cleared.upstream_headers());
        encoder.write_block(sending.changes.appended_fields());
        return Ok(());
    };
    for block in [
        sending.cleared.upstream_headers(),
        sending.changes.appended_fields(),
    ] {
        for (name, value) in edits.left(block) {
            encoder.write_field(name, value).map_err(encode_fault)?;
        }
    }
    encoder.write_block(edits.added());
    Ok(())
}

/// Writes `Trailer` and `TE`: the fields that follow the body, and the acceptance of trailers in the response.
fn write_trailer_fields(
    encoder: &mut HeadWriter<'_>,
    req: &Request<'_>,
    sending: &UpstreamRequest<'_>,
    framing: Framing,
    text: &mut Vec<u8>,
) -> Result<(), Fault> {
    let head = req.head();
    if framing == Framing::Chunked && head.fields.known(Known::Trailer).is_some() {
        TrailerFilter::for_head(&head.fields, sending.changes).write_announcement(&head.fields, text);
        if !text.is_empty() {
            encoder.write_field("Trailer", text).map_err(encode_fault)?;
        }
    }
    if sending.trailers || sending.grpc_web.is_some() {
        encoder.accept_trailers().map_err(encode_fault)?;
    }
    Ok(())
}

/// Returns the framing with an explicit empty body for methods that usually have content (RFC 9110 §8.6).
fn request_framing(framing: Framing, method: &str) -> Framing {
    match framing {
        Framing::None if matches!(method, "POST" | "PUT" | "PATCH") => Framing::Length(0),
        framing => framing,
    }
}

/// Converts an encoder error. Parsed fields are valid, and configured ones were checked when they were compiled.
#[cold]
fn encode_fault(misuse: Misuse) -> Fault {
    log::error!("a request's head cannot be written: {misuse}");
    Fault::BrokenRule
}

/// Writes the target to `target`, which stays empty if the original target is sent.
fn write_target(req: &Request<'_>, sending: &UpstreamRequest<'_>, scratch: &mut String, target: &mut String) {
    target.clear();
    let received = req.head().target;
    let raw = received.path();
    let rewrite = sending.backend.path.as_ref().or(sending.rule.path.as_ref());
    let decoded = sending.decoded.as_deref();
    let path = forwarded_path(sending.listener.paths, decoded, raw, scratch);
    let changed_query = sending.cleared.query();
    let is_unchanged = changed_query.is_none() && std::ptr::eq(path, raw);
    match rewrite {
        None if is_unchanged && req.target().starts_with('/') => return,
        None => target.push_str(path),
        Some(rewrite) => {
            let normal = decoded.unwrap_or_else(|| req.path());
            write_rewritten_path(rewrite, path, &normal[..sending.prefix], target);
        }
    }
    let query = match changed_query {
        Some(query) => Some(query).filter(|query| !query.is_empty()),
        None => received.query(),
    };
    if let Some(query) = query {
        target.push('?');
        target.push_str(query);
    }
}

/// Appends the replacement of `path`, a path whose normal form begins with `prefix`.
pub(super) fn write_rewritten_path(rewrite: &PathRewrite, path: &str, prefix: &str, out: &mut String) {
    match rewrite {
        PathRewrite::Full(full) => path::escape(full.as_str(), out),
        PathRewrite::Prefix(instead) => {
            let rest = rest_after_prefix(path, prefix);
            let instead = instead.as_str().trim_end_matches('/');
            path::escape(instead, out);
            out.push_str(if instead.is_empty() && rest.is_empty() {
                "/"
            } else {
                rest
            });
        }
    }
}

/// Returns whether the peer of a connection is a trusted proxy.
pub(crate) fn is_trusted_peer(listener: &Listener, req: &Request<'_>) -> bool {
    let trusted = &listener.client_address.trusted;
    let is_trusted = |peer: IpAddr| trusted.iter().any(|network| network.contains(peer));
    !trusted.is_empty() && req.remote().is_some_and(|remote| is_trusted(remote.ip()))
}

/// The fields of a request that describe its path through proxies.
#[derive(Default)]
struct ProxyFields {
    proto: bool,
    host: bool,
    forwarded: bool,
    via: bool,
}

impl ProxyFields {
    fn record(&mut self, claim: ProxyField) {
        match claim {
            ProxyField::ForwardedProto => self.proto = true,
            ProxyField::ForwardedHost => self.host = true,
            ProxyField::Forwarded => self.forwarded = true,
            ProxyField::Via => self.via = true,
            ProxyField::ForwardedFor | ProxyField::Other => {}
        }
    }

    /// Writes the fields that describe the client and its request. Values of the peer are included only if it is trusted.
    fn write(
        &self,
        encoder: &mut HeadWriter<'_>,
        req: &Request<'_>,
        sending: &UpstreamRequest<'_>,
        trusted: bool,
        text: &mut Vec<u8>,
    ) -> Result<(), Fault> {
        let fields = &req.head().fields;
        let mut field = |name: &str, value: &[u8]| {
            let edits = sending.cleared.edits();
            if sending.changes.removes(name.as_bytes())
                || edits.is_some_and(|edits| edits.drops(name.as_bytes()))
            {
                return Ok(());
            }
            encoder.write_field(name, value).map_err(encode_fault)
        };
        text.clear();
        if trusted {
            join_values(text, fields.all_known(Known::XForwardedFor));
        }
        if let Some(remote) = req.remote() {
            write_separator(text);
            write_address(text, remote.ip());
        }
        if !text.is_empty() {
            field("X-Forwarded-For", text)?;
        }
        if !(trusted && self.proto) {
            field("X-Forwarded-Proto", req.scheme().as_bytes())?;
        }
        if !(trusted && self.host)
            && let Some(host) = req.host()
        {
            field("X-Forwarded-Host", host.as_bytes())?;
        }
        let is_forwarded = sending.listener.client_address.header == ClientHeader::Forwarded;
        if is_forwarded || (trusted && self.forwarded) {
            text.clear();
            if trusted {
                join_values(text, fields.all("Forwarded"));
            }
            write_separator(text);
            write_forwarded(text, req);
            field("Forwarded", text)?;
        }
        if self.via && count_own_hops(fields.all_known(Known::Via)) > limits::VIA_HOPS {
            return Err(Fault::Loop);
        }
        field("Via", VIA)
    }
}

/// The gateway's entry in `Via` (RFC 9110 §7.6.3).
const VIA: &[u8] = b"1.1 ringmain";

fn count_own_hops<'v>(values: impl Iterator<Item = &'v [u8]>) -> usize {
    let hops = values.flat_map(|value| value.split(|&byte| byte == b','));
    hops.filter(|hop| hop.trim_ascii() == VIA).count()
}

fn join_values<'v>(text: &mut Vec<u8>, values: impl Iterator<Item = &'v [u8]>) {
    for value in values {
        write_separator(text);
        text.extend_from_slice(value);
    }
}

fn write_separator(text: &mut Vec<u8>) {
    if !text.is_empty() {
        text.extend_from_slice(b", ");
    }
}

/// Appends an address; IPv4 addresses, almost all, bypass the formatting machinery.
fn write_address(text: &mut Vec<u8>, address: IpAddr) {
    match address.to_canonical() {
        IpAddr::V4(address) => {
            for (index, octet) in address.octets().into_iter().enumerate() {
                if index > 0 {
                    text.push(b'.');
                }
                if octet >= 100 {
                    text.push(b'0' + octet / 100);
                }
                if octet >= 10 {
                    text.push(b'0' + octet / 10 % 10);
                }
                text.push(b'0' + octet % 10);
            }
        }
        IpAddr::V6(address) => {
            let mut writer = TextWriter(text);
            // Writing to memory cannot fail.
            let _ = write!(writer, "{address}");
        }
    }
}

struct TextWriter<'t>(&'t mut Vec<u8>);

impl std::fmt::Write for TextWriter<'_> {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        self.0.extend_from_slice(text.as_bytes());
        Ok(())
    }
}

/// Appends an element of `Forwarded` (RFC 7239 §4): client, scheme and host.
fn write_forwarded(text: &mut Vec<u8>, req: &Request<'_>) {
    text.extend_from_slice(b"for=");
    match req.remote().map(|remote| remote.ip().to_canonical()) {
        Some(address @ IpAddr::V4(_)) => write_address(text, address),
        Some(address @ IpAddr::V6(_)) => {
            text.extend_from_slice(b"\"[");
            write_address(text, address);
            text.extend_from_slice(b"]\"");
        }
        None => text.extend_from_slice(b"unknown"),
    }
    text.extend_from_slice(b";proto=");
    text.extend_from_slice(req.scheme().as_bytes());
    if let Some(host) = req.host() {
        // An authority has neither quotes nor backslashes.
        text.extend_from_slice(b";host=\"");
        text.extend_from_slice(host.as_bytes());
        text.push(b'"');
    }
}
