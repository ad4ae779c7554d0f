//! The engine's listeners by number, each with its address, its TLS, and the handling of its connections.
//!
//! Listeners are added and removed with configurations. The number of a listener that clients may have connected to is never
//! reused: such a connection must not be taken for one of another listener. Knows no requests.

mod controller;
pub(crate) mod datagrams;
mod protocol;
mod tls;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use ringmain_engine::Addr;
use ringmain_tls::{Facts, HandshakeCounts};
use ringmain_web::{Limits, ListenerProtocols};

pub(crate) use self::controller::{Bindings, ListenerController};
use self::datagrams::NextDatagrams;
use self::protocol::{AddressProtocol, ProtocolSet, build_protocol};
use self::tls::{AddressTls, PreparedTls, TlsParts};
use crate::model::{ClientCertificateMode, Config, Listener, Name, PerAddressLimit, Protocol};
use crate::table::{AddressId, Problem, Table};

#[cfg(test)]
mod tests;

/// The engine's listeners, by number; `None`: closed.
#[derive(Debug, Default)]
pub(crate) struct ListenAddresses {
    all: Vec<Option<ListenAddress>>,
    /// Numbers of listeners that were never opened: no client can have connected there.
    unused: Vec<u32>,
    /// The application's handling of connections, by listener.
    protocols: ListenerProtocols,
    /// Handshake counts of closed listeners.
    closed_handshakes: HandshakeCounts,
}

/// One of the engine's listeners.
#[derive(Debug)]
struct ListenAddress {
    addr: Addr,
    protocols: ProtocolSet,
    /// The TLS of HTTP listeners.
    https: Option<AddressTls>,
    /// The TLS of listeners that terminate TLS and forward bytes.
    tls: Option<AddressTls>,
}

/// The table's address of each listener, by number. `None`: the table has no such address.
pub(crate) type AddressIds = Arc<[Option<AddressId>]>;

/// An address of the configuration with its listeners.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListenerReport {
    /// The address, as configured.
    pub addr: Addr,
    /// The names of its listeners, in the order of the configuration.
    pub names: Vec<Name>,
    /// Their protocols, without repetitions.
    pub protocols: Vec<Protocol>,
    /// The number of the engine's listener, by which the application counts connections. `None`: the address is not listened on, or has no
    /// connections.
    pub number: Option<u32>,
    /// The address is listened on.
    pub is_open: bool,
}

/// The changes to the listeners that a new table requires.
#[derive(Debug)]
pub(crate) struct AppliedListeners {
    pub(crate) ids: AddressIds,
    pub(crate) problems: Vec<Problem>,
    /// Listeners whose handling of connections changes, new ones included.
    pub(crate) changed: Vec<u32>,
    /// Listeners to open, each with its address and the name of one of the table's listeners there.
    pub(crate) opened: Vec<(u32, Addr, Name)>,
    /// Listeners to close.
    pub(crate) closed: Vec<u32>,
}

/// An address of a table and its listeners.
struct WantedAddress<'t> {
    id: AddressId,
    addr: &'t Addr,
    listeners: Vec<&'t Arc<Listener>>,
    wanted: ProtocolSet,
}

/// The listeners that a table requires: built and checked, but not yet applied.
#[derive(Debug)]
pub(crate) struct NextListeners {
    retained: Vec<RetainedListener>,
    opened: Vec<NewListener>,
    /// The UDP addresses.
    datagrams: NextDatagrams,
    pub(crate) problems: Vec<Problem>,
}

/// An open listener that the table still has.
#[derive(Debug)]
struct RetainedListener {
    number: usize,
    id: AddressId,
    protocols: ProtocolSet,
    https: TlsChange,
    tls: TlsChange,
}

/// A new listener.
#[derive(Debug)]
struct NewListener {
    address: ListenAddress,
    id: AddressId,
    listener: Name,
}

/// The change of a listener's TLS.
#[derive(Debug)]
enum TlsChange {
    None,
    Open(AddressTls),
    Reload(PreparedTls),
}

impl NextListeners {
    /// Returns the new addresses, each with the name of one of its listeners.
    pub(crate) fn opened(&self) -> impl Iterator<Item = (&Addr, &Name)> {
        self.opened
            .iter()
            .map(|listener| (&listener.address.addr, &listener.listener))
    }
}

impl ListenAddresses {
    /// Calls [`ListenAddresses::prepare`], then [`ListenAddresses::apply`].
    #[cfg(test)]
    pub(crate) fn follow_table<P>(&mut self, table: &Table<P>, now: Duration) -> AppliedListeners {
        let next = self.prepare(table, now);
        self.apply(next)
    }

    /// Builds the listeners that a table requires; a part that cannot be built is reported as a problem and stays as it was. Changes
    /// nothing. `now` is the time since the Unix epoch.
    pub(crate) fn prepare<P>(&self, table: &Table<P>, now: Duration) -> NextListeners {
        let parts = TlsParts::new(table.config());
        let wanted = wanted_addresses(table);
        let mut by_addr: BTreeMap<&Addr, Vec<usize>> = BTreeMap::new();
        for (index, place) in wanted.iter().enumerate() {
            by_addr.entry(place.addr).or_default().push(index);
        }
        let mut wanted: Vec<Option<WantedAddress<'_>>> = wanted.into_iter().map(Some).collect();
        let mut is_matched = vec![false; self.all.len()];
        let mut next = NextListeners {
            retained: Vec::new(),
            opened: Vec::new(),
            datagrams: NextDatagrams::default(),
            problems: Vec::new(),
        };
        // Port 0 may occur several times: each is an address of its own, matched in order, those of the same kind first.
        for same_kind in [true, false] {
            for (number, address) in self.all.iter().enumerate() {
                let Some(address) = address.as_ref().filter(|_| !is_matched[number]) else {
                    continue;
                };
                let mut of_addr = by_addr.get(&address.addr).into_iter().flatten();
                let found = of_addr.find(|index| {
                    wanted[**index]
                        .as_ref()
                        .is_some_and(|place| !same_kind || place.wanted.kind == address.protocols.kind)
                });
                if let Some(place) = found.and_then(|index| wanted[*index].take()) {
                    is_matched[number] = true;
                    let retained = address.prepare(number, &parts, &place, now, &mut next.problems);
                    next.retained.push(retained);
                }
            }
        }
        for place in wanted.into_iter().flatten() {
            if let Some(address) = ListenAddress::open(&parts, &place, now, &mut next.problems) {
                next.opened.push(NewListener {
                    address,
                    id: place.id,
                    listener: Arc::clone(&place.listeners[0].name),
                });
            }
        }
        next
    }

    /// Applies prepared changes to this state. Does not open or close sockets; the handling of connections changes with
    /// [`ListenAddresses::switch_protocol`].
    pub(crate) fn apply(&mut self, next: NextListeners) -> AppliedListeners {
        let mut ids: Vec<Option<AddressId>> = vec![None; self.all.len()];
        let mut applied = AppliedListeners {
            ids: Arc::default(),
            problems: next.problems,
            changed: Vec::new(),
            opened: Vec::new(),
            closed: Vec::new(),
        };
        for retained in next.retained {
            let number = retained.number;
            ids[number] = Some(retained.id);
            if self.all[number]
                .as_mut()
                .is_some_and(|address| address.apply(retained))
            {
                applied.changed.push(number as u32);
            }
        }
        applied.changed.sort_unstable();
        for number in (0..ids.len()).filter(|number| ids[*number].is_none()) {
            if let Some(address) = self.all[number].take() {
                address.add_handshakes(&mut self.closed_handshakes);
                applied.closed.push(number as u32);
            }
        }
        for NewListener {
            address,
            id,
            listener,
        } in next.opened
        {
            let addr = address.addr.clone();
            address.log_warnings();
            let number = self.insert(address);
            ids.resize(self.all.len(), None);
            ids[number as usize] = Some(id);
            applied.changed.push(number);
            applied.opened.push((number, addr, listener));
        }
        applied.ids = ids.into();
        applied
    }

    /// Returns the listeners that prepared changes close.
    pub(crate) fn closing(&self, next: &NextListeners) -> Vec<(u32, Addr)> {
        let retained: BTreeSet<usize> = next.retained.iter().map(|retained| retained.number).collect();
        let all = self.all.iter().enumerate();
        all.filter(|(number, _)| !retained.contains(number))
            .filter_map(|(number, address)| Some((number as u32, address.as_ref()?.addr.clone())))
            .collect()
    }

    fn insert(&mut self, address: ListenAddress) -> u32 {
        let number = self.unused.pop().unwrap_or(self.all.len() as u32);
        let index = number as usize;
        if index == self.all.len() {
            self.all.push(None);
        }
        self.all[index] = Some(address);
        number
    }

    /// Switches new connections to the handling that the last table requires.
    pub(crate) fn switch_protocol(&self, number: u32) {
        if let Some(Some(address)) = self.all.get(number as usize) {
            self.protocols.set(number, build_protocol(address));
        }
    }

    /// Records that a listener could not be opened: its number is free again.
    pub(crate) fn release_number(&mut self, number: u32) {
        if self.all[number as usize].take().is_some() {
            self.unused.push(number);
        }
    }

    /// Returns the addresses of a table that are not listened on. `ids` must be those of that table.
    pub(crate) fn unbound_addrs<P>(&self, table: &Table<P>, ids: &AddressIds) -> Vec<Addr> {
        let numbers = self.numbers(ids);
        let wanted = wanted_addresses(table).into_iter();
        wanted
            .filter(|place| !numbers.contains_key(&place.id))
            .map(|place| place.addr.clone())
            .collect()
    }

    /// Returns the number of the open listener of each address. `ids` are those of the addresses' table.
    fn numbers(&self, ids: &AddressIds) -> BTreeMap<AddressId, u32> {
        let mut numbers = BTreeMap::new();
        for ((number, address), id) in (0..).zip(&self.all).zip(ids.iter()) {
            if let Some(id) = id.filter(|_| address.is_some()) {
                numbers.entry(id).or_insert(number);
            }
        }
        numbers
    }

    /// Returns the addresses of a table with their listeners. `ids` must be those of that table.
    pub(crate) fn reports<P>(&self, table: &Table<P>, ids: &AddressIds) -> Vec<ListenerReport> {
        let numbers = self.numbers(ids);
        let report = |place: WantedAddress<'_>| {
            let number = numbers.get(&place.id).copied();
            let mut protocols: Vec<Protocol> = Vec::new();
            for listener in &place.listeners {
                if !protocols.contains(&listener.protocol) {
                    protocols.push(listener.protocol);
                }
            }
            ListenerReport {
                addr: place.addr.clone(),
                names: place.listeners.iter().map(|it| Arc::clone(&it.name)).collect(),
                protocols,
                number,
                is_open: number.is_some(),
            }
        };
        wanted_addresses(table).into_iter().map(report).collect()
    }

    /// Returns the addresses that are listened on, in the order of their numbers.
    pub(crate) fn listen_addrs(&self) -> Vec<Addr> {
        self.all
            .iter()
            .flatten()
            .map(|address| address.addr.clone())
            .collect()
    }

    /// Returns the handling of connections.
    pub(crate) fn protocols(&self) -> &ListenerProtocols {
        &self.protocols
    }

    /// Returns the handshake counts of every listener, closed ones included.
    pub(crate) fn handshake_counts(&self) -> HandshakeCounts {
        let mut sum = self.closed_handshakes;
        for address in self.all.iter().flatten() {
            address.add_handshakes(&mut sum);
        }
        sum
    }
}

impl ListenAddress {
    /// Builds a listener, as far as its TLS can be built.
    fn open(
        parts: &TlsParts<'_>,
        place: &WantedAddress<'_>,
        now: Duration,
        problems: &mut Vec<Problem>,
    ) -> Option<ListenAddress> {
        let mut open = |protocol| AddressTls::open(parts, &listeners_with(place, protocol), now, problems);
        let address = ListenAddress {
            addr: place.addr.clone(),
            protocols: place.wanted.clone(),
            https: open(Protocol::Https),
            tls: open(Protocol::Tls),
        };
        (address.protocols.kind != AddressProtocol::Https || address.https.is_some()).then_some(address)
    }

    fn prepare(
        &self,
        number: usize,
        parts: &TlsParts<'_>,
        place: &WantedAddress<'_>,
        now: Duration,
        problems: &mut Vec<Problem>,
    ) -> RetainedListener {
        let mut change = |protocol, tls: &Option<AddressTls>| {
            let listeners = listeners_with(place, protocol);
            let (opened, reload) = match tls {
                // The TLS stays for a later configuration that may need it again.
                Some(_) if listeners.is_empty() => (None, None),
                Some(tls) => (None, tls.prepare(parts, &listeners, now, problems)),
                None => (AddressTls::open(parts, &listeners, now, problems), None),
            };
            let opened = opened.map(TlsChange::Open);
            opened
                .or(reload.map(TlsChange::Reload))
                .unwrap_or(TlsChange::None)
        };
        RetainedListener {
            number,
            id: place.id,
            protocols: place.wanted.clone(),
            https: change(Protocol::Https, &self.https),
            tls: change(Protocol::Tls, &self.tls),
        }
    }

    /// Applies a prepared change. Returns whether the handling of connections changes.
    fn apply(&mut self, retained: RetainedListener) -> bool {
        let mut changed = self.protocols != retained.protocols;
        for (change, tls) in [(retained.https, &mut self.https), (retained.tls, &mut self.tls)] {
            match (change, tls) {
                (TlsChange::Open(opened), tls) => {
                    opened.log_warnings();
                    *tls = Some(opened);
                    changed = true;
                }
                (TlsChange::Reload(next), Some(tls)) => tls.apply(&self.addr, next),
                (TlsChange::Reload(_) | TlsChange::None, _) => {}
            }
        }
        self.protocols = retained.protocols;
        changed
    }

    fn log_warnings(&self) {
        for tls in [&self.https, &self.tls].into_iter().flatten() {
            tls.log_warnings();
        }
    }

    fn add_handshakes(&self, sum: &mut HandshakeCounts) {
        for tls in [&self.https, &self.tls].into_iter().flatten() {
            let counts = tls.acceptor.counts();
            sum.started += counts.started;
            sum.finished += counts.finished;
            sum.resumed += counts.resumed;
            sum.failed += counts.failed;
        }
    }
}

/// Returns the listeners of an address with this protocol.
fn listeners_with<'t>(place: &WantedAddress<'t>, protocol: Protocol) -> Vec<&'t Arc<Listener>> {
    let listeners = place
        .listeners
        .iter()
        .filter(|listener| listener.protocol == protocol);
    listeners.copied().collect()
}

/// Returns the addresses with connections, not those of datagrams.
fn wanted_addresses<P>(table: &Table<P>) -> Vec<WantedAddress<'_>> {
    let all = table.addresses().iter();
    let wanted = all.filter_map(|(id, addr, _)| {
        let listeners = table.addresses().listeners(id).map(|(_, listener)| listener);
        let listeners: Vec<_> = listeners.collect();
        Some(WantedAddress {
            wanted: ProtocolSet::from_listeners(&listeners)?,
            id,
            addr,
            listeners,
        })
    });
    wanted.collect()
}

/// Returns whether a listener refuses a client because of its certificate, or because it has none. The handshake demands less where
/// listeners of an address differ.
pub(crate) fn rejects_certificate(listener: &Listener, facts: impl FnOnce() -> Option<Arc<Facts>>) -> bool {
    let clients = listener.tls.as_ref().and_then(|tls| tls.clients.as_ref());
    match clients.map(|clients| clients.mode) {
        Some(ClientCertificateMode::Required) => {
            facts().is_none_or(|facts| facts.peer_certificates.is_empty())
        }
        Some(ClientCertificateMode::Optional) => {
            facts().is_none_or(|facts| !facts.unverified_certificates.is_empty())
        }
        Some(ClientCertificateMode::Unchecked) | None => false,
    }
}

/// Returns the limits of connections: for each the widest of any listener, since the process has one set of limits.
#[must_use]
pub fn connection_limits(config: &Config) -> Limits {
    let listeners = &config.listeners;
    let mut limits = Limits {
        // The body's limit depends on the rule.
        streamed_body_bytes: None,
        // An upstream may respond before it has read a body; its client may send the whole body before it reads the response.
        linger_bytes: crate::limits::LINGER_BYTES,
        ..Limits::default()
    };
    // Behind proxies all clients share a few addresses.
    let proxied = |listener: &Arc<Listener>| {
        !listener.client_address.trusted.is_empty() || listener.proxy_protocol.is_some()
    };
    match config.limits.per_address {
        PerAddressLimit::Automatic if listeners.iter().any(proxied) => limits.connections_per_address = None,
        PerAddressLimit::Automatic => {}
        PerAddressLimit::Off => limits.connections_per_address = None,
        PerAddressLimit::AtMost(limit) => limits.connections_per_address = Some(limit),
    }
    let http: Vec<_> = listeners
        .iter()
        .filter(|listener| listener.protocol.is_http())
        .collect();
    let Some(first) = http.first() else {
        return limits;
    };
    let mut widest = first.limits;
    for other in http.iter().map(|listener| &listener.limits) {
        widest.head_bytes = widest.head_bytes.max(other.head_bytes);
        widest.headers = widest.headers.max(other.headers);
        widest.head_timeout = widest.head_timeout.max(other.head_timeout);
        widest.keep_alive = widest.keep_alive.max(other.keep_alive);
        widest.rate_bytes = widest.rate_bytes.min(other.rate_bytes);
        widest.requests_per_connection = match (widest.requests_per_connection, other.requests_per_connection)
        {
            (Some(a), Some(b)) => Some(a.max(b)),
            _ => None,
        };
    }
    limits.http1.head_bytes = widest.head_bytes;
    limits.http1.start_line_bytes = limits.http1.start_line_bytes.min(widest.head_bytes);
    limits.http1.fields = widest.headers;
    limits.header_timeout = widest.head_timeout;
    limits.idle_timeout = widest.keep_alive;
    limits.rate_bytes = widest.rate_bytes;
    limits.requests_per_connection = widest.requests_per_connection;
    limits
}
