//! Datagrams.

use std::net::SocketAddr;

use ringmain_engine::Addr;
use ringmain_engine::backend::{Backend, Op, RecvEnd, Slot, Socket};

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
        let mut driver = Driver::new(harness);
        let local = driver.harness.datagram_local();
        let socket = driver.harness.worker(0).open_datagram(local).expect("a socket");
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
        let slot = self.slot;
        let is = |event: &Event| match event {
            Event::Datagram { slot: of, .. } | Event::DatagramsEnded { slot: of, .. } => *of == slot,
            _ => false,
        };
        loop {
            match self.driver.take(0, "Datagram", is) {
                Event::Datagram {
                    bytes, from, more, ..
                } => {
                    if !more {
                        self.driver.recv_from(0, slot, self.socket);
                    }
                    return (bytes, from);
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
