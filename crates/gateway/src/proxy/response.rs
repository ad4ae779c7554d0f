//! The head of an upstream's response, and its form for the client.

use std::time::Duration;

use ringmain_web::{Reply, Request};
use ringmain_wire::grpc::Dialect;
use ringmain_wire::h1::{
    BodyDecoder, FieldBlock, Fields, Framing, HeadScanner, Known, Limits, Method, Parsed, ResponseHead,
    Version, parse_response,
};
use ringmain_wire::h2::load_response;
use ringmain_wire::ws::Challenge;

use super::Failure;
use super::body_decoder::ResponseDecoder;
use super::event_stream::{EventPosition, is_event_stream};
use super::grpc::{self, GrpcWebEncoder};
use super::hop_by_hop::{ConnectionOptions, list_elements, starts_with_folded};
use super::request::WEBSOCKET;
use super::trailers::TrailerFilter;
use crate::compile::plan::{HeaderEdits, StatusHeaderEdits};
use crate::fault::{Fault, Violation};
use crate::gateway::scratch::{DateCache, WorkerScratch};
use crate::limits;
use crate::model::{ErrorPage, StatusRange};
use crate::policy::{Cleared, HeaderChange};

/// The treatment of an upstream's response head, by the rule of its request.
pub(super) struct ResponseRules<'a> {
    /// Statuses after which the request is retried.
    pub(super) retry: &'a [StatusRange],
    /// Error pages that replace the upstream's responses.
    pub(super) pages: &'a [ErrorPage],
    /// The edits of the head; `None`: there are none.
    pub(super) edits: Option<&'a StatusHeaderEdits>,
    /// Length of the body in bytes, at most; `None`: unlimited.
    pub(super) body_limit: Option<u64>,
    /// The session cookie of affinity; often empty.
    pub(super) cookie: FieldBlock,
    /// The CORS fields, which replace the upstream's, if the rule has a CORS policy.
    cors: Option<&'a FieldBlock>,
    /// The fields of policies.
    policy_fields: &'a FieldBlock,
    /// Changes by policies, which apply to all of these.
    policy_changes: &'a [HeaderChange],
}

/// The treatment of a response that the client does not receive.
pub(super) enum SpecialTreatment {
    /// The request is retried.
    Retry,
    /// An error page replaces the response.
    Replace,
}

impl<'a> ResponseRules<'a> {
    /// Creates the treatment of a rule without retries, error pages, edits or a limit.
    pub(super) fn new(cors: Option<&'a FieldBlock>, cleared: &'a Cleared) -> ResponseRules<'a> {
        ResponseRules {
            retry: &[],
            pages: &[],
            edits: None,
            body_limit: None,
            cookie: FieldBlock::new(),
            cors,
            policy_fields: cleared.response_headers(),
            policy_changes: cleared.response_changes(),
        }
    }

    /// Returns the treatment of a response with this status, if the client does not receive it.
    pub(super) fn special(&self, status: u16) -> Option<SpecialTreatment> {
        if self.retry.iter().any(|range| range.contains(status)) {
            return Some(SpecialTreatment::Retry);
        }
        let replaced = self.pages.iter().any(|page| page.statuses.contains(status));
        replaced.then_some(SpecialTreatment::Replace)
    }

    /// Writes the fields of a response for the client: the upstream's with their edits, `Date`, and those that the gateway adds. `wall` is
    /// the time since the Unix epoch.
    ///
    /// # Errors
    /// [`Fault::GarbageHead`] if `Connection` has too many options, or a field does not fit.
    pub(super) fn write_fields(
        &self,
        head: &ResponseHead<'_>,
        fields: &mut FieldBlock,
        date: &mut DateCache,
        wall: Duration,
    ) -> Result<(), Failure> {
        let is_dated = self.copy_fields(head, fields)?;
        if !is_dated {
            date.add_date(wall, fields);
        }
        self.append_added(fields);
        Ok(())
    }

    /// Copies the upstream's fields with their edits. Returns whether `Date` needs no further treatment.
    fn copy_fields(&self, head: &ResponseHead<'_>, fields: &mut FieldBlock) -> Result<bool, Failure> {
        self.with_edits(head.status, |edits| {
            copy_fields(&head.fields, edits, self.cors.is_some(), fields)
        })
    }

    /// Calls `apply` with the edits of a response with this status.
    fn with_edits<T>(&self, status: u16, apply: impl FnOnce(&HeaderEdits) -> T) -> T {
        match self.edits {
            Some(edits) => apply(edits.edits_for(status)),
            None => apply(&HeaderEdits::default()),
        }
    }

    /// Appends the fields that the gateway adds.
    fn append_added(&self, fields: &mut FieldBlock) {
        for added in self.added() {
            fields.append(added);
        }
        self.policy_changes.iter().for_each(|change| change.apply(fields));
    }

    fn added(&self) -> impl Iterator<Item = &FieldBlock> {
        [Some(&self.cookie), self.cors, Some(self.policy_fields)]
            .into_iter()
            .flatten()
    }
}

/// A response head that is being read.
pub(super) struct ResponseReader<'m, 'a> {
    scanner: HeadScanner,
    method: Method<'m>,
    /// The protocols that the request offered in `Upgrade`.
    upgrade: Option<&'m [u8]>,
    /// The challenge that a switch to WebSocket must meet.
    challenge: Option<Challenge>,
    /// Set if the request was an extended CONNECT: a status of 200 to 299 switches protocols.
    pub(super) is_extended_connect: bool,
    /// The key of a client that speaks HTTP/1.1: the switch answers it.
    pub(super) key: Option<Challenge>,
    interim: u32,
    /// The upstream has sent `100 Continue` for a request that expects it.
    was_continued: bool,
    /// Set once a byte of a response has arrived.
    pub(super) has_started: bool,
    /// Set if the client accepts trailers.
    trailers: bool,
    pub(super) rules: ResponseRules<'a>,
    /// Set if filters process the head before it is put.
    pub(super) filtered: bool,
    /// The dialect of a gRPC-Web client whose upstream speaks gRPC.
    pub(super) grpc_web: Option<Dialect>,
    /// The rule that the upstream violated, after a fault.
    pub(super) detail: Option<Box<Violation>>,
}

/// The result of a complete head.
pub(super) enum ResponseStart {
    /// A body, possibly empty.
    Body {
        decoding: ResponseDecoder,
        keep_alive: bool,
        /// The filter of its trailers, if the client accepts any.
        trailer_filter: Option<TrailerFilter>,
        /// The framing for the client.
        framing: Framing,
        /// Set if it is gRPC for a gRPC-Web client.
        web: Option<GrpcWebEncoder>,
        /// Set if it is an event stream.
        events: Option<EventPosition>,
    },
    /// A switch of protocols.
    Upgrade,
    /// A status after which the request is retried. The head was not consumed, and the reply is unchanged.
    Retry(u16),
    /// A status that the rule has an error page for. The head was not consumed, and the reply is unchanged.
    ErrorPage(u16),
}

impl<'m, 'a> ResponseReader<'m, 'a> {
    pub(super) fn new(
        method: Method<'m>,
        upgrade: Option<&'m [u8]>,
        challenge: Option<Challenge>,
        trailers: bool,
        rules: ResponseRules<'a>,
    ) -> ResponseReader<'m, 'a> {
        ResponseReader {
            scanner: HeadScanner::new(),
            method,
            upgrade,
            challenge,
            is_extended_connect: false,
            key: None,
            interim: 0,
            was_continued: false,
            has_started: false,
            trailers,
            rules,
            filtered: false,
            grpc_web: None,
            detail: None,
        }
    }

    /// Reads received bytes. Returns the number consumed, and the head once it is complete; the reply has it then.
    pub(super) fn read_bytes(
        &mut self,
        bytes: &[u8],
        scratch: &mut WorkerScratch,
        reply: &mut Reply<'_>,
    ) -> (usize, Result<Option<ResponseStart>, Failure>) {
        self.has_started = true;
        let mut consumed = 0;
        loop {
            let WorkerScratch {
                limits,
                table,
                fields,
                text,
                date,
                ..
            } = scratch;
            let parsed = parse_response(&bytes[consumed..], self.method, limits, &mut self.scanner, table);
            let (head, length) = match parsed {
                Ok(Parsed::Complete { head, bytes }) => (head, bytes),
                Ok(Parsed::Partial) => return (consumed, Ok(None)),
                Err(fault) => {
                    self.detail = Some(Violation::from_http1(&fault));
                    let too_large = fault.status() == 431 || fault.status() == 414;
                    let fault = if too_large {
                        Fault::HeadTooLarge
                    } else {
                        Fault::GarbageHead
                    };
                    return (consumed, Err(fault.into()));
                }
            };
            if let Some(special) = self.special_treatment(head.status) {
                return (consumed, Ok(Some(special)));
            }
            consumed += length;
            match self.process_head(&head, limits, text, fields, date, reply) {
                Ok(None) => {}
                looked => return (consumed, looked),
            }
        }
    }

    /// Reads a head received over HTTP/2.
    pub(super) fn read_stored(
        &mut self,
        stored: &[u8],
        scratch: &mut WorkerScratch,
        reply: &mut Reply<'_>,
    ) -> Result<Option<ResponseStart>, Failure> {
        self.has_started = true;
        let WorkerScratch {
            limits,
            table,
            fields,
            text,
            date,
            ..
        } = scratch;
        let head = load_response(stored, table).ok_or(Fault::GarbageHead)?;
        match self.special_treatment(head.status) {
            Some(special) => Ok(Some(special)),
            None => self.process_head(&head, limits, text, fields, date, reply),
        }
    }

    /// Returns the result for a response with this status, if the client does not receive it.
    fn special_treatment(&self, status: u16) -> Option<ResponseStart> {
        Some(match self.rules.special(status)? {
            SpecialTreatment::Retry => ResponseStart::Retry(status),
            SpecialTreatment::Replace => ResponseStart::ErrorPage(status),
        })
    }

    /// Copies a final head to the reply, or relays an interim response.
    fn process_head(
        &mut self,
        head: &ResponseHead<'_>,
        limits: &Limits,
        text: &mut Vec<u8>,
        fields: &mut FieldBlock,
        date: &mut DateCache,
        reply: &mut Reply<'_>,
    ) -> Result<Option<ResponseStart>, Failure> {
        if !head.is_interim() {
            return self.copy_head(head, limits, text, date, reply).map(Some);
        }
        self.interim += 1;
        if self.interim > limits::INTERIM_ANSWERS {
            self.detail = Some(Violation::interim());
            return Err(Fault::GarbageHead.into());
        }
        self.was_continued |= head.status == 100;
        // A client that does not expect 100 received it when its body was requested.
        if head.status != 100 || reply.request().expects_continue() {
            fields.clear();
            copy_fields(&head.fields, &HeaderEdits::default(), false, fields)?;
            reply.send_interim(head.status, fields)?;
        }
        Ok(None)
    }

    /// Returns whether the upstream might read the body of this request as the next request: it received `Expect: 100-continue` and sent
    /// a final response without `100 Continue`, but the client may send the body nevertheless (RFC 9110 §10.1.1).
    fn may_leave_unread_body(&self, request: &Request<'_>) -> bool {
        let head = request.head();
        head.expect_continue && head.framing != Framing::None && !self.was_continued
    }

    fn copy_head(
        &mut self,
        head: &ResponseHead<'_>,
        limits: &Limits,
        text: &mut Vec<u8>,
        date: &mut DateCache,
        reply: &mut Reply<'_>,
    ) -> Result<ResponseStart, Failure> {
        if head.switches {
            return self.switch_protocols(head, reply);
        }
        if self.is_extended_connect && (200..300).contains(&head.status) {
            return self.switch_client(head, WEBSOCKET.as_bytes(), reply);
        }
        let body_limit = self.rules.body_limit;
        let limits = Limits {
            body_bytes: body_limit,
            ..*limits
        };
        let decoding = match head.version {
            Version::Http2 => ResponseDecoder::from_framing(head.framing, body_limit)?,
            _ => ResponseDecoder::Http1(
                BodyDecoder::new(head.framing, &limits).map_err(|_| Fault::ResponseTooLarge)?,
            ),
        };
        let wall = reply.request().cx().wall();
        let fields = reply.forward(head.status)?;
        let written = self.rules.write_fields(head, fields, date, wall);
        if written.is_err() {
            let text = format!(
                "expected at most {} options of `Connection`",
                limits::CONNECTION_OPTIONS
            );
            self.detail = Some(Violation::new("ConnectionOptions", text));
        }
        written?;
        let web = self
            .grpc_web
            .and_then(|dialect| grpc_web_encoder(dialect, head, fields));
        let may_follow = self.trailers && head.framing == Framing::Chunked;
        let trailer_filter = may_follow || web.is_some();
        let trailer_filter = trailer_filter.then(|| {
            self.rules
                .with_edits(head.status, |edits| TrailerFilter::for_head(&head.fields, edits))
        });
        if let Some(trailer_filter) = trailer_filter.as_ref().filter(|_| web.is_none()) {
            trailer_filter.write_announcement(&head.fields, text);
            if !text.is_empty() {
                fields.push("Trailer", text).map_err(|_| Fault::GarbageHead)?;
            }
        }
        let framing = match web {
            // The trailers are part of the body.
            Some(_) => Framing::Chunked,
            None => client_framing(head, self.method == Method::Head),
        };
        if !self.filtered {
            reply.write_head_buffered(framing)?;
        }
        Ok(ResponseStart::Body {
            framing,
            decoding,
            keep_alive: head.keep_alive && !self.may_leave_unread_body(reply.request()),
            trailer_filter,
            web,
            events: is_event_stream(head).then(EventPosition::default),
        })
    }

    /// Processes a 101: it must be for a protocol that the request offered (RFC 9110 §7.8).
    fn switch_protocols(
        &mut self,
        head: &ResponseHead<'_>,
        reply: &mut Reply<'_>,
    ) -> Result<ResponseStart, Failure> {
        let upgrade = self.upgrade.filter(|_| head.status == 101);
        let upgrade = upgrade.ok_or(Fault::SwitchUnasked)?;
        let Some(protocol) = head.fields.known(Known::Upgrade) else {
            return Err(self.protocol_violation(
                "UpgradeMissing",
                "expected `Upgrade` in a response 101; found none",
            ));
        };
        if !is_offered(protocol, upgrade) {
            return Err(Fault::SwitchUnasked.into());
        }
        if self.challenge.is_some_and(|challenge| !challenge.is_met(head)) {
            let text = "expected the `Sec-WebSocket-Accept` that belongs to the request's key";
            return Err(self.protocol_violation("WebSocketAccept", text));
        }
        self.switch_client(head, protocol, reply)
    }

    #[cold]
    fn protocol_violation(&mut self, rule: &str, text: &str) -> Failure {
        self.detail = Some(Violation::new(rule, text.to_owned()));
        Fault::GarbageHead.into()
    }

    /// Switches the client's connection to the protocol.
    fn switch_client(
        &self,
        head: &ResponseHead<'_>,
        protocol: &[u8],
        reply: &mut Reply<'_>,
    ) -> Result<ResponseStart, Failure> {
        let mut fields = FieldBlock::new();
        self.rules.copy_fields(head, &mut fields)?;
        if let Some(key) = self.key {
            key.answer(&mut fields).map_err(|_| Fault::BrokenRule)?;
        }
        // The reply has these fields already, since the response might have had another outcome.
        let added = self
            .rules
            .added()
            .flat_map(FieldBlock::iter)
            .map(|(name, _)| name);
        let changed = self.rules.policy_changes.iter().map(|change| &*change.name);
        for name in added.chain(changed) {
            reply.remove_header(name);
        }
        self.rules.append_added(&mut fields);
        reply.add_headers(&fields).start_tunnel(protocol)?;
        Ok(ResponseStart::Upgrade)
    }
}

/// Returns the translation of a gRPC response for a client, and replaces its content type.
fn grpc_web_encoder(
    dialect: Dialect,
    head: &ResponseHead<'_>,
    fields: &mut FieldBlock,
) -> Option<GrpcWebEncoder> {
    let content_type = head.fields.known(Known::ContentType)?;
    let kind = grpc::client_content_type(dialect, content_type)?;
    fields.remove("Content-Type");
    let pushed = fields.push("Content-Type", kind.as_bytes());
    // A response without a body has its trailers in the head.
    let has_body = pushed.is_ok() && head.framing != Framing::None;
    has_body.then_some(GrpcWebEncoder { dialect })
}

/// Returns the framing for the client: responses to HEAD and 304 have no body and may declare its length.
pub(super) fn client_framing(head: &ResponseHead<'_>, to_head: bool) -> Framing {
    if head.framing != Framing::None || !(to_head || head.status == 304) {
        // Over HTTP/2 an empty body need not be declared.
        let is_empty = head.version == Version::Http2 && head.framing == Framing::None && head.status != 204;
        return if is_empty {
            Framing::Length(0)
        } else {
            head.framing
        };
    }
    let length = head.fields.known(Known::ContentLength);
    // Valid, since it was parsed with the head.
    let length = length.and_then(|value| str::from_utf8(value).ok()?.parse().ok());
    length.map_or(Framing::None, Framing::Length)
}

/// Returns whether a protocol is among those offered (RFC 9110 §7.8), version included, ignoring case.
fn is_offered(protocol: &[u8], upgrade: &[u8]) -> bool {
    let mut options = list_elements(upgrade);
    options.any(|offer| offer.eq_ignore_ascii_case(protocol.trim_ascii()))
}

/// Copies the fields to forward. Returns whether `Date` needs no further treatment: it is present, or the rule changes it.
fn copy_fields(
    from: &Fields<'_>,
    changes: &HeaderEdits,
    has_cors: bool,
    out: &mut FieldBlock,
) -> Result<bool, Failure> {
    let options = ConnectionOptions::parse(from).map_err(|_| Fault::GarbageHead)?;
    let mut is_dated = false;
    for (known, field) in from.iter_known() {
        is_dated |= known == Some(Known::Date);
        let hop = match known {
            Some(
                Known::Connection
                | Known::ContentLength
                | Known::Host
                | Known::KeepAlive
                | Known::Te
                | Known::Trailer
                | Known::TransferEncoding
                | Known::Upgrade,
            ) => true,
            Some(_) => false,
            None => {
                field.name.eq_ignore_ascii_case(b"proxy-connection")
                    || (has_cors && starts_with_folded(field.name, "access-control-"))
            }
        };
        if hop || options.lists(known, field.name) || changes.removes(field.name) {
            continue;
        }
        // Names are tokens, and so UTF-8.
        let Ok(name) = str::from_utf8(field.name) else {
            continue;
        };
        out.push(name, field.value).map_err(|_| Fault::GarbageHead)?;
    }
    out.append(changes.appended_fields());
    Ok(is_dated || changes.touches_date())
}
