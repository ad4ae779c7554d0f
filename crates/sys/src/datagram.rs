//! UDP sockets: their options, and messages with control data (the local address of a datagram, the size of segments).
//!
//! Every descriptor made here is non-blocking and closed on exec. Knows nothing of readiness or completion.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use rustix::net::{SocketType, sockopt};

use crate::addr::{Addr, SockAddr};
use crate::socket::{self, set_int};

/// Bytes of control data that a received datagram may have: a local address of IPv6, and the size of segments.
pub const CONTROL_BYTES: usize = cmsg_space(IPV6_PKTINFO_BYTES) + cmsg_space(size_of::<i32>());

/// Most segments of one send (`UDP_MAX_SEGMENTS` of Linux before 6.9).
pub const MAX_SEGMENTS: usize = 64;

const IPV4_PKTINFO_BYTES: usize = size_of::<libc::in_pktinfo>();
const IPV6_PKTINFO_BYTES: usize = size_of::<libc::in6_pktinfo>();
const HEADER_BYTES: usize = size_of::<libc::cmsghdr>();
const WORD: usize = size_of::<usize>();

const fn cmsg_space(bytes: usize) -> usize {
    HEADER_BYTES + bytes.next_multiple_of(WORD)
}

/// The options of a UDP socket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DatagramOptions {
    /// Lets several sockets of this user share the address (`SO_REUSEPORT`): the kernel distributes datagrams by a hash of source and
    /// destination.
    pub shared: bool,
    /// Reports the local address that each datagram was sent to ([`DatagramInfo::local`]).
    pub local_address: bool,
    /// Lets the kernel join datagrams of one sender (`UDP_GRO`), see [`DatagramInfo::segment`]. Ignored where the kernel does not support it.
    pub coalesce: bool,
}

/// The facts about a received datagram besides its sender.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DatagramInfo {
    /// The local address that the datagram was sent to. `None` unless [`DatagramOptions::local_address`] is set.
    pub local: Option<IpAddr>,
    /// The bytes are several datagrams of this size each, of which the last may be shorter. `None`: one datagram. Only with
    /// [`DatagramOptions::coalesce`].
    pub segment: Option<u16>,
}

/// Opens a UDP socket bound to `local`; port 0 lets the kernel choose. `[::]` receives IPv4, too, from IPv4-mapped addresses.
///
/// # Errors
/// As `socket(2)`, `setsockopt(2)` and `bind(2)`.
pub fn open(local: SocketAddr, options: DatagramOptions) -> io::Result<OwnedFd> {
    let addr = Addr::Inet(local);
    let fd = socket::open(&addr, SocketType::DGRAM)?;
    if let SocketAddr::V6(v6) = &local {
        sockopt::set_ipv6_v6only(&fd, !v6.ip().is_unspecified())?;
    }
    if options.shared {
        sockopt::set_socket_reuseport(&fd, true)?;
    }
    if options.local_address {
        match local {
            SocketAddr::V4(_) => set_int(&fd, libc::IPPROTO_IP, libc::IP_PKTINFO, 1)?,
            SocketAddr::V6(_) => set_int(&fd, libc::IPPROTO_IPV6, libc::IPV6_RECVPKTINFO, 1)?,
        }
    }
    if options.coalesce {
        // Linux 5.0. Without it each datagram is received alone.
        let _ = set_int(&fd, libc::SOL_UDP, libc::UDP_GRO, 1);
    }
    rustix::net::bind(&fd, &addr.to_sockaddr()?)?;
    Ok(fd)
}

/// Control data, aligned as the kernel requires it.
#[repr(align(8))]
struct ControlBuffer([u8; CONTROL_BYTES]);

/// Receives one datagram, or several that were joined; bytes beyond `buffer` are lost.
///
/// # Errors
/// As `recvmsg(2)`: `EAGAIN` when none waits.
pub fn recv_message(
    fd: impl AsFd,
    buffer: &mut [u8],
) -> io::Result<(usize, Option<SocketAddr>, DatagramInfo)> {
    let mut vector = libc::iovec {
        iov_base: buffer.as_mut_ptr().cast(),
        iov_len: buffer.len(),
    };
    let mut control = ControlBuffer([0; CONTROL_BYTES]);
    // SAFETY: all-zero is a valid address storage and a valid msghdr (null pointers, zero lengths).
    let (mut name, mut message): (libc::sockaddr_storage, libc::msghdr) =
        unsafe { (std::mem::zeroed(), std::mem::zeroed()) };
    message.msg_name = std::ptr::from_mut(&mut name).cast();
    message.msg_namelen = size_of::<libc::sockaddr_storage>() as u32;
    message.msg_iov = std::ptr::from_mut(&mut vector);
    message.msg_iovlen = 1;
    message.msg_control = control.0.as_mut_ptr().cast();
    message.msg_controllen = CONTROL_BYTES as _;
    let count = loop {
        // SAFETY: the message points to memory that is valid and exclusive for the call, with its lengths.
        let count = unsafe { libc::recvmsg(fd.as_fd().as_raw_fd(), &mut message, 0) };
        match usize::try_from(count) {
            Ok(count) => break count,
            Err(_) => {
                let error = io::Error::last_os_error();
                if error.kind() != io::ErrorKind::Interrupted {
                    return Err(error);
                }
            }
        }
    };
    let from = match SockAddr::from_raw(name, message.msg_namelen).to_addr() {
        Some(Addr::Inet(from)) => Some(from),
        _ => None,
    };
    let length: usize = message.msg_controllen as _;
    let info = DatagramInfo::parse(&control.0[..length.min(CONTROL_BYTES)]);
    Ok((count, from, info))
}

/// Sends one datagram, or several as [`SendControl`] says.
///
/// # Errors
/// As `sendmsg(2)`: `EAGAIN` when the socket's buffer is full, `EINVAL` for a source that is no address of this host.
pub fn send_message(fd: impl AsFd, data: &[u8], to: SocketAddr, control: &SendControl) -> io::Result<usize> {
    let name = Addr::Inet(to).to_sockaddr()?;
    let mut vector = libc::iovec {
        iov_base: data.as_ptr().cast_mut().cast(),
        iov_len: data.len(),
    };
    // SAFETY: all-zero is a valid msghdr.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_name = name.as_ptr().cast_mut().cast();
    message.msg_namelen = name.len();
    message.msg_iov = std::ptr::from_mut(&mut vector);
    message.msg_iovlen = 1;
    if control.len > 0 {
        message.msg_control = control.words.as_ptr().cast_mut().cast();
        message.msg_controllen = control.len as _;
    }
    loop {
        // SAFETY: the message points to memory that is valid for the call; the kernel only reads it.
        let count = unsafe { libc::sendmsg(fd.as_fd().as_raw_fd(), &message, libc::MSG_NOSIGNAL) };
        match usize::try_from(count) {
            Ok(count) => return Ok(count),
            Err(_) => {
                let error = io::Error::last_os_error();
                if error.kind() != io::ErrorKind::Interrupted {
                    return Err(error);
                }
            }
        }
    }
}

impl DatagramInfo {
    /// Reads control messages, as the kernel lays them out; unknown and truncated ones are skipped.
    #[must_use]
    pub fn parse(mut control: &[u8]) -> DatagramInfo {
        let mut info = DatagramInfo::default();
        while let Some((length, level, kind)) = parse_header(control) {
            if length < HEADER_BYTES || length > control.len() {
                break;
            }
            let data = &control[HEADER_BYTES..length];
            match (level, kind) {
                // `ipi_spec_dst`, the local address: for a broadcast another than the destination.
                (libc::IPPROTO_IP, libc::IP_PKTINFO) => {
                    info.local = data
                        .get(4..8)
                        .and_then(|bytes| Some(IpAddr::V4(Ipv4Addr::from(<[u8; 4]>::try_from(bytes).ok()?))));
                }
                (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO) => {
                    let address = data
                        .get(..16)
                        .and_then(|bytes| Some(Ipv6Addr::from(<[u8; 16]>::try_from(bytes).ok()?)));
                    // No reply can be sent from a multicast address.
                    info.local = address.filter(|address| !address.is_multicast()).map(IpAddr::V6);
                }
                (libc::SOL_UDP, libc::UDP_GRO) => {
                    let size = data
                        .get(..4)
                        .and_then(|bytes| Some(i32::from_ne_bytes(bytes.try_into().ok()?)));
                    info.segment = size
                        .and_then(|size| u16::try_from(size).ok())
                        .filter(|size| *size > 0);
                }
                _ => {}
            }
            control = control.get(length.next_multiple_of(WORD)..).unwrap_or_default();
        }
        info
    }
}

fn parse_header(control: &[u8]) -> Option<(usize, i32, i32)> {
    let (length, rest) = control.split_first_chunk::<WORD>()?;
    let (level, rest) = rest.split_first_chunk::<4>()?;
    let (kind, _) = rest.split_first_chunk::<4>()?;
    Some((
        usize::from_ne_bytes(*length),
        i32::from_ne_bytes(*level),
        i32::from_ne_bytes(*kind),
    ))
}

/// The control data of a send.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SendControl {
    words: [usize; CONTROL_BYTES / WORD],
    len: usize,
}

impl SendControl {
    /// Builds control data. `source`: the local address to send from. `segment`: the bytes are sent as datagrams of this size each
    /// (`UDP_SEGMENT`), at most [`MAX_SEGMENTS`].
    #[must_use]
    pub fn new(to: SocketAddr, source: Option<IpAddr>, segment: Option<u16>) -> SendControl {
        let mut control = SendControl::default();
        match (to, source) {
            (SocketAddr::V4(_), Some(IpAddr::V4(source))) => {
                let mut info = [0; IPV4_PKTINFO_BYTES];
                info[4..8].copy_from_slice(&source.octets());
                control.push(libc::IPPROTO_IP, libc::IP_PKTINFO, &info);
            }
            (SocketAddr::V6(_), Some(source)) => {
                let source = match source {
                    IpAddr::V6(source) => source,
                    IpAddr::V4(source) => source.to_ipv6_mapped(),
                };
                let mut info = [0; IPV6_PKTINFO_BYTES];
                info[..16].copy_from_slice(&source.octets());
                control.push(libc::IPPROTO_IPV6, libc::IPV6_PKTINFO, &info);
            }
            // An IPv4 destination has no IPv6 source: the kernel chooses.
            (SocketAddr::V4(_), Some(IpAddr::V6(_))) | (_, None) => {}
        }
        if let Some(segment) = segment {
            control.push(libc::SOL_UDP, libc::UDP_SEGMENT, &segment.to_ne_bytes());
        }
        control
    }

    /// Returns the control data as the kernel reads it.
    #[must_use]
    pub fn as_ptr(&self) -> *const libc::c_void {
        self.words.as_ptr().cast()
    }

    /// Returns its length in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns whether there is no control data.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    fn push(&mut self, level: i32, kind: i32, data: &[u8]) {
        let mut bytes = [0; CONTROL_BYTES];
        let length = HEADER_BYTES + data.len();
        bytes[..WORD].copy_from_slice(&length.to_ne_bytes());
        bytes[WORD..WORD + 4].copy_from_slice(&level.to_ne_bytes());
        bytes[WORD + 4..HEADER_BYTES].copy_from_slice(&kind.to_ne_bytes());
        bytes[HEADER_BYTES..length].copy_from_slice(data);
        let space = cmsg_space(data.len());
        let start = self.len / WORD;
        for (word, bytes) in self.words[start..]
            .iter_mut()
            .zip(bytes[..space].chunks_exact(WORD))
        {
            *word = usize::from_ne_bytes(bytes.try_into().expect("a chunk of a word's size"));
        }
        self.len += space;
    }
}

#[cfg(test)]
mod tests;
