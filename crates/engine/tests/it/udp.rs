//! Datagrams on workers of both real back-ends: sizes, families, late errors, bounds, the end.

use std::future::poll_fn;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::mpsc;
use std::time::Duration;

use crate::support::{PATIENCE, Rig, for_each_engine, pattern};
use ringmain_engine::udp::{DatagramInfo, DatagramOptions, OutgoingDatagram, Udp};
use ringmain_engine::{Addr, Cx, limits};

const V4: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const V6: IpAddr = IpAddr::V6(Ipv6Addr::LOCALHOST);

/// An ordinary socket as the far end.
fn far(ip: IpAddr) -> (UdpSocket, SocketAddr) {
    let socket = UdpSocket::bind((ip, 0)).expect("a loopback address");
    socket.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    let addr = socket.local_addr().expect("it is bound");
    (socket, addr)
}

/// An address that answers datagrams with ICMP errors as long as the socket lives: it takes those of one peer
/// only, and nobody else can have the port.
fn dead() -> (UdpSocket, SocketAddr) {
    let (socket, addr) = far(V4);
    socket.connect(addr).expect("its own peer");
    (socket, addr)
}

fn bind(cx: &Cx, ip: IpAddr) -> (Udp, SocketAddr) {
    let socket = cx.bind_udp(SocketAddr::new(ip, 0)).expect("a loopback address");
    match socket.local_addr().expect("it is bound") {
        Some(Addr::Inet(addr)) => (socket, addr),
        other => panic!("a datagram socket at {other:?}"),
    }
}

/// Starts an echo on the worker and returns where it is.
fn echo(rig: &Rig, ip: IpAddr) -> SocketAddr {
    rig.run(move |cx: Cx| async move {
        let (socket, addr) = bind(&cx, ip);
        let serve = async move {
            loop {
                let (data, from) = socket.recv_from().await.expect("no error on loopback");
                let from = from.expect("an internet address");
                socket.send_to(&data, from).await.expect("no error on loopback");
            }
        };
        cx.spawn(serve).expect("room for a task");
        addr
    })
}

#[test]
fn every_size_comes_back() {
    for_each_engine(|choice| {
        let rig = Rig::new(choice);
        for ip in [V4, V6] {
            let at = echo(&rig, ip);
            let (socket, _) = far(ip);
            let mut buffer = vec![0; limits::DATAGRAM_BYTES + 1];
            for len in [1, 1472, limits::DATAGRAM_BYTES, 0, 2] {
                let data = pattern(len);
                socket.send_to(&data, at).expect("loopback takes it");
                let (count, from) = socket.recv_from(&mut buffer).expect("the echo");
                assert_eq!((count, from), (len, at));
                assert_eq!(buffer[..count], data);
            }
        }
    });
}

#[test]
fn the_unspecified_ipv6_address_serves_both_families() {
    for_each_engine(|choice| {
        let rig = Rig::new(choice);
        let port = echo(&rig, Ipv6Addr::UNSPECIFIED.into()).port();
        for ip in [V4, V6] {
            let (socket, _) = far(ip);
            socket.send_to(b"both", (ip, port)).expect("loopback takes it");
            let mut buffer = [0; 10];
            let (count, from) = socket.recv_from(&mut buffer).expect("the echo");
            assert_eq!((&buffer[..count], from), (&b"both"[..], (ip, port).into()));
        }
    });
}

/// Passes the next datagram to `read`.
async fn next<T>(
    socket: &Udp,
    mut read: impl FnMut(&[u8], Option<SocketAddr>, DatagramInfo) -> T,
) -> io::Result<T> {
    poll_fn(|context| socket.poll_datagram(context, |data, from, info| read(data, from, info))).await
}

#[test]
fn replies_leave_from_the_address_that_was_sent_to() {
    for_each_engine(|choice| {
        let rig = Rig::new(choice);
        let port = rig.run(|cx: Cx| async move {
            let options = DatagramOptions {
                local_address: true,
                ..DatagramOptions::default()
            };
            let any = SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), 0);
            let socket = cx.bind_udp_with(any, options).expect("a free port");
            let Ok(Some(Addr::Inet(addr))) = socket.local_addr() else {
                panic!("a bound socket");
            };
            let serve = async move {
                loop {
                    let reply = |data: &[u8], from: Option<SocketAddr>, info: DatagramInfo| {
                        let datagram = OutgoingDatagram {
                            source: info.local,
                            ..OutgoingDatagram::new(from.expect("an internet address"), data)
                        };
                        socket.try_send(&datagram)
                    };
                    let sent = next(&socket, reply).await.expect("no error on loopback");
                    sent.expect("room for one");
                }
            };
            cx.spawn(serve).expect("room for a task");
            addr.port()
        });
        let (socket, _) = far(V4);
        let mut buffer = [0; 10];
        for host in [1, 2, 3] {
            let to = SocketAddr::new(Ipv4Addr::new(127, 0, 0, host).into(), port);
            socket.send_to(b"hello", to).expect("loopback takes it");
            let (count, from) = socket.recv_from(&mut buffer).expect("the reply");
            assert_eq!((&buffer[..count], from), (&b"hello"[..], to));
        }
    });
}

#[test]
fn sends_in_flight_and_segments_are_bounded() {
    for_each_engine(|choice| {
        let rig = Rig::new(choice);
        let (_far, to) = far(V4);
        let outcomes = rig.run(move |cx: Cx| async move {
            let (socket, _) = bind(&cx, V4);
            let datagram = OutgoingDatagram::new(to, b"x");
            // Completions are taken between turns: within one all are in flight.
            let queued = (0..).take_while(|_| socket.try_send(&datagram).is_ok()).count();
            let full = socket.try_send(&datagram).map_err(|error| error.kind());
            let data = vec![0; limits::DATAGRAM_SEGMENTS + 1];
            let refused = [Some(1), Some(0)].map(|segment| {
                let datagram = OutgoingDatagram {
                    segment,
                    ..OutgoingDatagram::new(to, &data)
                };
                socket.try_send(&datagram).map_err(|error| error.kind())
            });
            (queued, full, refused)
        });
        let (queued, full, refused) = outcomes;
        assert_eq!(queued, limits::DATAGRAM_SENDS as usize);
        assert_eq!(full, Err(io::ErrorKind::WouldBlock));
        assert_eq!(refused, [Err(io::ErrorKind::InvalidInput); 2]);
    });
}

#[test]
fn too_much_for_a_datagram_is_refused() {
    for_each_engine(|choice| {
        let rig = Rig::new(choice);
        let outcome = rig.run(|cx: Cx| async move {
            let (socket, addr) = bind(&cx, V4);
            socket.send_to(&vec![0; limits::DATAGRAM_BYTES + 1], addr).await
        });
        let error = outcome.expect_err("it is too long");
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
        assert!(error.to_string().contains("65507"), "{error}");
    });
}

#[test]
fn a_refused_datagram_surfaces_once_and_the_socket_works_on() {
    for_each_engine(|choice| {
        let rig = Rig::new(choice);
        let (_held, dead) = dead();
        let (live, at) = far(V4);
        let (told, mine) = mpsc::channel();
        let outcome = rig.begin(move |cx: Cx| async move {
            let (socket, addr) = bind(&cx, V4);
            // Told to the one who receives.
            socket.connect(dead).await.expect("a peer costs no packet");
            socket.send_to(b"?", dead).await.expect("queued");
            let at_receive = socket.recv_from().await.map(drop);
            // Told to the one who sends; which attempt learns of it is the network's choice.
            let at_send = loop {
                if let Err(error) = socket.send_to(b"?", dead).await {
                    break error;
                }
                cx.sleep(Duration::from_millis(1)).await;
            };
            // What is still on its way belongs to the dead peer.
            while socket.connect(at).await.is_err() {}
            told.send(addr).expect("the test waits");
            let received = loop {
                match socket.recv_from().await {
                    Ok((data, from)) => break (data, from),
                    Err(error) => assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused),
                }
            };
            socket.send_to(b"answer", at).await.expect("queued");
            (at_receive, at_send, received)
        });
        let addr = mine.recv_timeout(PATIENCE).expect("the errors surface");
        live.send_to(b"question", addr).expect("loopback takes it");
        let mut buffer = [0; 10];
        let (count, from) = live.recv_from(&mut buffer).expect("the answer");
        assert_eq!((&buffer[..count], from), (&b"answer"[..], addr));
        let (at_receive, at_send, received) = outcome.recv_timeout(PATIENCE).expect("the task ends");
        let at_receive = at_receive.expect_err("nobody is there");
        assert_eq!(at_receive.kind(), io::ErrorKind::ConnectionRefused);
        assert_eq!(at_send.kind(), io::ErrorKind::ConnectionRefused);
        assert_eq!(received, (b"question".to_vec(), Some(at)));
    });
}

#[test]
fn an_error_taken_by_a_sender_does_not_end_receiving() {
    for_each_engine(|choice| {
        let rig = Rig::new(choice);
        let (peer, dead) = dead();
        let outcome = rig.begin(move |cx: Cx| async move {
            let (socket, addr) = bind(&cx, V4);
            socket.connect(dead).await.expect("a peer costs no packet");
            while socket.send_to(b"?", dead).await.is_ok() {
                cx.sleep(Duration::from_millis(1)).await;
            }
            // Now somebody is there; nothing but the error taken above re-arms receiving.
            peer.connect(addr).expect("the socket is bound");
            peer.send(b"here").expect("loopback takes it");
            loop {
                match socket.recv_from().await {
                    Ok((data, from)) => break (data, from == Some(dead)),
                    Err(error) => assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused),
                }
            }
        });
        let received = outcome.recv_timeout(PATIENCE).expect("receiving goes on");
        assert_eq!(received, (b"here".to_vec(), true));
    });
}

#[test]
fn what_nobody_takes_is_bounded_and_the_socket_works_on() {
    const SENT: u16 = 600;
    for_each_engine(|choice| {
        let rig = Rig::new(choice);
        let (told, mine) = mpsc::channel();
        let (go, all_sent) = mpsc::channel();
        let taken = rig.begin(move |cx: Cx| async move {
            let (socket, addr) = bind(&cx, V4);
            told.send(addr).expect("the test waits");
            while all_sent.try_recv().is_err() {
                cx.sleep(Duration::from_millis(1)).await;
            }
            let mut taken: Vec<u16> = Vec::new();
            loop {
                let (data, _) = socket.recv_from().await.expect("no error on loopback");
                if data == b"end" {
                    return taken;
                }
                assert_eq!(data.len(), 60_000);
                taken.push(u16::from_le_bytes([data[0], data[1]]));
            }
        });
        let addr = mine.recv_timeout(PATIENCE).expect("it is bound");
        let (socket, _) = far(V4);
        let mut data = vec![0; 60_000];
        for number in 0..SENT {
            data[..2].copy_from_slice(&number.to_le_bytes());
            socket
                .send_to(&data, addr)
                .expect("loopback drops what does not fit");
            if number % 8 == 0 {
                // The worker takes turns meanwhile, so that its queue and not the kernel's buffer is the limit.
                rig.run(|_| async {});
            }
        }
        go.send(()).expect("the task waits");
        let taken = loop {
            // The end may be dropped too, until there is room.
            socket.send_to(b"end", addr).expect("loopback takes it");
            if let Ok(taken) = taken.recv_timeout(Duration::from_millis(5)) {
                break taken;
            }
        };
        // Buffers of the kernel's socket hold a few more.
        let most = limits::DATAGRAMS_QUEUED + usize::from(limits::DATAGRAM_BUFFERS) + 16;
        assert!(
            (limits::DATAGRAMS_QUEUED..=most).contains(&taken.len()),
            "{} were kept",
            taken.len()
        );
        assert!(taken.is_sorted(), "{taken:?}");
    });
}

#[test]
fn dropping_it_frees_its_port() {
    for_each_engine(|choice| {
        let rig = Rig::new(choice);
        let addr = rig.run(|cx: Cx| async move {
            let (socket, addr) = bind(&cx, V4);
            // With something in flight.
            socket.send_to(&pattern(1000), addr).await.expect("queued");
            addr
        });
        let mut tries = 0;
        while UdpSocket::bind(addr).is_err() {
            tries += 1;
            assert!(tries < 1000, "the port is still taken");
            rig.run(|cx: Cx| async move { cx.sleep(Duration::from_millis(1)).await });
        }
    });
}
