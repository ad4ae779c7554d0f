//! Every kind of address that an engine listens on: IPv4, IPv6, both at once, Unix files and abstract names.
#![allow(
    clippy::disallowed_methods,
    reason = "clients in a test are real threads and sockets"
)]

use std::io::{Read, Write};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr as UnixAddr, UnixListener, UnixStream};
use std::path::PathBuf;

use crate::scripted::{self, Setting, client, echo, serve_at};
use ringmain_engine::{Addr, Config, Engine, ListenOptions};

on_every_backend!(
    an_ipv6_listener_serves,
    a_dual_stack_listener_serves_both,
    a_unix_socket_serves_and_its_file_goes_with_it,
    a_stale_socket_file_is_replaced,
    a_socket_file_in_use_is_an_error,
    an_abstract_name_serves,
    several_listeners_tell_their_number,
    a_port_in_use_is_an_error,
);

fn two(config: Config) -> Config {
    Config {
        workers: Some(2),
        ..config
    }
}

/// A path that no other case has.
struct SocketPath(PathBuf);

impl SocketPath {
    fn new() -> SocketPath {
        use std::sync::atomic::{AtomicU32, Ordering};
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("ringmain-addresses-{}-{number}", std::process::id());
        SocketPath(std::env::temp_dir().join(name))
    }

    fn addr(&self) -> Addr {
        Addr::Unix(self.0.clone())
    }

    fn client(&self) -> UnixStream {
        let client = UnixStream::connect(&self.0).expect("the server listens");
        client.set_read_timeout(Some(scripted::PATIENCE)).unwrap();
        client
    }
}

impl Drop for SocketPath {
    fn drop(&mut self) {
        // It is gone already where the engine removed it.
        let _ = std::fs::remove_file(&self.0);
    }
}

fn an_ipv6_listener_serves(config: Config) {
    let server = serve_at(
        two(config),
        &"[::1]:0".parse().unwrap(),
        &ListenOptions::default(),
        Setting::echo,
    );
    for _ in 0..10 {
        echo(&mut server.client(), b"hello");
    }
}

fn a_dual_stack_listener_serves_both(config: Config) {
    let options = ListenOptions::default();
    let server = serve_at(
        two(config.clone()),
        &"[::]:0".parse().unwrap(),
        &options,
        Setting::echo,
    );
    let port = server.addr.port();
    echo(&mut client(([127, 0, 0, 1], port).into()), b"by IPv4");
    echo(
        &mut client((std::net::Ipv6Addr::LOCALHOST, port).into()),
        b"by IPv6",
    );
    let options = ListenOptions {
        v6_only: true,
        ..options
    };
    let server = serve_at(two(config), &"[::]:0".parse().unwrap(), &options, Setting::echo);
    let port = server.addr.port();
    echo(
        &mut client((std::net::Ipv6Addr::LOCALHOST, port).into()),
        b"by IPv6",
    );
    // A host of its own: at 127.0.0.1 another test may have been given the same port.
    std::net::TcpStream::connect(("127.97.31.5", port)).expect_err("IPv6 alone");
}

fn a_unix_socket_serves_and_its_file_goes_with_it(config: Config) {
    let path = SocketPath::new();
    let server = serve_at(
        two(config),
        &path.addr(),
        &ListenOptions::default(),
        Setting::echo,
    );
    let mut clients: Vec<_> = (0..100).map(|_| path.client()).collect();
    for client in &mut clients {
        echo(client, b"hello");
    }
    server.running.shut_down();
    for mut client in clients {
        assert!(scripted::read_all(&mut client).is_empty());
    }
    server.running.join().unwrap();
    assert!(!path.0.exists(), "the file is left");
}

fn a_stale_socket_file_is_replaced(config: Config) {
    let path = SocketPath::new();
    drop(UnixListener::bind(&path.0).unwrap());
    assert!(path.0.exists(), "what a crash leaves behind");
    let _server = serve_at(
        two(config),
        &path.addr(),
        &ListenOptions::default(),
        Setting::echo,
    );
    echo(&mut path.client(), b"hello");
}

fn a_socket_file_in_use_is_an_error(config: Config) {
    let path = SocketPath::new();
    let server = serve_at(
        config.clone(),
        &path.addr(),
        &ListenOptions::default(),
        Setting::echo,
    );
    let mut engine = Engine::new(config).unwrap();
    let error = engine
        .listen(&path.addr(), &ListenOptions::default())
        .unwrap_err();
    assert!(error.to_string().contains(path.0.to_str().unwrap()), "{error}");
    drop(engine);
    echo(&mut path.client(), b"the first one has it still");
    server.running.stop();
}

fn an_abstract_name_serves(config: Config) {
    let name = format!(
        "ringmain-addresses-{}-{:?}",
        std::process::id(),
        std::thread::current().id()
    );
    let addr = Addr::Abstract(name.clone().into_bytes());
    let server = serve_at(two(config), &addr, &ListenOptions::default(), Setting::echo);
    let to = UnixAddr::from_abstract_name(name.as_bytes()).unwrap();
    for _ in 0..20 {
        let mut client = UnixStream::connect_addr(&to).unwrap();
        echo(&mut client, b"hello");
    }
    server.running.shut_down();
    server.running.join().unwrap();
    UnixStream::connect_addr(&to).expect_err("nobody listens");
}

fn several_listeners_tell_their_number(config: Config) {
    struct Number;
    impl ringmain_engine::Handler for Number {
        type Conn = ();
        type Mail = ();
        fn open(&mut self, conn: ringmain_engine::Conn<'_>, via: ringmain_engine::Via) -> Option<()> {
            let ringmain_engine::Via::Listener(number) = via else {
                panic!("accepted");
            };
            conn.write(&[b'0' + number as u8]).unwrap();
            Some(())
        }
        fn data(&mut self, _: ringmain_engine::Conn<'_>, (): &mut (), bytes: &mut [u8]) -> usize {
            bytes.len()
        }
    }
    let mut engine = Engine::new(two(config)).unwrap();
    let path = SocketPath::new();
    let options = ListenOptions::default();
    let first = engine.listen(&"127.0.0.1:0".parse().unwrap(), &options).unwrap();
    engine.listen(&path.addr(), &options).unwrap();
    let third = engine.listen(&"127.0.0.1:0".parse().unwrap(), &options).unwrap();
    let running = engine.start(|_| Number).unwrap();
    assert_eq!(running.addrs(), [first.clone(), path.addr(), third.clone()]);
    let mut number = [0];
    for (addr, expected) in [(first, b'0'), (third, b'2')] {
        let Addr::Inet(addr) = addr else {
            panic!("as it was asked for")
        };
        client(addr).read_exact(&mut number).unwrap();
        assert_eq!(number[0], expected);
    }
    path.client().read_exact(&mut number).unwrap();
    assert_eq!(number[0], b'1');
    running.stop();
    running.join().unwrap();
}

fn a_port_in_use_is_an_error(config: Config) {
    let first = scripted::serve(two(config.clone()), Setting::echo);
    let mut engine = Engine::new(two(config)).unwrap();
    let addr = Addr::Inet(first.addr);
    let error = engine.listen(&addr, &ListenOptions::default()).unwrap_err();
    assert!(
        error.to_string().contains(&first.addr.port().to_string()),
        "{error}"
    );
    let mut client = first.client();
    client.write_all(b"x").unwrap();
    client.read_exact(&mut [0]).unwrap();
}
