//! What workers tell each other: those who have subscribers, and those where channels are at home.
//!
//! From one worker to one other all of it comes in order. That is what keeps an answer to a subscriber and the publications
//! behind it apart: both are in the same queue.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use crate::history::{Epoch, Keep, Place, Query};
use crate::protocol::{ClientInfo, Published, Variant};

/// A worker, by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct WorkerId(pub u16);

/// A channel where its subscribers are; it means nothing elsewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TopicKey {
    pub(crate) index: u32,
    pub(crate) generation: u32,
}

/// Who asked; whoever answers gives it back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ask(pub u64);

/// What a channel does, as its namespace says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    /// What it keeps. `None`: publications have no numbers.
    pub keep: Option<Keep>,
    /// How long its offsets and its epoch are retained after the last publication, or after the last subscriber has left, if it has
    /// published. A channel that never published is retained as long as publications are ([`Keep::time`]), and no longer than this.
    /// At the limit of channels the longest unused is removed before ([`CHANNELS_A_WORKER`](crate::limits::CHANNELS_A_WORKER)).
    pub remember: Duration,
    /// Whether it knows who is there.
    pub presence: bool,
    /// Whether those who listen are told who comes and who goes.
    pub join_leave: bool,
    /// What becomes of publications that a client is too slow for.
    pub slow: Slow,
    /// Whoever comes, or comes back, gets the last publication that is kept and nothing of what was before it: for channels
    /// whose publications are states, not changes.
    pub cache: bool,
    /// At least so long between two publications that a client gets: of those in between it gets the last. It waits together for
    /// all its channels with the same interval, and gets what is new in them at one moment; the first after a while without any
    /// comes at once. `None`: all publications. What is kept is not touched by it. Implies `cache`.
    ///
    /// A moment may be up to a sixteenth of the interval later, so that those of many clients are spread over it; one that came
    /// late itself, by no more than that, does not delay the next.
    pub every: Option<Duration>,
}

/// What becomes of publications for a client whose budget is used up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Slow {
    /// The client is disconnected ([`Disconnect::SLOW`]): it comes back and recovers.
    ///
    /// [`Disconnect::SLOW`]: crate::protocol::Disconnect::SLOW
    #[default]
    Disconnect,
    /// The oldest that wait go, of channels of this kind.
    DropOld,
    /// The new one goes.
    DropNew,
    /// The new one takes the place of the one of its channel that waits; without such a one the oldest goes, as above.
    Conflate,
    /// All of the channel that wait go, and the client is unsubscribed so that it subscribes again and recovers
    /// ([`Unsubscribed::INSUFFICIENT`]).
    ///
    /// [`Unsubscribed::INSUFFICIENT`]: crate::protocol::Unsubscribed::INSUFFICIENT
    Resync,
}

impl Slow {
    /// All that there are.
    pub const ALL: [Slow; 5] = [
        Slow::Disconnect,
        Slow::DropOld,
        Slow::DropNew,
        Slow::Conflate,
        Slow::Resync,
    ];

    /// Its number among [`Slow::ALL`].
    #[must_use]
    pub const fn number(self) -> usize {
        self as usize
    }
}

/// To the worker where a channel is at home.
#[derive(Debug)]
pub enum ToHome {
    /// Somebody wants to listen. Answered by [`ToWorker::Subscribed`].
    Subscribe(Box<Subscribing>),
    /// Somebody listens no longer.
    Unsubscribe {
        /// The channel.
        channel: Arc<str>,
        /// What it wanted pushes to look like.
        variant: Variant,
        /// The connection, if it was told who it is.
        client: Option<Arc<str>>,
    },
    /// Something is published. Answered by [`ToWorker::Published`] or [`ToWorker::Refused`] if somebody asked.
    Publish {
        /// The channel.
        channel: Arc<str>,
        /// What it does, if it is not there yet.
        rules: Rules,
        /// What is published.
        published: Arc<Published>,
        /// What is not as usual about it.
        manner: Option<Box<Manner>>,
        /// The publisher.
        origin: Origin,
        /// Who wants to know that it is.
        ask: Option<Ask>,
    },
    /// Something is to be known of a channel. Answered by [`ToWorker::Told`].
    Question {
        /// The channel.
        channel: Arc<str>,
        /// What it does, if it is not there yet.
        rules: Rules,
        /// What.
        question: Question,
        /// Who asks.
        ask: Ask,
    },
}

/// The publisher of a publication, as far as a channel remembers it: a gap of a source concerns the channels that it has fed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Origin(u8);

impl Origin {
    /// Clients, and programs that call the API.
    pub const PROGRAM: Origin = Origin(63);
    /// Sources whose records have the offsets of a log.
    pub const LOG: Origin = Origin(62);

    /// A source without a log, by its number. Sources whose numbers are equal modulo 62 are not told apart: a gap of one concerns the
    /// channels of the other, too.
    #[must_use]
    pub const fn source(number: u32) -> Origin {
        Origin((number % 62) as u8)
    }

    pub(crate) const fn bit(self) -> u64 {
        1 << self.0
    }
}

impl Default for Origin {
    fn default() -> Origin {
        Origin::PROGRAM
    }
}

/// What is not as usual about a publication.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Manner {
    /// It has no number and is not kept. Where publications wait ([`Rules::every`]) it does not, and where its worker's queue is
    /// full it goes missing without a word.
    pub unkept: bool,
    /// Another one by the same key was it.
    pub once: Option<Once>,
}

/// What makes two publications of a channel the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Once {
    /// The publisher's name for it.
    pub key: Box<str>,
    /// How long it is remembered, of all channels of a home: the last that was said holds.
    pub window: Duration,
}

/// What is to be known of a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Question {
    /// What it published and keeps.
    History {
        /// Which of it.
        query: Query,
        /// Of which life `query.since` is.
        life: Life,
    },
    /// Who is there.
    Presence,
    /// How many are there.
    PresenceStats,
    /// Nothing: what it keeps is to go. Offsets go on.
    Forget,
}

/// What is known of a channel.
#[derive(Debug)]
pub enum Told {
    /// What it published and keeps, by offset, in the order that was asked for, and where it stands.
    History {
        /// The publications.
        publications: Vec<(u64, Arc<Published>)>,
        /// Where the channel stands.
        place: Place,
    },
    /// What was asked for is of another life.
    Unrecoverable,
    /// Who is there, by the connection's own number.
    Presence(Vec<Arc<ClientInfo>>),
    /// How many are there.
    PresenceStats {
        /// Connections.
        clients: u32,
        /// Users, each once.
        users: u32,
    },
    /// What was kept is gone.
    Forgotten,
    /// The channel has none of that, or as many channels are there as may be.
    NotAvailable,
    /// It is not published: as many channels are there as may be.
    Full,
    /// It is not published: a successor numbers publications from now on.
    Draining,
}

/// Somebody who wants to listen.
#[derive(Debug)]
pub struct Subscribing {
    /// The channel.
    pub channel: Arc<str>,
    /// What it does, if it is not there yet.
    pub rules: Rules,
    /// What it is called where the subscriber is.
    pub key: TopicKey,
    /// Who asks.
    pub ask: Ask,
    /// What pushes are to look like.
    pub variant: Variant,
    /// Where it stood.
    pub since: Option<Since>,
    /// Who it is, for presence.
    pub info: Option<Arc<ClientInfo>>,
}

/// Where somebody stood who comes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Since {
    /// The last publication that it has.
    pub offset: u64,
    /// Of the offset; see [`Life`].
    pub life: Life,
}

impl Since {
    /// Before all publications of any life.
    pub const NOWHERE: Since = Since {
        offset: 0,
        life: Life::Any,
    };
}

/// What a client says of the life of a channel that it knew.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Life {
    /// Nothing: it takes any for its own.
    Any,
    /// This one.
    Of(Epoch),
    /// One that cannot be ours.
    Foreign,
}

impl Life {
    /// As it is said in the protocol.
    #[must_use]
    pub fn parse(text: &str) -> Life {
        match text {
            "" => Life::Any,
            text => Epoch::parse(text).map_or(Life::Foreign, Life::Of),
        }
    }
}

/// To the worker where subscribers are.
#[derive(Debug)]
pub enum ToWorker {
    /// It is subscribed from here on: the next publication that comes is the next one.
    Subscribed(Box<Subscribed>),
    /// It is not, or nothing is published: as many channels are there as may be.
    Refused {
        /// Who asked.
        ask: Ask,
    },
    /// It is not subscribed: its position is that of another node that has read more of the channel's log. It has to retry.
    Behind {
        /// The request.
        ask: Ask,
    },
    /// For all subscribers of a channel.
    Push {
        /// The channel.
        key: TopicKey,
        /// What they get.
        frames: Arc<Frames>,
        /// When.
        course: Course,
    },
    /// Pushes did not reach this worker, and are not to be had any more: those who rely on them must be told.
    Lost {
        /// The channel.
        key: TopicKey,
    },
    /// It is published.
    Published {
        /// Who asked.
        ask: Ask,
        /// Where the channel stood then. `None`: it has no numbers, or this one has none.
        place: Option<Place>,
    },
    /// What was to be known.
    Told {
        /// Who asked.
        ask: Ask,
        /// What is known.
        told: Box<Told>,
    },
}

/// When those who listen get a push.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Course {
    /// Now: it is a publication like any other.
    All,
    /// Each at its next moment, unless it is overtaken: it is a state ([`Rules::every`]).
    Every(Duration),
    /// Now, whatever publications do: it is none, or none that is kept.
    Beside,
}

/// Where a subscriber begins.
#[derive(Debug)]
pub struct Subscribed {
    /// Who asked.
    pub ask: Ask,
    /// Where the channel stands. `None`: it has no numbers.
    pub place: Option<Place>,
    /// What was missed, if all of it is there; `None` if it is not, or was not asked for.
    pub missed: Option<Vec<(u64, Arc<Published>)>>,
}

/// A push, written once in each variant that somebody listens by.
#[derive(Debug, Default)]
pub struct Frames {
    variants: [Bytes; Variant::ALL.len()],
}

impl Frames {
    /// With what was written in one more variant.
    pub(crate) fn put(&mut self, variant: Variant, written: Bytes) {
        self.variants[variant.number()] = written;
    }

    /// `None`: this variant cannot carry it.
    #[must_use]
    pub fn get(&self, variant: Variant) -> Option<&Bytes> {
        let bytes = &self.variants[variant.number()];
        (!bytes.is_empty()).then_some(bytes)
    }
}
