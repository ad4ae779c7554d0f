//! Tests of control data, alone and with the kernel.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::*;

fn local_addr(fd: &OwnedFd) -> SocketAddr {
    match socket::local_addr(fd).expect("a bound socket") {
        Some(Addr::Inet(addr)) => addr,
        other => panic!("an internet address, not {other:?}"),
    }
}

fn receive(fd: &OwnedFd) -> (Vec<u8>, Option<SocketAddr>, DatagramInfo) {
    let mut buffer = vec![0; 65_536];
    let patience = Timespec {
        tv_sec: 20,
        tv_nsec: 0,
    };
    let ready = poll(&mut [PollFd::new(fd, PollFlags::IN)], Some(&patience));
    assert_eq!(ready, Ok(1), "no datagram within 20 s");
    let (count, from, info) = recv_message(fd, &mut buffer).expect("a datagram");
    (buffer[..count].to_vec(), from, info)
}

/// A wildcard socket reports the address that its client sent to, and replies from it.
fn replies_leave_from(bind: &str, destination: IpAddr, client: &str) {
    let options = DatagramOptions {
        local_address: true,
        ..DatagramOptions::default()
    };
    let fd = open(bind.parse().expect("an address"), options).expect("a free port");
    let to = SocketAddr::new(destination, local_addr(&fd).port());
    let client = UdpSocket::bind(client).expect("a free port");
    client
        .set_read_timeout(Some(Duration::from_secs(20)))
        .expect("a time");
    // Connected: a reply from another address would not arrive.
    client.connect(to).expect("a route");
    client.send(b"question").expect("sent");
    let (bytes, from, info) = receive(&fd);
    assert_eq!(bytes, b"question");
    let from = from.expect("a sender");
    let local = info.local.expect("the local address");
    assert_eq!(local.to_canonical(), destination);
    let control = SendControl::new(from, Some(local), None);
    send_message(&fd, b"reply", from, &control).expect("sent");
    let mut buffer = [0; 16];
    assert_eq!(client.recv(&mut buffer).expect("the reply"), 5);
}

#[test]
fn a_wildcard_socket_replies_from_the_address_of_its_client() {
    let second = Ipv4Addr::new(127, 0, 0, 2).into();
    replies_leave_from("0.0.0.0:0", second, "127.0.0.1:0");
    replies_leave_from("[::]:0", second, "127.0.0.1:0");
    replies_leave_from("[::]:0", Ipv6Addr::LOCALHOST.into(), "[::1]:0");
}

#[test]
fn segments_are_datagrams_of_their_own() {
    let fd = open(
        "127.0.0.1:0".parse().expect("an address"),
        DatagramOptions::default(),
    )
    .expect("a free port");
    let client = UdpSocket::bind("127.0.0.1:0").expect("a free port");
    client
        .set_read_timeout(Some(Duration::from_secs(20)))
        .expect("a time");
    let to = client.local_addr().expect("it is bound");
    let control = SendControl::new(to, None, Some(4));
    send_message(&fd, b"aaaabbbbcc", to, &control).expect("sent");
    let mut buffer = [0; 16];
    for expected in [&b"aaaa"[..], b"bbbb", b"cc"] {
        let count = client.recv(&mut buffer).expect("a datagram");
        assert_eq!(&buffer[..count], expected);
    }
}

#[test]
fn joined_datagrams_are_reported_with_their_size() {
    let options = DatagramOptions {
        coalesce: true,
        local_address: true,
        ..DatagramOptions::default()
    };
    let fd = open("127.0.0.1:0".parse().expect("an address"), options).expect("a free port");
    let to = local_addr(&fd);
    let sender = open(
        "127.0.0.1:0".parse().expect("an address"),
        DatagramOptions::default(),
    )
    .expect("a free port");
    let control = SendControl::new(to, None, Some(100));
    send_message(&sender, &[7; 250], to, &control).expect("sent");
    let mut sizes = Vec::new();
    while sizes.iter().sum::<usize>() < 250 {
        let (bytes, _, info) = receive(&fd);
        let size = info.segment.map_or(bytes.len().max(1), usize::from);
        sizes.extend(bytes.chunks(size).map(<[u8]>::len));
        assert_eq!(info.local, Some(to.ip()));
    }
    assert_eq!(sizes, [100, 100, 50]);
}

#[test]
fn control_data_round_trips() {
    let to: SocketAddr = "[2001:db8::1]:53".parse().expect("an address");
    let source = IpAddr::V6("2001:db8::2".parse().expect("an address"));
    let control = SendControl::new(to, Some(source), Some(1200));
    assert_eq!(control.len(), cmsg_space(IPV6_PKTINFO_BYTES) + cmsg_space(2));
    let bytes: Vec<u8> = control.words.iter().flat_map(|word| word.to_ne_bytes()).collect();
    assert_eq!(DatagramInfo::parse(&bytes[..control.len()]).local, Some(source));
    for cut in 0..control.len() {
        // A truncated message is not read beyond its end.
        let _ = DatagramInfo::parse(&bytes[..cut]);
    }
    assert!(SendControl::new(to, None, None).is_empty());
}
