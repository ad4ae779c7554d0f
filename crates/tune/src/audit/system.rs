//! Steps of the whole host: TCP, CPUs' frequency and sleep, backlogs, ports, memory.

use super::{Finding, Look, Status};
use crate::catalogue::{Id, Profile};
use crate::root::{Key, Reading};

/// What backlogs are raised to.
const BACKLOG: &str = "65535";
/// With so much and nothing lost, backlogs are left alone.
const ENOUGH: u64 = 4096;

/// Microseconds that a CPU may take to wake up.
const WAKE_US: u64 = 10;

impl Look<'_> {
    pub(super) fn congestion_control(self) -> Finding {
        let id = Id::CongestionControl;
        const NAME: &str = "net.ipv4.tcp_congestion_control";
        let key = Key::sysctl(NAME);
        let now = match self.root.read(&key) {
            Reading::Value(now) => now,
            reading => return self.without_value(id, "/proc/sys/net/ipv4/tcp_congestion_control", reading),
        };
        if now == "reno" {
            let why = "the cheapest to compute; over distance and loss cubic and bbr are much faster";
            return Finding::new(id, Status::Good, now, why);
        }
        if self.profile() != Profile::Throughput {
            return Finding::new(id, Status::Good, now, "another one brings no gain");
        }
        let available = self
            .root
            .find("/proc/sys/net/ipv4/tcp_available_congestion_control");
        let can = available.is_some_and(|names| names.split_ascii_whitespace().any(|name| name == "reno"));
        if !can {
            return Finding::new(id, Status::Leave, now, "reno is not available in this kernel");
        }
        let why = "less to compute for each acknowledgement, on a local network alone; applies to all services of the host";
        match self.changes_to([(key, "reno".to_owned())]) {
            Ok(changes) => Finding::new(id, Status::Change, now, why)
                .wanted("reno")
                .changes(changes),
            Err(reading) => self.without_value(id, "", reading),
        }
    }

    pub(super) fn governor(self) -> Finding {
        let id = Id::Governor;
        let files: Vec<String> = self
            .host
            .usable
            .iter()
            .map(|cpu| format!("/sys/devices/system/cpu/cpu{cpu}/cpufreq/scaling_governor"))
            .collect();
        let mut names: Vec<String> = files.iter().filter_map(|path| self.root.find(path)).collect();
        names.sort();
        names.dedup();
        if names.is_empty() {
            let why = match self.host.virtual_machine {
                Some(true) => "a virtual machine: its host chooses the frequency",
                _ => "the kernel does not choose the frequency here",
            };
            return Finding::absent(id, why);
        }
        let now = names.join(", ");
        if self.profile() == Profile::Efficiency {
            return Finding::new(id, Status::Leave, now, "the profile efficiency saves power");
        }
        let pairs = files
            .into_iter()
            .map(|path| (Key::File(path), "performance".to_owned()));
        match self.changes_to(pairs) {
            Ok(changes) if changes.is_empty() => {
                Finding::new(id, Status::Good, now, "the frequency is always high")
            }
            Ok(changes) => Finding::new(
                id,
                Status::Change,
                now,
                "the frequency follows the load with a delay, and so do the figures",
            )
            .wanted("performance")
            .changes(changes),
            Err(reading) => self.without_value(id, "", reading),
        }
    }

    pub(super) fn c_states(self) -> Finding {
        let id = Id::CStates;
        let mut deep = Vec::new();
        let mut any = false;
        for cpu in self.host.usable.iter() {
            let directory = format!("/sys/devices/system/cpu/cpu{cpu}/cpuidle");
            for state in self.root.entries(&directory) {
                let path = format!("{directory}/{state}");
                let Some(latency) = self.root.number(&format!("{path}/latency")) else {
                    continue;
                };
                any = true;
                if latency > WAKE_US && self.root.number(&format!("{path}/disable")) == Some(0) {
                    deep.push((format!("{path}/disable"), latency));
                }
            }
        }
        if !any {
            let why = match self.host.virtual_machine {
                Some(true) => "a virtual machine: its host puts idle CPUs to sleep",
                _ => "the kernel reports no idle states",
            };
            return Finding::absent(id, why);
        }
        let slowest = deep.iter().map(|(_, latency)| *latency).max();
        let Some(slowest) = slowest else {
            let why = format!("no state takes longer than {WAKE_US} us to wake from");
            return Finding::new(id, Status::Good, "shallow", why);
        };
        let now = format!("up to {slowest} us to wake");
        if self.profile() != Profile::Latency {
            let why = "costs the first packet after a pause; under load CPUs do not sleep";
            return Finding::new(id, Status::Leave, now, why);
        }
        let pairs = deep
            .into_iter()
            .map(|(path, _)| (Key::File(path), "1".to_owned()));
        match self.changes_to(pairs) {
            Ok(changes) => Finding::new(
                id,
                Status::Change,
                now,
                "the first packet after a pause waits for the CPU to wake",
            )
            .wanted(format!("at most {WAKE_US} us"))
            .changes(changes),
            Err(reading) => self.without_value(id, "", reading),
        }
    }

    pub(super) fn backlogs(self) -> Finding {
        let id = Id::Backlogs;
        const SOMAXCONN: &str = "/proc/sys/net/core/somaxconn";
        let keys = ["net.core.somaxconn", "net.ipv4.tcp_max_syn_backlog"].map(Key::sysctl);
        let Some(most) = self.root.number(SOMAXCONN) else {
            return self.without_value(id, SOMAXCONN, self.root.text(SOMAXCONN));
        };
        let netstat = self.root.find("/proc/net/netstat").unwrap_or_default();
        let lost = tcp_counter(&netstat, "ListenOverflows");
        let now = match lost {
            Some(lost) => format!("{most}, {lost} lost"),
            None => most.to_string(),
        };
        if most >= ENOUGH && lost.unwrap_or(0) == 0 {
            return Finding::new(id, Status::Good, now, "no connection was lost to a full queue");
        }
        let why = match lost {
            Some(lost) if lost > 0 => format!(
                "{lost} connections were lost to a full queue since the start; the service's own backlog must be as large"
            ),
            _ => {
                "a burst of new connections needs a longer queue; the service's own backlog must be as large"
                    .into()
            }
        };
        match self.changes_to(keys.map(|key| (key, BACKLOG.to_owned()))) {
            // What is larger stays.
            Ok(changes) => {
                let grows = |now: &str| now.parse::<u64>().is_ok_and(|now| now < 65_535);
                let changes: Vec<_> = changes.into_iter().filter(|change| grows(&change.now)).collect();
                let status = if changes.is_empty() {
                    Status::ByHand
                } else {
                    Status::Change
                };
                let hand = "start the service with an equally large backlog: for Ringmain --backlog 65535"
                    .to_owned();
                Finding::new(id, status, now, why)
                    .wanted(BACKLOG)
                    .changes(changes)
                    .by_hand([hand])
            }
            Err(reading) => self.without_value(id, SOMAXCONN, reading),
        }
    }

    pub(super) fn ports(self) -> Finding {
        let id = Id::Ports;
        const PATH: &str = "/proc/sys/net/ipv4/ip_local_port_range";
        let range = match self.root.text(PATH) {
            Reading::Value(range) => range.split_ascii_whitespace().collect::<Vec<_>>().join(" "),
            reading => return self.without_value(id, PATH, reading),
        };
        let mut ends = range.split(' ').filter_map(|end| end.parse::<u32>().ok());
        let (Some(low), Some(high)) = (ends.next(), ends.next()) else {
            return Finding::unknown(id, format!("the range cannot be read: {range}"));
        };
        let now = format!("{low}-{high}");
        let sockets = self.root.find("/proc/net/sockstat").unwrap_or_default();
        let waiting = sockets.lines().find_map(|line| {
            let words: Vec<&str> = line.strip_prefix("TCP:")?.split_ascii_whitespace().collect();
            let at = words.iter().position(|word| *word == "tw")?;
            words.get(at + 1)?.parse::<u32>().ok()
        });
        if low <= 1024 && high >= 65_535 {
            return Finding::new(id, Status::Good, now, "all available ports");
        }
        let why = match waiting {
            Some(waiting) => {
                format!("for proxies and load generators; {waiting} connections are in TIME-WAIT")
            }
            None => "for proxies and load generators".to_owned(),
        };
        let hand = "first reserve the ports that programs here listen on: net.ipv4.ip_local_reserved_ports"
            .to_owned();
        match self.changes_to([(Key::File(PATH.into()), "1024 65535".to_owned())]) {
            Ok(changes) => Finding::new(id, Status::Change, now, why)
                .wanted("1024-65535")
                .changes(changes)
                .by_hand([hand]),
            Err(reading) => self.without_value(id, PATH, reading),
        }
    }

    pub(super) fn thp(self) -> Finding {
        let id = Id::Thp;
        const PATH: &str = "/sys/kernel/mm/transparent_hugepage/enabled";
        match self.root.text(PATH) {
            Reading::Value(text) => {
                let chosen = text.split(['[', ']']).nth(1).unwrap_or("unknown").to_owned();
                Finding::new(id, Status::Leave, chosen, "no measurement shows a better value")
            }
            reading => self.without_value(id, PATH, reading),
        }
    }

    pub(super) fn memory(self) -> Finding {
        let id = Id::Memory;
        let memory = self.root.find("/proc/meminfo").unwrap_or_default();
        let kib = |name: &str| {
            let line = memory.lines().find_map(|line| line.strip_prefix(name))?;
            line.trim_start_matches(':')
                .trim()
                .split(' ')
                .next()?
                .parse::<u64>()
                .ok()
        };
        let (Some(total), Some(free)) = (kib("SwapTotal"), kib("SwapFree")) else {
            return Finding::unknown(id, "the kernel does not report swap");
        };
        let used = total.saturating_sub(free) >> 10;
        match (total, used) {
            (0, _) => Finding::new(id, Status::Good, "no swap", "the host cannot swap"),
            (_, 0) => Finding::new(id, Status::Good, "swap unused", "the host does not swap"),
            (_, used) => Finding::new(
                id,
                Status::ByHand,
                format!("{used} MiB swapped"),
                "the host has swapped: it lacks memory, which no other step can fix",
            )
            .wanted("swap unused")
            .by_hand(["more memory, or fewer programs".to_owned()]),
        }
    }
}

/// A counter of `/proc/net/netstat`: names in one line, values in the next.
fn tcp_counter(text: &str, name: &str) -> Option<u64> {
    let mut lines = text.lines().filter_map(|line| line.strip_prefix("TcpExt:"));
    let (names, values) = (lines.next()?, lines.next()?);
    let place = names.split_ascii_whitespace().position(|found| found == name)?;
    values.split_ascii_whitespace().nth(place)?.parse().ok()
}
