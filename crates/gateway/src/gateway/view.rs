//! What a worker sees of a configuration: one that holds until it looks again.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use ringmain_engine::Addr;

use super::{Gateway, Published};
use crate::exchange::push::Asks;
use crate::front::Ids;
use crate::model::Name;
use crate::passage::StreamPlan;
use crate::plan::Plan;
use crate::table::{AddressId, Table};

/// A worker's view of the configuration. Requests hold it until their answer begins.
#[derive(Debug)]
pub(crate) struct View {
    pub(super) generation: u64,
    pub(crate) table: Arc<Table<Plan>>,
    /// By the names of stream routes.
    pub(crate) streams: Arc<BTreeMap<Name, StreamPlan>>,
    /// What push asks its application.
    pub(crate) asks: Arc<Asks>,
    /// By the numbers of the engine's listeners.
    addresses: Ids,
}

impl View {
    pub(super) fn new(gateway: &Gateway) -> View {
        // Before the table: one that is newer than its number is looked at again, not the other way round.
        let generation = gateway.0.generation.load(Ordering::Acquire);
        let Published {
            table,
            streams,
            asks,
            ids,
        } = gateway.published().clone();
        View {
            generation,
            table,
            streams,
            asks,
            addresses: ids,
        }
    }

    /// The port of an address, if the configuration tells it.
    pub(crate) fn port(&self, id: AddressId) -> Option<u16> {
        let mut addresses = self.table.addresses().iter();
        let (_, addr, _) = addresses.find(|(found, ..)| *found == id)?;
        match addr {
            Addr::Inet(address) => Some(address.port()).filter(|port| *port != 0),
            _ => None,
        }
    }

    /// The address that the engine's listener of that number stands for. `None`: the configuration has it no longer.
    pub(crate) fn address(&self, listener: u32) -> Option<AddressId> {
        self.addresses.get(listener as usize).copied().flatten()
    }
}
