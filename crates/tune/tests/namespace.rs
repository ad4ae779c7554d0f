//! Real round trips in network namespaces of their own: a pair of veth with four queues, plan, apply, verify, revert,
//! killed at every point.
//!
//! Needs root, `unshare` and `ip`; says so aloud where they are missing, and does nothing then.
#![allow(
    clippy::disallowed_methods,
    clippy::print_stderr,
    reason = "real processes in real namespaces; nothing of it is simulated"
)]

mod support;

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Stdio};

use ringmain_tune::apply::{Applied, ApplyError, Event, How, apply, status, undo};
use ringmain_tune::audit::{Finding, Status, Wish, audit};
use ringmain_tune::catalogue::{Accept, Id, Profile};
use ringmain_tune::host::{Asked, Host};
use ringmain_tune::journal::Journal;
use ringmain_tune::root::{Ethtool, Key, Root};
use rustix::net::{AddressFamily, Protocol, SocketFlags, SocketType, socket_with};
use rustix::process::{Signal, getpid, kill_process};

use support::Directory;

const CARD: &str = "v0";
const INSIDE: &str = "RINGMAIN_TUNE_INSIDE";
const END: &str = "RINGMAIN_TUNE_END";
const STATE: &str = "RINGMAIN_TUNE_STATE";

/// Runs a test of this file again in a namespace with the interfaces; whether this is that run.
fn inside(test: &str) -> bool {
    if std::env::var_os(INSIDE).is_some() {
        return true;
    }
    let script = format!(
        "set -e; mount -t sysfs none /sys; \
         ip link add {CARD} numtxqueues 4 numrxqueues 4 type veth peer name v1 numtxqueues 4 numrxqueues 4; \
         ip link set {CARD} up; ip link set v1 up; exec \"$0\" --exact {test} --nocapture --test-threads=1"
    );
    let possible = rustix::process::geteuid().is_root()
        && ["unshare", "ip"].iter().all(|name| {
            let version = Command::new(name)
                .arg("-V")
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .status();
            version.is_ok()
        });
    if !possible {
        eprintln!("SKIPPED: {test} needs root, unshare (util-linux) and ip (iproute2)");
        return false;
    }
    let output = Command::new("unshare")
        .args(["-n", "-m", "--", "sh", "-c", &script])
        .arg(std::env::current_exe().unwrap())
        .env(INSIDE, "1")
        .output()
        .unwrap();
    let (out, err) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    assert!(
        output.status.success() && out.contains("1 passed"),
        "{}\n{out}\n{err}",
        output.status
    );
    false
}

fn asked() -> Asked {
    Asked {
        interface: Some(CARD.into()),
        ..Asked::default()
    }
}

fn wish(profile: Profile, steps: &[Id]) -> Wish {
    Wish {
        profile,
        accept: [Accept::LinkReset, Accept::Noqueue].into(),
        steps: steps.iter().copied().collect(),
    }
}

/// Everything that can be written here.
fn keys() -> Vec<Key> {
    let mut names: Vec<String> = Vec::new();
    for queue in 0..4 {
        for file in ["rx-#/rps_cpus", "rx-#/rps_flow_cnt", "tx-#/xps_cpus"] {
            let file = file.replace('#', &queue.to_string());
            names.push(format!("/sys/class/net/{CARD}/queues/{file}"));
        }
    }
    for file in ["napi_defer_hard_irqs", "gro_flush_timeout"] {
        names.push(format!("/sys/class/net/{CARD}/{file}"));
    }
    for sysctl in [
        "core/somaxconn",
        "ipv4/tcp_max_syn_backlog",
        "ipv4/tcp_congestion_control",
        "ipv4/ip_local_port_range",
    ] {
        names.push(format!("/proc/sys/net/{sysctl}"));
    }
    for setting in ["ethtool:v0/channels", "ethtool:v0/gro", "qdisc:v0"] {
        names.push(setting.into());
    }
    names.into_iter().map(|name| name.parse().unwrap()).collect()
}

fn image(root: &Root) -> BTreeMap<String, String> {
    let value = |key: &Key| Some((key.to_string(), root.read(key).value()?.to_owned()));
    keys().iter().filter_map(value).collect()
}

fn set(root: &Root, key: &str, value: &str) {
    let key: Key = key.parse().unwrap();
    root.write(&key, value)
        .unwrap_or_else(|error| panic!("{key} = {value}: {error}"));
    assert!(
        key.same(root.read(&key).value().unwrap(), value),
        "{key}: {:?}",
        root.read(&key)
    );
}

/// Values that nobody has by chance.
fn unusual(root: &Root) {
    for queue in 0..4 {
        let directory = format!("/sys/class/net/{CARD}/queues");
        set(
            root,
            &format!("{directory}/rx-{queue}/rps_cpus"),
            &format!("{:x}", queue % 3 + 1),
        );
        set(
            root,
            &format!("{directory}/tx-{queue}/xps_cpus"),
            &format!("{:x}", 3 - queue % 3),
        );
        set(
            root,
            &format!("{directory}/rx-{queue}/rps_flow_cnt"),
            &(16 << queue).to_string(),
        );
    }
    set(root, &format!("/sys/class/net/{CARD}/napi_defer_hard_irqs"), "7");
    set(root, &format!("/sys/class/net/{CARD}/gro_flush_timeout"), "12345");
    set(root, "/proc/sys/net/core/somaxconn", "130");
    set(root, "/proc/sys/net/ipv4/tcp_max_syn_backlog", "140");
    set(root, "/proc/sys/net/ipv4/ip_local_port_range", "40000\t50000");
    set(root, "ethtool:v0/gro", "on");
    set(root, "qdisc:v0", "8005:mq(pfifo_fast*4)");
}

fn look(root: &Root) -> Host {
    Host::look(root, &asked()).unwrap()
}

fn find(root: &Root, wish: &Wish, id: Id) -> Finding {
    let found = audit(root, &look(root), wish);
    found.into_iter().find(|finding| finding.id == id).unwrap()
}

fn run(root: &Root, wish: &Wish, state: &Path, tell: &mut dyn FnMut(&Event)) -> Result<Applied, ApplyError> {
    let mut journal = Journal::open(state)?;
    apply(root, &asked(), wish, &mut journal, tell)
}

const LATENCY: &[Id] = &[
    Id::Rss,
    Id::Rps,
    Id::Xps,
    Id::DeferredIrqs,
    Id::Backlogs,
    Id::Gro,
    Id::Ports,
];
const THROUGHPUT: &[Id] = &[Id::Qdisc, Id::Gro, Id::Rps, Id::Xps, Id::CongestionControl];

fn wishes() -> [Wish; 2] {
    [
        wish(Profile::Latency, LATENCY),
        wish(Profile::Throughput, THROUGHPUT),
    ]
}

#[test]
fn settings_are_applied_verified_and_taken_back() {
    if !inside("settings_are_applied_verified_and_taken_back") {
        return;
    }
    let root = Root::live();
    for wish in wishes() {
        unusual(&root);
        let before = image(&root);
        let state = Directory::new();
        let mut verified = Vec::new();
        let applied = run(&root, &wish, state.path(), &mut |event| {
            if let Event::Verified { key, effective, .. } = event {
                verified.push((key.clone(), effective.clone()));
            }
        });
        let applied = applied.unwrap();
        assert_eq!(applied.failed, [], "{:?}", wish.profile);
        assert!(
            applied.changed > 4 && verified.len() == applied.changed,
            "{verified:?}"
        );
        assert_ne!(image(&root), before);
        let rps: Key = "/sys/class/net/v0/queues/rx-0/rps_cpus".parse().unwrap();
        assert_eq!(root.read(&rps).value(), Some("0"));
        // A second time there is nothing left to do.
        assert_eq!(run(&root, &wish, state.path(), &mut |_| {}).unwrap().changed, 0);
        let mut journal = Journal::open(state.path()).unwrap();
        for entry in journal.entries() {
            let now = status(&root, entry);
            assert_eq!(now, ringmain_tune::apply::State::Holds, "{}", entry.intent.key);
        }
        let reverted = undo(&root, &look(&root), &mut journal, How::Careful, &mut |_| {}).unwrap();
        assert_eq!(reverted.left, []);
        assert_eq!(image(&root), before, "{:?}", wish.profile);
    }
}

/// What the process that is killed does.
fn victim(wish: &Wish, end: usize) {
    let state = std::env::var_os(STATE).unwrap();
    let mut seen = 0;
    run(&Root::live(), wish, Path::new(&state), &mut |_| {
        if seen == end {
            kill_process(getpid(), Signal::KILL).unwrap();
        }
        seen += 1;
    })
    .unwrap();
}

#[test]
fn killed_at_every_point_all_is_taken_back() {
    const TEST: &str = "killed_at_every_point_all_is_taken_back";
    if !inside(TEST) {
        return;
    }
    if let Ok(end) = std::env::var(END) {
        let (profile, end) = end.split_once(' ').unwrap();
        let wishes = wishes();
        return victim(&wishes[profile.parse::<usize>().unwrap()], end.parse().unwrap());
    }
    let root = Root::live();
    for profile in 0..2 {
        let mut killed = 0;
        for end in 0.. {
            unusual(&root);
            let before = image(&root);
            let state = Directory::new();
            let mut child = Command::new(std::env::current_exe().unwrap());
            child.args(["--exact", TEST, "--test-threads=1"]);
            child
                .env(END, format!("{profile} {end}"))
                .env(STATE, state.path());
            let output = child.output().unwrap();
            let mut journal = Journal::open(state.path()).unwrap();
            let reverted = undo(&root, &look(&root), &mut journal, How::Careful, &mut |_| {}).unwrap();
            assert_eq!(reverted.left, [], "killed at event {end}");
            assert_eq!(image(&root), before, "killed at event {end}");
            if output.status.success() {
                break;
            }
            killed += 1;
        }
        assert!(killed > 20, "only {killed} points");
        eprintln!("profile {profile}: killed at {killed} points, taken back from each");
    }
}

#[test]
fn a_full_or_read_only_disk_leaves_the_host_as_it_was() {
    if !inside("a_full_or_read_only_disk_leaves_the_host_as_it_was") {
        return;
    }
    let root = Root::live();
    let wish = wish(Profile::Latency, LATENCY);
    // Full from the start (what is torn in the middle is cut in `apply.rs`); not to be written at all.
    for (options, full, expected) in [("size=4k", true, "No space left"), ("ro", false, "Read-only")] {
        unusual(&root);
        let before = image(&root);
        let state = Directory::new();
        let mount = Command::new("mount")
            .args(["-t", "tmpfs", "-o", options, "none"])
            .arg(state.path())
            .status();
        assert!(mount.unwrap().success());
        if full {
            std::fs::write(state.path().join("filler"), [0; 4096]).unwrap();
        }
        let error = run(&root, &wish, state.path(), &mut |_| {})
            .unwrap_err()
            .to_string();
        assert!(error.contains(expected), "{options}: {error}");
        assert_eq!(image(&root), before, "{options}: {error}");
        let umount = Command::new("umount").arg(state.path()).status();
        assert!(umount.unwrap().success());
    }
}

#[test]
fn packet_sockets_and_what_a_namespace_cannot_reach_are_seen() {
    if !inside("packet_sockets_and_what_a_namespace_cannot_reach_are_seen") {
        return;
    }
    let root = Root::live();
    let wish = wish(
        Profile::Throughput,
        &[Id::PacketSockets, Id::Rfs, Id::Moderation, Id::Rings],
    );
    assert_eq!(find(&root, &wish, Id::PacketSockets).status, Status::Good);
    let protocol = |number: u16| Protocol::from_raw(u32::from(number.to_be()).try_into().unwrap());
    let open = |number| {
        socket_with(
            AddressFamily::PACKET,
            SocketType::RAW,
            SocketFlags::CLOEXEC,
            Some(protocol(number)),
        )
    };
    // LLDP alone costs other packets nothing.
    let _single = open(0x88cc).unwrap();
    assert_eq!(find(&root, &wish, Id::PacketSockets).status, Status::Good);
    let _all = open(0x0003).unwrap();
    let found = find(&root, &wish, Id::PacketSockets);
    assert_eq!((found.status, found.now.as_str()), (Status::ByHand, "1 listener"));
    let this = std::process::id().to_string();
    assert!(found.why.contains(&this), "{}", found.why);
    // veth has neither; that is absence, not ignorance.
    for (id, what) in [(Id::Moderation, Ethtool::Coalesce), (Id::Rings, Ethtool::Rings)] {
        assert_eq!(
            find(&root, &wish, id).status,
            Status::Absent,
            "{:?}",
            root.read(&Key::ethtool(CARD, what))
        );
    }
    let host = look(&root);
    assert_eq!(host.place.initial_network, Some(false));
    let backlog = Key::sysctl("net.core.netdev_max_backlog");
    let why = host.place.obstacle(&root, &backlog).unwrap();
    assert!(why.contains("not reachable from this network namespace"), "{why}");
}
