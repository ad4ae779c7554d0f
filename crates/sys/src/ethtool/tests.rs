//! What ethtool answers, read from bytes.

use super::*;

fn refused<T: std::fmt::Debug>(result: io::Result<T>) -> Option<i32> {
    result.unwrap_err().raw_os_error()
}

#[test]
fn names_that_no_interface_can_have_are_refused_before_the_kernel_is_asked() {
    for name in ["", "sixteen-letters-", "a\0b"] {
        assert_eq!(refused(Device::open(name)), Some(libc::ENODEV), "{name:?}");
    }
}

#[test]
fn an_interface_that_is_not_there_is_an_error_for_every_question() {
    let device = Device::open("no-such-if").unwrap();
    assert_eq!(refused(device.driver()), Some(libc::ENODEV));
    assert_eq!(refused(device.channels()), Some(libc::ENODEV));
    assert_eq!(refused(device.indirection()), Some(libc::ENODEV));
    assert_eq!(refused(device.counters(|_| true)), Some(libc::ENODEV));
}

#[test]
fn the_loopback_interface_has_neither_channels_nor_rings() {
    let device = Device::open("lo").unwrap();
    assert_eq!(refused(device.channels()), Some(libc::EOPNOTSUPP));
    assert_eq!(refused(device.rings()), Some(libc::EOPNOTSUPP));
    assert_eq!(refused(device.coalesce()), Some(libc::EOPNOTSUPP));
    // It joins packets or not, but it answers.
    device.gro().unwrap();
}

#[test]
fn tables_that_are_too_long_are_not_asked_for() {
    let device = Device::open("lo").unwrap();
    let long = vec![0; ENTRIES as usize + 1];
    assert_eq!(refused(device.set_indirection(&long)), Some(libc::E2BIG));
}
