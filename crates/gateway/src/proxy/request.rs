//! The request head for an upstream: written from the parsed parts, never copied.

use std::fmt::Write as _;
use std::net::IpAddr;

use ringmain_web::{Request, path};
use ringmain_wire::grpc::{ContentType, Dialect};
use ringmain_wire::h1::{BodyEncoder, FieldBlock, Framing, Known, Method, Misuse, RequestEncoder, Version};
use ringmain_wire::h2;
use ringmain_wire::ws::Challenge;

use super::grpc;
use super::hop_by_hop::{Claim, Named, Sort, is_folded, sort};
use super::path::{Decoded, behind, forwarded};
use super::trailers::Sieve;
use crate::compile::plan::Changes;
use crate::fault::Fault;
use crate::gateway::scratch::Desk;
use crate::limits;
use crate::model::{ClientHeader, Hostname, Listener, PathRewrite, Rewrite};
use crate::policy::Cleared;
use crate::upstream::Endpoint;
use crate::upstream::h2::H2Stream;

/// The protocol that HTTP/2 streams can switch to.
pub(super) const WEBSOCKET: &str = "websocket";

/// The sources of a head besides the request.
pub(super) struct Sending<'a> {
    pub(super) listener: &'a Listener,
    pub(super) changes: &'a Changes,
    /// The result of the policies, with the fields that they add. The fields that they drop are among the changes.
    pub(super) cleared: &'a Cleared,
    pub(super) rule: &'a Rewrite,
    pub(super) backend: &'a Rewrite,
    /// Length of the rule's prefix in the normal path, bytes.
    pub(super) prefix: usize,
    /// The normal path, if it differs from the request's own.
    pub(super) decoded: Decoded,
    /// The protocol to offer in `Upgrade`.
    pub(super) upgrade: Option<&'a [u8]>,
    /// The key of a WebSocket that the client requests over HTTP/2, which has none of its own.
    pub(super) challenge: Option<Challenge>,
    /// Set if the client accepts trailers.
    pub(super) trailers: bool,
    /// The content type of a gRPC-Web request that is translated to gRPC.
    pub(super) web: Option<ContentType<'a>>,
}

/// The output of a head.
enum Writer<'o> {
    /// An HTTP/1.1 head.
    Lines(RequestEncoder<'o>),
    /// HTTP/2 fields.
    Fields(&'o mut FieldBlock),
}

impl Writer<'_> {
    fn field(&mut self, name: &str, value: &[u8]) -> Result<(), Misuse> {
        match self {
            Writer::Lines(encoder) => encoder.field(name, value),
            Writer::Fields(block) => block.push(name, value),
        }
    }

    fn block(&mut self, fields: &FieldBlock) {
        match self {
            Writer::Lines(encoder) => encoder.block(fields),
            Writer::Fields(block) => block.append(fields),
        }
    }

    fn accept_trailers(&mut self) -> Result<(), Misuse> {
        match self {
            Writer::Lines(encoder) => {
                encoder.accept_trailers();
                Ok(())
            }
            // RFC 9113 §8.2.2: the only connection-specific field of HTTP/2.
            Writer::Fields(block) => block.push("te", b"trailers"),
        }
    }
}

/// Appends a request's head to `desk.out`.
pub(super) fn write(
    desk: &mut Desk,
    req: &Request<'_>,
    endpoint: &Endpoint,
    sending: &Sending<'_>,
) -> Result<BodyEncoder, Fault> {
    let head = req.head();
    let Desk {
        out,
        text,
        path,
        host: target,
        ..
    } = desk;
    aimed(req, sending, path, target);
    let target = if target.is_empty() { req.target() } else { target };
    let host = host(req, endpoint, sending);
    let encoder = RequestEncoder::new(out, head.method, target, host).map_err(misuse)?;
    let mut writer = Writer::Lines(encoder);
    let framed = fields(&mut writer, req, sending, text)?;
    let Writer::Lines(encoder) = writer else {
        return Err(Fault::BrokenRule);
    };
    let finished = match sending.upgrade {
        Some(protocol) => encoder.finish_with_upgrade(head.framing, protocol),
        None => encoder.finish(framed, true),
    };
    finished.map_err(misuse)
}

/// Writes a request's fields into `desk.fields`, and its target into `desk.host` (empty: the original target). Returns the framing of its
/// body and its authority.
pub(super) fn compose<'a>(
    desk: &mut Desk,
    req: &'a Request<'_>,
    endpoint: &'a Endpoint,
    sending: &Sending<'a>,
) -> Result<(Framing, &'a str), Fault> {
    aimed(req, sending, &mut desk.path, &mut desk.host);
    desk.fields.clear();
    let framed = fields(
        &mut Writer::Fields(&mut desk.fields),
        req,
        sending,
        &mut desk.text,
    )?;
    Ok((framed, host(req, endpoint, sending)))
}

/// Returns whether a request is sent as an extended CONNECT on this stream: it opens a WebSocket, and the endpoint supports such requests
/// (RFC 8441). Otherwise it is sent without the switch of protocols, which HTTP/2 does not have.
pub(super) fn connects(req: &Request<'_>, sending: &Sending<'_>, channel: &H2Stream) -> bool {
    let is_websocket = sending
        .upgrade
        .is_some_and(|protocol| protocol.eq_ignore_ascii_case(WEBSOCKET.as_bytes()));
    is_websocket
        && channel.supports_extended_connect()
        && (req.version() == Version::Http2 || Challenge::of(req.head()).is_some())
}

/// Sends a request's head over HTTP/2. Returns whether a body follows.
pub(super) fn ask(
    desk: &mut Desk,
    req: &Request<'_>,
    endpoint: &Endpoint,
    sending: &Sending<'_>,
    channel: &H2Stream,
) -> Result<bool, Fault> {
    let (framed, authority) = compose(desk, req, endpoint, sending)?;
    let asked = if desk.host.is_empty() {
        req.target()
    } else {
        &desk.host
    };
    let connects = connects(req, sending, channel);
    if connects {
        // A stream has no key (RFC 8441 §5).
        desk.fields.remove(Challenge::FIELD);
    }
    let request = h2::Request {
        method: if connects {
            Method::Connect
        } else {
            req.head().method
        },
        scheme: channel.scheme(),
        authority,
        path: asked,
        protocol: connects.then_some(WEBSOCKET),
    };
    let length = match framed {
        Framing::Length(length) => Some(length),
        _ => None,
    };
    let bodiless = matches!(framed, Framing::None | Framing::Length(0));
    let end = bodiless && !connects;
    match channel.send_head(&request, &desk.fields, length, end) {
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
fn aimed(req: &Request<'_>, sending: &Sending<'_>, scratch: &mut String, target: &mut String) {
    let edits = sending.cleared.edits();
    match edits.and_then(|edits| edits.target.as_deref()) {
        Some(edited) => edited.clone_into(target),
        None => target_of(req, sending, scratch, target),
    }
}

/// Returns the authority of the request.
fn host<'a>(req: &'a Request<'_>, endpoint: &'a Endpoint, sending: &Sending<'a>) -> &'a str {
    let edits = sending.cleared.edits();
    let told = edits.and_then(|edits| edits.host.as_deref());
    let (backend, rule) = (sending.backend.host.as_ref(), sending.rule.host.as_ref());
    let rewritten = backend
        .map(Hostname::as_str)
        .or(sending.changes.host())
        .or(rule.map(Hostname::as_str));
    told.or(rewritten)
        .or_else(|| req.host())
        .unwrap_or(&endpoint.authority)
}

/// Writes all fields but those that frame the message. Returns the framing.
fn fields(
    encoder: &mut Writer<'_>,
    req: &Request<'_>,
    sending: &Sending<'_>,
    text: &mut Vec<u8>,
) -> Result<Framing, Fault> {
    let head = req.head();
    let edits = sending.cleared.edits();
    let trusted = trusts(sending.listener, req);
    let mut claims = Claims::default();
    let named = Named::of(&head.fields)?;
    let own = match &sending.listener.client_address.header {
        ClientHeader::Named(name) => Some(name.as_str()),
        ClientHeader::XForwardedFor | ClientHeader::Forwarded => None,
    };
    let dropped = |name: &[u8]| {
        sending.changes.drops(name)
            || sending.cleared.replaces(name)
            || edits.is_some_and(|edits| edits.drops(name))
    };
    // Accepted from trusted proxies only, and only in this spelling.
    let forged = |name: &[u8]| {
        (sending.challenge.is_some() && Challenge::replaces(name))
            || own.is_some_and(|own| {
                is_folded(name, own) && !(trusted && name.eq_ignore_ascii_case(own.as_bytes()))
            })
    };
    for (known, field) in head.fields.iter_known() {
        // Names are tokens, and so UTF-8.
        let Ok(name) = str::from_utf8(field.name) else {
            continue;
        };
        match sort(known, field.name) {
            Sort::HopByHop => {}
            Sort::Claim(claim) => {
                claims.see(claim);
                let kept = claim == Claim::Via
                    || (trusted && !matches!(claim, Claim::ForwardedFor | Claim::Forwarded));
                if kept && !dropped(field.name) {
                    encoder.field(name, field.value).map_err(misuse)?;
                }
            }
            Sort::EndToEnd if named.has(known, field.name) || dropped(field.name) || forged(field.name) => {}
            Sort::EndToEnd if known == Some(Known::ContentType) && sending.web.is_some() => {}
            Sort::EndToEnd => encoder.field(name, field.value).map_err(misuse)?,
        }
    }
    claims.write(encoder, req, sending, trusted, text)?;
    added(encoder, sending)?;
    let mut framed = edits.and_then(|edits| edits.framing).unwrap_or(head.framing);
    if let Some(kind) = sending.web {
        encoder
            .field("Content-Type", grpc::upstream_type(kind).as_bytes())
            .map_err(misuse)?;
        if kind.dialect == Dialect::WebText && framed != Framing::None {
            // The decoded body is shorter.
            framed = Framing::Chunked;
        }
    }
    // The upstream decides whether it wants the body (RFC 9110 §10.1.1), unless the client is sending it already.
    if head.expect_continue && framed != Framing::None && req.expects_continue() {
        encoder.field("Expect", b"100-continue").map_err(misuse)?;
    }
    trailers(encoder, req, sending, (framed, text))?;
    Ok(framing(framed, req.method().as_str()))
}

/// Writes the fields that policies, the configuration and filters add, the latter with the highest precedence.
fn added(encoder: &mut Writer<'_>, sending: &Sending<'_>) -> Result<(), Fault> {
    // Over HTTP/2 the upstream receives no WebSocket key: it responds to a GET.
    if let (Some(challenge), Writer::Lines(lines)) = (&sending.challenge, &mut *encoder) {
        challenge.write_field(lines).map_err(misuse)?;
    }
    let Some(edits) = sending.cleared.edits() else {
        encoder.block(sending.cleared.upstream());
        encoder.block(sending.changes.added());
        return Ok(());
    };
    for block in [sending.cleared.upstream(), sending.changes.added()] {
        for (name, value) in edits.left(block) {
            encoder.field(name, value).map_err(misuse)?;
        }
    }
    encoder.block(edits.added());
    Ok(())
}

/// Writes `Trailer` and `TE`: the fields that follow the body, and the acceptance of trailers in the response.
fn trailers(
    encoder: &mut Writer<'_>,
    req: &Request<'_>,
    sending: &Sending<'_>,
    (framing, text): (Framing, &mut Vec<u8>),
) -> Result<(), Fault> {
    let head = req.head();
    if framing == Framing::Chunked && head.fields.known(Known::Trailer).is_some() {
        Sieve::of(&head.fields, sending.changes).announce(&head.fields, text);
        if !text.is_empty() {
            encoder.field("Trailer", text).map_err(misuse)?;
        }
    }
    if sending.trailers || sending.web.is_some() {
        encoder.accept_trailers().map_err(misuse)?;
    }
    Ok(())
}

/// Returns the framing with an explicit empty body for methods that usually have content (RFC 9110 §8.6).
fn framing(framing: Framing, method: &str) -> Framing {
    match framing {
        Framing::None if matches!(method, "POST" | "PUT" | "PATCH") => Framing::Length(0),
        framing => framing,
    }
}

/// Converts an encoder error. Parsed fields are valid, and configured ones were checked when they were compiled.
#[cold]
fn misuse(misuse: Misuse) -> Fault {
    log::error!("a request's head cannot be written: {misuse}");
    Fault::BrokenRule
}

/// Writes the target to `target`, which stays empty if the original target is sent.
fn target_of(req: &Request<'_>, sending: &Sending<'_>, scratch: &mut String, target: &mut String) {
    target.clear();
    let came = req.head().target;
    let raw = came.path();
    let rewrite = sending.backend.path.as_ref().or(sending.rule.path.as_ref());
    let decoded = sending.decoded.as_deref();
    let passed = forwarded(sending.listener.paths, decoded, raw, scratch);
    match rewrite {
        None if std::ptr::eq(passed, raw) && req.target().starts_with('/') => return,
        None => target.push_str(passed),
        Some(rewrite) => {
            let normal = decoded.unwrap_or_else(|| req.path());
            rewritten(rewrite, passed, &normal[..sending.prefix], target);
        }
    }
    if let Some(query) = came.query() {
        target.push('?');
        target.push_str(query);
    }
}

/// Appends the replacement of `passed`, a path whose normal form begins with `prefix`.
pub(super) fn rewritten(rewrite: &PathRewrite, passed: &str, prefix: &str, into: &mut String) {
    match rewrite {
        PathRewrite::Full(full) => path::escape(full.as_str(), into),
        PathRewrite::Prefix(instead) => {
            let rest = behind(passed, prefix);
            let instead = instead.as_str().trim_end_matches('/');
            path::escape(instead, into);
            into.push_str(if instead.is_empty() && rest.is_empty() {
                "/"
            } else {
                rest
            });
        }
    }
}

/// Returns whether the peer of a connection is a trusted proxy.
pub(super) fn trusts(listener: &Listener, req: &Request<'_>) -> bool {
    let trusted = &listener.client_address.trusted;
    let is_trusted = |peer: IpAddr| trusted.iter().any(|network| network.contains(peer));
    !trusted.is_empty() && req.remote().is_some_and(|remote| is_trusted(remote.ip()))
}

/// The fields of a request that describe its path through proxies.
#[derive(Default)]
struct Claims {
    proto: bool,
    host: bool,
    forwarded: bool,
    via: bool,
}

impl Claims {
    fn see(&mut self, claim: Claim) {
        match claim {
            Claim::ForwardedProto => self.proto = true,
            Claim::ForwardedHost => self.host = true,
            Claim::Forwarded => self.forwarded = true,
            Claim::Via => self.via = true,
            Claim::ForwardedFor | Claim::Other => {}
        }
    }

    /// Writes the fields that describe the client and its request. Values of the peer are included only if it is trusted.
    fn write(
        &self,
        encoder: &mut Writer<'_>,
        req: &Request<'_>,
        sending: &Sending<'_>,
        trusted: bool,
        text: &mut Vec<u8>,
    ) -> Result<(), Fault> {
        let fields = &req.head().fields;
        let mut field = |name: &str, value: &[u8]| {
            let edits = sending.cleared.edits();
            if sending.changes.drops(name.as_bytes())
                || edits.is_some_and(|edits| edits.drops(name.as_bytes()))
            {
                return Ok(());
            }
            encoder.field(name, value).map_err(misuse)
        };
        text.clear();
        if trusted {
            join(text, fields.all_known(Known::XForwardedFor));
        }
        if let Some(remote) = req.remote() {
            separate(text);
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
        let wanted = sending.listener.client_address.header == ClientHeader::Forwarded;
        if wanted || (trusted && self.forwarded) {
            text.clear();
            if trusted {
                join(text, fields.all("Forwarded"));
            }
            separate(text);
            write_forwarded(text, req);
            field("Forwarded", text)?;
        }
        if self.via && own_hops(fields.all_known(Known::Via)) > limits::VIA_HOPS {
            return Err(Fault::Loop);
        }
        field("Via", VIA)
    }
}

/// The gateway's entry in `Via` (RFC 9110 §7.6.3).
const VIA: &[u8] = b"1.1 ringmain";

fn own_hops<'v>(values: impl Iterator<Item = &'v [u8]>) -> usize {
    let hops = values.flat_map(|value| value.split(|&byte| byte == b','));
    hops.filter(|hop| hop.trim_ascii() == VIA).count()
}

fn join<'v>(text: &mut Vec<u8>, values: impl Iterator<Item = &'v [u8]>) {
    for value in values {
        separate(text);
        text.extend_from_slice(value);
    }
}

fn separate(text: &mut Vec<u8>) {
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
            let mut shown = Shown(text);
            // Writing to memory cannot fail.
            let _ = write!(shown, "{address}");
        }
    }
}

struct Shown<'t>(&'t mut Vec<u8>);

impl std::fmt::Write for Shown<'_> {
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
