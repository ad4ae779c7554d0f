//! The head of an upstream's answer, as the client is told it.

use ringmain_web::Reply;
use ringmain_wire::h1::{
    BodyDecoder, FieldBlock, Fields, Framing, HeadScanner, Known, Limits, Method, Parsed, ResponseHead,
    parse_response,
};
use ringmain_wire::ws::Challenge;

use super::Failure;
use super::fields::{Named, options, starts_folded};
use super::trailers::Sieve;
use crate::desk::Desk;
use crate::fault::Fault;
use crate::limits;
use crate::model::{ErrorPage, StatusRange};
use crate::plan::Changes;

/// Reads the answer's head.
pub(super) struct Reading<'m, 'a> {
    scanner: HeadScanner,
    method: Method<'m>,
    /// The protocols that a switch was offered to.
    upgrade: Option<&'m [u8]>,
    /// What a switch is to answer.
    challenge: Option<Challenge>,
    interim: u32,
    /// Whether anything of an answer has come.
    pub(super) begun: bool,
    /// The client reads trailers.
    trailers: bool,
    /// Fields of our own.
    pub(super) extra: FieldBlock,
    /// The rule says which other origins may read the answer: the upstream does not.
    pub(super) cross: bool,
    /// Statuses after which the request is tried again.
    pub(super) again: &'a [StatusRange],
    /// What is answered in place of the upstream's errors.
    pub(super) pages: &'a [ErrorPage],
    /// Filters are to see the head before it is put.
    pub(super) filtered: bool,
}

/// What a whole head says about what follows.
pub(super) enum Head {
    /// A body, perhaps none.
    Body {
        decoder: BodyDecoder,
        keep_alive: bool,
        /// What of its trailers goes further, if the client reads any.
        sieve: Option<Sieve>,
        /// What the client is told of it.
        framing: Framing,
    },
    /// Anything: protocols were switched.
    Switch,
    /// A status after which the request is to be tried again. The head was not consumed, and the reply has nothing of it.
    Again(u16),
    /// A status that the rule has a page for. Neither was anything of this one.
    Replaced(u16),
}

impl<'m, 'a> Reading<'m, 'a> {
    pub(super) fn new(
        method: Method<'m>,
        (upgrade, challenge): (Option<&'m [u8]>, Option<Challenge>),
        trailers: bool,
    ) -> Reading<'m, 'a> {
        Reading {
            scanner: HeadScanner::new(),
            method,
            upgrade,
            challenge,
            interim: 0,
            begun: false,
            trailers,
            extra: FieldBlock::new(),
            cross: false,
            again: &[],
            pages: &[],
            filtered: false,
        }
    }

    /// Looks at received bytes: how many were consumed, and the head if it is whole. The reply has it then.
    pub(super) fn look(
        &mut self,
        bytes: &[u8],
        desk: &mut Desk,
        changes: &Changes,
        most: Option<u64>,
        reply: &mut Reply<'_>,
    ) -> (usize, Result<Option<Head>, Failure>) {
        self.begun = true;
        let mut consumed = 0;
        loop {
            let Desk {
                limits,
                table,
                fields,
                text,
                ..
            } = desk;
            let parsed = parse_response(&bytes[consumed..], self.method, limits, &mut self.scanner, table);
            let (head, length) = match parsed {
                Ok(Parsed::Complete { head, bytes }) => (head, bytes),
                Ok(Parsed::Partial) => return (consumed, Ok(None)),
                Err(fault) => {
                    let too_large = fault.status() == 431 || fault.status() == 414;
                    let fault = if too_large {
                        Fault::HeadTooLarge
                    } else {
                        Fault::GarbageHead
                    };
                    return (consumed, Err(fault.into()));
                }
            };
            if self.again.iter().any(|range| range.contains(head.status)) {
                return (consumed, Ok(Some(Head::Again(head.status))));
            }
            if self.pages.iter().any(|page| page.statuses.contains(head.status)) {
                return (consumed, Ok(Some(Head::Replaced(head.status))));
            }
            consumed += length;
            if !head.is_interim() {
                return (
                    consumed,
                    self.finish(&head, limits, text, changes, most, reply).map(Some),
                );
            }
            self.interim += 1;
            if self.interim > limits::INTERIM_ANSWERS {
                return (consumed, Err(Fault::GarbageHead.into()));
            }
            // The client was told to go on when its body was asked for.
            if head.status != 100 {
                fields.clear();
                let passed = copy(&head.fields, &Changes::default(), false, fields);
                if let Err(failure) = passed.and_then(|()| Ok(reply.interim(head.status, fields)?)) {
                    return (consumed, Err(failure));
                }
            }
        }
    }

    fn finish(
        &self,
        head: &ResponseHead<'_>,
        limits: &Limits,
        text: &mut Vec<u8>,
        changes: &Changes,
        most: Option<u64>,
        reply: &mut Reply<'_>,
    ) -> Result<Head, Failure> {
        if head.switches {
            let offered = self.upgrade.filter(|_| head.status == 101);
            let offered = offered.ok_or(Fault::SwitchUnasked)?;
            let protocol = head.fields.known(Known::Upgrade).ok_or(Fault::GarbageHead)?;
            if !is_among(protocol, offered) {
                return Err(Fault::SwitchUnasked.into());
            }
            if self.challenge.is_some_and(|challenge| !challenge.is_met(head)) {
                return Err(Fault::GarbageHead.into());
            }
            let mut fields = FieldBlock::new();
            copy(&head.fields, changes, self.cross, &mut fields)?;
            // The reply has them already, for whatever else it could have become.
            for (name, _) in self.extra.iter() {
                reply.remove_header(name);
            }
            fields.append(&self.extra);
            reply.add_headers(&fields).begin_tunnel(protocol)?;
            return Ok(Head::Switch);
        }
        let limits = Limits {
            body_bytes: most,
            ..*limits
        };
        let decoder = BodyDecoder::new(head.framing, &limits).map_err(|_| Fault::ResponseTooLarge)?;
        let fields = reply.forward(head.status)?;
        copy(&head.fields, changes, self.cross, fields)?;
        fields.append(&self.extra);
        let sieve =
            (self.trailers && head.framing == Framing::Chunked).then(|| Sieve::of(&head.fields, changes));
        if let Some(sieve) = &sieve {
            sieve.announce(&head.fields, text);
            if !text.is_empty() {
                fields.push("Trailer", text).map_err(|_| Fault::GarbageHead)?;
            }
        }
        let framing = framing(head, self.method == Method::Head);
        if !self.filtered {
            reply.put_head(framing)?;
        }
        Ok(Head::Body {
            framing,
            decoder,
            keep_alive: head.keep_alive,
            sieve,
        })
    }
}

/// What the client is told of the body: HEAD and 304 have none and may say how long it would be.
pub(super) fn framing(head: &ResponseHead<'_>, to_head: bool) -> Framing {
    if head.framing != Framing::None || !(to_head || head.status == 304) {
        return head.framing;
    }
    let length = head.fields.known(Known::ContentLength);
    // It was parsed with the head.
    let length = length.and_then(|value| str::from_utf8(value).ok()?.parse().ok());
    length.map_or(Framing::None, Framing::Length)
}

/// Whether a protocol is one of those that were offered (RFC 9110 §7.8). Their versions are part of them, their case is not.
fn is_among(protocol: &[u8], offered: &[u8]) -> bool {
    let mut offers = options(offered);
    offers.any(|offer| offer.eq_ignore_ascii_case(protocol.trim_ascii()))
}

/// Copies the fields that go further.
pub(super) fn copy(
    from: &Fields<'_>,
    changes: &Changes,
    cross: bool,
    into: &mut FieldBlock,
) -> Result<(), Failure> {
    let named = Named::of(from).map_err(|_| Fault::GarbageHead)?;
    for (known, field) in from.iter_known() {
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
                    || (cross && starts_folded(field.name, "access-control-"))
            }
        };
        if hop || named.has(known, field.name) || changes.drops(field.name) {
            continue;
        }
        // Names are tokens.
        let Ok(name) = str::from_utf8(field.name) else {
            continue;
        };
        into.push(name, field.value).map_err(|_| Fault::GarbageHead)?;
    }
    into.append(changes.added());
    Ok(())
}
