//! The connected clients of a worker: by connection, by user, and by the secret of their session.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use ringmain_engine::backend::Time;
use ringmain_hub::subscribers::ConnId;

use super::mesh::Process;
use crate::client::Client;
use crate::transport::Transport;

/// See the module.
pub(super) struct ClientRegistry {
    /// Counts clients and users across all workers.
    process: Process,
    /// By [`ConnId::slot`].
    clients: RefCell<Vec<Option<Rc<Client>>>>,
    /// Slots of the connections of each known user.
    by_user: RefCell<BTreeMap<Arc<str>, Vec<usize>>>,
    /// Clients whose commands arrive in requests of their own, by the secret part of their session's name.
    by_session: RefCell<BTreeMap<u128, ConnId>>,
}

impl ClientRegistry {
    pub(super) fn new(process: &Process) -> ClientRegistry {
        ClientRegistry {
            process: process.clone(),
            clients: RefCell::default(),
            by_user: RefCell::default(),
            by_session: RefCell::default(),
        }
    }

    /// Returns the number of connected clients, across all workers.
    pub(super) fn process_count(&self) -> usize {
        self.process.clients.load(Ordering::Relaxed)
    }

    /// Returns the time at which the first worker of the process started.
    pub(super) fn started(&self) -> Time {
        self.process.started
    }

    /// Returns the name of this process for clients.
    pub(super) fn node(&self) -> &Arc<str> {
        &self.process.node
    }

    /// Counts a connection of a user. Returns `false` if the user has `limit` connections already.
    pub(super) fn try_acquire_user(&self, user: &str, limit: u32) -> bool {
        self.process.user_connections.try_acquire(user, limit)
    }

    /// Adds a client that has been identified.
    pub(super) fn insert(&self, id: ConnId, client: Rc<Client>) {
        let mut clients = self.clients.borrow_mut();
        if clients.len() <= id.slot() {
            clients.resize_with(id.slot() + 1, || None);
        }
        let identity = client.identity();
        if !identity.user().is_empty() {
            let mut users = self.by_user.borrow_mut();
            users.entry(identity.user().into()).or_default().push(id.slot());
        }
        clients[id.slot()] = Some(client);
        self.process.clients.fetch_add(1, Ordering::Relaxed);
    }

    /// Removes a client, its session and the count of its user.
    pub(super) fn remove(&self, id: ConnId) -> Option<Rc<Client>> {
        let client = self
            .clients
            .borrow_mut()
            .get_mut(id.slot())
            .and_then(Option::take)?;
        self.remove_user(client.identity().user(), id);
        self.process.clients.fetch_sub(1, Ordering::Relaxed);
        if let Transport::Stream(stream) = &*client.transport.borrow()
            && let Some(secret) = stream.session.get()
        {
            self.by_session.borrow_mut().remove(&secret);
        }
        Some(client)
    }

    fn remove_user(&self, user: &str, id: ConnId) {
        let mut users = self.by_user.borrow_mut();
        if let Some(slots) = users.get_mut(user) {
            slots.retain(|slot| *slot != id.slot());
            if slots.is_empty() {
                users.remove(user);
            }
            self.process.user_connections.release(user);
        }
    }

    /// Returns the client of a connection, unless its slot has another one by now.
    pub(super) fn find(&self, id: ConnId) -> Option<Rc<Client>> {
        let clients = self.clients.borrow();
        let client = clients.get(id.slot())?.as_ref()?;
        (client.id() == Some(id)).then(|| Rc::clone(client))
    }

    /// Returns the client in a slot.
    pub(super) fn in_slot(&self, slot: usize) -> Option<Rc<Client>> {
        self.clients.borrow().get(slot).cloned().flatten()
    }

    /// Returns the connections of a user on this worker.
    pub(super) fn user_clients(&self, user: &str) -> Vec<Rc<Client>> {
        let (users, clients) = (self.by_user.borrow(), self.clients.borrow());
        let slots = users.get(user).map_or(&[][..], Vec::as_slice);
        slots
            .iter()
            .filter_map(|slot| clients.get(*slot)?.clone())
            .collect()
    }

    /// Returns a connected client near a random slot, among so many slots.
    pub(super) fn pick(&self, random: u64, probes: usize) -> Option<Rc<Client>> {
        let clients = self.clients.borrow();
        let first = (random % clients.len().max(1) as u64) as usize;
        let slots = clients[first..].iter().chain(&clients[..first]);
        let mut connected = slots.take(probes).flatten();
        connected
            .find(|client| client.transport.borrow().is_open())
            .map(Rc::clone)
    }

    /// Returns all connected clients of this worker.
    pub(super) fn connected(&self) -> Vec<Rc<Client>> {
        self.clients.borrow().iter().flatten().map(Rc::clone).collect()
    }

    pub(super) fn add_session(&self, secret: u128, id: ConnId) {
        self.by_session.borrow_mut().insert(secret, id);
    }

    /// Returns the client of a session.
    pub(super) fn find_session(&self, secret: u128) -> Option<Rc<Client>> {
        let id = self.by_session.borrow().get(&secret).copied()?;
        self.find(id)
    }
}
