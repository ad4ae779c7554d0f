//! Real round trips in network namespaces of their own: a pair of veth with four queues, plan, apply, verify, revert,
//! killed at every point.
//!
//! Needs the rights, `unshare`, `mount` and `ip`; says so aloud where they are missing, and does nothing then.
#![allow(
    clippy::disallowed_methods,
    clippy::print_stderr,
    reason = "real processes in real namespaces; nothing of it is simulated"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use ringmain_tune::apply::{Applied, ApplyError, Event, How, Reverted, State, apply, status, undo};
use ringmain_tune::audit::{Finding, Status, Wish, audit};
use ringmain_tune::catalogue::{Accept, Id, Profile};
use ringmain_tune::host::{Asked, Host};
use ringmain_tune::journal::{Journal, Record, Value};
use ringmain_tune::root::{Ethtool, Key, Root};
use rustix::net::{AddressFamily, Protocol, SocketFlags, SocketType, socket_with};
use rustix::process::{Signal, getpid, kill_process};

use crate::support::Directory;

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
        "set -e; mount -t sysfs none /sys; mount -t tmpfs none /mnt; umount /mnt; \
         ip link add {CARD} numtxqueues 4 numrxqueues 4 type veth peer name v1 numtxqueues 4 numrxqueues 4; \
         ip link set {CARD} up; ip link set v1 up; exec \"$@\""
    );
    let mut command = Command::new("unshare");
    command.args(["-n", "-m", "--", "sh", "-c", &script, "sh"]);
    let possible = match command.arg("true").output() {
        Err(error) => Err(format!("unshare (of util-linux): {error}")),
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => Err(String::from_utf8_lossy(&output.stderr).trim().to_owned()),
    };
    if let Err(why) = possible {
        eprintln!("SKIPPED: {test} needs the right to make namespaces, mounts and veth: {why}");
        return false;
    }
    let output = Command::new("unshare")
        .args(["-n", "-m", "--", "sh", "-c", &script, "sh"])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture", "--test-threads=1"])
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
    if !inside("namespace::settings_are_applied_verified_and_taken_back") {
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
            assert_eq!(now, State::Holds, "{}", entry.intent.key);
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
    const TEST: &str = "namespace::killed_at_every_point_all_is_taken_back";
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

/// A disk of its own for the journal: a tmpfs with these options, until it is dropped.
struct Disk(Directory);

impl Disk {
    fn new(options: &str) -> Disk {
        let disk = Disk(Directory::new());
        disk.mount(&["-t", "tmpfs", "-o", &format!("mode=700,{options}"), "none"]);
        disk
    }

    fn remount(&self, option: &str) {
        self.mount(&["-o", &format!("remount,{option}")]);
    }

    fn mount(&self, args: &[&str]) {
        let mount = Command::new("mount").args(args).arg(self.0.path()).status();
        assert!(mount.unwrap().success(), "mount {args:?}");
    }

    fn revert(&self, root: &Root) -> Result<Reverted, ApplyError> {
        let mut journal = Journal::open(self.0.path())?;
        undo(root, &look(root), &mut journal, How::Careful, &mut |_| {})
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.0.path()).status();
    }
}

/// The room that a disk of one page has for the journal's lines grows by less than a line from one time to the next.
#[test]
fn a_disk_that_is_full_wherever_the_journal_is_leaves_the_host_as_it_was() {
    const ROOM: usize = 89;
    if !inside("namespace::a_disk_that_is_full_wherever_the_journal_is_leaves_the_host_as_it_was") {
        return;
    }
    let root = Root::live();
    let (mut full, mut whole) = (BTreeSet::new(), 0);
    for wish in wishes() {
        for used in (0..3500).rev().step_by(ROOM) {
            unusual(&root);
            let before = image(&root);
            let disk = Disk::new("size=4k");
            filled(&look(&root), disk.0.path(), used);
            let mut written = 0;
            let applied = run(&root, &wish, disk.0.path(), &mut |event| {
                written += usize::from(matches!(event, Event::Written(_)));
            });
            let Err(error) = applied else {
                assert!(written > 4 && image(&root) != before);
                disk.remount("size=1m");
                assert_eq!(disk.revert(&root).unwrap().left, []);
                assert_eq!(image(&root), before);
                whole += 1;
                break;
            };
            let error = error.to_string();
            assert!(
                error.contains("No space left") && error.contains("make room"),
                "{error}"
            );
            assert_eq!(
                image(&root),
                before,
                "{used} bytes used, {written} written: {error}"
            );
            full.insert(written);
            // With room again the journal is closed, and nothing is left to do.
            disk.remount("size=1m");
            let reverted = disk.revert(&root).unwrap();
            assert_eq!((reverted.restored, reverted.left.len()), (0, 0), "{reverted:?}");
            assert!(!disk.0.path().join("journal").exists());
            assert_eq!(image(&root), before);
        }
    }
    assert_eq!(whole, 2, "with room enough it is no trouble");
    assert!(full.len() > 6, "full after so many writes: {full:?}");
    eprintln!("full after {full:?} writes");
}

/// A second look at the host finds more to write, since somebody has meddled, and for that there is no room: what the first look
/// had written is taken back, too.
#[test]
fn a_disk_that_is_full_at_the_second_look_has_the_first_taken_back() {
    if !inside("namespace::a_disk_that_is_full_at_the_second_look_has_the_first_taken_back") {
        return;
    }
    const MEDDLED: &str = "/proc/sys/net/core/somaxconn";
    let root = Root::live();
    let wish = wish(Profile::Throughput, &[Id::Backlogs]);
    let mut seen = 0;
    for used in (2500..3500).rev().step_by(89) {
        unusual(&root);
        let before = image(&root);
        let disk = Disk::new("size=4k");
        filled(&look(&root), disk.0.path(), used);
        let mut verified = 0;
        let applied = run(&root, &wish, disk.0.path(), &mut |event| {
            verified += usize::from(matches!(event, Event::Verified { .. }));
            if verified == 2 {
                set(&root, MEDDLED, "130");
            }
        });
        seen += usize::from(applied.is_err() && verified == 2);
        if applied.is_err() {
            assert_eq!(image(&root), before, "{used} bytes used, {verified} verified");
        }
    }
    assert!(
        seen > 0,
        "the disk was never full between the first look and the second"
    );
}

/// A journal that is begun and has so many bytes of no meaning.
fn filled(host: &Host, directory: &Path, used: usize) {
    let mut journal = Journal::open(directory).unwrap();
    journal.begin(host.boot.clone(), host.network.clone()).unwrap();
    let values = Value {
        key: Key::sysctl("net.core.somaxconn"),
        value: "1".repeat(used),
    };
    journal.append(Record::Snapshot(vec![values])).unwrap();
}

#[test]
fn settings_are_taken_back_on_a_full_disk_too() {
    if !inside("namespace::settings_are_taken_back_on_a_full_disk_too") {
        return;
    }
    let root = Root::live();
    unusual(&root);
    let before = image(&root);
    // The root, the lock and the journal: no room for the history that a closed journal goes to.
    let disk = Disk::new("nr_inodes=3");
    run(
        &root,
        &wish(Profile::Latency, LATENCY),
        disk.0.path(),
        &mut |_| {},
    )
    .unwrap();
    assert_ne!(image(&root), before);
    let error = disk.revert(&root).unwrap_err();
    assert!(matches!(error, ApplyError::Unnoted { .. }), "{error}");
    let error = error.to_string();
    assert!(
        error.contains("No space left") && error.contains("restored nevertheless"),
        "{error}"
    );
    assert_eq!(image(&root), before);
    assert!(disk.0.path().join("journal").exists());
    disk.remount("nr_inodes=0");
    assert_eq!(disk.revert(&root).unwrap(), Reverted::default());
    assert!(!disk.0.path().join("journal").exists());
}

#[test]
fn a_read_only_disk_is_written_nothing_about_and_so_nothing_is_written() {
    if !inside("namespace::a_read_only_disk_is_written_nothing_about_and_so_nothing_is_written") {
        return;
    }
    let root = Root::live();
    let wish = wish(Profile::Latency, LATENCY);
    unusual(&root);
    let before = image(&root);
    let disk = Disk::new("ro");
    let refused = |error: ApplyError| {
        let error = error.to_string();
        assert!(
            error.contains("Read-only") && error.contains("mount it writable"),
            "{error}"
        );
    };
    refused(run(&root, &wish, disk.0.path(), &mut |_| {}).unwrap_err());
    assert_eq!(image(&root), before);
    // It becomes so when something is applied: that stays known, and is taken back once it can be noted.
    disk.remount("rw");
    run(&root, &wish, disk.0.path(), &mut |_| {}).unwrap();
    let applied = image(&root);
    disk.remount("ro");
    refused(run(&root, &wish, disk.0.path(), &mut |_| {}).unwrap_err());
    refused(disk.revert(&root).unwrap_err());
    assert_eq!(image(&root), applied);
    let kept = Journal::peek(disk.0.path()).unwrap().unwrap();
    assert!(
        kept.entries
            .iter()
            .all(|entry| status(&root, entry) == State::Holds)
    );
    disk.remount("rw");
    assert_eq!(disk.revert(&root).unwrap().left, []);
    assert_eq!(image(&root), before);
}

#[test]
fn packet_sockets_and_what_a_namespace_cannot_reach_are_seen() {
    if !inside("namespace::packet_sockets_and_what_a_namespace_cannot_reach_are_seen") {
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
