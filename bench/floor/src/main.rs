//! The floor: what a one-thread echo or HTTP server must cost on this kernel.
//!
//! Owns nothing but a listener and two bare loops. No limits, no timers, no errors worth
//! the name: it exists to be measured against, and must not grow features, because every
//! one of them would raise the floor.
//!
//! Usage: `PORT=n floor uring|epoll` echoes; `uring-http|epoll-http` answers every head with
//! one constant response; `uring-bare|epoll-bare` parses requests and answers by path;
//! `UPSTREAM=n uring-relay|epoll-relay` is a bare reverse proxy; `PUBLISH=n uring-push [RINGS]` sends the publications of that
//! port to every subscriber.
//! A fault of the set-up ends the process by a panic.

mod app;
mod epoll;
mod push;
mod relay;
mod uring;

/// A listener on 127.0.0.1:`port`. Accepted sockets inherit TCP_NODELAY. The kernel spreads connections over listeners that
/// share a port.
fn listen(port: u16, is_shared: bool) -> i32 {
    let one: i32 = 1;
    let one_ptr: *const libc::c_void = (&raw const one).cast();
    // SAFETY: the address and the option value live across the calls that read them.
    unsafe {
        let fd = libc::socket(libc::AF_INET, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0);
        libc::setsockopt(fd, libc::SOL_SOCKET, libc::SO_REUSEADDR, one_ptr, 4);
        if is_shared {
            libc::setsockopt(fd, libc::SOL_SOCKET, libc::SO_REUSEPORT, one_ptr, 4);
        }
        libc::setsockopt(fd, libc::IPPROTO_TCP, libc::TCP_NODELAY, one_ptr, 4);
        let address = address(port);
        let length = size_of_val(&address) as u32;
        let bound = libc::bind(fd, (&raw const address).cast(), length);
        assert_eq!(
            bound,
            0,
            "bind 127.0.0.1:{port}: {}",
            std::io::Error::last_os_error()
        );
        assert_eq!(libc::listen(fd, 4096), 0);
        fd
    }
}

/// 127.0.0.1:`port`.
fn address(port: u16) -> libc::sockaddr_in {
    // SAFETY: it is plain numbers.
    let mut address: libc::sockaddr_in = unsafe { std::mem::zeroed() };
    address.sin_family = libc::AF_INET as u16;
    address.sin_port = port.to_be();
    address.sin_addr.s_addr = u32::from_ne_bytes([127, 0, 0, 1]);
    address
}

/// A port in the environment.
fn port(name: &str) -> u16 {
    let found = std::env::var(name).ok().and_then(|text| text.parse().ok());
    found.unwrap_or_else(|| panic!("{name}: expected a port number in the environment"))
}

/// Descriptors that the process may have: as many slots has the largest table of a ring.
fn descriptors() -> u32 {
    // SAFETY: the limit lives across the call that writes it.
    let limit = unsafe {
        let mut limit: libc::rlimit = std::mem::zeroed();
        assert_eq!(libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit), 0);
        limit.rlim_cur
    };
    limit.min(1 << 20) as u32
}

fn main() {
    let mode = std::env::args().nth(1);
    let is_shared = mode.as_deref() == Some("uring-push");
    let listener = listen(port("PORT"), is_shared);
    match mode.as_deref() {
        Some("uring") => uring::run(listener, app::Echo),
        Some("epoll") => epoll::run(listener, app::Echo),
        Some("uring-http") => uring::run(listener, app::Constant::new()),
        Some("epoll-http") => epoll::run(listener, app::Constant::new()),
        Some("uring-bare") => uring::run(listener, app::Bare::default()),
        Some("epoll-bare") => epoll::run(listener, app::Bare::default()),
        Some("uring-relay") => relay::uring::run(listener, port("UPSTREAM")),
        Some("epoll-relay") => relay::epoll::run(listener, port("UPSTREAM")),
        Some("uring-push") => {
            let rings = std::env::args()
                .nth(2)
                .map_or(1, |text| text.parse().expect("a number of rings"));
            let more = (1..rings).map(|_| listen(port("PORT"), true));
            let listeners = std::iter::once(listener).chain(more).collect();
            push::run(listeners, listen(port("PUBLISH"), false), descriptors())
        }
        other => panic!(
            "expected uring or epoll, alone or with -http, -bare or -relay, or uring-push, found {other:?}"
        ),
    }
}
