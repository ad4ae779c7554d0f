//! CPU lists and quotas on made-up file systems, affinity on the real kernel.

#![allow(clippy::disallowed_methods, reason = "tests of real threads' affinity")]

use std::path::Path;

use super::{allowed, current, parse_list, pin};
use crate::cgroup;
use crate::fixture::Tree;

fn check_quota(name: &str, files: &[(&str, &str)], expect: Option<f64>) {
    let tree = Tree::new(&format!("quota-{name}"));
    for (path, text) in files {
        tree.write(path, text);
    }
    assert_eq!(cgroup::cpu_quota_under(tree.root()), expect, "{name}");
}

const MOUNT_TWO: &str = "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n";
const MOUNT_ONE: &str =
    "33 24 0:29 / /sys/fs/cgroup/cpu,cpuacct rw shared:9 - cgroup cgroup rw,cpu,cpuacct\n";

#[test]
fn version_two_takes_the_smallest_on_the_way_up() {
    check_quota(
        "two",
        &[
            ("proc/self/mountinfo", MOUNT_TWO),
            ("proc/self/cgroup", "0::/a.slice/b.service\n"),
            ("sys/fs/cgroup/a.slice/cpu.max", "150000 100000\n"),
            ("sys/fs/cgroup/a.slice/b.service/cpu.max", "400000 100000\n"),
        ],
        Some(1.5),
    );
}

#[test]
fn max_is_no_quota() {
    check_quota(
        "max",
        &[
            ("proc/self/mountinfo", MOUNT_TWO),
            ("proc/self/cgroup", "0::/a\n"),
            ("sys/fs/cgroup/a/cpu.max", "max 100000\n"),
        ],
        None,
    );
}

#[test]
fn version_one_in_a_container_that_sees_its_hosts_names() {
    check_quota(
        "one",
        &[
            ("proc/self/mountinfo", &MOUNT_ONE.replace(" / ", " /docker/cafe ")),
            (
                "proc/self/cgroup",
                "4:cpu,cpuacct:/docker/cafe\n0::/docker/cafe\n",
            ),
            ("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "50000\n"),
            ("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n"),
        ],
        Some(0.5),
    );
}

#[test]
fn version_one_without_a_quota() {
    check_quota(
        "none",
        &[
            ("proc/self/mountinfo", MOUNT_ONE),
            ("proc/self/cgroup", "4:cpu,cpuacct:/\n"),
            ("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "-1\n"),
            ("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n"),
        ],
        None,
    );
}

#[test]
fn a_group_outside_of_the_mount_is_the_mount() {
    check_quota(
        "outside",
        &[
            ("proc/self/mountinfo", MOUNT_TWO),
            ("proc/self/cgroup", "0::/../elsewhere\n"),
            ("sys/fs/cgroup/cpu.max", "200000 100000\n"),
        ],
        Some(2.0),
    );
}

#[test]
fn no_proc_is_no_quota() {
    assert_eq!(cgroup::cpu_quota_under(Path::new("/nonexistent")), None);
}

#[test]
fn lists() {
    assert_eq!(parse_list("0-3,8\n"), Some(vec![0, 1, 2, 3, 8]));
    assert_eq!(parse_list("5"), Some(vec![5]));
    assert_eq!(parse_list("\n"), Some(vec![]));
    assert_eq!(parse_list("a-b"), None);
}

#[test]
fn a_pinned_thread_runs_where_it_was_told() {
    let cpus = allowed();
    assert!(!cpus.is_empty());
    for cpu in cpus {
        std::thread::scope(|scope| {
            scope.spawn(|| {
                pin(cpu).unwrap();
                assert_eq!(allowed(), [cpu]);
                assert_eq!(current(), cpu);
            });
        });
    }
}

#[test]
fn a_cpu_that_is_not_there_is_refused() {
    assert!(pin(1023).is_err());
    assert_eq!(pin(5000).unwrap_err().kind(), std::io::ErrorKind::InvalidInput);
}
