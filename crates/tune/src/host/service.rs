//! The service at hand: which process it is, which CPUs and threads it has, where it listens.

use std::collections::BTreeMap;

use serde::Serialize;

use super::processes::{Process, Processes};
use super::{HostError, field, place};
use crate::cpus::Cpus;
use crate::root::Root;

/// What the user named.
#[derive(Clone, Debug, Default)]
pub struct Asked {
    /// The TCP port that the service listens on.
    pub port: Option<u16>,
    /// Its process.
    pub pid: Option<u32>,
    /// The interface that its packets come by.
    pub interface: Option<String>,
}

/// What is known of the service.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Service {
    /// The port that was named.
    pub port: Option<u16>,
    /// Its process; `None` if none was named, or it may not be seen.
    pub pid: Option<u32>,
    /// The process's name.
    pub name: Option<String>,
    /// Addresses that it listens on at the port, as the kernel writes them in hexadecimal.
    #[serde(skip)]
    pub addresses: Vec<String>,
    /// The CPUs that it may use.
    #[serde(skip)]
    pub cpus: Option<Cpus>,
    /// Its threads.
    #[serde(skip)]
    pub threads: Vec<Thread>,
    /// How its system calls are filtered: 0 not, 1 strictly, 2 by a program.
    pub seccomp: Option<u32>,
}

/// A thread of the service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Thread {
    /// Its number.
    pub tid: u32,
    /// Its name.
    pub name: String,
    /// The CPUs that it may run on.
    pub cpus: Cpus,
}

impl Service {
    pub(super) fn find(root: &Root, processes: &Processes, asked: &Asked) -> Result<Service, HostError> {
        let mut service = Service {
            port: asked.port,
            ..Service::default()
        };
        let mut process = match asked.pid {
            Some(pid) => Some(processes.of(pid).cloned().ok_or(HostError::NoProcess(pid))?),
            None => None,
        };
        if let Some(port) = asked.port {
            let listeners = listeners(root, port);
            if listeners.is_empty() {
                return Err(HostError::NoListener(port));
            }
            let sockets: Vec<u64> = listeners.iter().map(|(_, inode)| *inode).collect();
            service.addresses = listeners.into_iter().map(|(address, _)| address).collect();
            service.addresses.dedup();
            process = process.or_else(|| processes.holding(root, &sockets).into_iter().next());
        }
        if let Some(Process { pid, name }) = process {
            let status = root.find(&format!("/proc/{pid}/status")).unwrap_or_default();
            service.cpus = place::allowed(&status);
            service.seccomp = field(&status, "Seccomp").and_then(|mode| mode.parse().ok());
            service.threads = threads(root, pid);
            (service.pid, service.name) = (Some(pid), Some(name));
        }
        Ok(service)
    }

    /// Whether it can only be reached from its own host, so that no card brings its packets.
    #[must_use]
    pub fn is_local(&self) -> bool {
        let local = |address: &String| {
            // 127.0.0.0/8 and ::1, in words of the host's order; little-endian hosts have the last byte first.
            address.len() == 8 && address.ends_with("7F") || address == "00000000000000000000000001000000"
        };
        !self.addresses.is_empty() && self.addresses.iter().all(local)
    }

    /// The threads that serve: of Ringmain its workers by their numbers, of others all. What has the number of a worker but is not
    /// pinned as that is, or began before it, belongs to the administration, which has an engine of its own.
    #[must_use]
    pub fn workers(&self) -> Vec<&Thread> {
        let mut workers: BTreeMap<usize, &Thread> = BTreeMap::new();
        for thread in &self.threads {
            let number = thread.name.strip_prefix("ringmain-");
            let Some(number) = number.and_then(|number| number.parse().ok()) else {
                continue;
            };
            let known = workers.entry(number).or_insert(thread);
            if thread.cpus.len() <= known.cpus.len() {
                *known = thread;
            }
        }
        if workers.is_empty() {
            return self.threads.iter().collect();
        }
        workers.into_values().collect()
    }
}

fn threads(root: &Root, pid: u32) -> Vec<Thread> {
    let numbers = root.entries(&format!("/proc/{pid}/task"));
    let mut threads: Vec<Thread> = numbers
        .into_iter()
        .filter_map(|number| {
            let status = root.find(&format!("/proc/{pid}/task/{number}/status"))?;
            Some(Thread {
                tid: number.parse().ok()?,
                name: field(&status, "Name")?.to_owned(),
                cpus: place::allowed(&status)?,
            })
        })
        .collect();
    threads.sort_by_key(|thread| thread.tid);
    threads
}

/// Local address and inode of each listener on the port.
fn listeners(root: &Root, port: u16) -> Vec<(String, u64)> {
    let mut found = Vec::new();
    for file in ["/proc/net/tcp", "/proc/net/tcp6"] {
        let table = root.find(file).unwrap_or_default();
        found.extend(table.lines().skip(1).filter_map(|line| listener(line, port)));
    }
    found
}

fn listener(line: &str, port: u16) -> Option<(String, u64)> {
    let mut fields = line.split_ascii_whitespace().skip(1);
    let (address, number) = fields.next()?.split_once(':')?;
    let listens = fields.nth(1)? == "0A";
    let ours = u16::from_str_radix(number, 16).ok()? == port;
    let inode = fields.nth(5)?.parse().ok()?;
    (listens && ours).then(|| (address.to_owned(), inode))
}
