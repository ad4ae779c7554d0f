//! Opens and closes the engine's listeners when the configuration changes.

use ringmain_engine::{Addr, BoundListener, EngineError, ListenOptions, Listeners};

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use super::datagrams::{BoundDatagrams, DatagramAddresses, DatagramWorkers};
use super::{AddressIds, AppliedListeners, ListenAddresses, ListenerReport, NextListeners};
use crate::model::{Name, Protocol};
use crate::table::{AddressId, ConfigPart, Consequence, Problem, Table};

/// Addresses that were bound for a change, in its order; `None`: not bound yet.
#[derive(Debug, Default)]
pub(crate) struct Bindings {
    listeners: Vec<Option<BoundListener>>,
    datagrams: BoundDatagrams,
}

/// All listeners, with the engine's handle to open and close them.
#[derive(Debug, Default)]
pub(crate) struct ListenerController {
    pub(crate) addresses: ListenAddresses,
    pub(crate) datagrams: DatagramAddresses,
    /// `None`: the engine does not run yet; it opens the first configuration's listeners when it starts.
    engine: Option<(Listeners, ListenOptions)>,
    /// No configuration was applied so far.
    has_started: bool,
    /// Listeners that changes before the engine's start removed: it opens them, and they must be closed again.
    failed: Vec<u32>,
    /// A change was made before the engine's start.
    has_failed: bool,
}

impl ListenerController {
    /// Sets the engine's handle. Returns whether a change was made before, which must be applied now.
    pub(crate) fn attach_engine(&mut self, listeners: Listeners, options: ListenOptions) -> bool {
        self.failed.drain(..).for_each(|number| listeners.close(number));
        self.datagrams.workers = DatagramWorkers::Bound(listeners.workers());
        self.engine = Some((listeners, options));
        std::mem::take(&mut self.has_failed)
    }

    /// Compares a table with the current listeners, see [`ListenAddresses::prepare`].
    pub(crate) fn prepare<P>(&self, table: &Table<P>, now: Duration) -> NextListeners {
        let mut next = self.addresses.prepare(table, now);
        next.datagrams = self.datagrams.prepare(table);
        next
    }

    /// Applies prepared changes, see [`ListenAddresses::apply`]; UDP addresses that are not bound are bound now.
    pub(crate) fn apply_addresses(
        &mut self,
        mut next: NextListeners,
        bound: &mut Bindings,
    ) -> AppliedListeners {
        let datagrams = std::mem::take(&mut next.datagrams);
        let unbound = self
            .datagrams
            .apply(datagrams, std::mem::take(&mut bound.datagrams));
        let mut applied = self.addresses.apply(next);
        applied.problems.extend(unbound);
        applied
    }

    /// Binds the UDP addresses of the current table, for so many workers. Returns the problems of those that cannot be bound.
    pub(crate) fn bind_datagrams<P>(&mut self, table: &Table<P>, workers: DatagramWorkers) -> Vec<Problem> {
        self.datagrams.workers = workers;
        let next = self.datagrams.prepare(table);
        self.datagrams.apply(next, Vec::new())
    }

    /// Returns the addresses of a table that are not listened on. `ids` must be those of that table.
    pub(crate) fn unbound_addrs<P>(&self, table: &Table<P>, ids: &AddressIds) -> Vec<Addr> {
        let mut unbound = self.addresses.unbound_addrs(table, ids);
        let datagrams = table.addresses().iter().filter(|(.., is_datagram)| *is_datagram);
        let bound: BTreeSet<AddressId> = self.datagrams.bound_addrs().map(|(id, _)| id).collect();
        let missing = datagrams.filter(|(id, ..)| !bound.contains(id));
        unbound.extend(missing.map(|(_, addr, _)| addr.clone()));
        unbound
    }

    /// Returns the addresses of a table with their listeners. `ids` must be those of that table.
    pub(crate) fn reports<P>(&self, table: &Table<P>, ids: &AddressIds) -> Vec<ListenerReport> {
        let mut reports = self.addresses.reports(table, ids);
        let bound: BTreeSet<AddressId> = self.datagrams.bound_addrs().map(|(id, _)| id).collect();
        for (id, addr, _) in table.addresses().iter().filter(|(.., is_datagram)| *is_datagram) {
            let listeners = table.addresses().listeners(id);
            reports.push(ListenerReport {
                addr: addr.clone(),
                names: listeners
                    .map(|(_, listener)| Arc::clone(&listener.name))
                    .collect(),
                protocols: vec![Protocol::Udp],
                number: None,
                is_open: bound.contains(&id),
            });
        }
        reports
    }

    /// Returns the UDP addresses that are bound, in the order of their opening.
    pub(crate) fn datagram_addrs(&self) -> Vec<SocketAddr> {
        self.datagrams.bound_addrs().map(|(_, addr)| addr).collect()
    }

    /// Binds new addresses, in their order, before the prepared changes apply. The kernel queues connections there from now on. Addresses of
    /// listeners whose names `is_required` does not accept are left to [`ListenerController::apply`].
    ///
    /// # Errors
    /// The listeners that cannot be bound. No address is bound or closed in that case.
    pub(crate) fn bind_new(
        &self,
        next: &NextListeners,
        is_required: &dyn Fn(&Name) -> bool,
    ) -> Result<Bindings, Vec<Problem>> {
        let Some((engine, options)) = &self.engine else {
            return Ok(Bindings::default());
        };
        let mut bound = Vec::new();
        // Listeners that the change closes and that are open, and those that were closed here.
        let mut closing: Option<Vec<(u32, Addr)>> = None;
        let mut closed: Vec<(u32, Addr)> = Vec::new();
        let mut problems = Vec::new();
        for (addr, listener) in next.opened() {
            if !is_required(listener) {
                bound.push(None);
                continue;
            }
            let mut binding = engine.bind(addr, options);
            if binding.is_err() {
                // Listeners that this change closes may block it: `0.0.0.0:80` blocks a new `127.0.0.1:80`.
                let closing = closing.get_or_insert_with(|| self.addresses.closing(next));
                let blocking: Vec<_> = closing
                    .extract_if(.., |(_, closing)| overlaps(closing, addr))
                    .collect();
                if !blocking.is_empty() {
                    blocking.iter().for_each(|(number, _)| engine.close(*number));
                    binding = engine.bind(addr, options);
                    closed.extend(blocking);
                }
            }
            match binding {
                Ok(binding) => bound.push(Some(binding)),
                Err(error) => problems.push(open_problem(listener, &error)),
            }
        }
        let datagrams = match self.datagrams.bind(&next.datagrams, is_required) {
            Ok(datagrams) => datagrams,
            Err(unbound) => {
                problems.extend(unbound);
                Vec::new()
            }
        };
        if problems.is_empty() {
            return Ok(Bindings {
                listeners: bound,
                datagrams,
            });
        }
        drop((bound, datagrams));
        for (number, addr) in closed {
            if let Err(error) = engine.open(number, &addr, options) {
                log::error!(
                    "{addr} was closed for a change that was refused, and cannot be opened again: {error}"
                );
            }
        }
        Err(problems)
    }

    /// Closes removed listeners, switches the handling of connections, and opens new listeners or starts bound ones. Returns the listeners
    /// that could not be opened.
    pub(crate) fn apply(&mut self, applied: &AppliedListeners, bound: Bindings) -> Vec<Problem> {
        let Some((engine, options)) = &self.engine else {
            applied
                .changed
                .iter()
                .for_each(|number| self.addresses.switch_protocol(*number));
            if std::mem::replace(&mut self.has_started, true) {
                self.has_failed = true;
                self.failed.extend(&applied.closed);
                applied
                    .opened
                    .iter()
                    .for_each(|(number, ..)| self.addresses.release_number(*number));
            }
            return Vec::new();
        };
        // First: a removed listener may block the address of a new one.
        for number in &applied.closed {
            engine.close(*number);
        }
        applied
            .changed
            .iter()
            .for_each(|number| self.addresses.switch_protocol(*number));
        let mut problems = Vec::new();
        let mut bound = bound.listeners.into_iter();
        for (number, addr, listener) in &applied.opened {
            let opened = match bound.next().flatten() {
                Some(bound) => engine.start(*number, bound),
                None => engine.open(*number, addr, options),
            };
            match opened {
                Ok(opened) => log::info!("listening on {opened}"),
                Err(error) => {
                    self.addresses.release_number(*number);
                    problems.push(open_problem(listener, &error));
                }
            }
        }
        problems
    }

    /// Returns the addresses to listen on when the engine starts, in the order of their numbers.
    pub(crate) fn listen_addrs(&self) -> Vec<Addr> {
        self.addresses.listen_addrs()
    }
}

fn open_problem(listener: &Name, error: &EngineError) -> Problem {
    Problem {
        part: ConfigPart::Listener(listener.clone()),
        field: "addresses",
        expected: "an address that can be listened at".to_owned(),
        found: error.to_string(),
        consequence: Consequence::Omitted,
    }
}

/// Returns whether a listener at one address may block another.
fn overlaps(a: &Addr, b: &Addr) -> bool {
    match (a, b) {
        (Addr::Inet(a), Addr::Inet(b)) => {
            let any = a.ip().is_unspecified() || b.ip().is_unspecified();
            a.port() == b.port() && (any || a.ip() == b.ip())
        }
        _ => a == b,
    }
}
