//! Passing descriptors over a Unix socket (`SCM_RIGHTS`).

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::cmsg_space;
use rustix::io::retry_on_intr;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};

/// The most descriptors in one message.
pub const FDS_LIMIT: usize = 64;

/// Sends `data` with duplicates of `fds`; returns how many bytes the kernel took. The descriptors go with
/// the first byte.
///
/// # Errors
/// As `sendmsg(2)`: `EAGAIN` when the socket's buffer is full. `InvalidInput` beyond [`FDS_LIMIT`] descriptors
/// or without data, for then a stream would carry nothing.
pub fn send_fds(socket: impl AsFd, fds: &[BorrowedFd<'_>], data: &[u8]) -> io::Result<usize> {
    if fds.len() > FDS_LIMIT || data.is_empty() {
        let text = format!(
            "expected at most {FDS_LIMIT} descriptors and at least one byte; found {} and {}",
            fds.len(),
            data.len()
        );
        return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
    }
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(FDS_LIMIT))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() {
        let fits = control.push(SendAncillaryMessage::ScmRights(fds));
        debug_assert!(fits, "the space is made for the limit");
    }
    let (socket, data) = (socket.as_fd(), [IoSlice::new(data)]);
    Ok(retry_on_intr(|| {
        sendmsg(socket, &data, &mut control, SendFlags::NOSIGNAL)
    })?)
}

/// Receives bytes into `buffer` and the descriptors that came with them, which are closed on exec.
/// No bytes mean the end of the stream.
///
/// # Errors
/// As `recvmsg(2)`: `EAGAIN` when nothing is there. `InvalidData` if the kernel had to drop descriptors: more than
/// [`FDS_LIMIT`] were sent, or this process's table is full; those that did arrive are closed.
pub fn recv_fds(socket: impl AsFd, buffer: &mut [u8]) -> io::Result<(usize, Vec<OwnedFd>)> {
    let socket = socket.as_fd();
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(FDS_LIMIT))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let message = retry_on_intr(|| {
        let mut data = [IoSliceMut::new(buffer)];
        recvmsg(socket, &mut data, &mut control, RecvFlags::CMSG_CLOEXEC)
    })?;
    let mut fds = Vec::new();
    for part in control.drain() {
        if let RecvAncillaryMessage::ScmRights(received) = part {
            fds.extend(received);
        }
    }
    if message.flags.contains(ReturnFlags::CTRUNC) {
        let text = format!(
            "descriptors were lost on the way: more than {FDS_LIMIT} were sent, or the limit of open files \
             is reached"
        );
        return Err(io::Error::new(io::ErrorKind::InvalidData, text));
    }
    Ok((message.bytes, fds))
}
