//! Requests to the application: those of one session, with the commands held for them, and the limit of requests per worker.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use ringmain_engine::backend::Time;
use ringmain_engine::{Cx, TaskId};
use ringmain_hub::protocol::{Command, ConnectRequest, Disconnect};
use ringmain_web::Request;

use super::{Application, Backend, Proxy, ProxyEvent};
use crate::limits;
use crate::worker::PushWorker;

/// The requests of one session.
pub(crate) struct ProxyClient {
    pub(super) application: Rc<dyn Application>,
    /// Emulated headers of the client.
    pub(super) emulated: RefCell<Rc<BTreeMap<String, String>>>,
    /// Opaque data of the application, part of each request.
    pub(super) meta: RefCell<Bytes>,
    /// Set while the client waits for the response to its `connect`.
    pub(super) connecting: Cell<bool>,
    in_flight: RefCell<Vec<InFlightRequest>>,
    /// Commands about channels with a request in flight.
    held: RefCell<VecDeque<Command>>,
    /// The number of requests so far.
    numbers: Cell<u64>,
}

/// A request in flight.
struct InFlightRequest {
    number: u64,
    task: TaskId,
    channel: Option<Arc<str>>,
}

impl ProxyClient {
    /// Creates the part for the session of a request. `None`: the request has no [`Backend`].
    pub(crate) fn from_request(request: &Request<'_>) -> Option<Box<ProxyClient>> {
        let backend = request.extension::<Backend>().ok()?;
        Some(Box::new(ProxyClient {
            application: Rc::clone(&backend.0),
            emulated: RefCell::default(),
            meta: RefCell::default(),
            connecting: Cell::new(false),
            in_flight: RefCell::default(),
            held: RefCell::default(),
            numbers: Cell::new(0),
        }))
    }

    /// Stores the emulated headers that the application receives.
    ///
    /// # Errors
    /// [`Disconnect::BAD_REQUEST`] for more than [`limits::EMULATED_HEADER_BYTES`].
    pub(crate) fn store_headers(&self, proxy: &Proxy, connect: &ConnectRequest) -> Result<(), Disconnect> {
        let is_emulated = |name: &str| {
            let mut names = proxy.emulated.iter();
            names.any(|emulated| emulated.eq_ignore_ascii_case(name))
        };
        let emulated_names = connect.headers.iter().filter(|(name, _)| is_emulated(name));
        let headers: BTreeMap<String, String> = emulated_names
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect();
        let bytes: usize = headers.iter().map(|(name, value)| name.len() + value.len()).sum();
        if bytes > limits::EMULATED_HEADER_BYTES {
            return Err(Disconnect::BAD_REQUEST);
        }
        *self.emulated.borrow_mut() = Rc::new(headers);
        Ok(())
    }

    pub(crate) fn is_connecting(&self) -> bool {
        self.connecting.get()
    }

    /// Returns whether a command about a channel has to wait for the result of an earlier one.
    pub(super) fn holds_channel(&self, channel: &str) -> bool {
        let in_flight = self.in_flight.borrow();
        let mut channels = in_flight.iter().filter_map(|request| request.channel.as_deref());
        channels.any(|in_flight| in_flight == channel)
            || self
                .held
                .borrow()
                .iter()
                .any(|request| channel_of(request) == Some(channel))
    }

    pub(super) fn is_at_limit(&self) -> bool {
        self.in_flight.borrow().len() + self.held.borrow().len() >= limits::PROXY_REQUESTS_PER_CLIENT
    }

    pub(super) fn hold_command(&self, command: Command) {
        self.held.borrow_mut().push_back(command);
    }

    /// Returns the held commands in their order; some may have to be held again.
    pub(super) fn take_held(&self) -> VecDeque<Command> {
        self.held.take()
    }

    pub(super) fn next_number(&self) -> u64 {
        self.numbers.set(self.numbers.get() + 1);
        self.numbers.get()
    }

    pub(super) fn add_in_flight(&self, number: u64, task: TaskId, channel: Option<Arc<str>>) {
        self.in_flight.borrow_mut().push(InFlightRequest {
            number,
            task,
            channel,
        });
    }

    pub(super) fn remove_in_flight(&self, number: u64) {
        self.in_flight
            .borrow_mut()
            .retain(|in_flight| in_flight.number != number);
    }

    /// Cancels the requests of a client that has left.
    pub(crate) fn cancel_all(&self, cx: &Cx) {
        self.held.borrow_mut().clear();
        for in_flight in self.in_flight.take() {
            cx.cancel(in_flight.task);
        }
    }
}

/// Returns the channel of a command.
pub(crate) fn channel_of(command: &Command) -> Option<&str> {
    let of = [
        command.subscribe.as_ref().map(|request| &request.channel),
        command.unsubscribe.as_ref().map(|request| &request.channel),
        command.publish.as_ref().map(|request| &request.channel),
        command.presence.as_ref().map(|request| &request.channel),
        command.presence_stats.as_ref().map(|request| &request.channel),
        command.history.as_ref().map(|request| &request.channel),
        command.sub_refresh.as_ref().map(|request| &request.channel),
    ];
    of.into_iter().flatten().next().map(String::as_str)
}

/// The limit of requests of one worker ([`limits::PROXY_REQUESTS_PER_WORKER`]).
#[derive(Debug, Default)]
pub(crate) struct InFlightLimit {
    in_flight: Cell<u32>,
    /// The time of the last warning.
    warned: Cell<Option<Time>>,
}

impl InFlightLimit {
    /// Logs why a response is missing or invalid: once in [`limits::WARN_INTERVAL`] as a warning, otherwise at level `debug`.
    pub(super) fn report_failure(&self, now: Time, event: ProxyEvent, reason: &str) {
        let level = match self.warned.get() {
            Some(last) if now.since(last) < limits::WARN_INTERVAL => log::Level::Debug,
            _ => {
                self.warned.set(Some(now));
                log::Level::Warn
            }
        };
        log::log!(
            level,
            "push: no valid response from the application to `{}`: {reason}",
            event.name()
        );
    }
}

/// A request in flight, counted until it is dropped.
pub(super) struct InFlightGuard(PushWorker);

impl InFlightGuard {
    /// Counts a request. `None`: the limit is reached.
    pub(super) fn acquire(worker: &PushWorker) -> Option<InFlightGuard> {
        let in_flight = &worker.proxy_requests().in_flight;
        if in_flight.get() >= limits::PROXY_REQUESTS_PER_WORKER {
            return None;
        }
        in_flight.set(in_flight.get() + 1);
        Some(InFlightGuard(worker.clone()))
    }
}

impl Drop for InFlightGuard {
    fn drop(&mut self) {
        let in_flight = &self.0.proxy_requests().in_flight;
        in_flight.set(in_flight.get() - 1);
    }
}

/// Returns the output of `future`; `None` if it takes longer than `timeout`.
pub(super) async fn with_timeout<T>(
    cx: &Cx,
    timeout: Duration,
    future: impl Future<Output = T>,
) -> Option<T> {
    let mut future = pin!(future);
    let mut sleep = pin!(cx.sleep(timeout));
    poll_fn(|context| match future.as_mut().poll(context) {
        Poll::Ready(output) => Poll::Ready(Some(output)),
        Poll::Pending => sleep.as_mut().poll(context).map(|()| None),
    })
    .await
}
