//! Workers without threads, whose mail goes when it is told to.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use ringmain_hub::history::Keep;
use ringmain_hub::mail::{Rules, Slow, ToHome, Told, WorkerId};
use ringmain_hub::protocol::{ClientInfo, Format, Published, Variant};
use ringmain_hub::shard::Home;
use ringmain_hub::subscribers::{Answer, ConnId, Event, Limits, Local};

pub(crate) const PLAIN: Rules = Rules {
    keep: None,
    remember: Duration::ZERO,
    presence: false,
    join_leave: false,
    slow: Slow::Disconnect,
    cache: false,
    every: None,
};

pub(crate) const KEPT: Rules = Rules {
    keep: Some(Keep {
        publications: 50,
        bytes: 1 << 20,
        time: Duration::from_secs(3600),
    }),
    remember: Duration::from_secs(3600),
    ..PLAIN
};

pub(crate) const JSON: Variant = Variant {
    format: Format::Json,
    bare: false,
    framed: false,
};

pub(crate) const LIMITS: Limits = Limits {
    subscriptions: 4,
    waiting_bytes: 1 << 20,
};

/// Workers whose mail goes when it is told to.
pub(crate) struct Workers {
    pub(crate) homes: Vec<Home>,
    pub(crate) locals: Vec<Local>,
    /// By sender, then by receiver.
    up: Vec<Vec<VecDeque<ToHome>>>,
    pub(crate) now: Duration,
}

impl Workers {
    pub(crate) fn new(count: u16, limits: Limits) -> Workers {
        let queues = || (0..count).map(|_| VecDeque::new()).collect();
        Workers {
            homes: (0..count)
                .map(|worker| Home::new(count, 1000, u64::from(worker)))
                .collect(),
            locals: (0..count).map(|_| Local::new(count, limits)).collect(),
            up: (0..count).map(|_| queues()).collect(),
            now: Duration::ZERO,
        }
    }

    /// What a worker has to say to homes goes on its way.
    pub(crate) fn post(&mut self, worker: usize) {
        for (home, queue) in (0..).zip(&mut self.up[worker]) {
            while let Some(message) = self.locals[worker].poll_home(WorkerId(home)) {
                queue.push_back(message);
            }
        }
    }

    /// At most so many messages from a worker arrive at a home.
    pub(crate) fn up(&mut self, worker: usize, home: usize, most: usize) {
        self.post(worker);
        for _ in 0..most {
            let Some(message) = self.up[worker][home].pop_front() else {
                break;
            };
            self.homes[home].handle(WorkerId(worker as u16), message, self.now);
        }
    }

    /// At most so many messages from a home arrive at a worker.
    pub(crate) fn down(&mut self, home: usize, worker: usize, most: usize) {
        for _ in 0..most {
            let Some(message) = self.homes[home].poll(WorkerId(worker as u16), self.now) else {
                break;
            };
            self.locals[worker].handle(message);
        }
    }

    /// All mail arrives, and connections whose moment has come are given what is new.
    pub(crate) fn settle(&mut self) {
        for _ in 0..6 {
            for worker in 0..self.locals.len() {
                for home in 0..self.homes.len() {
                    self.up(worker, home, usize::MAX);
                    self.down(home, worker, usize::MAX);
                }
            }
        }
        for worker in 0..self.locals.len() {
            for home in 0..self.homes.len() as u16 {
                assert!(!self.locals[worker].has_mail(WorkerId(home)), "it settles");
            }
            let local = &mut self.locals[worker];
            while local.next_release().is_some_and(|next| next <= self.now) {
                local.release(self.now);
            }
        }
    }

    pub(crate) fn events(&mut self, worker: usize) -> Vec<String> {
        let mut said = Vec::new();
        while let Some(event) = self.locals[worker].poll_event() {
            said.push(match event {
                Event::Subscribed {
                    channel,
                    place,
                    missed,
                    ..
                } => {
                    let missed =
                        missed.map(|missed| missed.iter().map(|(offset, _)| *offset).collect::<Vec<_>>());
                    format!(
                        "subscribed {channel} at {:?} missed {missed:?}",
                        place.map(|place| place.offset)
                    )
                }
                Event::Refused { channel, fault, .. } => format!("refused {channel}: {}", fault.code),
                Event::Unsubscribed { channel, why, .. } => format!("unsubscribed {channel}: {}", why.code),
                Event::Published { number, place, .. } => {
                    format!("published {number} at {:?}", place.map(|place| place.offset))
                }
                Event::Told { number, told, .. } => format!("told {number} {}", said_of(&told)),
                Event::Disconnected { why, .. } => format!("disconnected {}", why.code),
            });
        }
        said
    }

    /// What programs are told by a worker.
    pub(crate) fn answers(&mut self, worker: usize) -> Vec<String> {
        let mut said = Vec::new();
        while let Some((number, answer)) = self.locals[worker].poll_answer() {
            said.push(match answer {
                Answer::Published(place) => {
                    format!("{number} published at {:?}", place.map(|place| place.offset))
                }
                Answer::Told(told) => format!("{number} told {}", said_of(&told)),
            });
        }
        said
    }

    pub(crate) fn pushes(&mut self, worker: usize, conn: ConnId) -> Vec<String> {
        let mut all = Vec::new();
        while let Some(frame) = self.locals[worker].take(conn) {
            all.push(String::from_utf8(frame.to_vec()).expect("JSON is text"));
        }
        all
    }
}

fn said_of(told: &Told) -> String {
    match told {
        Told::History { publications, place } => {
            let offsets: Vec<u64> = publications.iter().map(|(offset, _)| *offset).collect();
            format!("{offsets:?} at {}", place.offset)
        }
        Told::Unrecoverable => "unrecoverable".to_owned(),
        Told::Presence(present) => {
            let clients: Vec<&str> = present.iter().map(|info| &*info.client).collect();
            format!("{clients:?}")
        }
        Told::PresenceStats { clients, users } => format!("{clients} clients, {users} users"),
        Told::Forgotten => "forgotten".to_owned(),
        Told::NotAvailable => "not available".to_owned(),
        Told::Full => "full".to_owned(),
        Told::Draining => "draining".to_owned(),
    }
}

pub(crate) fn name(channel: &str) -> Arc<str> {
    Arc::from(channel)
}

pub(crate) fn number(number: u64) -> Published {
    Published {
        data: Bytes::from(number.to_string()),
        ..Published::default()
    }
}

pub(crate) fn info(client: &str) -> Option<Arc<ClientInfo>> {
    Some(Arc::new(ClientInfo {
        client: client.to_owned(),
        ..ClientInfo::default()
    }))
}
