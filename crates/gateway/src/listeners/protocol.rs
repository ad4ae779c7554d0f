//! The handling of connections at an address, from the protocols of its listeners.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use ringmain_web::{ListenerProtocol, StreamConnection};

use super::ListenAddress;
use crate::l4;
use crate::model::{Hostname, Listener, Network, Protocol, ProxyProtocol};
use crate::table::ByHost;

/// The inputs of a [`ListenerProtocol`] except TLS, which is reloaded separately: equal inputs give equal protocols.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ProtocolSet {
    pub(super) kind: AddressProtocol,
    proxy_protocol: Option<ProxyProtocol>,
    /// For [`AddressProtocol::HttpsOrPassthrough`]: the hosts by protocol.
    hosts: Arc<[(Protocol, Vec<Hostname>)]>,
}

/// The protocol of an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AddressProtocol {
    Http,
    H2c,
    Https,
    Passthrough,
    /// TLS, where the SNI selects HTTP or bytes.
    HttpsOrPassthrough,
}

impl ProtocolSet {
    /// Returns the inputs for the listeners of an address. `None`: they have no connections.
    pub(super) fn from_listeners(listeners: &[&Arc<Listener>]) -> Option<ProtocolSet> {
        let first = listeners.first()?;
        let has_listener = |protocol| listeners.iter().any(|listener| listener.protocol == protocol);
        let kind = match first.protocol {
            Protocol::Udp => return None,
            Protocol::Http => AddressProtocol::Http,
            Protocol::H2c => AddressProtocol::H2c,
            Protocol::Tcp => AddressProtocol::Passthrough,
            _ if !has_listener(Protocol::Https) => AddressProtocol::Passthrough,
            _ if has_listener(Protocol::Tls) || has_listener(Protocol::TlsPassthrough) => {
                AddressProtocol::HttpsOrPassthrough
            }
            _ => AddressProtocol::Https,
        };
        let hosts = listeners
            .iter()
            .filter(|_| kind == AddressProtocol::HttpsOrPassthrough);
        Some(ProtocolSet {
            kind,
            proxy_protocol: first.proxy_protocol.clone(),
            hosts: hosts
                .map(|listener| (listener.protocol, listener.hostnames.clone()))
                .collect(),
        })
    }
}

/// Builds the listener protocol of an address.
pub(super) fn build_protocol(address: &ListenAddress) -> ListenerProtocol {
    let pass = async |incoming: StreamConnection| l4::serve_connection(incoming).await;
    let https = address.https.as_ref().map(|tls| &tls.acceptor);
    let mut listener_protocol = match (address.protocols.kind, https) {
        (AddressProtocol::Https, Some(acceptor)) => ListenerProtocol::https(acceptor),
        (AddressProtocol::HttpsOrPassthrough, Some(acceptor)) => {
            let protocols = protocols_by_host(&address.protocols.hosts);
            ListenerProtocol::https_or_stream(
                acceptor,
                move |name| {
                    let found = protocols.find_first(name.unwrap_or_default(), |protocol| Some(*protocol));
                    found == Some(Protocol::Https)
                },
                pass,
            )
        }
        (AddressProtocol::Http, _) => ListenerProtocol::http(),
        (AddressProtocol::H2c, _) => ListenerProtocol::h2c(),
        // A client must not be admitted without the required TLS.
        (AddressProtocol::Passthrough | AddressProtocol::Https | AddressProtocol::HttpsOrPassthrough, _) => {
            ListenerProtocol::stream(pass)
        }
    };
    if let Some(tls) = &address.tls {
        listener_protocol = listener_protocol.stream_tls(&tls.acceptor);
    }
    if let Some(proxied) = &address.protocols.proxy_protocol {
        let from: Arc<[Network]> = proxied.from.clone().into();
        // Access to a Unix socket is controlled by its permissions.
        let trusts = move |peer: Option<IpAddr>| {
            peer.is_none_or(|peer| from.iter().any(|network| network.contains(peer)))
        };
        listener_protocol = listener_protocol.proxy_protocol(trusts, proxied.timeout);
    }
    listener_protocol
}

/// Indexes the protocols of an address by host: it may have thousands of listeners.
fn protocols_by_host(hosts: &[(Protocol, Vec<Hostname>)]) -> ByHost<Protocol> {
    let mut named: BTreeMap<&Hostname, Protocol> = BTreeMap::new();
    let mut any = None;
    // Listeners of one address have no host in common.
    for (protocol, hosts) in hosts {
        if hosts.is_empty() {
            any.get_or_insert(*protocol);
        }
        for host in hosts {
            named.entry(host).or_insert(*protocol);
        }
    }
    let named = named.into_iter().map(|(host, protocol)| (host.clone(), protocol));
    ByHost::new(named.collect(), any)
}
