//! Applying and taking back on recorded hosts, where everything can go wrong: refused writes, values that do not take,
//! others who change values, restarts, journals that cannot be written.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use ringmain_tune::apply::{self, ApplyError, Event, How, apply, undo};
use ringmain_tune::audit::{Wish, audit};
use ringmain_tune::catalogue::{Accept, Id, Profile};
use ringmain_tune::host::{Asked, Host};
use ringmain_tune::journal::{Journal, JournalError};
use ringmain_tune::plan::plan;
use ringmain_tune::root::{Key, Root};

use ringmain_testkit::wait;

use crate::support::{Directory, host};

fn wish(profile: Profile, steps: &[Id], accept: &[Accept]) -> Wish {
    Wish {
        profile,
        accept: accept.iter().copied().collect(),
        steps: steps.iter().copied().collect(),
    }
}

/// All files of a host, links by where they lead.
fn image(root: &Root) -> BTreeMap<PathBuf, Vec<u8>> {
    fn walk(directory: &Path, out: &mut BTreeMap<PathBuf, Vec<u8>>) {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_symlink() {
                continue;
            }
            if path.is_dir() {
                walk(&path, out)
            } else {
                let text = fs::read_to_string(&path).unwrap();
                // A kernel's file ends its line however it was written.
                out.insert(path, text.trim_end().into());
            }
        }
    }
    let mut out = BTreeMap::new();
    walk(&root.place("/"), &mut out);
    out
}

fn set(root: &Root, key: &str, value: &str) {
    root.write(&key.parse::<Key>().unwrap(), value).unwrap();
}

fn value(root: &Root, key: &str) -> String {
    root.read(&key.parse::<Key>().unwrap())
        .value()
        .unwrap()
        .to_owned()
}

/// The journal, once no child that another test starts holds a copy of its lock.
fn open(state: &Directory) -> Journal {
    wait::find("the journal's lock", || Journal::open(state.path()).ok())
}

fn look(root: &Root) -> Host {
    Host::look(root, &Asked::default()).unwrap()
}

fn run(root: &Root, wish: &Wish, state: &Directory) -> apply::Applied {
    let mut journal = open(state);
    apply(root, &Asked::default(), wish, &mut journal, &mut |_| {}).unwrap()
}

fn revert(root: &Root, state: &Directory, how: How) -> apply::Reverted {
    let mut journal = open(state);
    undo(root, &look(root), &mut journal, how, &mut |_| {}).unwrap()
}

#[test]
fn all_steps_of_a_large_host_are_applied_and_taken_back_to_the_byte() {
    for (name, profile) in [
        ("ena16", Profile::Throughput),
        ("ena16", Profile::Latency),
        ("metal", Profile::Efficiency),
    ] {
        let ((_directory, root), state) = (host(name), Directory::new());
        let before = image(&root);
        let wish = wish(profile, Id::ALL, &Accept::ALL);
        let applied = run(&root, &wish, &state);
        assert!(applied.changed > 3, "{name}: {applied:?}");
        assert_ne!(image(&root), before);
        // A second time there is nothing left to do.
        assert_eq!(run(&root, &wish, &state).changed, 0, "{name}");
        let reverted = revert(&root, &state, How::Careful);
        assert_eq!(reverted.left, [], "{name}");
        assert_eq!(image(&root), before, "{name}");
        assert!(!state.path().join("journal").exists());
        assert!(state.path().join("history/00000001.journal").exists());
    }
}

#[test]
fn only_the_steps_that_are_named_are_written() {
    let ((_directory, root), state) = (host("ena16"), Directory::new());
    let mut keys = Vec::new();
    let mut journal = open(&state);
    let wish = wish(Profile::Throughput, &[Id::Xps], &[]);
    apply(&root, &Asked::default(), &wish, &mut journal, &mut |event| {
        if let Event::Written(key) = event {
            keys.push(key.to_string());
        }
    })
    .unwrap();
    assert_eq!(keys.len(), 16);
    assert!(keys.iter().all(|key| key.ends_with("xps_cpus")), "{keys:?}");
}

#[test]
fn a_refused_write_takes_its_step_back_and_the_others_stand() {
    let ((_directory, root), state) = (host("metal"), Directory::new());
    let applied = run(
        &root,
        &wish(Profile::Latency, &[Id::IrqAffinity, Id::Xps], &[]),
        &state,
    );
    let [(Id::IrqAffinity, why)] = &applied.failed[..] else {
        panic!("{applied:?}");
    };
    assert!(
        why.contains("/proc/irq/62/smp_affinity_list") && why.contains("Input/output error"),
        "{why}"
    );
    // Interrupts 60 and 61 had been written.
    assert_eq!(value(&root, "/proc/irq/60/smp_affinity_list"), "0-15");
    assert_eq!(value(&root, "/sys/class/net/ens1f0/queues/tx-1/xps_cpus"), "2222");
    revert(&root, &state, How::Careful);
    assert_eq!(value(&root, "/sys/class/net/ens1f0/queues/tx-1/xps_cpus"), "0");
}

#[test]
fn a_value_that_does_not_take_is_a_failure_that_says_so() {
    let ((_directory, root), state) = (host("ena16"), Directory::new());
    let calls = root.place("/calls");
    let text = fs::read_to_string(&calls).unwrap();
    fs::write(&calls, text + "ignores /sys/class/net/eth0/gro_flush_timeout\n").unwrap();
    let before = image(&root);
    let applied = run(
        &root,
        &wish(Profile::Throughput, &[Id::DeferredIrqs], &[]),
        &state,
    );
    assert!(
        applied.failed[0].1.contains("has 0 after 20000 was written"),
        "{applied:?}"
    );
    assert_eq!(image(&root), before);
}

#[test]
fn what_somebody_else_changed_since_is_left_alone_unless_forced() {
    const KEY: &str = "/proc/sys/net/core/somaxconn";
    for (how, left, after) in [
        (How::Careful, 1, "9000"),
        (How::Forget, 0, "9000"),
        (How::Force, 0, "4096"),
    ] {
        let ((_directory, root), state) = (host("ena16"), Directory::new());
        run(&root, &wish(Profile::Throughput, &[Id::Backlogs], &[]), &state);
        assert_eq!(value(&root, KEY), "65535");
        set(&root, KEY, "9000");
        let reverted = revert(&root, &state, how);
        assert_eq!(
            (reverted.left.len(), value(&root, KEY).as_str()),
            (left, after),
            "{how:?}"
        );
        assert_eq!(value(&root, "/proc/sys/net/ipv4/tcp_max_syn_backlog"), "1024");
        assert_eq!(state.path().join("journal").exists(), left > 0, "{how:?}");
        if left > 0 {
            assert!(
                reverted.left[0].why.contains("from 65535 to 9000"),
                "{:?}",
                reverted.left
            );
            // What was left stays in the journal until somebody decides.
            assert_eq!(revert(&root, &state, How::Force).left, []);
            assert_eq!(value(&root, KEY), "4096");
        }
    }
}

#[test]
fn after_a_restart_nothing_is_written_and_the_journal_is_closed() {
    let ((_directory, root), state) = (host("ena16"), Directory::new());
    run(&root, &wish(Profile::Throughput, &[Id::Backlogs], &[]), &state);
    fs::write(root.place("/proc/sys/kernel/random/boot_id"), "99999999-ffff\n").unwrap();
    // What the new start happens to have is its own.
    let reverted = revert(&root, &state, How::Careful);
    assert!(reverted.restarted && reverted.restored == 0);
    assert_eq!(value(&root, "/proc/sys/net/core/somaxconn"), "65535");
    assert!(!state.path().join("journal").exists());
}

#[test]
fn a_journal_of_another_network_namespace_is_not_used() {
    let ((_directory, root), state) = (host("ena16"), Directory::new());
    let wish = wish(Profile::Throughput, &[Id::Backlogs], &[]);
    run(&root, &wish, &state);
    let link = root.place("/proc/self/ns/net");
    fs::remove_file(&link).unwrap();
    std::os::unix::fs::symlink("net:[777]", &link).unwrap();
    let mut journal = open(&state);
    let error = undo(&root, &look(&root), &mut journal, How::Force, &mut |_| {}).unwrap_err();
    assert!(matches!(error, ApplyError::OtherNetwork { .. }), "{error}");
    assert_eq!(value(&root, "/proc/sys/net/core/somaxconn"), "65535");
}

#[test]
fn a_setting_that_is_gone_is_nothing_to_take_back() {
    let ((_directory, root), state) = (host("ena16"), Directory::new());
    run(&root, &wish(Profile::Throughput, &[Id::Xps], &[]), &state);
    fs::remove_dir_all(root.place("/sys/class/net/eth0/queues/tx-15")).unwrap();
    let reverted = revert(&root, &state, How::Careful);
    assert_eq!(
        (reverted.gone, reverted.restored, reverted.left.len()),
        (1, 15, 0)
    );
}

#[test]
fn two_at_once_are_one_too_many() {
    let state = Directory::new();
    let _first = open(&state);
    let error = Journal::open(state.path()).unwrap_err();
    assert!(matches!(error, JournalError::Locked(_)), "{error}");
}

#[test]
fn a_value_other_than_planned_is_not_written() {
    let ((_directory, root), state) = (host("ena16"), Directory::new());
    let host = look(&root);
    let planned = plan(&audit(
        &root,
        &host,
        &wish(Profile::Throughput, &[Id::Backlogs], &[]),
    ));
    set(&root, "/proc/sys/net/core/somaxconn", "512");
    let mut journal = open(&state);
    let applied = apply::carry_out(&root, &host, &planned, &mut journal, &mut |_| {}).unwrap();
    assert!(
        applied.failed[0]
            .1
            .contains("expected 4096 as planned, found 512"),
        "{applied:?}"
    );
    assert_eq!(value(&root, "/proc/sys/net/core/somaxconn"), "512");
}

#[test]
fn a_queueing_discipline_comes_back_after_the_default_that_it_is_made_of() {
    let ((_directory, root), state) = (host("ena16"), Directory::new());
    let before = image(&root);
    let wish = wish(Profile::Throughput, &[Id::Qdisc], &[Accept::Noqueue]);
    assert_eq!(run(&root, &wish, &state).changed, 2);
    assert_eq!(value(&root, "qdisc:eth0"), "mq(noqueue*16)");
    assert_eq!(revert(&root, &state, How::Careful).left, []);
    assert_eq!(image(&root), before);
}

/// A run that ends at that event, or is whole if it has no so many.
fn ended(root: &Root, wish: &Wish, state: &Directory, end: usize) -> bool {
    let mut journal = open(state);
    let mut seen = 0;
    // A panic leaves files as a kill does: nothing is cleaned up.
    let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        apply(root, &Asked::default(), wish, &mut journal, &mut |_| {
            seen += 1;
            assert!(seen <= end, "the end");
        })
    }));
    ended.is_err()
}

/// Every point at which the process can end: before, between and after the journal's lines and the writes.
#[test]
fn whatever_was_done_when_it_ended_is_taken_back_to_the_byte() {
    let wish = wish(
        Profile::Latency,
        &[Id::Xps, Id::DeferredIrqs, Id::Backlogs, Id::BusyPoll],
        &[],
    );
    for end in 0.. {
        let ((_directory, root), state) = (host("ena16"), Directory::new());
        let before = image(&root);
        let whole = !ended(&root, &wish, &state, end);
        // And the last line may have been cut anywhere.
        if end % 3 == 0 {
            cut(&state.path().join("journal"));
        }
        let reverted = revert(&root, &state, How::Careful);
        assert_eq!(reverted.left, [], "ended at event {end}");
        assert_eq!(image(&root), before, "ended at event {end}");
        if whole {
            assert!(end > 50, "{end}");
            break;
        }
    }
}

/// As after a node's tuner was killed and started anew, with the same wish or another.
#[test]
fn a_run_after_one_that_was_killed_takes_over_and_the_first_values_come_back() {
    let steps = [Id::DeferredIrqs, Id::Backlogs, Id::BusyPoll];
    let first = wish(Profile::Latency, &steps, &[]);
    for second in [first.clone(), wish(Profile::Throughput, &steps, &[])] {
        let wanted = {
            let ((_directory, root), state) = (host("ena16"), Directory::new());
            run(&root, &second, &state);
            settings(&root)
        };
        for end in 0.. {
            let ((_directory, root), state) = (host("ena16"), Directory::new());
            let before = image(&root);
            let whole = !ended(&root, &first, &state, end);
            run(&root, &second, &state);
            if second.profile == first.profile {
                assert_eq!(settings(&root), wanted, "ended at event {end}");
            }
            let reverted = revert(&root, &state, How::Careful);
            assert_eq!(reverted.left, [], "ended at event {end}");
            assert_eq!(image(&root), before, "ended at event {end}");
            if whole {
                break;
            }
        }
    }
}

/// The files of a host by their names in it.
fn settings(root: &Root) -> BTreeMap<PathBuf, Vec<u8>> {
    let place = root.place("/");
    let files = image(root).into_iter();
    files
        .map(|(path, text)| (path.strip_prefix(&place).unwrap().to_owned(), text))
        .collect()
}

/// Adds half a line, as a crash during a write leaves it.
fn cut(journal: &Path) {
    if let Ok(mut text) = fs::read(journal) {
        text.extend(b"{\"took\":{\"ser");
        fs::write(journal, text).unwrap();
    }
}
