//! Datagrams.

use std::net::SocketAddr;

use ringmain_engine::Addr;
use ringmain_engine::backend::{
    Backend, DatagramInfo, DatagramOptions, Op, OutgoingDatagram, RecvEnd, Slot, Socket,
};

use crate::conformance::{Driver, Event, Harness};

struct Pair<H: Harness> {
    driver: Driver<H>,
    slot: Slot,
    socket: Socket,
    far: H::Datagram,
    far_addr: SocketAddr,
    /// Our address as the far side sees it.
    own_addr: SocketAddr,
}

impl<H: Harness> Pair<H> {
    /// Two sockets that have seen each other; our side is not receiving yet.
    fn new(harness: H) -> Pair<H> {
        Pair::with(harness, DatagramOptions::default(), |local| local)
    }

    /// The same with options, and another local address than the usual one.
    fn with(harness: H, options: DatagramOptions, bind: impl FnOnce(SocketAddr) -> SocketAddr) -> Pair<H> {
        let mut driver = Driver::new(harness);
        let local = bind(driver.harness.datagram_local());
        let socket = driver.harness.worker(0).open_datagram(local, options);
        let socket = socket.expect("a socket");
        let (mut far, far_addr) = driver.harness.far_datagram();
        let slot = driver.slot();
        driver.send_to(0, slot, socket, far_addr, b"hello");
        assert_eq!(sent(&mut driver, slot), 5);
        let (hello, own_addr) = far_recv(&mut driver, &mut far);
        assert_eq!(hello, b"hello");
        Pair {
            driver,
            slot,
            socket,
            far,
            far_addr,
            own_addr,
        }
    }

    fn datagram(&mut self) -> (Vec<u8>, Option<SocketAddr>) {
        let (bytes, from, _) = self.datagram_with_info();
        (bytes, from)
    }

    fn datagram_with_info(&mut self) -> (Vec<u8>, Option<SocketAddr>, DatagramInfo) {
        let slot = self.slot;
        let is = |event: &Event| match event {
            Event::Datagram { slot: of, .. } | Event::DatagramsEnded { slot: of, .. } => *of == slot,
            _ => false,
        };
        loop {
            match self.driver.take(0, "Datagram", is) {
                Event::Datagram {
                    bytes,
                    from,
                    info,
                    more,
                    ..
                } => {
                    if !more {
                        self.driver.recv_from(0, slot, self.socket);
                    }
                    return (bytes, from, info);
                }
                Event::DatagramsEnded {
                    end: RecvEnd::NoBuffers,
                    ..
                } => self.driver.recv_from(0, slot, self.socket),
                other => panic!("{other:?}"),
            }
        }
    }

    fn finish_receiving(mut self) {
        self.driver.cancel(0, Op::RecvFrom, self.slot);
        let slot = self.slot;
        let is = |event: &Event| matches!(event, Event::DatagramsEnded { slot: of, .. } if *of == slot);
        let end = self.driver.take(0, "DatagramsEnded", is);
        assert!(
            matches!(
                end,
                Event::DatagramsEnded {
                    end: RecvEnd::Cancelled,
                    ..
                }
            ),
            "{end:?}"
        );
        self.driver.closed(0, self.slot, self.socket);
        self.driver.finish();
    }
}

fn sent<H: Harness>(driver: &mut Driver<H>, slot: Slot) -> usize {
    let is = |event: &Event| matches!(event, Event::DatagramSent { slot: of, .. } if *of == slot);
    match driver.take(0, "DatagramSent", is) {
        Event::DatagramSent { result, .. } => result.expect("the far side is there"),
        other => unreachable!("{other:?}"),
    }
}

fn far_recv<H: Harness>(driver: &mut Driver<H>, far: &mut H::Datagram) -> (Vec<u8>, SocketAddr) {
    let mut got = None;
    driver.until("a datagram at the far side", |driver| {
        got = driver.harness.far_recv(far);
        got.is_some()
    });
    got.expect("just found")
}

/// Rule D1: one completion for each datagram, empty ones too, with its sender.
pub fn datagrams_keep_bounds_and_sender<H: Harness>(harness: H) {
    let mut pair = Pair::new(harness);
    pair.driver.recv_from(0, pair.slot, pair.socket);
    for text in [&b"one"[..], b"", b"three three three", &[7; 1200]] {
        pair.driver.harness.far_send(&mut pair.far, pair.own_addr, text);
        let (bytes, from) = pair.datagram();
        assert_eq!((bytes.as_slice(), from), (text, Some(pair.far_addr)));
    }
    pair.finish_receiving();
}

/// Rule D2: cancel is final; datagrams that arrive meanwhile wait.
pub fn cancel_ends_receiving_datagrams<H: Harness>(harness: H) {
    let mut pair = Pair::new(harness);
    pair.driver.recv_from(0, pair.slot, pair.socket);
    pair.driver.quiet();
    pair.driver.cancel(0, Op::RecvFrom, pair.slot);
    let end = pair.driver.take(0, "DatagramsEnded", |event| {
        matches!(event, Event::DatagramsEnded { .. })
    });
    assert!(
        matches!(
            end,
            Event::DatagramsEnded {
                end: RecvEnd::Cancelled,
                ..
            }
        ),
        "{end:?}"
    );
    pair.driver
        .harness
        .far_send(&mut pair.far, pair.own_addr, b"in between");
    pair.driver.quiet();
    pair.driver.recv_from(0, pair.slot, pair.socket);
    assert_eq!(pair.datagram().0, b"in between");
    pair.finish_receiving();
}

/// Rule D3: several sends may be in flight; each has its completion, and the data was copied.
pub fn many_datagrams_in_flight<H: Harness>(harness: H) {
    const COUNT: u8 = 8;
    let mut pair = Pair::new(harness);
    for number in 0..COUNT {
        let mut data = vec![number; 100];
        pair.driver
            .send_to(0, pair.slot, pair.socket, pair.far_addr, &data);
        data.fill(0xEE);
    }
    for _ in 0..COUNT {
        assert_eq!(sent(&mut pair.driver, pair.slot), 100);
    }
    let mut numbers: Vec<u8> = (0..COUNT)
        .map(|_| {
            let (data, _) = far_recv(&mut pair.driver, &mut pair.far);
            assert!(
                data.len() == 100 && data.iter().all(|byte| *byte == data[0]),
                "{data:?}"
            );
            data[0]
        })
        .collect();
    numbers.sort_unstable();
    assert_eq!(numbers, (0..COUNT).collect::<Vec<_>>());
    pair.driver.closed(0, pair.slot, pair.socket);
    pair.driver.finish();
}

/// Rule D4: a peer costs no packet; afterwards only its datagrams arrive.
pub fn a_datagram_socket_with_a_peer_hears_nobody_else<H: Harness>(harness: H) {
    let mut pair = Pair::new(harness);
    let (mut other, _) = pair.driver.harness.far_datagram();
    pair.driver.recv_from(0, pair.slot, pair.socket);
    let peer = Addr::Inet(pair.far_addr);
    pair.driver.connect(0, pair.slot, pair.socket, &peer);
    let connected = pair.driver.connected(0, pair.slot);
    connected.expect("no packet is sent");
    pair.driver
        .harness
        .far_send(&mut other, pair.own_addr, b"not for you");
    pair.driver.quiet();
    pair.driver
        .harness
        .far_send(&mut pair.far, pair.own_addr, b"for you");
    assert_eq!(pair.datagram(), (b"for you".to_vec(), Some(pair.far_addr)));
    pair.finish_receiving();
}

/// Rule D4: an ICMP error ends receiving, or fails a send, and the socket stays usable.
pub fn an_icmp_error_ends_receiving<H: Harness>(harness: H) {
    let pair = Pair::new(harness);
    let Pair {
        mut driver,
        slot,
        socket,
        far,
        far_addr,
        ..
    } = pair;
    driver.connect(0, slot, socket, &Addr::Inet(far_addr));
    driver.connected(0, slot).expect("no packet is sent");
    driver.recv_from(0, slot, socket);
    drop(far);
    driver.send_to(0, slot, socket, far_addr, b"unreachable");
    let is = |event: &Event| matches!(event, Event::DatagramsEnded { slot: of, .. } if *of == slot);
    let error = match driver.take(0, "DatagramsEnded", is) {
        Event::DatagramsEnded {
            end: RecvEnd::Failed(error),
            ..
        } => error,
        other => panic!("{other:?}"),
    };
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionRefused);
    assert_eq!(sent(&mut driver, slot), b"unreachable".len());
    // Another peer with the same socket.
    let (far, far_addr) = driver.harness.far_datagram();
    driver.connect(0, slot, socket, &Addr::Inet(far_addr));
    driver.connected(0, slot).expect("no packet is sent");
    driver.send_to(0, slot, socket, far_addr, b"again");
    assert_eq!(sent(&mut driver, slot), 5);
    let mut pair = Pair {
        driver,
        slot,
        socket,
        far,
        far_addr,
        own_addr: far_addr,
    };
    let (bytes, own_addr) = far_recv(&mut pair.driver, &mut pair.far);
    assert_eq!(bytes, b"again");
    pair.driver.recv_from(0, slot, socket);
    pair.driver.harness.far_send(&mut pair.far, own_addr, b"a reply");
    assert_eq!(pair.datagram().0, b"a reply");
    pair.finish_receiving();
}

/// Rule D5: a socket that is bound to all addresses reports the one that a datagram was sent to, and can reply from it.
pub fn a_wildcard_socket_replies_from_the_address_of_its_client<H: Harness>(harness: H) {
    let options = DatagramOptions {
        local_address: true,
        ..DatagramOptions::default()
    };
    let bind = |local: SocketAddr| SocketAddr::new(std::net::Ipv4Addr::UNSPECIFIED.into(), local.port());
    let mut pair = Pair::with(harness, options, bind);
    let ip = pair.driver.harness.datagram_local().ip();
    let at = SocketAddr::new(ip, pair.own_addr.port());
    pair.driver.recv_from(0, pair.slot, pair.socket);
    pair.driver.harness.far_send(&mut pair.far, at, b"question");
    let (bytes, from, info) = pair.datagram_with_info();
    assert_eq!((bytes.as_slice(), from), (&b"question"[..], Some(pair.far_addr)));
    assert_eq!(info.local, Some(ip));
    let reply = OutgoingDatagram {
        source: info.local,
        ..OutgoingDatagram::new(pair.far_addr, b"answer")
    };
    pair.driver.send_datagram(0, pair.slot, pair.socket, &reply);
    assert_eq!(sent(&mut pair.driver, pair.slot), 6);
    let (bytes, from) = far_recv(&mut pair.driver, &mut pair.far);
    assert_eq!((bytes.as_slice(), from), (&b"answer"[..], at));
    pair.finish_receiving();
}

/// Rule D6: the segments of one send are datagrams of their own.
pub fn segments_are_datagrams_of_their_own<H: Harness>(harness: H) {
    let mut pair = Pair::new(harness);
    let data: Vec<u8> = (0..250).collect();
    let sending = OutgoingDatagram {
        segment: Some(100),
        ..OutgoingDatagram::new(pair.far_addr, &data)
    };
    pair.driver.send_datagram(0, pair.slot, pair.socket, &sending);
    assert_eq!(sent(&mut pair.driver, pair.slot), 250);
    let mut all: Vec<Vec<u8>> = Vec::new();
    for _ in 0..3 {
        let (bytes, _) = far_recv(&mut pair.driver, &mut pair.far);
        all.push(bytes);
    }
    all.sort_unstable();
    assert_eq!(all, [&data[..100], &data[100..200], &data[200..]]);
    pair.driver.closed(0, pair.slot, pair.socket);
    pair.driver.finish();
}

/// Rule D7: datagrams that were joined can be told apart by the size of the segments.
pub fn joined_datagrams_keep_their_bounds<H: Harness>(harness: H) {
    const COUNT: u8 = 12;
    let options = DatagramOptions {
        coalesce: true,
        ..DatagramOptions::default()
    };
    let mut pair = Pair::with(harness, options, |local| local);
    for number in 0..COUNT {
        pair.driver
            .harness
            .far_send(&mut pair.far, pair.own_addr, &[number; 100]);
    }
    pair.driver.recv_from(0, pair.slot, pair.socket);
    let mut numbers = Vec::new();
    while numbers.len() < usize::from(COUNT) {
        let (bytes, from, info) = pair.datagram_with_info();
        assert_eq!(from, Some(pair.far_addr));
        let size = info.segment.map_or(bytes.len(), usize::from);
        assert_eq!(size, 100);
        for one in bytes.chunks(size) {
            assert_eq!(one, [one[0]; 100]);
            numbers.push(one[0]);
        }
    }
    numbers.sort_unstable();
    assert_eq!(numbers, (0..COUNT).collect::<Vec<_>>());
    pair.finish_receiving();
}
