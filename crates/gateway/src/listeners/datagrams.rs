//! The UDP addresses of configurations, each with its sockets: one for each worker, bound here and taken over by the workers.
//!
//! ```text
//! table ─▶ prepare ─▶ bind ─▶ apply ─▶ published ─▶ each worker takes its socket, or drops that of a removed address
//! ```
//!
//! An address that stays keeps its number and its sockets, so that sessions and queued datagrams survive a change of everything else.
//! Knows no datagrams and no routes.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError};

use ringmain_engine::Addr;
use ringmain_engine::udp::UdpGroup;

use crate::model::Name;
use crate::table::{AddressId, ConfigPart, Consequence, Problem, Table};

/// A UDP address of the current configuration.
#[derive(Clone, Debug)]
pub(crate) struct DatagramAddress {
    /// Never that of another address.
    pub(crate) number: u64,
    /// The table's address.
    pub(crate) id: AddressId,
    /// The address as configured.
    pub(crate) addr: SocketAddr,
    pub(crate) sockets: Arc<DatagramSockets>,
}

/// The sockets of an address until its workers have taken them.
#[derive(Debug)]
pub(crate) struct DatagramSockets {
    /// The address that is bound. `None`: each worker binds its own.
    bound: Option<SocketAddr>,
    /// By worker.
    waiting: Mutex<Vec<Option<OwnedFd>>>,
}

impl DatagramSockets {
    /// Returns a worker's socket, once; `None`: it binds its own.
    pub(crate) fn take(&self, worker: usize) -> Option<OwnedFd> {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.get_mut(worker)?.take()
    }

    /// Returns whether workers bind their own.
    pub(crate) fn is_left_to_workers(&self) -> bool {
        self.bound.is_none()
    }
}

/// The workers that addresses are bound for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum DatagramWorkers {
    /// The number is not known yet: nothing is bound.
    #[default]
    Unknown,
    Bound(usize),
    /// Each worker binds its own sockets.
    ByThemselves,
}

/// The UDP addresses of the current configuration.
#[derive(Debug, Default)]
pub(crate) struct DatagramAddresses {
    all: Vec<DatagramAddress>,
    next_number: u64,
    pub(crate) workers: DatagramWorkers,
    /// This process takes over from another one that still has its sockets.
    pub(crate) joins_predecessor: bool,
}

/// The UDP addresses that a table requires.
#[derive(Debug, Default)]
pub(crate) struct NextDatagrams {
    /// Addresses that stay, each with its index.
    retained: Vec<(usize, AddressId)>,
    /// New addresses, each with the name of its listener.
    opened: Vec<(AddressId, SocketAddr, Name)>,
}

/// Sockets that were bound for a change, by its order.
pub(crate) type BoundDatagrams = Vec<Option<DatagramSockets>>;

impl DatagramAddresses {
    /// Compares the addresses of a table with the current ones. Each port 0 is an address of its own, matched in order.
    pub(crate) fn prepare<P>(&self, table: &Table<P>) -> NextDatagrams {
        let mut next = NextDatagrams::default();
        let mut current: BTreeMap<SocketAddr, VecDeque<usize>> = BTreeMap::new();
        for (index, address) in self.all.iter().enumerate() {
            current.entry(address.addr).or_default().push_back(index);
        }
        for (id, addr, is_datagram) in table.addresses().iter() {
            let (Addr::Inet(addr), true) = (addr, is_datagram) else {
                continue;
            };
            match current.get_mut(addr).and_then(VecDeque::pop_front) {
                Some(index) => next.retained.push((index, id)),
                None => {
                    let mut listeners = table.addresses().listeners(id);
                    let (_, listener) = listeners.next().expect("an address has a listener");
                    next.opened.push((id, *addr, Arc::clone(&listener.name)));
                }
            }
        }
        next
    }

    /// Binds the new addresses of the listeners that `is_required` accepts.
    ///
    /// # Errors
    /// The listeners that cannot be bound; then nothing is.
    pub(crate) fn bind(
        &self,
        next: &NextDatagrams,
        is_required: &dyn Fn(&Name) -> bool,
    ) -> Result<BoundDatagrams, Vec<Problem>> {
        let mut bound = Vec::new();
        let mut problems = Vec::new();
        for (_, addr, listener) in &next.opened {
            if !is_required(listener) {
                bound.push(None);
                continue;
            }
            match self.bind_address(*addr) {
                Ok(sockets) => bound.push(sockets),
                Err(error) => problems.push(bind_problem(listener, *addr, &error)),
            }
        }
        if problems.is_empty() {
            Ok(bound)
        } else {
            Err(problems)
        }
    }

    fn bind_address(&self, addr: SocketAddr) -> io::Result<Option<DatagramSockets>> {
        match self.workers {
            DatagramWorkers::Unknown => Ok(None),
            DatagramWorkers::ByThemselves => Ok(Some(DatagramSockets {
                bound: None,
                waiting: Mutex::default(),
            })),
            DatagramWorkers::Bound(workers) => {
                // Our own sockets at an overlapping address are not in the way of a new one.
                let overlaps = |current: &DatagramAddress| {
                    let any = current.addr.ip().is_unspecified() || addr.ip().is_unspecified();
                    current.addr.port() == addr.port() && (any || current.addr.ip() == addr.ip())
                };
                let is_exclusive = !self.joins_predecessor && !self.all.iter().any(overlaps);
                let group = UdpGroup::bind(addr, workers, is_exclusive)?;
                Ok(Some(DatagramSockets {
                    bound: Some(group.addr),
                    waiting: Mutex::new(group.sockets.into_iter().map(Some).collect()),
                }))
            }
        }
    }

    /// Applies a prepared change. New addresses that were not bound are bound now. Returns the problems of those that cannot be.
    pub(crate) fn apply(&mut self, next: NextDatagrams, bound: BoundDatagrams) -> Vec<Problem> {
        let mut all = Vec::with_capacity(next.retained.len() + next.opened.len());
        for (index, id) in next.retained {
            all.push(DatagramAddress {
                id,
                ..self.all[index].clone()
            });
        }
        let mut problems = Vec::new();
        let mut bound = bound.into_iter();
        for (id, addr, listener) in next.opened {
            let sockets = match bound.next().flatten() {
                Some(sockets) => Ok(Some(sockets)),
                None => self.bind_address(addr),
            };
            match sockets {
                Ok(Some(sockets)) => {
                    if let Some(bound) = sockets.bound {
                        log::info!("receiving datagrams on {bound}");
                    }
                    all.push(DatagramAddress {
                        number: self.next_number,
                        id,
                        addr,
                        sockets: Arc::new(sockets),
                    });
                    self.next_number += 1;
                }
                // Bound as soon as the number of workers is known.
                Ok(None) => {}
                Err(error) => problems.push(bind_problem(&listener, addr, &error)),
            }
        }
        self.all = all;
        problems
    }

    /// Returns the current addresses, for workers.
    pub(crate) fn published(&self) -> Arc<[DatagramAddress]> {
        self.all.as_slice().into()
    }

    /// Returns the bound addresses with the table's numbers of these.
    pub(crate) fn bound_addrs(&self) -> impl Iterator<Item = (AddressId, SocketAddr)> {
        let all = self.all.iter();
        all.map(|address| (address.id, address.sockets.bound.unwrap_or(address.addr)))
    }
}

fn bind_problem(listener: &Name, addr: SocketAddr, error: &io::Error) -> Problem {
    Problem {
        part: ConfigPart::Listener(Arc::clone(listener)),
        field: "addresses",
        expected: "a UDP address that can be bound".to_owned(),
        found: format!("{addr}: {error}"),
        consequence: Consequence::Omitted,
    }
}
