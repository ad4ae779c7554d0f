//! Event streams of upstreams (WHATWG HTML §9.2) in a shutdown: each is ended in its turn, as a complete response, between two events.
//!
//! ```text
//! Open ── its turn ──▶ Due ─┬─ a blank line ──▶ ended
//!                           └─ EVENT_END_WAIT ─▶ ended: clients discard an incomplete event
//! ```
//!
//! Knows the ends of events, but none of their fields.

use std::pin::Pin;
use std::task::{Context, Poll};

use ringmain_engine::{Cx, DrainTurn, Sleep};
use ringmain_wire::h1::{Framing, Known, ResponseHead};

use crate::limits;

/// Returns whether a response is an event stream whose end is not announced and whose events can be read.
pub(super) fn is_event_stream(head: &ResponseHead<'_>) -> bool {
    let content_type = head.fields.known(Known::ContentType).unwrap_or_default();
    let media_type = content_type
        .split(|&byte| byte == b';')
        .next()
        .unwrap_or_default();
    media_type.trim_ascii().eq_ignore_ascii_case(b"text/event-stream")
        && !matches!(head.framing, Framing::None | Framing::Length(_))
        && head.fields.known(Known::ContentEncoding).is_none()
}

/// The position within an event stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct EventPosition {
    line: LinePosition,
    /// The last byte was a CR: an LF belongs to the same end of a line.
    after_cr: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LinePosition {
    Within,
    /// After a line with content.
    Start,
    /// After a blank line, or at the start of the stream.
    EventStart,
}

impl Default for EventPosition {
    fn default() -> EventPosition {
        EventPosition {
            line: LinePosition::EventStart,
            after_cr: false,
        }
    }
}

impl EventPosition {
    /// Follows bytes of the stream.
    pub(super) fn advance(&mut self, bytes: &[u8]) {
        let is_content = |byte: &u8| !matches!(byte, b'\r' | b'\n');
        let ends = match bytes.iter().rposition(is_content) {
            Some(last) => {
                self.line = LinePosition::Within;
                self.after_cr = false;
                &bytes[last + 1..]
            }
            None => bytes,
        };
        for &byte in ends {
            if byte == b'\n' && self.after_cr {
                self.after_cr = false;
                continue;
            }
            self.after_cr = byte == b'\r';
            self.line = match self.line {
                LinePosition::Within => LinePosition::Start,
                LinePosition::Start | LinePosition::EventStart => LinePosition::EventStart,
            };
        }
    }

    /// Returns whether the last event is complete.
    pub(super) fn is_between_events(self) -> bool {
        self.line == LinePosition::EventStart
    }
}

/// The end of an event stream in a shutdown.
pub(super) struct EventStreamDrain {
    cx: Cx,
    turn: DrainTurn,
    /// The time that the current event has to become complete, once it is the stream's turn.
    wait: Option<Sleep>,
}

impl EventStreamDrain {
    pub(super) fn new(cx: &Cx) -> EventStreamDrain {
        EventStreamDrain {
            cx: cx.clone(),
            turn: cx.drain_turn(),
            wait: None,
        }
    }

    /// Ready when the stream, which is at `position`, must end.
    pub(super) fn poll_end(&mut self, position: EventPosition, context: &mut Context<'_>) -> Poll<()> {
        let wait = match &mut self.wait {
            Some(wait) => wait,
            None => {
                std::task::ready!(Pin::new(&mut self.turn).poll(context));
                self.wait.insert(self.cx.sleep(limits::EVENT_END_WAIT))
            }
        };
        if position.is_between_events() {
            return Poll::Ready(());
        }
        Pin::new(wait).poll(context)
    }
}

#[cfg(test)]
mod tests {
    use super::EventPosition;

    fn is_between_events(pieces: &[&str]) -> bool {
        let mut position = EventPosition::default();
        for piece in pieces {
            position.advance(piece.as_bytes());
        }
        position.is_between_events()
    }

    #[test]
    fn a_blank_line_ends_an_event() {
        for end in ["\n", "\r", "\r\n"] {
            let event = format!("data: a{end}{end}");
            assert!(is_between_events(&[&event]), "{event:?}");
            assert!(
                !is_between_events(&[&event[..event.len() - end.len()]]),
                "{event:?}"
            );
            assert!(!is_between_events(&[&event, "d"]), "{event:?}");
        }
        assert!(is_between_events(&[]));
        assert!(is_between_events(&["\n", "\n"]));
        assert!(!is_between_events(&[": a comment\n"]));
    }

    #[test]
    fn the_position_does_not_depend_on_the_pieces() {
        let stream = "data: a\r\n\r\nid: 1\rdata\r\r\n\n: b\n\ndata: c\n\r\ndata";
        for count in 0..=stream.len() {
            let whole = is_between_events(&[&stream[..count]]);
            let bytes: Vec<&str> = (0..count).map(|at| &stream[at..=at]).collect();
            assert_eq!(is_between_events(&bytes), whole, "{:?}", &stream[..count]);
            for cut in 0..=count {
                let halves = [&stream[..cut], &stream[cut..count]];
                assert_eq!(is_between_events(&halves), whole, "{halves:?}");
            }
        }
    }
}
