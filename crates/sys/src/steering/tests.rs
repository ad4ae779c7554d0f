//! Each condition on a made-up host, and the loopback on the real one.

use std::path::Path;

use super::check;
use crate::fixture::Tree;

/// A host with two CPUs and a card that meets all conditions.
struct Fixture(Tree);

impl Fixture {
    fn new(name: &str) -> Fixture {
        let fixture = Fixture(Tree::new(&format!("steering-{name}")));
        fixture
            .0
            .write("proc/thread-self/status", "Name:\tx\nCpus_allowed_list:\t0-1\n");
        fixture.0.write("sys/class/net/eth0/type", "1\n");
        for queue in 0..2 {
            fixture.0.write(
                &format!("sys/class/net/eth0/queues/rx-{queue}/rps_cpus"),
                "00000000,00000000\n",
            );
            fixture
                .0
                .write(&format!("sys/class/net/eth0/queues/tx-{queue}/xps_cpus"), "0\n");
            let irq = 40 + queue;
            fixture
                .0
                .write(&format!("sys/class/net/eth0/device/msi_irqs/{irq}"), "msix\n");
            fixture
                .0
                .write(&format!("proc/irq/{irq}/eth0-TxRx-{queue}/spurious"), "");
            fixture
                .0
                .write(&format!("proc/irq/{irq}/smp_affinity_list"), "0-1\n");
            let cpu = 1 - queue;
            fixture.0.write(
                &format!("proc/irq/{irq}/effective_affinity_list"),
                &format!("{cpu}\n"),
            );
        }
        fixture.0.write("sys/class/net/eth0/device/msi_irqs/39", "msix\n");
        fixture.0.write("proc/irq/39/eth0-mgmnt/spurious", "");
        fixture
    }

    fn check(&self, cpus: &[usize]) -> Result<(), String> {
        check(self.0.root(), "eth0", cpus).map_err(|unmet| unmet.to_string())
    }

    #[track_caller]
    fn check_unmet(&self, cpus: &[usize], expect: &str) {
        let sentence = self.check(cpus).unwrap_err();
        assert!(sentence.contains(expect), "{sentence}");
    }
}

#[test]
fn a_host_that_is_ready() {
    assert_eq!(Fixture::new("ready").check(&[0, 1]), Ok(()));
}

#[test]
fn a_virtio_card_has_its_interrupts_one_level_up() {
    let host = Fixture::new("virtio");
    host.0.remove("sys/class/net/eth0/device/msi_irqs");
    host.0.write("sys/class/net/eth0/device/features", "");
    for queue in 0..2 {
        host.0
            .write(&format!("sys/class/net/eth0/msi_irqs/{}", 40 + queue), "msix\n");
    }
    assert_eq!(host.check(&[0, 1]), Ok(()));
}

#[test]
fn no_such_interface() {
    let host = Fixture::new("interface");
    host.0.remove("sys/class/net/eth0");
    host.check_unmet(&[0, 1], "there is no network interface eth0");
}

#[test]
fn workers_that_are_not_where_the_program_sends() {
    let host = Fixture::new("order");
    host.check_unmet(
        &[1, 0],
        "worker 0 runs on CPU 1, but connections from CPU 1 would go to worker 1",
    );
    host.check_unmet(
        &[0, 2],
        "worker 1 runs on CPU 2, but connections from CPU 2 would go to worker 0",
    );
    host.check_unmet(&[], "there are no pinned workers");
}

#[test]
fn more_cpus_allowed_than_workers() {
    let host = Fixture::new("allowed");
    host.0
        .write("proc/thread-self/status", "Cpus_allowed_list:\t0-3\n");
    host.check_unmet(
        &[0, 1],
        "may use the CPUs [0, 1, 2, 3], but the workers run on [0, 1]",
    );
}

#[test]
fn fewer_queues_than_workers() {
    let host = Fixture::new("queues");
    host.0.remove("sys/class/net/eth0/queues/rx-1");
    host.check_unmet(&[0, 1], "eth0 has 1 receive queues for 2 workers");
}

#[test]
fn packets_that_are_moved_on() {
    let host = Fixture::new("rps");
    host.0
        .write("sys/class/net/eth0/queues/rx-1/rps_cpus", "00000000,00000003\n");
    host.check_unmet(&[0, 1], "moves packets of eth0 rx-1 to other CPUs");
}

#[test]
fn interrupts_that_nobody_can_tell_apart() {
    let host = Fixture::new("names");
    host.0.remove("proc/irq/41/eth0-TxRx-1");
    host.check_unmet(
        &[0, 1],
        "which interrupts serve the 2 receive queues of eth0: 1 look like it",
    );
}

#[test]
fn an_interrupt_on_several_cpus() {
    let host = Fixture::new("several");
    host.0.write("proc/irq/40/effective_affinity_list", "0-1\n");
    host.check_unmet(
        &[0, 1],
        "interrupt 40 of eth0 is served by the CPUs [0, 1] instead of one",
    );
}

#[test]
fn two_interrupts_on_one_cpu() {
    let host = Fixture::new("one");
    host.0.write("proc/irq/40/effective_affinity_list", "0\n");
    host.check_unmet(
        &[0, 1],
        "served by the CPUs [0, 0], but the workers run on [0, 1]",
    );
}

#[test]
fn an_old_kernel_tells_only_the_wish() {
    let host = Fixture::new("old");
    host.0.remove("proc/irq/40/effective_affinity_list");
    host.check_unmet(&[0, 1], "interrupt 40 of eth0 is served by the CPUs [0, 1]");
    host.0.write("proc/irq/40/smp_affinity_list", "1\n");
    assert_eq!(host.check(&[0, 1]), Ok(()));
}

#[test]
fn the_loopback_never_qualifies() {
    let unmet = check(Path::new("/"), "lo", &[0]).unwrap_err();
    assert!(
        unmet.to_string().contains("lo is the loopback interface"),
        "{unmet}"
    );
}
