//! How this host looks names up: `/etc/hosts` and `/etc/resolv.conf` (hosts(5), resolv.conf(5)).

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use super::Found;
use crate::limits;

/// See the module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Settings {
    pub(crate) servers: Vec<SocketAddr>,
    /// Domains that are put behind names of few dots.
    search: Vec<String>,
    /// A name with so many dots is looked up as it is first.
    dots: usize,
    /// Of one server, for one question.
    pub(crate) timeout: Duration,
    pub(crate) attempts: u32,
    hosts: Vec<(IpAddr, Vec<String>)>,
}

impl Settings {
    /// The host's own, as they are now. To be read where waiting is allowed.
    pub(crate) fn read() -> Settings {
        let text = |path| std::fs::read_to_string(path).unwrap_or_default();
        Settings::of(&text("/etc/resolv.conf"), &text("/etc/hosts"))
    }

    /// Of the texts of the two files. What is not understood in them is passed over, as the system's resolver does.
    pub(crate) fn of(resolv: &str, hosts: &str) -> Settings {
        let mut settings = Settings {
            servers: Vec::new(),
            search: Vec::new(),
            dots: 1,
            timeout: limits::DNS_TIMEOUT,
            attempts: 2,
            hosts: hosts.lines().filter_map(host).collect(),
        };
        for line in resolv.lines() {
            let mut words = line
                .split(['#', ';'])
                .next()
                .unwrap_or_default()
                .split_whitespace();
            match words.next() {
                Some("nameserver") if settings.servers.len() < SERVERS => {
                    settings.servers.extend(words.next().and_then(server));
                }
                Some("search" | "domain") => {
                    settings.search = words
                        .take(SEARCHED)
                        .map(|word| word.trim_end_matches('.').to_owned())
                        .collect();
                }
                Some("options") => words.for_each(|word| settings.option(word)),
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

    fn option(&mut self, word: &str) {
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

    /// What is known without asking: an address, or a name of `/etc/hosts`.
    pub(super) fn known(&self, name: &str) -> Option<Found> {
        let bare = name.trim_start_matches('[').trim_end_matches(']');
        let mut addresses: Vec<IpAddr> = match bare.parse() {
            Ok(address) => vec![address],
            Err(_) => {
                let name = name.trim_end_matches('.');
                let named = |names: &[String]| names.iter().any(|own| own.eq_ignore_ascii_case(name));
                let own = self.hosts.iter().filter(|(_, names)| named(names));
                own.map(|(address, _)| *address).collect()
            }
        };
        if addresses.iter().any(IpAddr::is_ipv4) {
            addresses.retain(IpAddr::is_ipv4);
        }
        addresses.sort_unstable();
        addresses.dedup();
        (!addresses.is_empty()).then_some(Found {
            addresses,
            holds: limits::DNS_AGAIN,
        })
    }

    /// The whole names to look for, in order.
    pub(super) fn candidates(&self, name: &str) -> Vec<String> {
        if let Some(whole) = name.strip_suffix('.') {
            return vec![whole.to_owned()];
        }
        let mut all: Vec<String> = self
            .search
            .iter()
            .map(|domain| format!("{name}.{domain}"))
            .collect();
        let dots = name.bytes().filter(|&byte| byte == b'.').count();
        let place = if dots >= self.dots { 0 } else { all.len() };
        all.insert(place, name.to_owned());
        all
    }
}

/// RFC 1035 §4.2.
const PORT: u16 = 53;
/// As resolv.conf(5) has it.
const SERVERS: usize = 3;
/// Kubernetes writes up to 32.
const SEARCHED: usize = 32;

fn server(text: &str) -> Option<SocketAddr> {
    // A zone of a link-local address stands behind a percent sign.
    let bare = || text.split('%').next()?.parse().ok();
    let with_port = text.parse().ok();
    with_port.or_else(|| Some(SocketAddr::new(bare()?, PORT)))
}

fn host(line: &str) -> Option<(IpAddr, Vec<String>)> {
    let mut words = line.split('#').next()?.split_whitespace();
    let address = words.next()?.split('%').next()?.parse().ok()?;
    Some((address, words.map(str::to_owned).collect()))
}
