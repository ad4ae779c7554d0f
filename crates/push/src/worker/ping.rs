//! Deadlines of connections by second: for a ping, its pong, and the `connect` of a new connection.

use std::cell::RefCell;
use std::rc::Rc;

use ringmain_hub::subscribers::ConnId;

use crate::client::Client;
use crate::limits;
use crate::options::Options;

/// See the module.
pub(super) struct PingScheduler(RefCell<Wheel>);

struct Wheel {
    /// By second of the ping interval.
    pinged: Vec<Vec<ConnId>>,
    /// By second of [`limits::CONNECT_TIMEOUT`].
    connecting: Vec<Vec<Rc<Client>>>,
    /// Seconds within which a pong is due.
    pong_timeout: usize,
    second: usize,
}

/// The clients to check in a second.
pub(super) struct DueChecks {
    index: usize,
    /// Clients whose pong is due.
    pub(super) pongs: Vec<ConnId>,
    /// Connections whose `connect` is due.
    pub(super) connects: Vec<Rc<Client>>,
}

/// The clients to ping in a second.
pub(super) struct DuePings {
    pub(super) clients: Vec<ConnId>,
}

impl PingScheduler {
    pub(super) fn new(options: &Options) -> PingScheduler {
        PingScheduler(RefCell::new(Wheel {
            pinged: vec![Vec::new(); options.ping_interval.as_secs() as usize],
            pong_timeout: options.pong_timeout.as_secs() as usize,
            connecting: (0..=limits::CONNECT_TIMEOUT.as_secs())
                .map(|_| Vec::new())
                .collect(),
            second: 0,
        }))
    }

    /// Applies changed options: clients are spread over the new interval.
    pub(super) fn set_options(&self, options: &Options) {
        let wheel = &mut *self.0.borrow_mut();
        wheel.pong_timeout = options.pong_timeout.as_secs() as usize;
        let count = options.ping_interval.as_secs() as usize;
        if count != wheel.pinged.len() {
            let all = std::mem::replace(&mut wheel.pinged, vec![Vec::new(); count]);
            for (at, id) in all.into_iter().flatten().enumerate() {
                wheel.pinged[at % count].push(id);
            }
        }
    }

    /// Schedules the pings of a client that has connected.
    pub(super) fn add_client(&self, id: ConnId) {
        self.0.borrow_mut().add_client(id);
    }

    /// Schedules the check that a new connection has sent its `connect`.
    pub(super) fn await_connect(&self, client: Rc<Client>) {
        let wheel = &mut *self.0.borrow_mut();
        let timeout = limits::CONNECT_TIMEOUT.as_secs() as usize;
        let index = (wheel.second + timeout) % wheel.connecting.len();
        wheel.connecting[index].push(client);
    }

    /// Returns the connections that have not sent `connect` yet.
    pub(super) fn connecting_clients(&self) -> Vec<Rc<Client>> {
        let wheel = self.0.borrow();
        let connecting = wheel.connecting.iter().flatten();
        let connecting = connecting.filter(|client| client.id().is_none());
        connecting.map(Rc::clone).collect()
    }

    /// Starts the next second. Returns the clients to check; [`take_due`](PingScheduler::take_due) has to follow.
    pub(super) fn advance(&self) -> DueChecks {
        let wheel = &mut *self.0.borrow_mut();
        wheel.second += 1;
        let index = wheel.pong_index();
        let connecting = wheel.second % wheel.connecting.len();
        DueChecks {
            index,
            pongs: std::mem::take(&mut wheel.pinged[index]),
            connects: std::mem::take(&mut wheel.connecting[connecting]),
        }
    }

    /// Returns the clients to ping in this second, once the others were checked; [`reschedule`](PingScheduler::reschedule) has to follow.
    pub(super) fn take_due(&self, checked: DueChecks) -> DuePings {
        let wheel = &mut *self.0.borrow_mut();
        wheel.pinged[checked.index] = checked.pongs;
        let index = wheel.ping_index();
        DuePings {
            clients: std::mem::take(&mut wheel.pinged[index]),
        }
    }

    /// Schedules the next ping of clients that were pinged in this second; the interval may have changed meanwhile.
    pub(super) fn reschedule(&self, mut pings: DuePings) {
        let wheel = &mut *self.0.borrow_mut();
        let index = wheel.ping_index();
        wheel.pinged[index].append(&mut pings.clients);
    }
}

impl Wheel {
    /// Returns the index of the clients to ping in this second.
    fn ping_index(&self) -> usize {
        self.second % self.pinged.len()
    }

    /// Returns the index of the clients whose pong is due: their pings were spread over that second.
    fn pong_index(&self) -> usize {
        let count = self.pinged.len();
        (self.second + count - self.pong_timeout - 1) % count
    }

    /// Adds a client to the least used second of the interval's second half, the last of equals: the pings of clients that connect together
    /// are spread, and a short-lived client needs none.
    fn add_client(&mut self, id: ConnId) {
        let count = self.pinged.len();
        let later = (count / 2..count)
            .rev()
            .map(|seconds| (self.second + seconds) % count);
        if let Some(at) = later.min_by_key(|at| self.pinged[*at].len()) {
            self.pinged[at].push(id);
        }
    }
}

const _: () = assert!(
    limits::PONG_TIMEOUT.as_secs() + 1 < limits::PING_INTERVAL.as_secs()
        && limits::PONG_TIMEOUT.as_secs() > 1,
    "the clients to ping, to check and to add are in different seconds"
);

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use ringmain_hub::protocol::{Format, Variant};
    use ringmain_hub::subscribers::SubscriberTable;

    use super::*;

    fn options(interval: u64) -> Options {
        Options {
            ping_interval: Duration::from_secs(interval),
            ..Options::default()
        }
    }

    /// Advances by a second without clients to ping or check.
    fn pass_second(pings: &PingScheduler) {
        let due = pings.take_due(pings.advance());
        assert_eq!(due.clients, []);
        pings.reschedule(due);
    }

    #[test]
    fn intervals_may_change_while_clients_are_pinged() {
        let mut subscribers = SubscriberTable::new(1, Options::default().limits);
        let variant = Variant {
            format: Format::Json,
            unidirectional: false,
            framed: false,
        };
        let client = subscribers.open(variant, None);
        for (before, after) in [(60, 25), (25, 60)] {
            let pings = PingScheduler::new(&options(before));
            for _ in 0..2 * before - 10 {
                pass_second(&pings);
            }
            pings.0.borrow_mut().pinged[before as usize - 9].push(client);
            let due = pings.take_due(pings.advance());
            assert_eq!(due.clients, [client]);
            pings.set_options(&options(after));
            pings.reschedule(due);
            // The next ping follows after the new interval, after one check of the pong.
            let mut checks = 0;
            for _ in 1..after {
                let checked = pings.advance();
                checks += checked.pongs.len();
                let due = pings.take_due(checked);
                assert_eq!(due.clients, []);
                pings.reschedule(due);
            }
            assert_eq!(checks, 1);
            assert_eq!(pings.take_due(pings.advance()).clients, [client]);
        }
    }
}
