//! UDP: datagrams of a client and the datagrams of one endpoint that answer them are a session.
//!
//! ```text
//! client ─▶ socket of the listener ─▶ session, by client and local address ─▶ connected socket ─▶ endpoint
//! client ◀─ socket of the listener ◀──────────── task of the session ◀──────── connected socket ◀─ endpoint
//! ```
//!
//! A session's endpoint is picked once, with its first datagram; another one only after ICMP errors. Each worker has its own sockets and
//! sessions: the kernel delivers all datagrams of a client to the same worker. Knows no payload.

mod access_log;
mod session;
mod table;

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;

use ringmain_engine::TaskId;
use ringmain_engine::udp::{DatagramInfo, DatagramOptions, OutgoingDatagram, Udp};

use self::session::{Session, SessionRoute};
use self::table::{SessionKey, SessionTable, TableLimits};
use crate::fault::Fault;
use crate::gateway::Worker;
use crate::limits;
use crate::listeners::datagrams::DatagramAddress;
use crate::stats::{DatagramDrop, NO_ROUTE, SessionEnd};

/// The UDP sockets and sessions of a worker.
#[derive(Debug, Default)]
pub(crate) struct DatagramRelay {
    listeners: RefCell<Vec<OpenListener>>,
    sessions: RefCell<SessionTable<Rc<Session>>>,
    /// The worker's share of the limits of sessions. `None`: the configuration was not read.
    limits: Cell<Option<TableLimits>>,
    /// A task waits for the shutdown.
    follows_drain: Cell<bool>,
    is_draining: Cell<bool>,
}

/// A UDP address that the worker receives on.
#[derive(Debug)]
struct OpenListener {
    socket: Rc<ClientSocket>,
    task: TaskId,
}

/// A socket that clients send to.
#[derive(Debug)]
struct ClientSocket {
    /// The number of its address.
    number: u64,
    udp: Udp,
    segments: SegmentSupport,
}

/// The support of segments by a socket's paths: assumed until the kernel refuses one.
#[derive(Debug, Default)]
struct SegmentSupport {
    is_refused: Cell<bool>,
}

impl SegmentSupport {
    /// Notes an error of a socket. Returns whether it is about segments: the path or the device does not support them.
    fn note_error(&self, error: &io::Error) {
        // EIO, EINVAL, EMSGSIZE, EOPNOTSUPP
        if matches!(error.raw_os_error(), Some(5 | 22 | 90 | 95)) {
            self.is_refused.set(true);
        }
    }

    /// Sends datagrams, those of one size at once where that is possible. Returns the number that could not be queued.
    fn send(&self, udp: &Udp, datagram: &OutgoingDatagram<'_>) -> usize {
        let Some(size) = datagram
            .segment
            .filter(|size| usize::from(*size) < datagram.data.len())
        else {
            let one = OutgoingDatagram {
                segment: None,
                ..*datagram
            };
            return usize::from(udp.try_send(&one).is_err());
        };
        let joins = size <= limits::DATAGRAM_SEGMENT_BYTES && !self.is_refused.get();
        let bytes = usize::from(size)
            * if joins {
                ringmain_engine::limits::DATAGRAM_SEGMENTS
            } else {
                1
            };
        let mut failed = 0;
        for data in datagram.data.chunks(bytes) {
            let count = data.len().div_ceil(usize::from(size));
            let part = OutgoingDatagram {
                segment: (count > 1).then_some(size),
                data,
                ..*datagram
            };
            if udp.try_send(&part).is_err() {
                failed += count;
            }
        }
        failed
    }
}

/// Returns the number of datagrams in a payload.
fn count_datagrams(bytes: usize, segment: Option<u16>) -> usize {
    segment.map_or(1, |size| bytes.div_ceil(usize::from(size.max(1))).max(1))
}

/// Makes the worker's sockets and sessions follow the configuration.
pub(crate) fn follow_configuration(worker: &Rc<Worker>) {
    let relay = &worker.datagrams;
    let view = worker.view();
    let limits = &view.table.config().limits;
    let share = |limit: u32| (limit as usize).div_ceil(worker.cx.workers().max(1)).max(1);
    relay.limits.set(Some(TableLimits {
        sessions: share(limits.datagram_sessions),
        // The kernel spreads the ports of a client over the workers.
        per_owner: limits.datagram_sessions_per_address.map_or(usize::MAX, share),
    }));
    relay.listeners.borrow_mut().retain(|listener| {
        let number = listener.socket.number;
        let is_wanted = view.datagrams.iter().any(|address| address.number == number);
        if !is_wanted {
            close_listener(worker, listener);
        }
        is_wanted
    });
    if !relay.is_draining.get() {
        for address in view.datagrams.iter() {
            let is_open = |listener: &OpenListener| listener.socket.number == address.number;
            if !relay.listeners.borrow().iter().any(is_open)
                && let Err(error) = open_listener(worker, address)
            {
                log::error!("{}: cannot receive datagrams on a worker: {error}", address.addr);
            }
        }
    }
    for session in relay.sessions.borrow().iter() {
        session.end_if_removed();
    }
}

fn open_listener(worker: &Rc<Worker>, address: &DatagramAddress) -> io::Result<()> {
    let udp = if address.sockets.is_left_to_workers() {
        let options = DatagramOptions {
            shared: true,
            local_address: address.addr.ip().is_unspecified(),
            coalesce: true,
        };
        worker.cx.bind_udp_with(address.addr, options)?
    } else {
        // Each worker takes its socket once.
        let Some(fd) = address.sockets.take(worker.cx.worker()) else {
            return Ok(());
        };
        worker.cx.adopt_udp(fd)?
    };
    let socket = Rc::new(ClientSocket {
        number: address.number,
        udp,
        segments: SegmentSupport::default(),
    });
    let task = worker
        .cx
        .spawn(receive_datagrams(Rc::clone(worker), Rc::clone(&socket)))
        .map_err(io::Error::other)?;
    let relay = &worker.datagrams;
    relay.listeners.borrow_mut().push(OpenListener { socket, task });
    if !relay.follows_drain.replace(true) {
        worker
            .cx
            .spawn(follow_drain(Rc::clone(worker)))
            .map_err(io::Error::other)?;
    }
    Ok(())
}

/// Stops receiving, and ends the sessions of the socket, which is closed with the last of these.
fn close_listener(worker: &Worker, listener: &OpenListener) {
    worker.cx.cancel(listener.task);
    for session in worker.datagrams.sessions.borrow().iter() {
        if session.socket_number() == listener.socket.number {
            session.end(SessionEnd::Removed);
        }
    }
}

/// Waits for the shutdown: from then on there are no new sessions. With a successor the sockets are closed at once, so that the kernel
/// delivers all datagrams to that process; the process opens sessions of its own.
async fn follow_drain(worker: Rc<Worker>) {
    worker.cx.draining().await;
    worker.datagrams.is_draining.set(true);
    if worker.cx.has_successor() {
        let listeners = std::mem::take(&mut *worker.datagrams.listeners.borrow_mut());
        for listener in listeners {
            worker.cx.cancel(listener.task);
        }
        for session in worker.datagrams.sessions.borrow().iter() {
            session.end(SessionEnd::Shutdown);
        }
    }
}

/// Receives the datagrams of clients until the task is cancelled.
async fn receive_datagrams(worker: Rc<Worker>, socket: Rc<ClientSocket>) {
    loop {
        let received = poll_fn(|context| {
            socket.udp.poll_datagram(context, |data, from, info| {
                if let Some(client) = from {
                    on_client_datagram(&worker, &socket, client, data, info);
                }
            })
        });
        if let Err(error) = received.await {
            // Of a datagram to some client: none of the others is affected.
            log::debug!("UDP socket {}: {error}", socket.number);
            socket.segments.note_error(&error);
            worker
                .counters
                .datagrams(NO_ROUTE)
                .count_dropped(DatagramDrop::SendFailed, 1);
        }
    }
}

/// Forwards a client's datagrams in its session, or opens one.
fn on_client_datagram(
    worker: &Rc<Worker>,
    socket: &Rc<ClientSocket>,
    client: SocketAddr,
    data: &[u8],
    info: DatagramInfo,
) {
    let key = SessionKey {
        client,
        local: info.local,
        socket: socket.number,
    };
    let found = worker.datagrams.sessions.borrow_mut().touch(&key).cloned();
    let session = match found {
        Some(session) => session,
        None => match open_session(worker, socket, key) {
            Ok(session) => session,
            Err((number, cause)) => {
                let counts = worker.counters.datagrams(number);
                let count = count_datagrams(data.len(), info.segment);
                counts.count_received(count, data.len());
                return counts.count_dropped(cause, count);
            }
        },
    };
    session.forward(worker.cx.now(), data, info.segment);
}

/// Opens a session: picks its upstream, and evicts another session where the table is full, or the share of the client's address.
///
/// # Errors
/// The number of the route, and the cause for which its datagrams are dropped.
fn open_session(
    worker: &Rc<Worker>,
    socket: &Rc<ClientSocket>,
    key: SessionKey,
) -> Result<Rc<Session>, (u32, DatagramDrop)> {
    let relay = &worker.datagrams;
    if relay.is_draining.get() {
        return Err((NO_ROUTE, DatagramDrop::Draining));
    }
    let route = find_route(worker, socket)?;
    let session = Rc::new(Session::new(worker, Rc::clone(socket), key, &route));
    let task = session::run(Rc::clone(worker), Rc::clone(&session), route.upstream);
    if worker.cx.spawn(task).is_err() {
        session.record_unserved(worker, Fault::NoResources);
        return Err((route.number, DatagramDrop::Unavailable));
    }
    let limits = relay.limits.get().unwrap_or(TableLimits {
        sessions: 1,
        per_owner: 1,
    });
    let evicted = relay
        .sessions
        .borrow_mut()
        .insert(key, Rc::clone(&session), limits);
    for session in evicted {
        session.end(SessionEnd::Evicted);
    }
    Ok(session)
}

fn find_route(worker: &Worker, socket: &ClientSocket) -> Result<SessionRoute, (u32, DatagramDrop)> {
    let no_route = |fault| {
        worker.counters.count_fault(fault);
        (NO_ROUTE, DatagramDrop::NoRoute)
    };
    let view = worker.view();
    let address = view
        .datagrams
        .iter()
        .find(|address| address.number == socket.number)
        .ok_or_else(|| no_route(Fault::NoListener))?;
    let mut listeners = view.table.addresses().listeners(address.id);
    let (id, _) = listeners.next().ok_or_else(|| no_route(Fault::NoListener))?;
    let found = view.table.find_stream(id, None);
    let route = found.ok_or_else(|| no_route(Fault::NoRoute))?;
    let plan = view.streams.get(&route.name);
    let plan = plan.ok_or_else(|| no_route(Fault::NoRoute))?;
    let upstream = plan.pick_upstream(|weight| worker.cx.random() % weight);
    let upstream = upstream.map_err(|fault| {
        worker.counters.count_fault(fault);
        (plan.number, DatagramDrop::Unavailable)
    })?;
    Ok(SessionRoute {
        name: Arc::clone(&route.name),
        number: plan.number,
        sessions: route.datagrams,
        upstream: Arc::clone(upstream),
    })
}

impl DatagramRelay {
    /// Removes a session that has ended.
    fn remove(&self, session: &Rc<Session>) {
        let mut sessions = self.sessions.borrow_mut();
        sessions.remove(&session.key(), |other| Rc::ptr_eq(other, session));
    }

    /// Ends the least recently used session but this one, of the same client address if that has others, where a resource is exhausted that
    /// each session needs.
    fn evict_oldest_but(&self, session: &Rc<Session>) {
        let sessions = self.sessions.borrow();
        let key = session.key();
        let mut own = sessions.iter_owner(&key);
        let is_other = |other: &&Rc<Session>| !Rc::ptr_eq(other, session);
        if let Some(oldest) = own.find(is_other).or_else(|| sessions.iter().find(is_other)) {
            oldest.end(SessionEnd::Evicted);
        }
    }
}
