//! The host's settings for name resolution: `/etc/hosts` and `/etc/resolv.conf` (hosts(5), resolv.conf(5)).

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use super::ResolvedName;
use crate::limits;

/// Settings for name resolution.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ResolverSettings {
    pub(crate) servers: Vec<SocketAddr>,
    /// Domains that are appended to relative names: tried before the name itself if it has fewer than `dots` dots, else after it.
    search: Vec<String>,
    /// A name with at least this many dots is first looked up unchanged.
    dots: usize,
    /// The timeout of one query to one server.
    pub(crate) timeout: Duration,
    pub(crate) attempts: u32,
    hosts: Vec<(IpAddr, Vec<String>)>,
}

impl ResolverSettings {
    /// Reads the host's current settings. Blocks: not to be called on a worker.
    pub(crate) fn read_host_files() -> ResolverSettings {
        let text = |path| std::fs::read_to_string(path).unwrap_or_default();
        ResolverSettings::parse(&text("/etc/resolv.conf"), &text("/etc/hosts"))
    }

    /// Parses the contents of the two files. Unknown lines are ignored, as by the system's resolver.
    pub(crate) fn parse(resolv: &str, hosts: &str) -> ResolverSettings {
        let mut settings = ResolverSettings {
            servers: Vec::new(),
            search: Vec::new(),
            dots: 1,
            timeout: limits::DNS_TIMEOUT,
            attempts: 2,
            hosts: hosts.lines().filter_map(parse_host_line).collect(),
        };
        for line in resolv.lines() {
            let mut words = line
                .split(['#', ';'])
                .next()
                .unwrap_or_default()
                .split_whitespace();
            match words.next() {
                Some("nameserver") if settings.servers.len() < SERVERS => {
                    settings.servers.extend(words.next().and_then(parse_server));
                }
                Some("search" | "domain") => {
                    settings.search = words
                        .take(SEARCHED)
                        .map(|word| word.trim_end_matches('.').to_owned())
                        .collect();
                }
                Some("options") => words.for_each(|word| settings.parse_option(word)),
                _ => {}
            }
        }
        if settings.servers.is_empty() {
            settings
                .servers
                .push(SocketAddr::new(Ipv4Addr::LOCALHOST.into(), PORT));
        }
        settings
    }

    fn parse_option(&mut self, word: &str) {
        let Some((name, value)) = word.split_once(':') else {
            return;
        };
        let Ok(value) = value.parse::<u32>() else {
            return;
        };
        match name {
            "ndots" => self.dots = value.min(15) as usize,
            "timeout" => self.timeout = Duration::from_secs(u64::from(value.clamp(1, 30))),
            "attempts" => self.attempts = value.clamp(1, 5),
            _ => {}
        }
    }

    /// Returns the addresses that need no query: `name` is an address or is in `/etc/hosts`.
    pub(super) fn known_addresses(&self, name: &str) -> Option<ResolvedName> {
        let unbracketed = name.trim_start_matches('[').trim_end_matches(']');
        let mut addresses: Vec<IpAddr> = match unbracketed.parse() {
            Ok(address) => vec![address],
            Err(_) => {
                let name = name.trim_end_matches('.');
                let has_name = |names: &[String]| names.iter().any(|own| own.eq_ignore_ascii_case(name));
                let own = self.hosts.iter().filter(|(_, names)| has_name(names));
                own.map(|(address, _)| *address).collect()
            }
        };
        if addresses.iter().any(IpAddr::is_ipv4) {
            addresses.retain(IpAddr::is_ipv4);
        }
        addresses.sort_unstable();
        addresses.dedup();
        (!addresses.is_empty()).then_some(ResolvedName {
            addresses,
            ttl: limits::DNS_AGAIN,
        })
    }

    /// Returns the absolute names to look up, in order.
    pub(super) fn candidates(&self, name: &str) -> Vec<String> {
        if let Some(absolute) = name.strip_suffix('.') {
            return vec![absolute.to_owned()];
        }
        let mut all: Vec<String> = self
            .search
            .iter()
            .map(|domain| format!("{name}.{domain}"))
            .collect();
        let dots = name.bytes().filter(|&byte| byte == b'.').count();
        let position = if dots >= self.dots { 0 } else { all.len() };
        all.insert(position, name.to_owned());
        all
    }
}

/// The port of DNS (RFC 1035 §4.2).
const PORT: u16 = 53;
/// The most servers, as in resolv.conf(5).
const SERVERS: usize = 3;
/// The most search domains. Kubernetes writes up to 32.
const SEARCHED: usize = 32;

fn parse_server(text: &str) -> Option<SocketAddr> {
    // The zone of a link-local address follows a percent sign.
    let unbracketed = || text.split('%').next()?.parse().ok();
    let with_port = text.parse().ok();
    with_port.or_else(|| Some(SocketAddr::new(unbracketed()?, PORT)))
}

fn parse_host_line(line: &str) -> Option<(IpAddr, Vec<String>)> {
    let mut words = line.split('#').next()?.split_whitespace();
    let address = words.next()?.split('%').next()?.parse().ok()?;
    Some((address, words.map(str::to_owned).collect()))
}
