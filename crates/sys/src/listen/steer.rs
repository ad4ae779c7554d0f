//! Steering of connections to the listener whose worker runs on the CPU that received them.
//!
//! Whether that is a good idea on this host is `steering`'s to say.

use std::io;
use std::os::fd::AsFd;

use crate::socket;

/// Attaches a program to the `SO_REUSEPORT` group of `fd`: a connection that arrives on CPU `c` goes to the
/// listener that joined the group as number `c mod workers`. One call serves the whole group.
///
/// # Errors
/// As `setsockopt(2)`; `InvalidInput` without workers; `EINVAL` if `fd` is not in a group.
pub fn attach_cpu_steering(fd: impl AsFd, workers: u32) -> io::Result<()> {
    if workers == 0 {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "steering needs a worker",
        ));
    }
    let op = |code: u32, k: u32| libc::sock_filter {
        code: code as u16,
        jt: 0,
        jf: 0,
        k,
    };
    let mut program = [
        // A = the CPU that runs this
        op(
            libc::BPF_LD | libc::BPF_W | libc::BPF_ABS,
            (libc::SKF_AD_OFF + libc::SKF_AD_CPU) as u32,
        ),
        // A = A mod workers
        op(libc::BPF_ALU | libc::BPF_MOD | libc::BPF_K, workers),
        // the listener's number is A
        op(libc::BPF_RET | libc::BPF_A, 0),
    ];
    let program = libc::sock_fprog {
        len: program.len() as u16,
        filter: program.as_mut_ptr(),
    };
    socket::set_raw(fd, libc::SOL_SOCKET, libc::SO_ATTACH_REUSEPORT_CBPF, &program)
}
