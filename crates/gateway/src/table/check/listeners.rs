//! Checks of listeners, each alone and with the others of its address.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{KnownNames, ProblemList};
use crate::limits;
use crate::model::{Addr, Hostname, Listener, Policy, Protocol};
use crate::table::problem::{ConfigPart, Consequence};

/// Checks a listener. Returns whether it can be served.
pub(super) fn check_listener(
    listener: &Listener,
    known: &KnownNames<'_>,
    problems: &mut ProblemList,
) -> bool {
    let before = problems.0.len();
    let mut report = |part, expected: &str, found: String| {
        let part_of = ConfigPart::Listener(listener.name.clone());
        problems.report(part_of, part, expected, found, Consequence::Omitted);
    };
    if listener.addresses.is_empty() {
        report("addresses", "at least one address", "none".to_owned());
    }
    if listener.protocol.is_datagram() {
        check_datagrams(listener, &mut report);
    }
    let inet = |addr: &&Addr| !matches!(addr, Addr::Inet(addr) if addr.port() == 0);
    let addresses = || listener.addresses.iter().filter(inet);
    let duplicate = addresses().find(|addr| addresses().filter(|other| other == addr).count() > 1);
    if let Some(addr) = duplicate {
        let found = format!("`{addr}` twice");
        report("addresses", "distinct addresses", found);
    }
    check_tls(listener, known, &mut report);
    if let Some(redirect) = &listener.redirect_to_https {
        if listener.protocol != Protocol::Http {
            let found = format!("{:?}", listener.protocol);
            report("redirect_to_https", "the protocol Http", found);
        }
        if !is_redirect(redirect.status) {
            let found = redirect.status.to_string();
            report("redirect_to_https", "301, 302, 303, 307 or 308", found);
        }
        if redirect.port == 0 {
            report("redirect_to_https.port", "a port from 1 to 65535", "0".to_owned());
        }
    }
    if let Some(proxy) = &listener.proxy_protocol {
        if proxy.from.is_empty() {
            let expected = "at least one trusted network";
            report("proxy_protocol.from", expected, "none".to_owned());
        }
        if proxy.timeout.is_zero() {
            report("proxy_protocol.timeout", "a time above 0", "0".to_owned());
        }
    }
    check_limits(listener, &mut report);
    let hops = listener.client_address.hops;
    if hops.is_some_and(|hops| !(1..=limits::HOPS).contains(&hops)) {
        let expected = format!("a number from 1 to {}", limits::HOPS);
        report(
            "client_address.hops",
            &expected,
            hops.unwrap_or_default().to_string(),
        );
    }
    // Such a policy would be ignored and protect nothing.
    if listener
        .policies
        .iter()
        .any(|policy| !matches!(policy, Policy::Cors(_)))
    {
        let expected = "only the CORS policy: other policies belong to rules";
        report("policies", expected, "another one".to_owned());
    }
    problems.0.len() == before
}

/// Checks that a UDP listener has nothing that only connections can have.
fn check_datagrams(listener: &Listener, report: &mut impl FnMut(&'static str, &str, String)) {
    let is_unix = |addr: &&Addr| !matches!(addr, Addr::Inet(_));
    if let Some(addr) = listener.addresses.iter().find(is_unix) {
        report("addresses", "IP addresses for UDP", format!("`{addr}`"));
    }
    if let Some(host) = listener.hostnames.first() {
        let expected = "no hosts: datagrams have no host to select by";
        report("hostnames", expected, format!("`{host}`"));
    }
    if listener.proxy_protocol.is_some() {
        let expected = "no PROXY protocol: it starts connections";
        report("proxy_protocol", expected, "one".to_owned());
    }
}

/// Checks limits of connections and heads, which must not be 0: no request would pass.
fn check_limits(listener: &Listener, report: &mut impl FnMut(&'static str, &str, String)) {
    let limits = &listener.limits;
    let max = ringmain_web::limits::MAX_HEAD_BYTES;
    let head = limits.head_bytes;
    if !(1024..=max).contains(&head) {
        report(
            "limits.head_bytes",
            &format!("from 1024 to {max} bytes"),
            head.to_string(),
        );
    }
    if limits.headers == 0 {
        report("limits.headers", "at least 1 header", "0".to_owned());
    }
    if limits.head_timeout.is_zero() {
        report("limits.head_timeout", "a time above 0", "0".to_owned());
    }
    if limits.requests_per_connection == Some(0) {
        let expected = "at least 1 request";
        report("limits.requests_per_connection", expected, "0".to_owned());
    }
}

fn check_tls(
    listener: &Listener,
    known: &KnownNames<'_>,
    report: &mut impl FnMut(&'static str, &str, String),
) {
    let terminates_tls = matches!(listener.protocol, Protocol::Https | Protocol::Tls);
    match &listener.tls {
        None if terminates_tls => report("tls", "certificates for TLS termination", "none".to_owned()),
        Some(_) if !terminates_tls => {
            let found = format!("TLS at a listener of {:?}", listener.protocol);
            report("tls", "TLS only with the protocols Https and Tls", found);
        }
        Some(tls) => {
            if tls.certificates.is_empty() {
                report("tls.certificates", "at least one certificate", "none".to_owned());
            }
            for name in tls
                .certificates
                .iter()
                .filter(|name| !known.certificates.contains(&***name))
            {
                report(
                    "tls.certificates",
                    "a certificate of the configuration",
                    format!("`{name}`"),
                );
            }
            if let Some(clients) = &tls.clients {
                known.check_authorities(&clients.authorities, |expected, found| {
                    report("tls.clients", expected, found)
                });
            }
        }
        None => {}
    }
}

/// Returns whether a status redirects a client to another URL.
pub(super) fn is_redirect(status: u16) -> bool {
    matches!(status, 301 | 302 | 303 | 307 | 308)
}

/// The listeners of an address that have no conflict with each other.
#[derive(Default)]
struct AddressHosts<'c> {
    /// The others have a compatible protocol and the same PROXY protocol.
    first: Option<&'c Arc<Listener>>,
    /// Each host with its listener and the position of that.
    hosts: BTreeMap<Option<&'c Hostname>, (usize, &'c Arc<Listener>)>,
    count: usize,
}

impl<'c> AddressHosts<'c> {
    /// Returns the earliest listener that has a host of this one: without hosts, every host.
    fn with_host_of(&self, listener: &'c Listener) -> Option<&'c Arc<Listener>> {
        let found = hosts_of(listener).filter_map(|host| self.hosts.get(&host));
        found
            .min_by_key(|(position, _)| *position)
            .map(|(_, other)| *other)
    }

    fn add(&mut self, listener: &'c Arc<Listener>) {
        self.first.get_or_insert(listener);
        for host in hosts_of(listener) {
            self.hosts.entry(host).or_insert((self.count, listener));
        }
        self.count += 1;
    }
}

/// Returns the hosts of a listener; `None`: every host.
fn hosts_of(listener: &Listener) -> impl Iterator<Item = Option<&Hostname>> {
    let every = listener.hostnames.is_empty().then_some(None);
    listener.hostnames.iter().map(Some).chain(every)
}

/// Removes listeners that are in conflict with an earlier one of their address.
pub(super) fn remove_conflicting<'c>(listeners: &mut Vec<&'c Arc<Listener>>, problems: &mut ProblemList) {
    let mut by_address: BTreeMap<(bool, &Addr, &str), AddressHosts<'_>> = BTreeMap::new();
    listeners.retain(|listener| {
        let listener: &'c Arc<Listener> = listener;
        let addresses = listener.addresses.iter().map(|address| {
            // Datagrams have a port space of their own, and each port 0 is a port of its own.
            let any = matches!(address, Addr::Inet(address) if address.port() == 0);
            let own = if any { &*listener.name } else { "" };
            (listener.protocol == Protocol::Udp, address, own)
        });
        let shared = addresses.clone().filter_map(|address| by_address.get(&address));
        let others = shared.flat_map(|hosts| hosts.first.into_iter().chain(hosts.with_host_of(listener)));
        for other in others {
            if let Some((part, expected, found)) = find_conflict(listener, other) {
                let part_of = ConfigPart::Listener(listener.name.clone());
                let found = format!("{found}, as at listener `{}` of the same address", other.name);
                problems.report(part_of, part, expected, found, Consequence::Omitted);
                return false;
            }
        }
        for address in addresses {
            by_address.entry(address).or_default().add(listener);
        }
        true
    });
}

/// Returns the conflict between two listeners of one address, if there is one.
fn find_conflict(new: &Listener, old: &Listener) -> Option<(&'static str, &'static str, String)> {
    let (has_sni, http) = (new.protocol.has_sni(), new.protocol.is_http());
    if has_sni != old.protocol.has_sni() || (!has_sni && (!http || new.protocol != old.protocol)) {
        let expected = "distinguishable protocols: either HTTP, by host, or TLS, by SNI";
        return Some(("protocol", expected, format!("{:?}", new.protocol)));
    }
    if new.proxy_protocol != old.proxy_protocol {
        let expected = "the same PROXY protocol at all listeners of an address";
        return Some(("proxy_protocol", expected, "another one".to_owned()));
    }
    if new.hostnames.is_empty() && old.hostnames.is_empty() {
        return Some((
            "hostnames",
            "hosts that distinguish it from other listeners",
            "none".to_owned(),
        ));
    }
    let duplicate = new.hostnames.iter().find(|host| old.hostnames.contains(host))?;
    Some((
        "hostnames",
        "hosts unique among the listeners of the address",
        format!("`{duplicate}`"),
    ))
}
