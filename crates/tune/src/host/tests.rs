//! What is found on a recorded host.

use super::interface::meaning;
use super::*;

#[test]
fn names_of_interrupts_say_queue_and_direction() {
    let receive = |queue| Some((Direction::Receive, queue));
    for (name, expected) in [
        ("eth0-TxRx-3", receive(3)),
        ("eth0-Tx-Rx-15", receive(15)),
        ("virtio2-input.0", receive(0)),
        ("virtio2-output.1", Some((Direction::Transmit, 1))),
        ("mlx5_comp7@pci:0000:3b:00.0", receive(7)),
        ("ena-mgmnt@pci:0000:00:05.0", None),
        ("virtio2-config", None),
        ("gve-ntfy-blk3@pci:0000:00:04.0", None),
        ("nvme0q1", None),
    ] {
        assert_eq!(meaning(name), expected, "{name}");
    }
}

#[test]
fn releases_of_distributions_are_versions() {
    assert_eq!(version("6.18.44-fc-v669"), Some((6, 18)));
    assert_eq!(version("5.14.0-427.el9.x86_64"), Some((5, 14)));
    assert_eq!(version("6.9-rc1"), Some((6, 9)));
    assert_eq!(version("strange"), None);
}

#[test]
fn processes_in_a_sentence() {
    let process = |pid| Process {
        pid,
        name: "a".into(),
    };
    let all: Vec<Process> = (1..=6).map(process).collect();
    assert_eq!(sentence(&[]), "");
    assert_eq!(sentence(&all[..1]), "a (1)");
    assert_eq!(sentence(&all[..3]), "a (1), a (2) and a (3)");
    assert_eq!(sentence(&all), "a (1), a (2), a (3), a (4) and 2 more");
}

#[test]
fn a_service_that_only_its_host_reaches() {
    let at = |addresses: &[&str]| Service {
        addresses: addresses.iter().map(|text| (*text).to_owned()).collect(),
        ..Service::default()
    };
    assert!(at(&["0100007F"]).is_local());
    assert!(at(&["0100007F", "00000000000000000000000001000000"]).is_local());
    assert!(!at(&["00000000"]).is_local());
    assert!(!at(&["0100007F", "0A00000A"]).is_local());
    assert!(!at(&[]).is_local());
}
