//! Sockets on the real kernel: opening, connecting, moving bytes, options.

use std::io::{ErrorKind, IoSlice};
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};

use ringmain_sys::addr::Addr;
use ringmain_sys::datagram::{self, DatagramInfo, DatagramOptions, SendControl};
use ringmain_sys::listen::{ListenOptions, listen};
use ringmain_sys::socket;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::net::sockopt;

fn wait(fd: impl AsFd, flags: PollFlags) {
    let seconds = rustix::event::Timespec {
        tv_sec: 10,
        tv_nsec: 0,
    };
    let ready = poll(&mut [PollFd::new(&fd, flags)], Some(&seconds)).unwrap();
    assert_eq!(ready, 1, "nothing happened within ten seconds");
}

/// A connection to a fresh listener on `addr`: the listener, the client's end, the server's end.
fn connection(addr: &str) -> (OwnedFd, OwnedFd, OwnedFd) {
    let listener = listen(&addr.parse().unwrap(), &ListenOptions::default()).unwrap();
    let to = socket::local_addr(&listener).unwrap().unwrap();
    let client = socket::stream(&to, None).unwrap();
    finish(socket::connect(&client, &to), &client).unwrap();
    wait(&listener, PollFlags::IN);
    let server = socket::accept(&listener).unwrap();
    (listener, client, server)
}

fn finish(begun: std::io::Result<()>, fd: &OwnedFd) -> std::io::Result<()> {
    match begun {
        Err(error) if error.raw_os_error() == Some(libc::EINPROGRESS) => {
            wait(fd, PollFlags::OUT);
            socket::take_error(fd).unwrap().map_or(Ok(()), Err)
        }
        result => result,
    }
}

fn check_stream(addr: &str) {
    let (_listener, client, server) = connection(addr);
    let mut buffer = [0; 64];
    assert_eq!(
        socket::recv(&server, &mut buffer).unwrap_err().kind(),
        ErrorKind::WouldBlock
    );
    let sent = socket::send_vectored(&client, &[IoSlice::new(b"two "), IoSlice::new(b"pieces")]);
    assert_eq!(sent.unwrap(), 10);
    wait(&server, PollFlags::IN);
    assert_eq!(socket::recv(&server, &mut buffer).unwrap(), 10);
    assert_eq!(&buffer[..10], b"two pieces");
    assert_eq!(
        socket::peer_addr(&server).unwrap(),
        socket::local_addr(&client).unwrap()
    );
    assert_eq!(
        socket::local_addr(&server).unwrap(),
        socket::peer_addr(&client).unwrap()
    );
    socket::shutdown_write(&client).unwrap();
    wait(&server, PollFlags::IN);
    assert_eq!(socket::recv(&server, &mut buffer).unwrap(), 0);
    socket::shutdown_both(&server).unwrap();
    let error = socket::send_vectored(&server, &[IoSlice::new(b"late")]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::BrokenPipe);
}

#[test]
fn streams_carry_bytes() {
    check_stream("127.0.0.1:0");
    check_stream("[::1]:0");
    check_stream(&format!("@ringmain-sys-stream-{}", std::process::id()));
}

#[test]
fn an_accepted_unix_peer_is_unnamed() {
    let (_listener, _client, server) = connection(&format!("@ringmain-sys-peer-{}", std::process::id()));
    assert_eq!(socket::peer_addr(&server).unwrap(), None);
}

#[test]
fn a_refused_connection_says_so() {
    let addr: Addr = "127.0.0.1:0".parse().unwrap();
    // Bound and not listening: nobody else can take the port meanwhile.
    let reserved = socket::stream(&addr, None).unwrap();
    let local: SocketAddr = "127.0.0.1:0".parse().unwrap();
    rustix::net::bind(&reserved, &local).unwrap();
    let to = socket::local_addr(&reserved).unwrap().unwrap();
    let client = socket::stream(&to, None).unwrap();
    let error = finish(socket::connect(&client, &to), &client).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
}

#[test]
fn a_source_address_is_kept_and_its_port_chosen_late() {
    let listener = listen(&"127.0.0.1:0".parse().unwrap(), &ListenOptions::default()).unwrap();
    let to = socket::local_addr(&listener).unwrap().unwrap();
    let source: Addr = "127.0.0.77:0".parse().unwrap();
    let client = socket::stream(&to, Some(&source)).unwrap();
    assert_eq!(socket::local_addr(&client).unwrap(), Some(source));
    finish(socket::connect(&client, &to), &client).unwrap();
    let Some(Addr::Inet(local)) = socket::local_addr(&client).unwrap() else {
        panic!()
    };
    assert_eq!(local.ip().to_string(), "127.0.0.77");
    assert_ne!(local.port(), 0);
}

#[test]
fn a_source_of_another_family_is_refused() {
    let source: Addr = "[::1]:0".parse().unwrap();
    let error = socket::stream(&"127.0.0.1:1".parse().unwrap(), Some(&source)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    assert!(
        error
            .to_string()
            .contains("[::1]:0 is of another family than 127.0.0.1:1"),
        "{error}"
    );
}

fn check_datagram(local: &str, from: &str, to_ip: &str) {
    let open = |at: &str| datagram::open(at.parse().unwrap(), DatagramOptions::default()).unwrap();
    let server = open(local);
    let Some(Addr::Inet(bound)) = socket::local_addr(&server).unwrap() else {
        panic!()
    };
    let client = open(from);
    let to = SocketAddr::new(to_ip.parse().unwrap(), bound.port());
    let none = SendControl::default();
    assert_eq!(datagram::send_message(&client, b"ping", to, &none).unwrap(), 4);
    assert_eq!(datagram::send_message(&client, b"", to, &none).unwrap(), 0);
    wait(&server, PollFlags::IN);
    let mut buffer = [0; 16];
    let (count, sender, info) = datagram::recv_message(&server, &mut buffer).unwrap();
    assert_eq!(info, DatagramInfo::default());
    assert_eq!(&buffer[..count], b"ping");
    let Some(Addr::Inet(own)) = socket::local_addr(&client).unwrap() else {
        panic!()
    };
    assert_eq!(sender.unwrap().port(), own.port());
    wait(&server, PollFlags::IN);
    assert_eq!(datagram::recv_message(&server, &mut buffer).unwrap().0, 0);
    let error = datagram::recv_message(&server, &mut buffer).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::WouldBlock);
}

#[test]
fn datagrams_of_both_families_and_dual_stack() {
    check_datagram("127.0.0.1:0", "127.0.0.1:0", "127.0.0.1");
    check_datagram("[::1]:0", "[::1]:0", "::1");
    check_datagram("[::]:0", "127.0.0.1:0", "127.0.0.1");
    check_datagram("[::]:0", "[::1]:0", "::1");
}

#[test]
fn options_reach_the_kernel() {
    let (_listener, client, server) = connection("127.0.0.1:0");
    assert!(sockopt::tcp_nodelay(&client).unwrap());
    socket::set_nodelay(&client, false).unwrap();
    assert!(!sockopt::tcp_nodelay(&client).unwrap());
    socket::set_send_buffer(&client, 32 * 1024).unwrap();
    assert_eq!(sockopt::socket_send_buffer_size(&client).unwrap(), 64 * 1024);
    socket::set_receive_buffer(&client, 32 * 1024).unwrap();
    assert_eq!(sockopt::socket_recv_buffer_size(&client).unwrap(), 64 * 1024);
    socket::set_keepalive(&client, true).unwrap();
    assert!(sockopt::socket_keepalive(&client).unwrap());
    socket::set_notsent_lowat(&client, 16 * 1024).unwrap();
    let mut value = 0i32;
    let mut length = 4;
    // SAFETY: the kernel writes one int.
    let status = unsafe {
        use std::os::fd::AsRawFd;
        let fd = client.as_raw_fd();
        let value = (&raw mut value).cast();
        libc::getsockopt(
            fd,
            libc::IPPROTO_TCP,
            libc::TCP_NOTSENT_LOWAT,
            value,
            &raw mut length,
        )
    };
    assert_eq!((status, value), (0, 16 * 1024));

    socket::set_reset_on_close(&client).unwrap();
    drop(client);
    wait(&server, PollFlags::IN);
    let error = socket::recv(&server, &mut [0; 8]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
}
