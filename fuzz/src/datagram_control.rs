//! Control messages of received datagrams, as the kernel delivers them. The whole input is read, and each of its starts.

use std::net::IpAddr;

use ringmain_sys::datagram::DatagramInfo;

/// Laws: no panic, wherever the bytes are cut; the size of segments is above zero; a local address is no multicast address of IPv6.
///
/// # Panics
/// If a law is broken.
pub fn run(input: &[u8]) {
    for end in 0..=input.len() {
        let info = DatagramInfo::parse(&input[..end]);
        assert_ne!(info.segment, Some(0));
        assert!(!matches!(info.local, Some(IpAddr::V6(address)) if address.is_multicast()));
    }
}
