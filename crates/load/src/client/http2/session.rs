//! One connection's streams: what was asked on which, what of bodies waits for room, what is lost with whom.
//!
//! Knows no bytes of frames: the codec does.

use std::collections::VecDeque;

use bytes::Bytes;
use ringmain_engine::backend::Time;
use ringmain_wire::h2::{Connection, ErrorCode, Event, Repeated, Stream};

use super::call::Call;
use super::{BROKE, ends};
use crate::client::Heard;
use crate::client::link::InFlight;
use crate::limits;

/// What is known of one connection.
#[derive(Debug, Default)]
pub(crate) struct Session {
    pub(super) connection: Option<Connection>,
    /// By the slots of streams.
    pub(super) asked: Vec<Option<Asked>>,
    pub(super) repeated: Heads,
    under_way: u32,
    /// Streams whose bodies may go on, in turn.
    uploads: VecDeque<Stream>,
    /// Requests that were lost and not told of yet.
    lost: Vec<InFlight>,
    /// When something of an answer came last.
    pub(super) heard: Time,
    /// What a server said that sends connections away, if it has.
    farewell: Option<&'static str>,
}

/// A request without its answer yet.
#[derive(Debug)]
pub(super) struct Asked {
    pub(super) stream: Stream,
    pub(super) request: InFlight,
    /// 0: no head has come.
    pub(super) status: u16,
    pub(super) right: bool,
    /// What the checks of its step have yet to see.
    pub(super) kept: Option<Kept>,
    /// Where it is a call of gRPC.
    pub(super) call: Option<Call>,
    /// What of its body has not left.
    pub(super) upload: Option<Upload>,
}

/// What has come of an answer that is looked at when it is whole.
#[derive(Debug, Default)]
pub(super) struct Kept {
    /// Field lines.
    pub(super) head: Vec<u8>,
    pub(super) body: Vec<u8>,
    /// It was longer than [`limits::CHECKED_BODY_BYTES`].
    pub(super) cut: bool,
}

#[derive(Debug)]
pub(super) struct Upload {
    bytes: Bytes,
    /// It is among those that may go on.
    queued: bool,
}

/// Heads of steps without tokens, as they were encoded on this connection.
#[derive(Debug, Default)]
pub(super) struct Heads(Vec<(u32, u32, Repeated)>);

impl Heads {
    /// That of a step; `None` if there are too many.
    #[inline]
    pub(super) fn of(&mut self, flow: u32, step: u32) -> Option<&mut Repeated> {
        let known = self.0.iter().position(|one| (one.0, one.1) == (flow, step));
        let at = match known {
            Some(at) => at,
            None if self.0.len() < limits::HTTP2_HEADS => {
                self.0.push((flow, step, Repeated::default()));
                self.0.len() - 1
            }
            None => return None,
        };
        Some(&mut self.0[at].2)
    }
}

impl Session {
    /// As new, but for the memory.
    pub(crate) fn forget(&mut self) {
        self.connection = None;
        self.asked.clear();
        self.repeated.0.iter_mut().for_each(|one| one.2.forget());
        self.under_way = 0;
        self.uploads.clear();
        self.lost.clear();
        self.farewell = None;
    }

    /// Requests without an answer.
    pub(crate) fn under_way(&self) -> usize {
        self.under_way as usize
    }

    /// Returns the requests without a response.
    pub(crate) fn requests(&self) -> impl Iterator<Item = InFlight> {
        self.asked.iter().flatten().map(|asked| asked.request)
    }

    /// Whether the server takes another request now.
    #[inline]
    pub(crate) fn may_ask(&self) -> bool {
        self.connection.as_ref().is_some_and(Connection::can_open)
    }

    /// How many streams the server lets be open at once; `None`: it has set no limit.
    pub(crate) fn streams_allowed(&self) -> Option<u32> {
        self.connection.as_ref()?.streams_allowed()
    }

    /// Whether the server takes no request any more.
    pub(crate) fn is_leaving(&self) -> bool {
        self.connection.as_ref().is_some_and(Connection::is_spent)
    }

    /// Whether nothing more comes of this connection: no request is under way, none will be.
    pub(crate) fn is_over(&self) -> bool {
        self.under_way == 0 && self.is_leaving()
    }

    /// A request was sent; `rest` is what of its body was not.
    pub(super) fn begin(
        &mut self,
        stream: Stream,
        request: InFlight,
        call: Option<Call>,
        rest: Option<Bytes>,
    ) {
        if self.asked.len() <= stream.slot() {
            self.asked.resize_with(stream.slot() + 1, || None);
        }
        if rest.is_some() {
            self.uploads.push_back(stream);
        }
        self.under_way += 1;
        self.asked[stream.slot()] = Some(Asked {
            stream,
            request,
            status: 0,
            right: false,
            kept: None,
            call,
            upload: rest.map(|bytes| Upload { bytes, queued: true }),
        });
    }

    /// A stream is over: what was asked on it.
    #[inline]
    pub(super) fn end(&mut self, stream: Stream) -> Option<Asked> {
        let asked = self.asked.get_mut(stream.slot())?;
        let asked = asked.take_if(|asked| asked.stream == stream)?;
        self.under_way -= 1;
        Some(asked)
    }

    /// What is neither an answer nor a part of one.
    #[cold]
    pub(super) fn told(&mut self, event: Event<'_>, said: &mut Option<String>) -> Option<Heard> {
        match event {
            Event::Reset { stream, code } => {
                let request = self.end(stream)?.request;
                let what = ends::reset(code);
                // RFC 9113 §8.7: nothing of it was processed.
                Some(match code {
                    ErrorCode::REFUSED_STREAM => Heard::Unprocessed(request, what),
                    _ => Heard::Lost(request, what),
                })
            }
            Event::Broken {
                stream: Some(stream),
                fault,
            } => {
                let asked = self.end(stream)?;
                *said = Some(fault.to_string());
                Some(Heard::Lost(asked.request, BROKE))
            }
            Event::Window { stream } => {
                self.resume(stream);
                None
            }
            Event::Settings => {
                self.resume(None);
                Some(Heard::Settings)
            }
            Event::GoAway { last, code } => {
                let what = ends::retreat(code);
                if code != ErrorCode::NO_ERROR {
                    self.farewell = Some(what);
                }
                self.lose(|asked| asked.stream.id() > last);
                Some(Heard::Retreat(what))
            }
            _ => None,
        }
    }

    /// Takes those out that are lost.
    fn lose(&mut self, is_lost: impl Fn(&Asked) -> bool) {
        for asked in &mut self.asked {
            if let Some(asked) = asked.take_if(|asked| is_lost(asked)) {
                self.under_way -= 1;
                self.lost.push(asked.request);
            }
        }
    }

    /// A request that was lost and not told of yet.
    pub(crate) fn take_lost(&mut self) -> Option<InFlight> {
        self.lost.pop()
    }

    /// When the oldest request was sent.
    pub(crate) fn oldest(&self) -> Option<Time> {
        let asked = self.asked.iter().flatten();
        asked.map(|asked| asked.request.sent).min()
    }

    /// When something of an answer came last.
    pub(crate) fn heard(&self) -> Time {
        self.heard
    }

    /// Gives up what was sent before that moment, stream by stream.
    pub(super) fn give_up(&mut self, sent_until: Time, out: &mut Vec<u8>) {
        if let Some(connection) = &mut self.connection {
            let asked = self.asked.iter().flatten();
            for asked in asked.filter(|asked| asked.request.sent <= sent_until) {
                connection.reset(asked.stream, ErrorCode::CANCEL, out);
            }
        }
        self.lose(|asked| asked.request.sent <= sent_until);
    }

    /// What those are lost by that are under way when the server ends the connection.
    pub(crate) fn lost_by_end(&self) -> &'static str {
        let begun = self.asked.iter().flatten().any(|asked| asked.status != 0);
        if begun {
            "closed within a response"
        } else {
            "closed without a response"
        }
    }

    /// What a server said that sent the connection away, for a reason.
    pub(crate) fn farewell(&self) -> Option<&'static str> {
        self.farewell
    }

    /// Bodies may go on: that of one stream, or all.
    fn resume(&mut self, only: Option<Stream>) {
        let Session { asked, uploads, .. } = self;
        let range = match only {
            Some(stream) => stream.slot()..(stream.slot() + 1).min(asked.len()),
            None => 0..asked.len(),
        };
        for asked in asked.get_mut(range).into_iter().flatten().flatten() {
            if let Some(upload) = asked.upload.as_mut().filter(|upload| !upload.queued) {
                upload.queued = true;
                uploads.push_back(asked.stream);
            }
        }
    }

    /// Appends what may leave of bodies, a frame of each in turn, until `out` has about `room` bytes.
    pub(super) fn send_bodies(&mut self, room: usize, out: &mut Vec<u8>) {
        let Session {
            connection: Some(connection),
            asked,
            uploads,
            ..
        } = self
        else {
            return;
        };
        while out.len() < room
            && let Some(stream) = uploads.pop_front()
        {
            let asked = asked.get_mut(stream.slot()).and_then(Option::as_mut);
            let Some(asked) = asked.filter(|asked| asked.stream == stream) else {
                continue;
            };
            let Some(upload) = &mut asked.upload else {
                continue;
            };
            // A stream that is over takes nothing more, and its end is told of elsewhere.
            let taken = connection
                .begin_data(stream, upload.bytes.len(), true, out)
                .unwrap_or(0);
            out.extend_from_slice(&upload.bytes.split_to(taken));
            if upload.bytes.is_empty() {
                asked.upload = None;
            } else if taken > 0 {
                uploads.push_back(stream);
            } else {
                upload.queued = false;
            }
        }
    }
}
