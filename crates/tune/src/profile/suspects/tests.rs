//! Suspects by tables of folded stacks.

use std::collections::BTreeSet;

use super::{SUSPECTS, find};
use crate::catalogue::Id;
use crate::profile::folded::Folded;

/// Which suspects are in a stack, in the table's order.
fn check(stack: &str, expected: &[&str]) {
    let mut folded = Folded::default();
    folded.add(stack, 3);
    let mut found: Vec<&str> = find(&folded).iter().map(|found| found.suspect.key).collect();
    found.sort_unstable();
    let mut expected = expected.to_vec();
    expected.sort_unstable();
    assert_eq!(found, expected, "{stack}");
}

#[test]
fn each_is_found_by_its_functions() {
    let table: &[(&str, &[&str])] = &[
        (
            "w;main;do_syscall_64_[k];ip_rcv_[k];nf_hook_slow_[k];ipt_do_table_[k]",
            &["netfilter"],
        ),
        (
            "w;ip_output_[k];nf_conntrack_in_[k];hash_conntrack_raw.isra.0_[k]",
            &["netfilter"],
        ),
        (
            "w;do_syscall_64_[k];syscall_trace_enter.constprop.0_[k];__audit_syscall_entry_[k]",
            &["audit"],
        ),
        (
            "w;do_syscall_64_[k];syscall_trace_enter_[k];__seccomp_filter_[k]",
            &["seccomp"],
        ),
        (
            "w;__netif_receive_skb_core.constprop.0_[k];tpacket_rcv_[k]",
            &["packet-sockets"],
        ),
        (
            "w;tcp_write_xmit_[k];__dev_queue_xmit_[k];_raw_spin_lock_[k];native_queued_spin_lock_slowpath_[k]",
            &["qdisc-lock"],
        ),
        // Over loopback the receiver's locks are in the sender's stack.
        (
            "w;__dev_queue_xmit_[k];loopback_xmit_[k];handle_softirqs_[k];tcp_v4_rcv_[k];_raw_spin_lock_[k];native_queued_spin_lock_slowpath_[k]",
            &["locks", "softirq"],
        ),
        (
            "w;ep_poll_[k];native_queued_spin_lock_slowpath.part.0_[k]",
            &["locks"],
        ),
        ("w;tcp_v4_rcv_[k];__x86_indirect_thunk_rax_[k]", &["mitigations"]),
        ("w;tcp_v4_rcv_[k];srso_return_thunk_[k]", &["mitigations"]),
        (
            "w;tcp_sendmsg_[k];_copy_from_iter_[k];rep_movs_alternative_[k]",
            &["copies"],
        ),
        (
            "w;__x64_sys_futex_[k];do_futex_[k];try_to_wake_up_[k]",
            &["wake-ups"],
        ),
        (
            "w;main;asm_exc_page_fault_[k];handle_mm_fault_[k]",
            &["page-faults"],
        ),
        (
            "w;tcp_sendmsg_[k];handle_softirqs_[k];net_rx_action_[k];nf_hook_slow_[k]",
            &["netfilter", "softirq"],
        ),
        (
            "w;clock_gettime;do_syscall_64_[k];__x64_sys_clock_gettime_[k]",
            &["clock"],
        ),
        ("w;main;push;malloc;_int_malloc", &["allocation"]),
        ("w;tcp_v4_rcv_[k];bpf_prog_6deef7357e7b4530_[k]", &["probes"]),
        // A function of the program may have any name.
        ("w;main;nf_hook_slow;schedule", &[]),
        ("w;main;malloc_[k]", &[]),
        // A thread may, too.
        ("schedule_[k];main", &[]),
        ("w;main", &[]),
    ];
    for (stack, expected) in table {
        check(stack, expected);
    }
}

#[test]
fn a_stack_counts_once_and_the_costliest_is_first() {
    let text = "\
w;net_rx_action_[k];nf_hook_slow_[k];nf_hook_slow_[k] 5
w;net_rx_action_[k];nf_hook_slow_[k];ipt_do_table_[k];memcmp_[k] 2
w;net_rx_action_[k] 1
";
    let found = find(&Folded::parse(text).unwrap());
    let shown: Vec<_> = found
        .iter()
        .map(|found| (found.suspect.key, found.samples, found.innermost))
        .collect();
    assert_eq!(shown, [("softirq", 8, 1), ("netfilter", 7, 5)]);
}

#[test]
fn the_table_is_in_order() {
    let keys: BTreeSet<_> = SUSPECTS.iter().map(|suspect| suspect.key).collect();
    assert_eq!(keys.len(), SUSPECTS.len());
    for suspect in SUSPECTS {
        assert!(!suspect.functions.is_empty() && !suspect.remedy.is_empty() && !suspect.title.is_empty());
        for pattern in suspect
            .functions
            .iter()
            .chain(suspect.within)
            .chain(suspect.outside)
        {
            assert!(
                !pattern.trim_end_matches('*').contains('*'),
                "{pattern}: a star stands at the end"
            );
        }
    }
}

/// What the tuner looks after, it is named for; and users read the same in the manual.
#[test]
fn the_manual_has_each_with_its_steps() {
    let manual = include_str!("../../../../../docs/reference/profile-costs.md");
    for suspect in SUSPECTS {
        let row = manual
            .lines()
            .find(|line| line.starts_with(&format!("| `{}` |", suspect.key)));
        let row = row.unwrap_or_else(|| {
            panic!(
                "docs/reference/profile-costs.md: expected a row of {}",
                suspect.key
            )
        });
        let steps: Vec<String> = suspect.steps.iter().map(|id| format!("`{id}`")).collect();
        let last = row.trim_end_matches(" |").rsplit(" |").next().unwrap_or_default();
        assert_eq!(
            last.trim(),
            steps.join(", "),
            "docs/reference/profile-costs.md: {}",
            suspect.key
        );
    }
    for (key, step) in [
        ("netfilter", Id::Netfilter),
        ("audit", Id::Audit),
        ("seccomp", Id::Seccomp),
        ("packet-sockets", Id::PacketSockets),
        ("qdisc-lock", Id::Qdisc),
        ("mitigations", Id::Mitigations),
    ] {
        let suspect = SUSPECTS.iter().find(|suspect| suspect.key == key);
        assert_eq!(suspect.unwrap().steps.first(), Some(&step), "{key}");
    }
}
