//! Refusals by tables: each combination of sysctl, capabilities and filter has its own advice.

use std::io;

use super::{CAP_PERFMON, CAP_SYSLOG, EACCES, ENOSYS, EPERM, Rights};

fn rights(paranoid: i64, capabilities: u64, filtered: bool) -> Rights {
    Rights {
        paranoid: Some(paranoid),
        kptr_restrict: Some(1),
        capabilities,
        filtered,
    }
}

#[test]
fn a_status_is_read() {
    let status = "Name:\tx\nCapEff:\t0000004000000000\nSeccomp:\t2\nSeccomp_filters:\t1\n";
    let found = Rights::of(status);
    assert!(found.has(CAP_PERFMON) && !found.has(CAP_SYSLOG) && found.filtered);
    assert_eq!(Rights::of(""), Rights::default());
}

#[test]
fn a_refusal_names_what_is_missing() {
    let perfmon = 1 << CAP_PERFMON;
    let table = [
        (EACCES, rights(4, 0, false), "kernel.perf_event_paranoid is 4"),
        (EPERM, rights(2, 0, true), "seccomp filter"),
        (EPERM, rights(4, perfmon, true), "--cap-add PERFMON"),
        // The sysctl alone would refuse it too, filter or not.
        (EACCES, rights(3, 0, true), "kernel.perf_event_paranoid=2"),
        (EPERM, rights(2, 0, false), "process 7 belongs to another user"),
        (EACCES, rights(2, perfmon, false), "SELinux"),
        (ENOSYS, rights(2, 0, false), "CONFIG_PERF_EVENTS"),
        (5, rights(2, 0, false), "is not known"),
    ];
    for (errno, rights, expected) in table {
        let said = rights.refused(&io::Error::from_raw_os_error(errno), "process 7");
        assert!(said.contains(expected), "{errno}, {rights:?}: {said}");
    }
}

#[test]
fn what_hides_the_kernel_is_named() {
    assert!(
        rights(2, 0, false)
            .no_kernel()
            .contains("kernel.perf_event_paranoid=1")
    );
    let mut found = rights(2, 0, false);
    assert!(found.no_kernel_names().contains("CAP_SYSLOG"));
    found.kptr_restrict = Some(2);
    assert!(found.no_kernel_names().contains("kptr_restrict=1"));
    found = rights(2, 1 << CAP_SYSLOG, false);
    assert!(found.no_kernel_names().contains("CONFIG_KALLSYMS"));
}
