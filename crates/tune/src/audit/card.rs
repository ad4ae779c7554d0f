//! Steps of the card and of what stands before it: interrupts, polling, queueing, limits.

use super::{Change, Finding, Look, Status};
use crate::catalogue::{Id, Profile};
use crate::host::{Interface, Kind};
use crate::root::{Ethtool, Fields, Key, Reading};

/// Microseconds of [`Id::Moderation`] where the driver has no adaptive mode.
const STATIC_US: u32 = 256;

impl Look<'_> {
    pub(super) fn moderation(self, card: &Interface) -> Finding {
        let id = Id::Moderation;
        let key = Key::ethtool(&card.name, Ethtool::Coalesce);
        let now = match self.root.read(&key) {
            Reading::Value(now) => now,
            Reading::Absent => return Finding::absent(id, "the driver does not offer it"),
            Reading::Unknown(why) => {
                return Finding::unknown(id, format!("the driver was not queried: {why}"));
            }
        };
        let fields = Fields::parse(&now);
        let adaptive = fields.is_on("adaptive-rx");
        let rx = fields.number("rx-usecs").unwrap_or(0);
        let tx = fields.number("tx-usecs").unwrap_or(0);
        let short = if adaptive {
            "adaptive".to_owned()
        } else {
            format!("rx {rx} us, tx {tx} us")
        };
        // A hypervisor's card tells numbers of frames only, and what it makes of others nobody knows.
        let paravirtual = matches!(
            card.driver.as_deref(),
            Some("virtio_net" | "veth" | "xen-netfront")
        );
        if paravirtual {
            let why =
                "a paravirtual card: its host moderates interrupts, and ignores most settings of the guest";
            return Finding::new(id, Status::Leave, short, why);
        }
        let with = |adaptive_rx: &str, rx: u32, tx: u32| {
            let keep = |name: &str| fields.text(name).unwrap_or("0");
            format!(
                "adaptive-rx={adaptive_rx} adaptive-tx={} rx-usecs={rx} rx-frames={} tx-usecs={tx} tx-frames={}",
                fields.text("adaptive-tx").unwrap_or("off"),
                keep("rx-frames"),
                keep("tx-frames")
            )
        };
        let (good, wanted, label, why) = match self.profile() {
            Profile::Latency => (
                !adaptive && rx == 0,
                with("off", 0, tx),
                "off (rx 0 us)".to_owned(),
                "each packet is reported at once; useful with busy polling (step busy-poll)",
            ),
            Profile::Throughput | Profile::Efficiency => (
                adaptive || rx >= STATIC_US,
                with("on", rx, tx),
                "adaptive".to_owned(),
                "fewer interrupts under load; the driver waits only while many packets arrive",
            ),
        };
        if good {
            return Finding::new(id, Status::Good, short, why);
        }
        Finding::new(id, Status::Change, short, why)
            .wanted(label)
            .changes(vec![Change { key, now, wanted }])
    }

    pub(super) fn busy_poll(self) -> Finding {
        let id = Id::BusyPoll;
        const PATH: &str = "/proc/sys/net/core/busy_poll";
        let has_card = self.host.cards().any(|card| card.kind == Kind::Card);
        let reading = self.root.text(PATH);
        let now = match &reading {
            Reading::Value(value) => format!("sysctl {value}"),
            _ => "sysctl not seen".to_owned(),
        };
        if !has_card {
            let why = "no card receives the service's packets: there is nothing to poll";
            return Finding::new(id, Status::Absent, now, why);
        }
        if self.profile() == Profile::Efficiency {
            let zero = [(Key::File(PATH.into()), "0".to_owned())];
            return match self.changes_to(zero) {
                Ok(changes) if changes.is_empty() => Finding::new(
                    id,
                    Status::Good,
                    now,
                    "polling burns CPU time: off suits the profile efficiency",
                ),
                Ok(changes) => Finding::new(id, Status::Change, now, "polling burns CPU time")
                    .wanted("0")
                    .changes(changes),
                Err(reading) => self.without_value(id, PATH, reading),
            };
        }
        if self.host.kernel_at_least(6, 9) == Some(true) {
            let why = "this kernel polls for one ring alone: only the service pays, and the sysctl stays 0";
            return Finding::new(id, Status::ByHand, now, why)
                .wanted("per ring, 50 us")
                .by_hand([
                    "ringmain run --busy-poll 50us (with io_uring; pays where locality is in place)"
                        .to_owned(),
                ]);
        }
        let (wanted, why) = match self.profile() {
            Profile::Latency => ("50", "readers poll the card for 50 us before they sleep"),
            _ => (
                "1",
                "1 us of polling finds packets before a moderated interrupt reports them",
            ),
        };
        match self.changes_to([(Key::File(PATH.into()), wanted.to_owned())]) {
            Ok(changes) if changes.is_empty() => Finding::new(id, Status::Good, now, why),
            Ok(changes) => Finding::new(id, Status::Change, now, why)
                .wanted(format!("sysctl {wanted}"))
                .changes(changes),
            Err(reading) => self.without_value(id, PATH, reading),
        }
    }

    pub(super) fn deferred_irqs(self, card: &Interface) -> Finding {
        let id = Id::DeferredIrqs;
        let files = [card.path("napi_defer_hard_irqs"), card.path("gro_flush_timeout")];
        let [Some(times), Some(timeout)] = files.each_ref().map(|path| self.root.number(path)) else {
            return Finding::absent(id, "this kernel does not defer interrupts (before Linux 5.8)");
        };
        let now = match (times, timeout) {
            (0, 0) => "off".to_owned(),
            _ => format!("{times} times, {} us", timeout / 1000),
        };
        let wants_on = self.profile() != Profile::Latency;
        if wants_on && card.kind != Kind::Card {
            return Finding::absent(id, "a software interface has no interrupts");
        }
        if wants_on && card.rx_queues < 2 {
            let why = "reported for cards with many queues; with one queue the effect is not known";
            return Finding::new(id, Status::Leave, now, why);
        }
        let (values, label, why) = if wants_on {
            (
                ["10", "20000"],
                "10 times, 20 us",
                "under load the card interrupts much less; the driver must use NAPI's own completion",
            )
        } else {
            (["0", "0"], "off", "a single packet must not wait for a timer")
        };
        if wants_on && times > 0 && timeout > 0 {
            return Finding::new(id, Status::Good, now, why);
        }
        let pairs = files.into_iter().map(Key::File).zip(values.map(str::to_owned));
        match self.changes_to(pairs) {
            Ok(changes) if changes.is_empty() => Finding::new(id, Status::Good, now, why),
            Ok(changes) => Finding::new(id, Status::Change, now, why)
                .wanted(label)
                .changes(changes),
            Err(reading) => self.without_value(id, "", reading),
        }
    }

    pub(super) fn irq_suspension(self) -> Finding {
        let id = Id::IrqSuspension;
        match self.host.kernel_at_least(6, 13) {
            None => Finding::unknown(id, "the kernel's version is not known"),
            Some(false) => Finding::absent(id, "needs Linux 6.13"),
            Some(true) => Finding::new(
                id,
                Status::Leave,
                "possible",
                "supported by the kernel; the application must poll with an epoll set that enables it, which Ringmain does not",
            ),
        }
    }

    pub(super) fn qdisc(self, card: &Interface) -> Finding {
        let id = Id::Qdisc;
        let key = Key::Qdisc {
            interface: card.name.clone(),
        };
        let now = match self.root.read(&key) {
            Reading::Value(now) => now,
            Reading::Absent => return Finding::absent(id, "the interface has no queueing discipline"),
            Reading::Unknown(why) => {
                return Finding::unknown(id, format!("the kernel was not queried: {why}"));
            }
        };
        let short = now.clone();
        if now.starts_with("tree:") {
            let why = "traffic is shaped here: a tree of classes cannot be restored";
            return Finding::new(id, Status::Leave, short, why);
        }
        if now == "noqueue" || now.contains("(noqueue") {
            return Finding::new(
                id,
                Status::Good,
                short,
                "packets go to the card without a queue and its lock",
            );
        }
        if self.profile() != Profile::Throughput {
            let why = "fair queues keep latency low under load: only throughput could gain, and little";
            return Finding::new(id, Status::Leave, short, why);
        }
        let pacing = self.root.find("/proc/sys/net/ipv4/tcp_congestion_control");
        if pacing.as_deref() == Some("bbr") && now.contains("fq") {
            return Finding::new(
                id,
                Status::Leave,
                short,
                "bbr is paced by fq: without it, it sends in bursts",
            );
        }
        let (target, first) = match card.kind {
            // The kernel's own choice for interfaces of software.
            Kind::Loopback | Kind::Software => ("noqueue".to_owned(), None),
            Kind::Card => {
                let below = format!("noqueue*{}", card.tx_queues);
                let target = if card.tx_queues > 1 {
                    format!("mq({below})")
                } else {
                    "noqueue".to_owned()
                };
                let default = (Key::sysctl("net.core.default_qdisc"), "noqueue".to_owned());
                (target, Some(default))
            }
        };
        let why = "one lock less for each packet; packets are dropped where the card's ring is full";
        match self.changes_to(first.into_iter().chain([(key, target.clone())])) {
            Ok(changes) => Finding::new(id, Status::Change, short, why)
                .wanted(target)
                .changes(changes),
            Err(reading) => self.without_value(id, "/proc/sys/net/core/default_qdisc", reading),
        }
    }

    pub(super) fn gro(self, card: &Interface) -> Finding {
        let id = Id::Gro;
        let key = Key::ethtool(&card.name, Ethtool::Gro);
        match self.root.read(&key) {
            Reading::Absent => Finding::absent(id, "the driver does not offer it"),
            Reading::Unknown(why) => Finding::unknown(id, format!("the driver was not queried: {why}")),
            Reading::Value(now) if now == "off" => Finding::new(
                id,
                Status::Good,
                now,
                "packets are not merged; on is better where requests are larger than a packet",
            ),
            Reading::Value(now) if self.profile() == Profile::Efficiency => Finding::new(
                id,
                Status::Good,
                now,
                "merged packets cost least for all but the smallest requests",
            ),
            Reading::Value(now) => {
                let why = "only where all requests fit a packet; uploads and proxying become more expensive";
                let change = Change {
                    key,
                    now: now.clone(),
                    wanted: "off".into(),
                };
                Finding::new(id, Status::Change, now, why)
                    .wanted("off")
                    .changes(vec![change])
            }
        }
    }

    pub(super) fn rings(self, card: &Interface) -> Finding {
        let id = Id::Rings;
        let key = Key::ethtool(&card.name, Ethtool::Rings);
        let most = self.root.read(&Key::ethtool(&card.name, Ethtool::RingsMax));
        let (now, most) = match (self.root.read(&key), most) {
            (Reading::Value(now), Reading::Value(most)) => (now, Fields::parse(&most)),
            (Reading::Unknown(why), _) | (_, Reading::Unknown(why)) => {
                return Finding::unknown(id, format!("the driver was not queried: {why}"));
            }
            _ => return Finding::absent(id, "the driver has no rings to set"),
        };
        let fields = Fields::parse(&now);
        let (Some(rx), Some(tx), Some(rx_max)) =
            (fields.number("rx"), fields.number("tx"), most.number("rx"))
        else {
            return Finding::unknown(id, format!("the driver's ring sizes cannot be read: {now}"));
        };
        let short = format!("rx {rx} of {rx_max}");
        let counter = |name: &str| {
            self.root
                .number(&card.path(&format!("statistics/{name}")))
                .unwrap_or(0)
        };
        let lost = counter("rx_missed_errors") + counter("rx_fifo_errors");
        if lost == 0 {
            return Finding::new(
                id,
                Status::Good,
                short,
                "the card has lost no packet to a full ring",
            );
        }
        let why = format!("the card has lost {lost} packets to a full ring since the start");
        if rx >= rx_max {
            let why = format!("{why}, and the ring has its maximum size: CPUs do not keep up");
            return Finding::new(id, Status::Leave, short, why);
        }
        let wanted = (rx.saturating_mul(4)).min(rx_max);
        let change = Change {
            key,
            now: now.clone(),
            wanted: format!("rx={wanted} tx={tx}"),
        };
        Finding::new(id, Status::Change, short, why)
            .wanted(format!("rx {wanted}"))
            .changes(vec![change])
    }

    pub(super) fn cloud_limits(self, card: &Interface) -> Finding {
        let id = Id::CloudLimits;
        let counters = match self.root.read(&Key::ethtool(&card.name, Ethtool::Allowance)) {
            Reading::Value(counters) if !counters.is_empty() => counters,
            Reading::Unknown(why) => {
                return Finding::unknown(id, format!("the driver was not queried: {why}"));
            }
            _ => return Finding::absent(id, "the driver has no counters of cloud limits"),
        };
        let fields = Fields::parse(&counters);
        let reached: Vec<String> = fields
            .iter()
            .filter(|(name, value)| name.ends_with("exceeded") && *value != "0")
            .map(|(name, value)| format!("{name} {value}"))
            .collect();
        if reached.is_empty() {
            return Finding::new(
                id,
                Status::Good,
                "none reached",
                "the cloud has limited no traffic since the start",
            );
        }
        let why = format!(
            "the cloud limits traffic: {}. No setting of the host helps",
            reached.join(", ")
        );
        Finding::new(id, Status::ByHand, "reached", why)
            .wanted("none reached")
            .by_hand([
                "a larger instance, or less traffic; a conntrack limit: fewer connections, kept longer"
                    .to_owned(),
            ])
    }
}
