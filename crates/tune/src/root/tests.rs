//! A root that is read and written: names cannot lead out of it.

use super::live::{parsed, written};
use super::*;
use ringmain_sys::qdisc::{self, Qdisc};

fn key(text: &str) -> Key {
    text.parse().unwrap()
}

#[test]
fn names_of_settings_come_back_as_they_were() {
    for text in [
        "/proc/sys/net/core/somaxconn",
        "/sys/class/net/eth0/queues/rx-0/rps_cpus",
        "ethtool:eth0/channels",
        "ethtool:bond0.7/channels-max",
        "qdisc:eth0",
        "audit:status",
        "audit:never-task",
        "nftables:tables",
    ] {
        assert_eq!(key(text).to_string(), text);
    }
}

#[test]
fn a_name_that_leads_elsewhere_is_none() {
    for text in [
        "/etc/passwd",
        "/proc/../etc/passwd",
        "/sys//x",
        "/sys/./x",
        "ethtool:eth0",
        "ethtool:eth0/speed",
        "audit:off",
        "",
    ] {
        assert!(text.parse::<Key>().is_err(), "{text}");
    }
}

#[test]
fn values_are_compared_by_their_meaning() {
    let same = |name: &str, one: &str, other: &str| key(name).same(one, other);
    assert!(same(
        "/sys/class/net/e/queues/rx-0/rps_cpus",
        "00000000,0000000f",
        "f"
    ));
    assert!(!same("/sys/class/net/e/queues/rx-0/rps_cpus", "1", "2"));
    assert!(same("/proc/irq/9/smp_affinity_list", "0-1", "0,1"));
    assert!(same(
        "/proc/sys/net/ipv4/ip_local_port_range",
        "1024\t65535",
        "1024 65535"
    ));
    assert!(same("ethtool:e/rings", "rx=1 tx=2", "tx=2 rx=1"));
    assert!(!same("ethtool:e/gro", "on", "off"));
    assert!(!same("ethtool:e/indirection", "0 1", "1 0"));
    assert!(!same("qdisc:e", "mq(a*2)", "mq(a*3)"));
}

fn one(handle: u32, parent: u32, kind: &str, options: &[u8]) -> Qdisc {
    Qdisc {
        handle,
        parent,
        kind: kind.into(),
        options: options.to_vec(),
    }
}

#[test]
fn disciplines_come_back_as_they_were() {
    let root = |handle, kind| one(handle, qdisc::ROOT, kind, &[]);
    for (all, text) in [
        (vec![root(0, "noqueue")], "noqueue"),
        (
            vec![one(0x8001_0000, qdisc::ROOT, "fq", &[8, 0, 255])],
            "8001:fq[0800ff]",
        ),
        (
            vec![
                root(0, "mq"),
                one(0, 1, "fq_codel", &[]),
                one(0, 2, "fq_codel", &[]),
                one(0x10_0000, 3, "fq", &[1]),
            ],
            "mq(fq_codel*2,10:fq[01])",
        ),
    ] {
        assert_eq!(written(&all).unwrap(), text);
        assert_eq!(parsed(text).unwrap(), all);
    }
}

#[test]
fn what_is_no_discipline_is_none() {
    for text in [
        "",
        "mq(",
        "mq(x*)",
        "mq(x*9999)",
        "zz:mq",
        "1ffff:mq",
        "fq[0]",
        "fq[0g]",
        "a b",
    ] {
        assert_eq!(parsed(text), None, "{text}");
    }
    // A tree of classes is told and cannot be put back.
    let tree = [
        one(0x1_0000, qdisc::ROOT, "htb", &[]),
        one(0, 0x1_0001, "fq", &[]),
    ];
    assert_eq!(written(&tree).unwrap(), "tree:htb");
    assert_eq!(parsed("tree:htb"), None);
    assert_eq!(written(&[]).unwrap(), "none");
}

#[test]
fn the_innermost_mount_says_whether_a_path_is_read_only() {
    let mounts = "22 1 0:20 / / rw - ext4 /dev/vda rw\n\
                  30 22 0:5 / /proc rw,nosuid - proc proc rw\n\
                  31 30 0:5 /sys /proc/sys ro,nosuid - proc proc rw\n\
                  32 22 0:6 / /sys ro - sysfs sysfs ro\n";
    let of = |path| read_only_mount(mounts, path);
    assert_eq!(of("/proc/sys/net/core/somaxconn").as_deref(), Some("/proc/sys"));
    assert_eq!(of("/proc/system"), None);
    assert_eq!(of("/proc/irq/1/smp_affinity"), None);
    assert_eq!(of("/sys/class/net").as_deref(), Some("/sys"));
}

#[test]
fn only_settings_that_steps_change_may_be_in_a_journal() {
    let is_changed = |text: &str| text.parse::<Key>().unwrap().is_changed_by_steps();
    for text in [
        "/proc/sys/net/core/somaxconn",
        "/proc/irq/31/smp_affinity_list",
        "/sys/class/net/eth0/queues/rx-0/rps_cpus",
        "/sys/devices/system/cpu/cpu3/cpuidle/state2/disable",
        "ethtool:eth0/rings",
        "qdisc:eth0",
        "audit:never-task",
    ] {
        assert!(is_changed(text), "{text}");
    }
    for text in [
        "/proc/self/root/etc/shadow",
        "/proc/1/root/etc/passwd",
        "/proc/sys/kernel/core_pattern",
        "/proc/sys/kernel/modprobe",
        "/proc/irq/x/smp_affinity_list",
        "/proc/irq/31/31/smp_affinity_list",
        "/sys/class/net/eth0/device/rps_cpus",
        "/sys/class/net/*/gro_flush_timeout/x",
        "/sys/kernel/uevent_helper",
        "ethtool:eth0/driver",
        "ethtool:../x/rings",
        "audit:status",
    ] {
        assert!(!is_changed(text), "{text}");
    }
}
