//! Connections by the second in which something is due: a ping, its answer, or the `connect` of a new connection.

use std::rc::Rc;

use ringmain_hub::subscribers::ConnId;

use crate::client::Seat;
use crate::limits;
use crate::options::Options;

/// See the module.
pub(crate) struct Rounds {
    pub(crate) pinged: Vec<Vec<ConnId>>,
    pub(crate) strangers: Vec<Vec<Rc<Seat>>>,
    /// Seconds within which a ping is answered.
    pong: usize,
    pub(crate) second: usize,
}

impl Rounds {
    pub(crate) fn new(options: &Options) -> Rounds {
        Rounds {
            pinged: vec![Vec::new(); options.ping_interval.as_secs() as usize],
            pong: options.pong_timeout.as_secs() as usize,
            strangers: (0..=limits::CONNECT_WITHIN.as_secs())
                .map(|_| Vec::new())
                .collect(),
            second: 0,
        }
    }

    /// Follows other settings: clients are spread over the new interval.
    pub(crate) fn follow(&mut self, options: &Options) {
        self.pong = options.pong_timeout.as_secs() as usize;
        let count = options.ping_interval.as_secs() as usize;
        if count != self.pinged.len() {
            let all = std::mem::replace(&mut self.pinged, vec![Vec::new(); count]);
            for (at, id) in all.into_iter().flatten().enumerate() {
                self.pinged[at % count].push(id);
            }
        }
    }

    /// The second whose clients must have answered by now: their pings were spread over it.
    pub(crate) fn waited(&self) -> usize {
        let count = self.pinged.len();
        (self.second + count - self.pong - 1) % count
    }

    /// The second of one that comes now: the emptiest of the interval's later half, of several the last. However many come at
    /// once, their pings do not; and whoever leaves soon needs none.
    pub(crate) fn join(&mut self, id: ConnId) {
        let count = self.pinged.len();
        let ahead = (count / 2..count)
            .rev()
            .map(|seconds| (self.second + seconds) % count);
        if let Some(at) = ahead.min_by_key(|at| self.pinged[*at].len()) {
            self.pinged[at].push(id);
        }
    }
}

const _: () = assert!(
    limits::PONG_WITHIN.as_secs() + 1 < limits::PING_EVERY.as_secs() && limits::PONG_WITHIN.as_secs() > 1,
    "those who are pinged are not those who are looked at, nor those who come"
);
