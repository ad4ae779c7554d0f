//! A worker's view of a configuration, valid until its next check.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use ringmain_engine::Addr;

use super::{Gateway, PublishedConfig};
use crate::compile::plan::Plan;
use crate::l4::StreamPlan;
use crate::listeners::AddressIds;
use crate::listeners::datagrams::DatagramAddress;
use crate::model::Name;
use crate::proxy::push::PushQueries;
use crate::table::{AddressId, Table};

/// A worker's view of the configuration. Requests hold it until their response starts.
#[derive(Debug)]
pub(crate) struct View {
    pub(super) generation: u64,
    pub(crate) table: Arc<Table<Plan>>,
    /// By the names of stream routes.
    pub(crate) streams: Arc<BTreeMap<Name, StreamPlan>>,
    /// The calls of push to its application.
    pub(crate) push_queries: Arc<PushQueries>,
    /// By the index of the engine's listener.
    addresses: AddressIds,
    /// The UDP addresses.
    pub(crate) datagrams: Arc<[DatagramAddress]>,
}

impl View {
    pub(super) fn new(gateway: &Gateway) -> View {
        // Read before the table: a table newer than its generation is reloaded once more; an older one would be kept.
        let generation = gateway.0.generation.load(Ordering::Acquire);
        let PublishedConfig {
            table,
            streams,
            push_queries: asks,
            address_ids: ids,
            datagrams,
        } = gateway.lock_published().clone();
        View {
            generation,
            table,
            streams,
            push_queries: asks,
            addresses: ids,
            datagrams,
        }
    }

    /// Returns the port of an address, if the configuration fixes it.
    pub(crate) fn port(&self, id: AddressId) -> Option<u16> {
        match self.table.addresses().address(id)? {
            Addr::Inet(address) => Some(address.port()).filter(|port| *port != 0),
            _ => None,
        }
    }

    /// Returns the address of the engine's listener with this index. `None`: the configuration no longer has it.
    pub(crate) fn address(&self, listener: u32) -> Option<AddressId> {
        self.addresses.get(listener as usize).copied().flatten()
    }
}
