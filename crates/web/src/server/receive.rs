//! Received bytes: heads are read, bodies collected, discarded or streamed, plain requests answered in place.
//!
//! All plain requests of one receipt are answered by one write, in their order.

use std::rc::Rc;

use ringmain_engine::Conn;
use ringmain_engine::limits::WRITE_MARK;
use ringmain_wire::h1::{
    BodyDecoder, BodyEvent, Framing, HeadScanner, Parsed, PeerFault, RequestHead, Target, parse_request,
};

use super::connection::{Collector, Connection, Phase};
use super::exchange::{CONTINUE, Job};
use super::runner::Launched;
use super::{Server, Then, answer};
use crate::error::Error;
use crate::limits;
use crate::path;
use crate::reply::Reply;
use crate::request::Request;
use crate::router::Params;
use crate::site::{Action, Route, Site, Verdict};
use crate::stats::SAMPLE;

/// What became of some bytes.
struct Step {
    consumed: usize,
    then: Then,
}

/// How a request's body is to be had.
enum Body<'a> {
    /// All of it is there: these bytes, and so many of the input.
    There(&'a [u8], usize),
    /// It comes in pieces, for a handler that wants it whole.
    Collect(BodyDecoder),
    /// It comes in pieces, for one that reads them.
    Stream(BodyDecoder),
    /// Nobody wants it.
    Discard(BodyDecoder),
    /// Nobody wants it, and it is too long to be read for nothing.
    Abandon,
    /// It breaks a limit.
    Refused(PeerFault),
}

impl Server {
    /// Takes what can be taken of `bytes`; returns how much.
    pub(super) fn receive(&mut self, conn: Conn<'_>, state: &mut Connection, bytes: &[u8]) -> usize {
        let mut consumed = 0;
        let mut then = Then::Next;
        while then == Then::Next && consumed < bytes.len() {
            let input = &bytes[consumed..];
            let step = match &state.phase {
                Phase::Head => self.head(conn, state, input),
                Phase::Collecting(_) => self.collect(conn, state, input),
                Phase::Discarding(_) => self.discard(state, input),
                Phase::Running { exchange, .. } => {
                    let fed = exchange.feed(conn, input);
                    exchange.wake();
                    self.keep_behind(conn, input.len() - fed);
                    Step {
                        consumed: fed,
                        then: Then::Wait,
                    }
                }
                Phase::Sending { .. } => Step {
                    consumed: 0,
                    then: Then::Wait,
                },
                Phase::Lingering { .. } => drop_some(state, input),
            };
            consumed += step.consumed;
            then = step.then;
            if self.scratch.out.len() > WRITE_MARK && then.goes_on() {
                // The engine offers the rest when the client has taken this.
                self.flush(conn, state, then);
                then = Then::Wait;
            }
        }
        self.flush(conn, state, then);
        if then.goes_on() {
            self.arm(conn, state);
        }
        consumed
    }

    /// Requests behind a running one wait; too many bytes of them are not received.
    fn keep_behind(&self, conn: Conn<'_>, waiting: usize) {
        if waiting > self.site.limits.pipelined_bytes {
            conn.pause();
        }
    }

    fn head(&mut self, conn: Conn<'_>, state: &mut Connection, input: &[u8]) -> Step {
        // The head borrows the table while everything else is used.
        let table = self.table.take();
        let mut table = table.unwrap_or_else(|| Box::new(FieldTable::new(&self.site.limits.http1)));
        let parsed = parse_request(input, &self.site.limits.http1, &mut state.scanner, &mut table);
        let step = match parsed {
            Ok(Parsed::Complete { head, bytes }) => self.request(conn, state, head, bytes, input),
            Ok(Parsed::Partial) => {
                if !state.begun {
                    state.begun = true;
                    if state.requests > 0 {
                        conn.set_deadline(Some(self.site.limits.header_timeout));
                    }
                }
                Step {
                    consumed: 0,
                    then: Then::Wait,
                }
            }
            Err(fault) => Step {
                consumed: input.len(),
                then: self.refuse(&Error::from_fault(&fault)),
            },
        };
        self.table = Some(table);
        step
    }

    /// A head is there: who answers, and what of the body is there?
    fn request(
        &mut self,
        conn: Conn<'_>,
        state: &mut Connection,
        head: RequestHead<'_>,
        bytes: usize,
        input: &[u8],
    ) -> Step {
        state.begun = false;
        state.requests = state.requests.saturating_add(1);
        state.began = self.local.cx.now();
        state.base = 0;
        let most = self.site.limits.requests_per_connection;
        state.last |= most.is_some_and(|most| state.requests >= most);
        let body = input.get(bytes..).unwrap_or_default();
        let mut params = Params::new();
        let scratch = &mut self.scratch;
        let (path, verdict) = route(&self.site, &head, &mut scratch.path, &mut params);
        let wanted = wanted(&self.site, &self.http1, &verdict, &head, body);
        let (content, framed, decoder) = match wanted {
            Body::There(content, framed) => (content, framed, None),
            Body::Stream(decoder) => (&[][..], 0, Some(decoder)),
            Body::Collect(decoder) => {
                if head.expect_continue {
                    scratch.out.extend_from_slice(CONTINUE);
                }
                let collector = collector(&mut self.collectors, &input[..bytes], decoder);
                state.phase = Phase::Collecting(collector);
                return next(bytes);
            }
            Body::Discard(decoder) => {
                state.phase = Phase::Discarding(Box::new(decoder));
                (&[][..], 0, None)
            }
            Body::Abandon => {
                state.last = true;
                (&[][..], 0, None)
            }
            Body::Refused(fault) => {
                return Step {
                    consumed: input.len(),
                    then: self.refuse(&Error::from_fault(&fault)),
                };
            }
        };
        let abandoned = matches!(wanted, Body::Abandon);
        if let Verdict::Route(Route { action: Action::Task { launch, .. }, index, .. }) = &verdict {
            let launched = Launched {
                job: Job {
                    conn: conn.id(),
                    remote: state.remote,
                    began: state.began,
                    last: state.last,
                },
                head: &input[..bytes],
                body: content,
                decoder,
                expects: head.expect_continue,
            };
            if let Some((exchange, serial)) = launch.launch(*index, &self.site, &self.local, launched) {
                state.phase = Phase::Running { exchange, serial };
                return next(bytes + framed);
            }
            let busy = Error::new(503, "the server runs as many requests as it may").with_header("Retry-After", "1");
            return Step {
                consumed: input.len(),
                then: self.refuse(&busy),
            };
        }
        let asked = Asked {
            head,
            path,
            params,
            verdict,
            content,
        };
        let step = asked.answer(&self.site, &self.local, state, &mut self.until_sample, scratch_parts!(scratch));
        let then = self.after(conn, state, step, abandoned);
        Step {
            consumed: bytes + framed,
            then,
        }
    }
}
