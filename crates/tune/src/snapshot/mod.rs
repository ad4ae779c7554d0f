//! All settings that the catalogue knows, at one moment, as a file; and what differs between two of them.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt::Write;

use serde::{Deserialize, Serialize};

use crate::host::{Host, Interface, Kind};
use crate::limits;
use crate::report::Style;
use crate::report::lines::cut;
use crate::root::{Ethtool, Key, Reading, Root};

/// The version of the file's form.
pub const VERSION: u32 = 1;

/// Sysctls that steps look at.
const SYSCTLS: [&str; 12] = [
    "net.core.busy_poll",
    "net.core.busy_read",
    "net.core.default_qdisc",
    "net.core.netdev_max_backlog",
    "net.core.rps_sock_flow_entries",
    "net.core.somaxconn",
    "net.ipv4.ip_local_port_range",
    "net.ipv4.tcp_congestion_control",
    "net.ipv4.tcp_max_syn_backlog",
    "net.ipv4.tcp_migrate_req",
    "vm.swappiness",
    "vm.min_free_kbytes",
];

/// A host's settings at one moment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Snapshot {
    /// [`VERSION`].
    pub version: u32,
    /// The kernel's release.
    pub kernel: Option<String>,
    /// Which start of the host it was.
    pub boot: Option<String>,
    /// Every setting that has a value.
    pub values: BTreeMap<Key, String>,
}

/// A setting that two snapshots do not agree on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Difference {
    /// Which setting.
    pub key: Key,
    /// Its value in the first; `None` where it has none.
    pub first: Option<String>,
    /// Its value in the second.
    pub second: Option<String>,
}

/// Takes one.
#[must_use]
pub fn take(root: &Root, host: &Host) -> Snapshot {
    let values = keys(root, host)
        .into_iter()
        .take(limits::SNAPSHOT_KEYS)
        .filter_map(|key| {
            let Reading::Value(value) = root.read(&key) else {
                return None;
            };
            Some((key, value))
        });
    Snapshot {
        version: VERSION,
        kernel: host.release.clone(),
        boot: host.boot.clone(),
        values: values.collect(),
    }
}

fn keys(root: &Root, host: &Host) -> Vec<Key> {
    let mut keys: Vec<Key> = SYSCTLS.iter().map(|name| Key::sysctl(name)).collect();
    keys.extend([Key::Audit, Key::AuditNeverTask, Key::Nftables]);
    let mut file = |path: String| keys.push(Key::File(path));
    file("/sys/kernel/mm/transparent_hugepage/enabled".into());
    let vulnerabilities = "/sys/devices/system/cpu/vulnerabilities";
    for name in root.entries(vulnerabilities) {
        file(format!("{vulnerabilities}/{name}"));
    }
    for cpu in host.online.iter() {
        let directory = format!("/sys/devices/system/cpu/cpu{cpu}");
        file(format!("{directory}/cpufreq/scaling_governor"));
        for state in root.entries(&format!("{directory}/cpuidle")) {
            file(format!("{directory}/cpuidle/{state}/disable"));
        }
    }
    for interface in host.interfaces.iter().filter(|one| one.kind != Kind::Loopback) {
        keys.extend(of_interface(interface));
    }
    keys
}

fn of_interface(interface: &Interface) -> Vec<Key> {
    let files = |directory: &str, count: usize, names: &[&str]| -> Vec<String> {
        let each = (0..count).flat_map(|queue| names.iter().map(move |name| (queue, name)));
        each.map(|(queue, name)| interface.path(&format!("queues/{directory}-{queue}/{name}")))
            .collect()
    };
    let mut paths = files("rx", interface.rx_queues, &["rps_cpus", "rps_flow_cnt"]);
    paths.extend(files("tx", interface.tx_queues, &["xps_cpus"]));
    paths.extend(["napi_defer_hard_irqs", "gro_flush_timeout"].map(|name| interface.path(name)));
    let interrupts = interface.interrupts.iter();
    paths.extend(interrupts.map(|one| format!("/proc/irq/{}/smp_affinity_list", one.number)));
    let what = [
        Ethtool::Channels,
        Ethtool::Rings,
        Ethtool::Coalesce,
        Ethtool::Gro,
        Ethtool::Indirection,
    ];
    let asked = what.map(|what| Key::ethtool(&interface.name, what));
    let qdisc = Key::Qdisc {
        interface: interface.name.clone(),
    };
    paths
        .into_iter()
        .map(Key::File)
        .chain(asked)
        .chain([qdisc])
        .collect()
}

/// What differs, by key.
#[must_use]
pub fn diff(first: &Snapshot, second: &Snapshot) -> Vec<Difference> {
    let mut keys: Vec<&Key> = first.values.keys().chain(second.values.keys()).collect();
    keys.sort();
    keys.dedup();
    let differs = |key: &&Key| match (first.values.get(*key), second.values.get(*key)) {
        (Some(one), Some(other)) => !key.same(one, other),
        _ => true,
    };
    keys.into_iter()
        .filter(differs)
        .map(|key| Difference {
            key: key.clone(),
            first: first.values.get(key).cloned(),
            second: second.values.get(key).cloned(),
        })
        .collect()
}

/// The differences for people.
#[must_use]
pub fn text(first: &Snapshot, second: &Snapshot, differences: &[Difference], style: Style) -> String {
    let mut out = String::new();
    if first.kernel != second.kernel {
        let of = |one: &Option<String>| one.clone().unwrap_or_else(|| "unknown".into());
        let _ = writeln!(
            out,
            "kernel\n    - {}\n    + {}",
            of(&first.kernel),
            of(&second.kernel)
        );
    }
    if first.boot != second.boot {
        out.push_str("The host was restarted between the two.\n");
    }
    for difference in differences {
        let _ = writeln!(out, "{}", style.bold(&difference.key.to_string()));
        for (sign, value) in [('-', &difference.first), ('+', &difference.second)] {
            let value = value.as_deref().unwrap_or("(none)");
            let _ = writeln!(out, "    {sign} {}", cut(value, limits::COLUMNS - 6));
        }
    }
    if out.is_empty() {
        out.push_str("No difference.\n");
    }
    out
}
