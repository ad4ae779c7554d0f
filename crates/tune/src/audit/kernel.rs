//! Steps of the kernel and of other programs: what every system call and every packet pays.

use super::{Change, Finding, Look, Status, count};
use crate::catalogue::Id;
use crate::host::sentence;
use crate::root::{Fields, Key, Reading};

const VULNERABILITIES: &str = "/sys/devices/system/cpu/vulnerabilities";

/// Modules whose hooks packets go through.
const MODULES: [&str; 8] = [
    "nf_conntrack",
    "nf_tables",
    "ip_tables",
    "ip6_tables",
    "arp_tables",
    "ebtables",
    "iptable_nat",
    "br_netfilter",
];

impl Look<'_> {
    pub(super) fn application(self) -> Finding {
        let id = Id::Application;
        let service = &self.host.service;
        let (Some(pid), Some(name)) = (service.pid, &service.name) else {
            return Finding::unknown(
                id,
                "no process of a service is known: select it with --pid or --port",
            );
        };
        let workers = service.workers();
        let cpus = self.host.usable.len();
        let pinned = workers
            .iter()
            .filter(|thread| thread.cpus.only().is_some())
            .count();
        let now = format!("{name}: {}, {cpus} CPUs", count(workers.len(), "thread"));
        if workers.len() < cpus {
            let why = format!("process {pid} has fewer threads than CPUs that it may use: some stay idle");
            let finding = Finding::new(id, Status::ByHand, now, why);
            return finding.wanted(format!("{cpus} threads")).by_hand([format!(
                "start it with {cpus} workers; for Ringmain --workers {cpus}, or the default"
            )]);
        }
        let why = match pinned {
            0 => format!("process {pid} has a thread for each CPU; none is pinned"),
            _ => format!(
                "process {pid} has a thread for each CPU, {pinned} of {} pinned",
                workers.len()
            ),
        };
        Finding::new(id, Status::Good, now, why)
    }

    pub(super) fn mitigations(self) -> Finding {
        let id = Id::Mitigations;
        let names = self.root.entries(VULNERABILITIES);
        let states: Vec<(String, String)> = names
            .into_iter()
            .filter_map(|name| {
                let state = self.root.find(&format!("{VULNERABILITIES}/{name}"))?;
                Some((name, state))
            })
            .collect();
        if states.is_empty() {
            return Finding::unknown(id, "the kernel does not report which mitigations are active");
        }
        let active: Vec<&(String, String)> = states
            .iter()
            .filter(|(_, state)| state.starts_with("Mitigation"))
            .collect();
        let now = format!("{} of {} mitigated", active.len(), states.len());
        if active.is_empty() {
            return Finding::new(id, Status::Good, now, "no mitigation is active");
        }
        let mut parameters: Vec<&str> = active.iter().filter_map(|(name, _)| parameter(name)).collect();
        parameters.dedup();
        let listed: Vec<&str> = active.iter().map(|(name, _)| name.as_str()).collect();
        let hardware = states
            .iter()
            .any(|(name, state)| name == "spectre_v2" && state.contains("Enhanced"));
        let mut why = format!("on: {}", listed.join(", "));
        if hardware {
            why.push_str("; this CPU does most of it in hardware, so that the gain is small");
        }
        if self.host.virtual_machine == Some(true) {
            why.push_str("; those of the hypervisor do not change");
        }
        if self.host.place.container.is_some() {
            why.push_str("; the host's containers share them all");
        }
        let finding = Finding::new(id, Status::ByHand, now, why).wanted("off, if all code is yours");
        if parameters.is_empty() {
            return finding.by_hand(["kernel parameter: mitigations=off, and restart".to_owned()]);
        }
        finding.by_hand([
            format!("kernel parameters: {}, and restart", parameters.join(" ")),
            "to revert: remove them from the boot loader's configuration, and restart".to_owned(),
        ])
    }

    pub(super) fn audit_system(self) -> Finding {
        let id = Id::Audit;
        let status = match self.root.read(&Key::Audit) {
            Reading::Value(status) => Fields::parse(&status),
            Reading::Absent => {
                return Finding::new(id, Status::Good, "not there", "this kernel has no audit system");
            }
            Reading::Unknown(why) => {
                return match self.host.processes.named("auditd") {
                    Some(process) => Finding::new(
                        id,
                        Status::Unknown,
                        "auditd runs",
                        format!(
                            "process {} receives records; its rules cannot be read: {why}",
                            process.pid
                        ),
                    ),
                    None => Finding::unknown(id, format!("the audit system does not respond: {why}")),
                };
            }
        };
        let rules = status.number("rules").unwrap_or(0) as usize;
        if status.number("enabled") == Some(0) {
            return Finding::new(
                id,
                Status::Good,
                "off",
                "audit is off: system calls take the fast path",
            );
        }
        let never = self.root.read(&Key::AuditNeverTask);
        if never.value() == Some("present") {
            return Finding::new(
                id,
                Status::Good,
                "on, never for tasks",
                "the rule `never,task` is already loaded",
            );
        }
        let now = format!("on, {}", count(rules, "rule"));
        let mut why = match rules {
            0 => "audit is on without rules: every new task is prepared for records that no rule requests"
                .to_owned(),
            _ => format!("{} would be disabled silently", count(rules, "rule")),
        };
        why.push_str("; only tasks that start afterwards change: restart the service");
        if status.number("enabled") == Some(2) {
            why = "rules are locked until the host restarts".into();
            return Finding::new(id, Status::Leave, now, why);
        }
        let change = Change {
            key: Key::AuditNeverTask,
            now: "absent".into(),
            wanted: "present".into(),
        };
        Finding::new(id, Status::Change, now, why)
            .wanted("never,task")
            .changes(vec![change])
    }

    pub(super) fn seccomp(self) -> Finding {
        let id = Id::Seccomp;
        let Some(mode) = self.host.service.seccomp else {
            return Finding::unknown(
                id,
                "no process of a service is known: select it with --pid or --port",
            );
        };
        if mode == 0 {
            return Finding::new(
                id,
                Status::Good,
                "no filter",
                "system calls of the service are not filtered",
            );
        }
        let modern = self.host.kernel_at_least(5, 11);
        let why = match modern {
            Some(true) => "this kernel caches the calls that the filter allows: its cost is small",
            Some(false) => "before Linux 5.11 the whole filter runs for every system call",
            None => "the kernel's version is not known, and neither is the cost of the filter",
        };
        let status = if modern == Some(true) {
            Status::Leave
        } else {
            Status::ByHand
        };
        Finding::new(id, status, "filtered", why)
            .wanted("a narrow profile")
            .by_hand([
                "first: ringmain tune export --as seccomp > ringmain.json, and start the container with \
                 --security-opt seccomp=ringmain.json"
                    .to_owned(),
                "only if no untrusted client can reach the service: --security-opt seccomp=unconfined"
                    .to_owned(),
            ])
    }

    pub(super) fn netfilter(self) -> Finding {
        let id = Id::Netfilter;
        let modules = self.root.find("/proc/modules").unwrap_or_default();
        let loaded: Vec<&str> = modules
            .lines()
            .filter_map(|line| line.split(' ').next())
            .filter(|name| MODULES.contains(name))
            .collect();
        let tables = self.root.read(&Key::Nftables);
        let used: Vec<String> = tables.value().map_or_else(Vec::new, |text| {
            let tables = Fields::parse(text);
            let used = tables.iter().filter(|(_, used)| *used != "0");
            used.map(|(name, _)| name.to_owned()).collect()
        });
        let old = ["ip", "ip6", "arp"].map(|family| {
            let names = self.root.find(&format!("/proc/net/{family}_tables_names"));
            names
                .unwrap_or_default()
                .lines()
                .map(|name| format!("{family}/{name}"))
                .collect::<Vec<_>>()
        });
        let all: Vec<String> = used.into_iter().chain(old.concat()).collect();
        let tracked = self
            .root
            .number("/proc/sys/net/netfilter/nf_conntrack_count")
            .unwrap_or(0);
        if all.is_empty() && tracked == 0 {
            let why = match (&tables, loaded.is_empty()) {
                (Reading::Unknown(why), _) => {
                    return Finding::unknown(
                        id,
                        format!("no table is visible, but nftables does not respond: {why}"),
                    );
                }
                (_, true) => "no tables and no tracked connections: packets pass no hook",
                (_, false) => "modules are loaded, but there are no tables and no tracked connections",
            };
            return Finding::new(id, Status::Good, "no tables", why);
        }
        let now = format!("{}, {tracked} tracked", count(all.len(), "table"));
        self.with_tables(now, &all, &loaded)
    }

    fn with_tables(self, now: String, tables: &[String], loaded: &[&str]) -> Finding {
        let mut why = format!("packets go through {}", tables.join(", "));
        if tables.is_empty() {
            why = "connections are tracked although no table is visible".into();
        }
        let port = self
            .host
            .service
            .port
            .map_or("PORT".to_owned(), |port| port.to_string());
        let mut lines = vec![
            format!(
                "first, leave the rules and do not track the service: nft 'add table inet ringmain; \
                 add chain inet ringmain arriving {{ type filter hook prerouting priority raw; }}; \
                 add rule inet ringmain arriving tcp dport {port} notrack; \
                 add chain inet ringmain leaving {{ type filter hook output priority raw; }}; \
                 add rule inet ringmain leaving tcp sport {port} notrack'"
            ),
            "not if one of your rules matches the state of these connections (ct state), or translates them (NAT)".to_owned(),
            "to revert: nft delete table inet ringmain".to_owned(),
        ];
        // Only where it was accepted is the coarse way shown, and never where rules would be lost.
        if self.wish.accept.contains(&crate::catalogue::Accept::NetfilterOff) {
            if tables.is_empty() && !loaded.is_empty() {
                lines.push(format!("or unload it: modprobe -r {}", loaded.join(" ")));
            } else {
                why.push_str("; unloading is not proposed while there are tables: they hold active rules");
            }
        }
        Finding::new(Id::Netfilter, Status::ByHand, now, why)
            .wanted("NOTRACK for the port")
            .by_hand(lines)
    }

    pub(super) fn irqbalance(self) -> Finding {
        let id = Id::Irqbalance;
        let Some(process) = self.host.processes.named("irqbalance") else {
            if self.host.processes.are_all() {
                return Finding::new(id, Status::Good, "not running", "no daemon moves interrupts");
            }
            return Finding::unknown(id, "not all processes of the host are visible from here");
        };
        let has_queues = self.host.cards().any(|card| card.interrupts.len() > 1);
        let now = format!("runs ({})", process.pid);
        if !has_queues {
            let why = "the service's card has no interrupts that are worth assigning";
            return Finding::new(id, Status::Leave, now, why);
        }
        let why = "it undoes the assignment of this card's interrupts within seconds";
        Finding::new(id, Status::ByHand, now, why)
            .wanted("leaves the card's CPUs alone")
            .by_hand([
                format!(
                    "in /etc/default/irqbalance (Debian) or /etc/sysconfig/irqbalance (Red Hat): \
                     IRQBALANCE_BANNED_CPULIST={}",
                    self.host.usable
                ),
                "then: systemctl restart irqbalance".to_owned(),
            ])
    }

    pub(super) fn packet_sockets(self) -> Finding {
        let id = Id::PacketSockets;
        let table = match self.root.text("/proc/net/packet") {
            Reading::Value(table) => table,
            Reading::Absent => return Finding::absent(id, "this kernel has no packet sockets"),
            Reading::Unknown(why) => {
                return Finding::unknown(id, format!("/proc/net/packet cannot be read: {why}"));
            }
        };
        let rows: Vec<(&str, u64)> = table.lines().skip(1).filter_map(packet_socket).collect();
        // ETH_P_ALL
        let (all, single): (Vec<_>, Vec<_>) = rows.iter().partition(|(protocol, _)| *protocol == "0003");
        if all.is_empty() {
            let (now, why) = match single.len() {
                0 => ("none".to_owned(), "no program receives packets beside the stack"),
                n => (
                    format!("{n}, none for all"),
                    "each receives one protocol and costs other packets nothing",
                ),
            };
            return Finding::new(id, Status::Good, now, why);
        }
        let inodes: Vec<u64> = all.iter().map(|(_, inode)| *inode).collect();
        let holders = self.host.processes.holding(self.root, &inodes);
        let who = if holders.is_empty() {
            "an unknown program (root can identify it)".to_owned()
        } else {
            sentence(&holders)
        };
        let mut lines = vec![format!("stop it if it is not needed: {who}")];
        if holders.iter().any(|process| process.name.starts_with("dhc")) {
            lines.push(
                "a DHCP client: dhclient -x stops it and keeps the address; then, for each of its addresses, \
                 ip addr change ADDRESS/PREFIX dev IF valid_lft forever preferred_lft forever. Only where the address \
                 is static (as in most clouds)"
                    .into(),
            );
        }
        Finding::new(
            id,
            Status::ByHand,
            count(all.len(), "listener"),
            format!("every packet is copied to {who}"),
        )
        .wanted("none")
        .by_hand(lines)
    }
}

/// Protocol and inode of a row of `/proc/net/packet`.
fn packet_socket(line: &str) -> Option<(&str, u64)> {
    let fields: Vec<&str> = line.split_ascii_whitespace().collect();
    Some((fields.get(3)?, fields.get(8)?.parse().ok()?))
}

/// The kernel parameter that switches off one mitigation alone (x86).
fn parameter(vulnerability: &str) -> Option<&'static str> {
    Some(match vulnerability {
        "spectre_v1" => "nospectre_v1",
        "spectre_v2" => "nospectre_v2",
        "meltdown" => "pti=off",
        "mds" => "mds=off",
        "tsx_async_abort" => "tsx_async_abort=off",
        "retbleed" => "retbleed=off",
        "spec_rstack_overflow" => "spec_rstack_overflow=off",
        "gather_data_sampling" => "gather_data_sampling=off",
        "indirect_target_selection" => "indirect_target_selection=off",
        "tsa" => "tsa=off",
        "vmscape" => "vmscape=off",
        _ => return None,
    })
}
