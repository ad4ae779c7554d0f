//! What a client is told besides publications, and what it says: it subscribes, answers pings, and takes up again what has
//! ended.

use ringmain_engine::Conn;
use ringmain_wire::ws::{Encoder, Mask, Message, Role};

use super::hear::{Stop, shown};
use super::link::Talk;
use super::{Listeners, Phase};
use crate::limits;
use crate::push::layout::{named, write_name};
use crate::push::plan::{Format, Transport};
use crate::push::speak::{self, Said, Standing, Wish};

impl Listeners {
    pub(super) fn told(
        &mut self,
        conn: Conn<'_>,
        index: u32,
        talk: &mut Talk,
        said: Said,
        format: Format,
    ) -> Result<(), Stop> {
        match said {
            Said::Other => {}
            Said::Ping => {
                self.figures.counts.pings += 1;
                if talk.pong {
                    let mut answer = Vec::with_capacity(2);
                    speak::pong(&mut answer, format);
                    self.say(conn, format, &answer);
                }
            }
            Said::Connected { pong, subs } => {
                talk.pong = pong;
                talk.connected = true;
                self.entered(conn, index, talk, subs, format)?;
            }
            Said::Subscribed { id, at } => {
                let place = id.checked_sub(1 + speak::CONNECT);
                if let Some(place) = place.filter(|place| *place < self.layout.places()) {
                    self.placed(index, place, &at)?;
                }
                talk.left = talk.left.saturating_sub(1);
                if talk.left == 0 {
                    self.stands(conn, index);
                }
            }
            Said::Refused {
                code,
                message,
                temporary: true,
                ..
            } => {
                return Err(Stop::Later(format!("asked to retry: {code} {}", shown(&message))));
            }
            Said::Refused {
                id, code, message, ..
            } => {
                return Err(self.refusal(index, id, code, &message));
            }
            Said::Unsubscribed {
                channel,
                code,
                reason,
            } => {
                self.figures
                    .counts
                    .unsubscribes
                    .add(format!("{code} {}", shown(&reason)));
                if code >= 2500 && self.subscribe_again(conn, index, &channel, format) {
                    talk.left += 1;
                }
            }
            Said::Disconnected { code, reason } => return Err(Stop::Told(code, shown(&reason))),
        }
        Ok(())
    }

    /// The session stands; over server-sent events with all subscriptions.
    fn entered(
        &mut self,
        conn: Conn<'_>,
        index: u32,
        talk: &mut Talk,
        subs: Vec<(String, Standing)>,
        format: Format,
    ) -> Result<(), Stop> {
        if let Transport::WebSocket(_) = self.plan.transport {
            talk.left = self.layout.places();
            self.subscribe_all(conn, index, format);
            return Ok(());
        }
        for (name, at) in subs {
            if let Some(place) = self.place_of(index, &name) {
                self.placed(index, place, &at)?;
            }
        }
        self.stands(conn, index);
        Ok(())
    }

    /// The server does not want to, and would not a second time.
    fn refusal(&self, index: u32, id: u32, code: u32, message: &str) -> Stop {
        let place = id.checked_sub(1 + speak::CONNECT);
        let what = place.map_or_else(
            || "connect".to_owned(),
            |place| format!("subscribe to {}", self.name_of(index, place)),
        );
        let hint = "check that anonymous clients may do that, or pass a --token or another --prefix";
        let message = shown(message);
        Stop::Refused(format!("the server refused to {what}: {code} {message}; {hint}"))
    }

    /// The server has said where a subscription stands, and perhaps what became of what was missed.
    fn placed(&mut self, index: u32, place: u32, at: &Standing) -> Result<(), Stop> {
        let track = self.track(index, place);
        let Some(positions) = &mut self.positions else {
            return Ok(());
        };
        if !at.recoverable && self.phase == Phase::Joining && self.plan.recovers() {
            let name = self.name_of(index, place);
            return Err(Stop::Refused(format!(
                "clients cannot recover publications of {name}: the server has no history of it, or does not permit recovery, and all that is published \
                 while they are disconnected (--kill, --kill-server) would be lost; name a namespace with history (--prefix), or \
                 publish nothing (--idle)"
            )));
        }
        let counts = &mut self.figures.counts;
        let is_new = !self.links[index as usize].stood;
        match (positions.at(track), at.recovered) {
            (None, _) if is_new => {}
            (None, _) => counts.unplaced += 1,
            (Some(_), true) => counts.recoveries += 1,
            (Some(_), false) => counts.unrecovered += 1,
        }
        let is_recovery = !is_new && positions.at(track).is_some();
        if at.recoverable {
            positions.stand(track, at.offset, &at.epoch)
        } else {
            positions.forget(track)
        }
        self.audit_reply(index, place, at, is_recovery);
        Ok(())
    }

    /// What a client wants of a subscription.
    pub(super) fn wish(&self, index: u32, place: u32) -> Wish<'_> {
        let positions = self.positions.as_ref();
        Wish {
            recoverable: positions.is_some(),
            since: positions.and_then(|positions| positions.at(self.track(index, place))),
        }
    }

    /// The place that a client has this channel in.
    fn place_of(&self, index: u32, name: &str) -> Option<u32> {
        let channel = named(&self.plan.prefix, self.layout.channels, name)?;
        self.layout.place(self.first + index, channel)
    }

    fn name_of(&self, index: u32, place: u32) -> String {
        let mut name = Vec::new();
        let channel = self.layout.channel(self.first + index, place);
        write_name(&mut name, &self.plan.prefix, self.layout.channels, channel);
        String::from_utf8_lossy(&name).into_owned()
    }

    /// Asks for all of a client's channels, some in each message.
    fn subscribe_all(&mut self, conn: Conn<'_>, index: u32, format: Format) {
        let places: Vec<u32> = (0..self.layout.places()).collect();
        for some in places.chunks(limits::SUBSCRIBES_A_MESSAGE) {
            let mut message = Vec::new();
            for place in some {
                self.write_subscribe(&mut message, index, *place, format);
            }
            self.say(conn, format, &message);
        }
    }

    fn write_subscribe(&self, message: &mut Vec<u8>, index: u32, place: u32, format: Format) {
        let channel = self.layout.channel(self.first + index, place);
        let (prefix, channels) = (self.plan.prefix.as_str(), self.layout.channels);
        let id = speak::CONNECT + 1 + place;
        speak::subscribe(message, format, id, self.wish(index, place), &|out| {
            write_name(out, prefix, channels, channel);
        });
    }

    /// The server has ended a subscription that the client is to take up anew; says whether it has asked for that.
    fn subscribe_again(&mut self, conn: Conn<'_>, index: u32, name: &str, format: Format) -> bool {
        let place = self.place_of(index, name);
        let (Some(place), Transport::WebSocket(_)) = (place, self.plan.transport) else {
            return false;
        };
        let mut message = Vec::new();
        self.write_subscribe(&mut message, index, place, format);
        self.audit_request(index);
        self.say(conn, format, &message);
        true
    }

    /// Sends a message.
    pub(super) fn say(&mut self, conn: Conn<'_>, format: Format, message: &[u8]) {
        self.scratch.clear();
        let mut key = || self.random.u32(..).to_ne_bytes();
        let message = match format {
            Format::Json => Message::Text(str::from_utf8(message).expect("names and tokens are ASCII")),
            Format::Protobuf => Message::Binary(message),
        };
        let mut encoder = Encoder::new(Role::Client, None, usize::MAX);
        let written = encoder.message(&mut self.scratch, message, Mask::Keys(&mut key));
        debug_assert!(written.is_ok(), "no message is under way and no Close was sent");
        // A refused write ends the connection, and `closed` comes.
        let _ = conn.write(&self.scratch);
    }
}
