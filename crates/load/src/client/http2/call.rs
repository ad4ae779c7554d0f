//! gRPC in an answer: its messages, counted and timed, and how the call ended. What messages mean is not looked at.

use std::time::Duration;

use ringmain_engine::backend::Time;
use ringmain_wire::grpc::{Code, Decoder, Event, Frame, Limits};
use ringmain_wire::h1::Fields;

use crate::client::{Called, Message};

/// A server is measured, not warded off; and nothing of a message is kept.
const LIMITS: Limits = Limits {
    message_bytes: u32::MAX,
    trailer_bytes: 0,
};

/// A call under way.
#[derive(Debug)]
pub(super) struct Call {
    decoder: Decoder,
    messages: u32,
    /// When it was sent, or a message came last.
    since: Time,
    /// What `grpc-status` said.
    code: Option<Code>,
    /// The body is none of messages.
    broken: bool,
}

impl Call {
    pub(super) fn new(sent: Time) -> Call {
        Call {
            decoder: Decoder::new(&LIMITS),
            messages: 0,
            since: sent,
            code: None,
            broken: false,
        }
    }

    /// Fields have come that may say how it ended: those of trailers, or of a head that is all there is.
    pub(super) fn fields(&mut self, fields: &Fields<'_>) {
        if let Some(value) = fields.get("grpc-status") {
            self.code = Some(Code::parse(value));
        }
    }

    /// Bytes of messages have come; each that is whole is told with the time since the one before.
    pub(super) fn data(&mut self, mut data: &[u8], now: Time, told: &mut Vec<Message>) {
        while !self.broken {
            let Ok(step) = self.decoder.decode(data) else {
                self.broken = true;
                return;
            };
            data = &data[step.consumed..];
            match step.event {
                Event::NeedMore => return,
                Event::Begin {
                    frame: Frame::Message { compressed },
                    ..
                } => {
                    // Nobody has said that it could be read.
                    self.broken |= compressed;
                }
                Event::Begin { .. } | Event::Data(_) => {}
                Event::End => self.message(now, told),
            }
        }
    }

    fn message(&mut self, now: Time, told: &mut Vec<Message>) {
        told.push(Message {
            is_first: self.messages == 0,
            span: if now > self.since {
                now.since(self.since)
            } else {
                Duration::ZERO
            },
        });
        self.messages += 1;
        self.since = now;
    }

    /// How it ended, its answer having this status.
    pub(super) fn end(mut self, status: u16, is_streaming: bool) -> Called {
        self.broken |= self.decoder.end_of_input().is_err();
        let code = match self.code {
            // What it says of messages that cannot be read is of no worth.
            Some(Code::Ok) if self.broken => Code::Internal,
            Some(code) => code,
            // It comes from something that does not speak gRPC, or forgot to say.
            None => Code::of_http(status),
        };
        let right = code == Code::Ok && (is_streaming || self.messages == 1);
        Called { code, right }
    }
}
