//! Where this process is, and what it may do there: container, network namespace, rights.

use ringmain_sys::cpu;
use serde::Serialize;

use super::field;
use crate::cpus::Cpus;
use crate::root::{Key, Root};

/// A right that a write needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Right {
    /// CAP_NET_ADMIN: interfaces and their queues.
    NetAdmin,
    /// CAP_AUDIT_CONTROL: the audit system.
    AuditControl,
    /// The user root: files of `/proc` and `/sys`.
    Root,
}

/// Settings that only the initial network namespace has.
const INITIAL_ONLY: [&str; 6] = [
    "/proc/sys/net/core/busy_poll",
    "/proc/sys/net/core/busy_read",
    "/proc/sys/net/core/default_qdisc",
    "/proc/sys/net/core/netdev_max_backlog",
    "/proc/sys/net/core/netdev_budget",
    "/proc/sys/net/core/rps_sock_flow_entries",
];

/// Where a process is.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Place {
    /// What kind of container, if it is one.
    pub container: Option<String>,
    /// Whether its network namespace is the host's own; `None` if it cannot be told.
    pub initial_network: Option<bool>,
    /// Its user's number.
    pub user: Option<u32>,
    #[serde(skip)]
    capabilities: u64,
}

impl Place {
    pub(super) fn look(root: &Root) -> Place {
        let status = root.find("/proc/self/status").unwrap_or_default();
        let user = field(&status, "Uid").and_then(|ids| ids.split_ascii_whitespace().nth(1));
        let capabilities = field(&status, "CapEff").and_then(|hex| u64::from_str_radix(hex, 16).ok());
        let own = root.exists("/proc/sys/net/core/somaxconn");
        Place {
            container: container(root),
            initial_network: own.then(|| root.exists("/proc/sys/net/core/netdev_max_backlog")),
            user: user.and_then(|id| id.parse().ok()),
            capabilities: capabilities.unwrap_or(0),
        }
    }

    /// Whether this process has the right.
    #[must_use]
    pub fn may(&self, right: Right) -> bool {
        match right {
            Right::NetAdmin => self.capabilities & (1 << 12) != 0,
            Right::AuditControl => self.capabilities & (1 << 30) != 0,
            Right::Root => self.user == Some(0),
        }
    }

    /// Why a setting cannot be changed from here; `None` if nothing is seen that would keep it.
    #[must_use]
    pub fn obstacle(&self, root: &Root, key: &Key) -> Option<String> {
        let (right, path) = match key {
            Key::File(path) if path.starts_with("/proc/sys/net/") && path.contains("/net/core/") => {
                (Right::Root, Some(path))
            }
            Key::File(path) if path.starts_with("/sys/class/net/") => (Right::NetAdmin, Some(path)),
            Key::File(path) => (Right::Root, Some(path)),
            Key::Ethtool { .. } | Key::Qdisc { .. } | Key::Nftables => (Right::NetAdmin, None),
            Key::Audit | Key::AuditNeverTask => (Right::AuditControl, None),
        };
        if let Some(path) = path {
            if !root.exists(path) {
                return Some(self.missing(path));
            }
            if let Some(mount) = root.read_only(path) {
                return Some(match &self.container {
                    Some(kind) => format!(
                        "{mount} is mounted read-only in this container ({kind}): set it on the host, or run there"
                    ),
                    None => format!("{mount} is mounted read-only"),
                });
            }
        }
        (!self.may(right)).then(|| {
            match right {
                Right::NetAdmin => "needs CAP_NET_ADMIN: run it as root",
                Right::AuditControl => "needs CAP_AUDIT_CONTROL on the host: run it as root there",
                Right::Root => "needs root",
            }
            .to_owned()
        })
    }

    /// Why a file of a setting is not there.
    #[must_use]
    pub fn missing(&self, path: &str) -> String {
        if INITIAL_ONLY.contains(&path) && self.initial_network == Some(false) {
            return "not reachable from this network namespace: set it on the host".into();
        }
        "this kernel or device has no such setting".into()
    }
}

/// The CPUs that a process may use, by its status.
pub(super) fn allowed(status: &str) -> Option<Cpus> {
    // A list that the kernel made is a list.
    let list = field(status, "Cpus_allowed_list")?;
    Some(cpu::parse_list(list)?.into_iter().collect())
}

fn container(root: &Root) -> Option<String> {
    if root.exists("/.dockerenv") {
        return Some("docker".into());
    }
    if root.exists("/run/.containerenv") {
        return Some("podman".into());
    }
    if let Some(kind) = root
        .find("/run/systemd/container")
        .filter(|kind| !kind.is_empty())
    {
        return Some(kind);
    }
    let groups = root.find("/proc/1/cgroup").unwrap_or_default();
    let known = ["kubepods", "docker", "containerd", "crio", "lxc", "libpod"];
    known
        .into_iter()
        .find(|kind| groups.contains(kind))
        .map(|kind| if kind == "kubepods" { "kubernetes" } else { kind }.to_owned())
}
