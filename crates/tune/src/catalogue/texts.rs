//! The facts of each step. Figures are others' measurements, and each names whose; none is a promise for another host.

use super::Risk;
use super::{Accept, Id, Step};

/// All, in the order of [`Id::ALL`].
pub(super) const STEPS: &[Step] = &[
    Step {
        id: Id::Application,
        name: "application",
        title: "configuration of the service itself",
        number: Some(1),
        gain: "+55 %",
        source: "Extreme HTTP Performance Tuning (2021): JSON replies, c5n.xlarge, Linux 4.14, +436 % with \
            all nine",
        risk: Risk::None,
        reboot: false,
        accept: None,
        optional: false,
        what: "All CPUs used, one pinned worker each, recv and send, constant parts of responses prepared \
            once. Ringmain does this by itself; gains of other steps grow with it.",
        detect: "Threads of the service (/proc/PID/task) and the CPUs that each may use.",
        apply: "By the service's own options. Ringmain chooses --workers by itself by default. No host \
            setting is changed.",
        not_when: "A CPU quota (a container's limit) is smaller than the number of CPUs: then more workers \
            only wait for each other.",
        gentler: None,
    },
    Step {
        id: Id::Mitigations,
        name: "mitigations",
        title: "mitigations of speculative execution",
        number: Some(2),
        gain: "+28 %",
        source: "Extreme HTTP Performance Tuning (2021): JSON replies, c5n.xlarge, Linux 4.14, +436 % with \
            all nine; of that Spectre v2 15-20 %, PTI 6 %, MDS and TAA 6 %. Reported to be much less on CPUs \
            with protection in hardware (not verified)",
        risk: Risk::Critical,
        reboot: true,
        accept: Some(Accept::MitigationsOff),
        optional: false,
        what: "Each system call and each indirect jump in the kernel pays for protection from Spectre, \
            Meltdown and similar attacks, on CPUs that need it.",
        detect: "/sys/devices/system/cpu/vulnerabilities: the active mitigations. The command line \
            (/proc/cmdline) only shows what was requested.",
        apply: "Kernel parameters, a new boot loader configuration and a restart; revert in the same way. \
            Ringmain prints the parameters, and does not change the boot loader.",
        not_when: "Untrusted code runs on the host: shared hosts, hosts of others' containers or \
            virtual machines, anything with a browser or plug-ins.",
        gentler: Some(
            "Newer CPUs with protection in hardware cost a fraction. Switching off one mitigation by \
            its own parameter is less than mitigations=off.",
        ),
    },
    Step {
        id: Id::Audit,
        name: "audit",
        title: "system call auditing",
        number: Some(3),
        gain: "part of +11 %",
        source: "Extreme HTTP Performance Tuning (2021): JSON replies, c5n.xlarge, Linux 4.14, +436 % with \
            all nine; together with seccomp",
        risk: Risk::Critical,
        reboot: false,
        accept: Some(Accept::AuditOff),
        optional: false,
        what: "With audit on, every system call of an audited task takes the slow path in and out of the \
            kernel, even where no rule matches.",
        detect: "AUDIT_GET and AUDIT_LIST_RULES over netlink. The kernel does not report whether a running \
            task is audited.",
        apply: "The rule `never,task` is added, which applies to tasks that start afterwards: restart the \
            service. Revert deletes the rule.",
        not_when: "Audit rules are required: `never,task` silently disables every other rule, against CIS \
            4.1 and PCI DSS 10.",
        gentler: Some(
            "Without auditd and rules, audit=0 has no drawback. With rules, exempt the service \
            alone: auditctl -a never,exit -F exe=/path/of/the/service still pays part of the way.",
        ),
    },
    Step {
        id: Id::Seccomp,
        name: "seccomp",
        title: "system call filters",
        number: Some(3),
        gain: "part of +11 %",
        source: "Extreme HTTP Performance Tuning (2021): JSON replies, c5n.xlarge, Linux 4.14, +436 % with \
            all nine; together with audit. Reported to be less since Linux 5.11, which caches the calls \
            that a filter allows (not verified)",
        risk: Risk::Critical,
        reboot: false,
        accept: Some(Accept::SeccompOff),
        optional: false,
        what: "A filter runs before every system call. Since Linux 5.11 calls that it always allows cost \
            a bit test; before, each runs the whole program.",
        detect: "Seccomp: in /proc/PID/status.",
        apply: "By the program that starts the service: a container runtime, a systemd unit. An installed \
            filter cannot be removed.",
        not_when: "Nearly always: the filter limits a compromised service. `unconfined` is \
            never the first choice.",
        gentler: Some(
            "A narrow profile made for the service is both shorter and safer than the runtime's \
            default: `ringmain tune export --as seccomp`.",
        ),
    },
    Step {
        id: Id::Netfilter,
        name: "netfilter",
        title: "packet filter and connection tracking",
        number: Some(4),
        gain: "+22 %",
        source: "Extreme HTTP Performance Tuning (2021): JSON replies, c5n.xlarge, Linux 4.14, +436 % with \
            all nine; nf_hook_slow was 18 % of the profile",
        risk: Risk::Critical,
        reboot: false,
        accept: Some(Accept::NetfilterOff),
        optional: false,
        what: "Every packet goes through the hooks of all tables; connection tracking looks up each packet \
            in a table and stores an entry for each connection.",
        detect: "/proc/modules, /proc/net/ip_tables_names, tables of nftables over netlink, \
            nf_conntrack_count.",
        apply: "By hand, as rules have an owner: Ringmain prints the commands. To revert, load the modules \
            and restore the rules.",
        not_when: "Rules are loaded: they are the firewall, NAT, the networks of Docker and Kubernetes.",
        gentler: Some(
            "NOTRACK for the port of the service alone: packets to and from it are not tracked, all \
            rules stay.",
        ),
    },
    Step {
        id: Id::Irqbalance,
        name: "irqbalance",
        title: "daemon that moves interrupts between CPUs",
        number: Some(5),
        gain: "part of +38 %",
        source: "Extreme HTTP Performance Tuning (2021): JSON replies, c5n.xlarge, Linux 4.14, +436 % with \
            all nine; the steps of locality together",
        risk: Risk::Medium,
        reboot: false,
        accept: None,
        optional: false,
        what: "irqbalance moves interrupts from CPU to CPU and so undoes their assignment every ten \
            seconds.",
        detect: "A process with this name.",
        apply: "By hand: its configuration excludes CPUs or interrupts. Ringmain \
            prints the lines.",
        not_when: "Other cards or disks of the host need it: then ban only the CPUs of this card, as Amazon's \
            guide to ENA advises.",
        gentler: Some("Ban only the CPUs of this card (IRQBALANCE_BANNED_CPULIST)."),
    },
    Step {
        id: Id::Rss,
        name: "rss",
        title: "receive queues of the NIC",
        number: Some(5),
        gain: "part of +38 %",
        source: "Extreme HTTP Performance Tuning (2021): JSON replies, c5n.xlarge, Linux 4.14, +436 % with \
            all nine; the steps of locality together",
        risk: Risk::High,
        reboot: false,
        accept: Some(Accept::LinkReset),
        optional: false,
        what: "A card with a queue for each CPU lets every packet be handled where its connection's \
            worker runs. The card spreads flows over the queues by a hash (RSS).",
        detect: "Channels and their maximum (ETHTOOL_GCHANNELS), the indirection table (ETHTOOL_GRXFHINDIR).",
        apply: "ETHTOOL_SCHANNELS, ETHTOOL_SRXFHINDIR; revert restores the previous numbers. Most cards \
            reset \
            their link.",
        not_when: "Fewer queues that do not overflow cost the least CPU (Linux, scaling.rst); a queue for \
            each CPU is best for latency.",
        gentler: None,
    },
    Step {
        id: Id::IrqAffinity,
        name: "irq-affinity",
        title: "assignment of interrupts to CPUs",
        number: Some(5),
        gain: "part of +38 %",
        source: "Extreme HTTP Performance Tuning (2021): JSON replies, c5n.xlarge, Linux 4.14, +436 % with \
            all nine; the steps of locality together",
        risk: Risk::Medium,
        reboot: false,
        accept: None,
        optional: false,
        what: "The interrupts of all queues often go to a few CPUs. One queue for each CPU, in the order \
            of the workers, keeps each connection on one CPU from the card to the application.",
        detect: "/proc/irq/N/effective_affinity_list of the card's interrupts (device/msi_irqs), named in \
            /proc/interrupts.",
        apply: "/proc/irq/N/smp_affinity_list, one CPU each; revert restores the previous values. \
            Interrupts that the kernel manages itself reject the write.",
        not_when: "irqbalance runs and does not exclude these interrupts; or packets arrive through \
            another card.",
        gentler: None,
    },
    Step {
        id: Id::Rps,
        name: "rps",
        title: "receive packet steering in software",
        number: Some(5),
        gain: "part of +38 %",
        source: "Extreme HTTP Performance Tuning (2021): JSON replies, c5n.xlarge, Linux 4.14, +436 % with \
            all nine; turned off where RSS has a queue for each CPU",
        risk: Risk::Low,
        reboot: false,
        accept: None,
        optional: false,
        what: "Where the card has fewer queues than there are CPUs, the kernel can spread packets by \
            itself, at the price of an interrupt between CPUs.",
        detect: "/sys/class/net/IF/queues/rx-N/rps_cpus.",
        apply: "A mask of CPUs for each queue; revert restores the previous masks.",
        not_when: "The card has a queue for each CPU (RPS then only adds cost), or few packets arrive.",
        gentler: None,
    },
    Step {
        id: Id::Rfs,
        name: "rfs",
        title: "receive flow steering to the CPU of the reader",
        number: Some(5),
        gain: "not measured here",
        source: "Linux, Documentation/networking/scaling.rst",
        risk: Risk::Low,
        reboot: false,
        accept: None,
        optional: true,
        what: "With RPS, the kernel can send a flow to the CPU where its application last read.",
        detect: "net.core.rps_sock_flow_entries, queues/rx-N/rps_flow_cnt.",
        apply: "Both numbers; revert restores the previous ones.",
        not_when: "RPS is off; workers are pinned and connections are steered to them already.",
        gentler: None,
    },
    Step {
        id: Id::Xps,
        name: "xps",
        title: "assignment of CPUs to transmit queues",
        number: Some(5),
        gain: "part of +38 %",
        source: "Extreme HTTP Performance Tuning (2021): JSON replies, c5n.xlarge, Linux 4.14, +436 % with \
            all nine; the steps of locality together",
        risk: Risk::Low,
        reboot: false,
        accept: None,
        optional: false,
        what: "A CPU that sends through its own queue shares no lock with others, and the queue's completion \
            interrupts the CPU that sent.",
        detect: "/sys/class/net/IF/queues/tx-N/xps_cpus.",
        apply: "A mask with one CPU for each queue; revert restores the previous masks.",
        not_when: "The card has one queue: the kernel then has no such setting.",
        gentler: None,
    },
    Step {
        id: Id::Moderation,
        name: "moderation",
        title: "interrupt coalescing",
        number: Some(6),
        gain: "+28 %",
        source: "Extreme HTTP Performance Tuning (2021): JSON replies, c5n.xlarge, Linux 4.14, +436 % with \
            all nine; with net.core.busy_poll=1, after locality; p99 361 to 292 us",
        risk: Risk::Medium,
        reboot: false,
        accept: None,
        optional: false,
        what: "Each interrupt costs a microsecond or more. A card that waits a little for more packets \
            needs fewer; a single packet is delayed.",
        detect: "ETHTOOL_GCOALESCE.",
        apply: "For throughput and efficiency adaptive, or 256 us where the driver cannot; for latency \
            off, with busy polling. Revert restores the previous values.",
        not_when: "Latency counts more than throughput, or the reverse: the two want opposite values. On some \
            instances the adaptive mode has no effect (amzn-drivers issue 272).",
        gentler: None,
    },
    Step {
        id: Id::BusyPoll,
        name: "busy-poll",
        title: "busy polling of the NIC",
        number: Some(6),
        gain: "part of +28 %",
        source: "Extreme HTTP Performance Tuning (2021): JSON replies, c5n.xlarge, Linux 4.14, +436 % with \
            all nine; per-ring polling: about 30 % less CPU reported for memcached with IRQ suspension",
        risk: Risk::Medium,
        reboot: false,
        accept: None,
        optional: false,
        what: "Instead of sleeping until an interrupt, a reader polls the card. The sysctl \
            net.core.busy_poll does so for every socket of the host; since Linux 6.9 a ring or an epoll \
            set can enable it for itself.",
        detect: "net.core.busy_poll and busy_read; the kernel's version.",
        apply: "For one service: ringmain run --busy-poll 50us (io_uring, Linux 6.9). On older kernels the \
            sysctl; revert restores the previous value.",
        not_when: "CPUs are shared, power matters, or locality is not in place: then it only burns time.",
        gentler: Some("Per ring (ringmain run --busy-poll 50us): only the service pays."),
    },
    Step {
        id: Id::DeferredIrqs,
        name: "deferred-irqs",
        title: "interrupts deferred under load",
        number: Some(6),
        gain: "up to 20 % CPU",
        source: "Linux 5.8, commit message of napi_defer_hard_irqs: 100G card with 32 queues under load",
        risk: Risk::Medium,
        reboot: false,
        accept: None,
        optional: false,
        what: "With napi_defer_hard_irqs and gro_flush_timeout the kernel polls a queue again on a timer \
            before it enables the card's interrupt.",
        detect: "/sys/class/net/IF/napi_defer_hard_irqs, gro_flush_timeout.",
        apply: "10 and 20000 ns; revert restores the previous values.",
        not_when: "Latency of single requests counts: a single packet may wait for the timer.",
        gentler: None,
    },
    Step {
        id: Id::IrqSuspension,
        name: "irq-suspension",
        title: "interrupts suspended while the application polls",
        number: Some(6),
        gain: "about 30 % CPU",
        source: "Linux 6.13, commit message of irq_suspend_timeout: memcached",
        risk: Risk::Low,
        reboot: false,
        accept: None,
        optional: false,
        what: "Since Linux 6.13 interrupts of a queue stay off while its application polls it in time, \
            and are enabled again automatically.",
        detect: "The kernel's version.",
        apply: "By the application: it prefers busy polling on its epoll set, and each queue has an \
            irq_suspend_timeout.",
        not_when: "The application does not poll: then there is nothing to suspend. Ringmain does not use it \
            yet.",
        gentler: None,
    },
    Step {
        id: Id::PacketSockets,
        name: "packet-sockets",
        title: "packet sockets that receive every packet",
        number: Some(7),
        gain: "+6 %",
        source: "Extreme HTTP Performance Tuning (2021): JSON replies, c5n.xlarge, Linux 4.14, +436 % with \
            all nine; the listener was dhclient",
        risk: Risk::None,
        reboot: false,
        accept: None,
        optional: false,
        what: "A packet socket for all protocols receives a copy of every packet: DHCP clients, LLDP, \
            tcpdump, agents.",
        detect: "/proc/net/packet: a row for each; those for one protocol cost other packets nothing.",
        apply: "By hand: Ringmain names the program and terminates none.",
        not_when: "The program is needed: without the DHCP client no lease is renewed.",
        gentler: Some(
            "A DHCP client that uses a packet socket only while it requests a lease (systemd-networkd) \
            instead of permanently.",
        ),
    },
    Step {
        id: Id::Qdisc,
        name: "qdisc",
        title: "queueing discipline",
        number: Some(8),
        gain: "+2 %",
        source: "Extreme HTTP Performance Tuning (2021): JSON replies, c5n.xlarge, Linux 4.14, +436 % with \
            all nine",
        risk: Risk::High,
        reboot: false,
        accept: Some(Accept::Noqueue),
        optional: true,
        what: "Each outgoing packet takes the lock of a queueing discipline. Without one (noqueue) it goes \
            to the card at once.",
        detect: "RTM_GETQDISC; net.core.default_qdisc.",
        apply: "net.core.default_qdisc=noqueue and the disciplines of the card replaced; revert restores \
            both.",
        not_when: "Nearly always: with the ring full, packets are dropped; BBR loses the pacing of fq; hosts \
            that share a link lose fairness.",
        gentler: Some("mq with fq_codel, a discipline for each queue, has a lock for each queue already."),
    },
    Step {
        id: Id::Gro,
        name: "gro",
        title: "generic receive offload",
        number: Some(9),
        gain: "part of +4 %",
        source: "Extreme HTTP Performance Tuning (2021): JSON replies, c5n.xlarge, Linux 4.14, +436 % with \
            all nine; with congestion control; only where a request fits one packet",
        risk: Risk::Medium,
        reboot: false,
        accept: None,
        optional: true,
        what: "The kernel checks whether incoming packets can be merged. Requests of one packet have \
            nothing to merge.",
        detect: "ETHTOOL_GGRO.",
        apply: "ETHTOOL_SGRO; revert restores the previous value.",
        not_when: "Uploads, large requests, proxying of large responses, forwarding: merging saves far \
            more than it costs.",
        gentler: None,
    },
    Step {
        id: Id::CongestionControl,
        name: "congestion-control",
        title: "TCP congestion control",
        number: Some(9),
        gain: "part of +4 %",
        source: "Extreme HTTP Performance Tuning (2021): JSON replies, c5n.xlarge, Linux 4.14, +436 % with \
            all nine; with GRO; only where a response fits one packet",
        risk: Risk::Medium,
        reboot: false,
        accept: None,
        optional: true,
        what: "reno computes less for each acknowledgement than cubic or bbr.",
        detect: "net.ipv4.tcp_congestion_control, tcp_available_congestion_control.",
        apply: "The sysctl, which applies to new connections of all services; revert restores the previous \
            value.",
        not_when: "Responses leave a local network: cubic and bbr are much faster over distance and loss.",
        gentler: None,
    },
    Step {
        id: Id::Governor,
        name: "governor",
        title: "CPU frequency governor",
        number: None,
        gain: "steadier figures",
        source: "Amazon's guide to ENA; HttpArena sets it for its runs",
        risk: Risk::Low,
        reboot: false,
        accept: None,
        optional: false,
        what: "A governor that saves power needs a while to raise the frequency when load arrives.",
        detect: "/sys/devices/system/cpu/cpuN/cpufreq/scaling_governor.",
        apply: "`performance` for each CPU; revert restores the previous values.",
        not_when: "Power or heat matter; most virtual machines have no such setting.",
        gentler: None,
    },
    Step {
        id: Id::CStates,
        name: "c-states",
        title: "idle states of CPUs",
        number: None,
        gain: "tens of us at low load",
        source: "Amazon's guide to ENA",
        risk: Risk::Low,
        reboot: false,
        accept: None,
        optional: false,
        what: "To wake from a deep sleep state takes a CPU ten to several hundred microseconds, a delay \
            for the first packet after a pause.",
        detect: "/sys/devices/system/cpu/cpuN/cpuidle/stateN: name, latency, disable.",
        apply: "States that take longer than 10 us to wake from are disabled, CPU by CPU; revert restores \
            the previous values.",
        not_when: "Power or heat matter; or single threads need the turbo frequency that sleeping neighbours \
            allow.",
        gentler: None,
    },
    Step {
        id: Id::Rings,
        name: "rings",
        title: "ring sizes of the NIC",
        number: None,
        gain: "no drops in bursts",
        source: "Amazon's guide to ENA",
        risk: Risk::High,
        reboot: false,
        accept: Some(Accept::LinkReset),
        optional: true,
        what: "A longer ring takes longer bursts without loss; one that does not fit the cache makes every \
            packet more expensive, and hides overload.",
        detect: "ETHTOOL_GRINGPARAM; rx_missed_errors and rx_fifo_errors of the interface.",
        apply: "ETHTOOL_SRINGPARAM; revert restores the previous lengths. Most cards reset their link.",
        not_when: "Nothing is dropped.",
        gentler: None,
    },
    Step {
        id: Id::CloudLimits,
        name: "cloud-limits",
        title: "packet limits of the cloud provider",
        number: None,
        gain: "explains a plateau",
        source: "Amazon's guide to ENA",
        risk: Risk::None,
        reboot: false,
        accept: None,
        optional: false,
        what: "Instances have limits of bandwidth, packets and tracked connections. Traffic beyond them is \
            delayed or dropped outside of the host, and no setting of the host helps.",
        detect: "The driver's counters *_allowance_exceeded (ETHTOOL_GSTATS).",
        apply: "A larger instance, or less traffic. No host setting is changed.",
        not_when: "There is nothing to decide.",
        gentler: None,
    },
    Step {
        id: Id::Backlogs,
        name: "backlogs",
        title: "accept queues",
        number: None,
        gain: "no refused connections",
        source: "Linux, Documentation/networking/ip-sysctl.rst; HttpArena sets 65535",
        risk: Risk::Low,
        reboot: false,
        accept: None,
        optional: false,
        what: "Connections beyond net.core.somaxconn (or the program's own backlog, the smaller counts) \
            are dropped while the program is busy, and clients wait a second before they retry.",
        detect: "net.core.somaxconn, net.ipv4.tcp_max_syn_backlog; ListenOverflows in /proc/net/netstat.",
        apply: "Both sysctls to 65535, and the service restarted with an equally large backlog; revert \
            restores the previous values.",
        not_when: "Early refusal is preferred: a long queue adds latency.",
        gentler: None,
    },
    Step {
        id: Id::Ports,
        name: "ports",
        title: "ports for outgoing connections",
        number: None,
        gain: "more connections",
        source: "HttpArena sets 1024-65535",
        risk: Risk::Medium,
        reboot: false,
        accept: None,
        optional: true,
        what: "A proxy or load generator can have as many connections to one destination as there are \
            ports.",
        detect: "net.ipv4.ip_local_port_range; connections in TIME-WAIT (/proc/net/sockstat).",
        apply: "The range to 1024-65535; revert restores the previous range.",
        not_when: "The host only serves; or programs listen on ports of the range: reserve those in \
            net.ipv4.ip_local_reserved_ports first.",
        gentler: None,
    },
    Step {
        id: Id::Thp,
        name: "thp",
        title: "transparent huge pages",
        number: None,
        gain: "no clear gain",
        source: "elbaro/metal-tuna lists it as doubtful",
        risk: Risk::None,
        reboot: false,
        accept: None,
        optional: false,
        what: "Large pages save misses of address translation; to create them can delay requests.",
        detect: "/sys/kernel/mm/transparent_hugepage/enabled.",
        apply: "Nothing is proposed: no measurement shows a better value for a server of requests.",
        not_when: "There is nothing to decide.",
        gentler: None,
    },
    Step {
        id: Id::Memory,
        name: "memory",
        title: "swapping and write-back",
        number: None,
        gain: "weak evidence",
        source: "elbaro/metal-tuna; Amazon's guide to ENA (min_free_kbytes)",
        risk: Risk::None,
        reboot: false,
        accept: None,
        optional: false,
        what: "A host that swaps is slow whatever else is tuned.",
        detect: "vm.swappiness, vm.min_free_kbytes; swap in /proc/meminfo.",
        apply: "Nothing is proposed: the claimed gains were not measured on servers of requests.",
        not_when: "There is nothing to decide.",
        gentler: None,
    },
];
