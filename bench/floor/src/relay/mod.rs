//! The bare relay: the least that a reverse proxy can do, one thread, a request as it came to an upstream connection that
//! is idle, the last one used first, the answer back by its Content-Length.
//!
//! Takes heads without bodies, one whole request a receive, an answer's head in one receive. What is anything else ends the
//! connection: a bound, not a proxy.

pub mod epoll;
pub mod uring;

const HEAD_END: &[u8] = b"\r\n\r\n";
const LENGTH: &[u8] = b"\r\nContent-Length: ";

/// Whether these bytes are one head and nothing else.
#[inline]
fn is_one_head(data: &[u8]) -> bool {
    data.ends_with(HEAD_END) && memchr::memmem::find(&data[..data.len() - 1], HEAD_END).is_none()
}

/// The whole length of the answer whose head begins here.
#[inline]
fn answer_length(data: &[u8]) -> Option<usize> {
    let head = memchr::memmem::find(data, HEAD_END)? + HEAD_END.len();
    let at = memchr::memmem::find(&data[..head], LENGTH)? + LENGTH.len();
    let digits = data[at..].iter().take_while(|byte| byte.is_ascii_digit());
    Some(head + digits.fold(0, |sum, digit| sum * 10 + usize::from(digit - b'0')))
}

/// A connection to the upstream at 127.0.0.1:`port`. Panics if nobody listens.
fn connect(port: u16) -> i32 {
    let one: i32 = 1;
    // SAFETY: the address and the option value live across the calls that read them.
    unsafe {
        let fd = libc::socket(libc::AF_INET, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0);
        libc::setsockopt(
            fd,
            libc::IPPROTO_TCP,
            libc::TCP_NODELAY,
            (&raw const one).cast(),
            4,
        );
        let address = crate::address(port);
        let connected = libc::connect(fd, (&raw const address).cast(), size_of_val(&address) as u32);
        assert_eq!(
            connected,
            0,
            "connect to 127.0.0.1:{port}: {}",
            std::io::Error::last_os_error()
        );
        fd
    }
}
