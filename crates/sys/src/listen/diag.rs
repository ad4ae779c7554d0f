//! Asks the kernel which file a Unix socket is bound to (`unix_diag(7)` over netlink).
//!
//! `fstat` on a socket tells nothing of the file, and an inherited listener brings no memory of its bind.

use std::fs::Metadata;
use std::io;
use std::os::fd::{AsFd, FromRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;

use rustix::net::{RecvFlags, SendFlags};

const SOCK_DIAG_BY_FAMILY: u16 = 20;
const NETLINK_SOCK_DIAG: i32 = 4;
const UDIAG_SHOW_VFS: u32 = 2;
const UNIX_DIAG_VFS: u16 = 1;
/// `nlmsghdr`, then `unix_diag_msg`.
const HEADER: usize = 16;
const MESSAGE: usize = 16;

/// A file's identity as far as `unix_diag` tells it: 32 bits of the inode number, and the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct File {
    inode: u32,
    device: u32,
}

impl File {
    pub(super) fn of(metadata: &Metadata) -> File {
        let device = metadata.dev();
        // The kernel's own encoding: twelve bits of major number above twenty of minor.
        let device = (libc::major(device) << 20) | (libc::minor(device) & 0xf_ffff);
        File {
            inode: metadata.ino() as u32,
            device,
        }
    }
}

/// The file that a Unix socket is bound to; `None` if it is unbound or abstract.
pub(super) fn bound_file(socket: impl AsFd) -> io::Result<Option<File>> {
    let inode = rustix::fs::fstat(socket)?.st_ino as u32;
    let diag = open()?;
    rustix::net::send(&diag, &request(inode), SendFlags::empty())?;
    let mut reply = [0; 1024];
    let (length, _) = rustix::net::recv(&diag, &mut reply[..], RecvFlags::empty())?;
    parse(&reply[..length])
}

fn open() -> io::Result<OwnedFd> {
    let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC;
    // SAFETY: takes no pointers.
    let fd = unsafe { libc::socket(libc::AF_NETLINK, kind, NETLINK_SOCK_DIAG) };
    if fd < 0 {
        return Err(unsupported(io::Error::last_os_error()));
    }
    // SAFETY: the descriptor is new and nobody else knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// `nlmsghdr` and `unix_diag_req` for the one socket with this inode.
fn request(inode: u32) -> [u8; HEADER + 24] {
    let mut out = [0; HEADER + 24];
    let length = out.len() as u32;
    let mut put = |at: usize, bytes: &[u8]| out[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, &length.to_ne_bytes());
    put(4, &SOCK_DIAG_BY_FAMILY.to_ne_bytes());
    put(6, &(libc::NLM_F_REQUEST as u16).to_ne_bytes());
    put(8, &1u32.to_ne_bytes());
    put(HEADER, &[libc::AF_UNIX as u8]);
    // All states, this inode, show the file, any cookie.
    put(HEADER + 4, &u32::MAX.to_ne_bytes());
    put(HEADER + 8, &inode.to_ne_bytes());
    put(HEADER + 12, &UDIAG_SHOW_VFS.to_ne_bytes());
    put(HEADER + 16, &u64::MAX.to_ne_bytes());
    out
}

fn parse(reply: &[u8]) -> io::Result<Option<File>> {
    let short = || io::Error::new(io::ErrorKind::InvalidData, "unix_diag sent a cut reply");
    let kind = u16_at(reply, 4).ok_or_else(short)?;
    if i32::from(kind) == libc::NLMSG_ERROR {
        let errno = u32_at(reply, HEADER).ok_or_else(short)? as i32;
        return Err(unsupported(io::Error::from_raw_os_error(-errno)));
    }
    let mut rest = reply.get(HEADER + MESSAGE..).ok_or_else(short)?;
    while let (Some(length), Some(kind)) = (u16_at(rest, 0), u16_at(rest, 2)) {
        if kind == UNIX_DIAG_VFS {
            let inode = u32_at(rest, 4).ok_or_else(short)?;
            let device = u32_at(rest, 8).ok_or_else(short)?;
            return Ok(Some(File { inode, device }));
        }
        // Attributes are padded to four bytes.
        rest = rest
            .get(usize::from(length.max(4)).next_multiple_of(4)..)
            .unwrap_or(&[]);
    }
    Ok(None)
}

fn unsupported(error: io::Error) -> io::Error {
    let text = format!("the kernel does not tell the file of a Unix socket (unix_diag): {error}");
    io::Error::new(io::ErrorKind::Unsupported, text)
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}
