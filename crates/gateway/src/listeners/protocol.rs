//! The handling of connections at an address, from the protocols of its listeners.

use std::net::IpAddr;
use std::sync::Arc;

use ringmain_web::{Entrance, Incoming};

use super::Front;
use crate::l4;
use crate::model::{Hostname, Listener, Network, Protocol, ProxyProtocol};
use crate::table::rank;

/// The inputs of an entrance except TLS, which is reloaded by itself: equal inputs give equal entrances.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Shape {
    pub(super) kind: Kind,
    proxied: Option<ProxyProtocol>,
    /// For [`Kind::Either`]: the hosts by protocol.
    hosts: Arc<[(Protocol, Vec<Hostname>)]>,
}

/// The protocol of an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Http,
    H2c,
    Https,
    Bytes,
    /// TLS, where the SNI selects HTTP or bytes.
    Either,
}

impl Shape {
    /// Returns the inputs for the listeners of an address. `None`: they have no connections.
    pub(super) fn of(listeners: &[&Arc<Listener>]) -> Option<Shape> {
        let first = listeners.first()?;
        let has = |protocol| listeners.iter().any(|it| it.protocol == protocol);
        let kind = match first.protocol {
            Protocol::Udp => return None,
            Protocol::Http => Kind::Http,
            Protocol::H2c => Kind::H2c,
            Protocol::Tcp => Kind::Bytes,
            _ if !has(Protocol::Https) => Kind::Bytes,
            _ if has(Protocol::Tls) || has(Protocol::TlsPassthrough) => Kind::Either,
            _ => Kind::Https,
        };
        let hosts = listeners.iter().filter(|_| kind == Kind::Either);
        Some(Shape {
            kind,
            proxied: first.proxy_protocol.clone(),
            hosts: hosts.map(|it| (it.protocol, it.hostnames.clone())).collect(),
        })
    }
}

/// Builds the entrance of an address.
pub(super) fn entrance(front: &Front) -> Entrance {
    let pass = async |incoming: Incoming| l4::serve(incoming).await;
    let https = front.https.as_ref().map(|tls| &tls.acceptor);
    let mut entrance = match (front.shape.kind, https) {
        (Kind::Https, Some(acceptor)) => Entrance::https(acceptor),
        (Kind::Either, Some(acceptor)) => {
            let hosts = Arc::clone(&front.shape.hosts);
            Entrance::either(
                acceptor,
                move |name| is_http(&hosts, name.unwrap_or_default()),
                pass,
            )
        }
        (Kind::Http, _) => Entrance::http(),
        (Kind::H2c, _) => Entrance::h2c(),
        // A client must not be admitted without the required TLS.
        (Kind::Bytes | Kind::Https | Kind::Either, _) => Entrance::stream(pass),
    };
    if let Some(tls) = &front.tls {
        entrance = entrance.ending_tls(&tls.acceptor);
    }
    if let Some(proxied) = &front.shape.proxied {
        let from: Arc<[Network]> = proxied.from.clone().into();
        // Access to a Unix socket is controlled by its permissions.
        let trusts = move |peer: Option<IpAddr>| {
            peer.is_none_or(|peer| from.iter().any(|network| network.contains(peer)))
        };
        entrance = entrance.proxied(trusts, proxied.timeout);
    }
    entrance
}

/// Returns whether the host belongs to a listener of HTTP.
fn is_http(hosts: &[(Protocol, Vec<Hostname>)], name: &str) -> bool {
    let ranked = hosts
        .iter()
        .filter_map(|(protocol, hosts)| Some((rank(hosts, name)?, *protocol)));
    let most = ranked.max_by_key(|(rank, _)| *rank);
    most.is_some_and(|(_, protocol)| protocol == Protocol::Https)
}
