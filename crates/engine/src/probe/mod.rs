//! Finds out which back-end works here, by trying it under the live seccomp filter.
//!
//! Decides once for the process. Falls back only where io_uring is not to be had
//! (`ENOSYS`, `EPERM`, `EINVAL`), never for want of memory or descriptors.

use std::fmt;
use std::io;
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

use io_uring::{IoUring, opcode};
use ringmain_sys::addr::Addr;
use ringmain_sys::sysctl;

use crate::backend::uring::{Group, Uring, UringConfig};
use crate::backend::{Backend, Completion, PoolFull, Slot, Socket, SocketOption};
use crate::config::{Choice, Config};
use crate::features::{FEATURES, Feature, Features};

/// What was chosen and why.
#[derive(Clone, Debug)]
pub struct Selection {
    /// Whether it is io_uring; else epoll.
    pub uring: bool,
    /// What io_uring may use; empty on epoll.
    pub features: Features,
    /// Why io_uring was passed over, if it was.
    pub why_not: Option<Unavailable>,
}

/// Why io_uring cannot be used here, and what to do about it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("io_uring is not available: {reason}; {remedy}")]
pub struct Unavailable {
    /// What was found.
    pub reason: String,
    /// What to change.
    pub remedy: String,
}

/// Why no back-end could be chosen.
#[derive(Debug, thiserror::Error)]
pub enum ProbeError {
    /// io_uring was asked for and is not available.
    #[error(transparent)]
    Unavailable(#[from] Unavailable),
    /// The probe itself ran out of something; falling back would only hide it.
    #[error("io_uring could not be tried: {0}; raise the limit (memory, `ulimit -n`) or choose epoll")]
    Resources(io::Error),
    /// A feature that was asked for does not work here.
    #[error("{feature} was asked for and does not work here: {error}; {remedy}")]
    Feature {
        /// Its name.
        feature: &'static str,
        /// What the kernel said.
        error: io::Error,
        /// What to do.
        remedy: &'static str,
    },
}

impl fmt::Display for Selection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.uring {
            write!(f, "engine uring ({})", self.features)
        } else {
            f.write_str("engine epoll")
        }
    }
}

/// Chooses the back-end that `config` asks for.
///
/// # Errors
/// io_uring was forced, or one of its options asked for, and it does not work.
pub fn probe(config: &Config) -> Result<Selection, ProbeError> {
    let epoll = |why_not| Selection {
        uring: false,
        features: Features::none(),
        why_not,
    };
    if config.engine == Choice::Epoll {
        return Ok(epoll(None));
    }
    // In a thread of its own: the kernel ends a ring later, in the thread that had it, and that thread's system calls then
    // fail with `EINTR`. Of this one that is over.
    let tried = std::thread::scope(|scope| {
        let trial = std::thread::Builder::new().name("probe".to_owned());
        match trial.spawn_scoped(scope, || try_uring(config)) {
            Ok(trial) => trial
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
            Err(error) => Err(ProbeError::Resources(error)),
        }
    });
    match tried {
        Ok(features) => Ok(Selection {
            uring: true,
            features,
            why_not: None,
        }),
        Err(ProbeError::Unavailable(why)) if config.engine == Choice::Auto => Ok(epoll(Some(why))),
        Err(error) => Err(error),
    }
}

fn try_uring(config: &Config) -> Result<Features, ProbeError> {
    nop()?;
    let without = config.without;
    let mut features = Features::none();
    for (feature, name) in FEATURES {
        if without.has(feature) || !wanted(config, feature) {
            log::debug!("io_uring feature {name}: switched off or not asked for");
            continue;
        }
        let outcome = match feature {
            Feature::DirectDescriptors => direct_descriptors(),
            Feature::MessageRing => message_ring(),
            Feature::MultishotAccept => multishot_accept(),
            Feature::MultishotRecv => multishot_recv(),
            Feature::RegisteredRing => registered_ring(),
            Feature::ZeroCopySend => supported(opcode::SendZc::CODE),
            Feature::BusyPoll => busy_poll(),
        };
        match outcome {
            Ok(()) => features = features.with(feature),
            Err(error) if is_shortage(&error) => return Err(ProbeError::Resources(error)),
            Err(error) => log::debug!("io_uring feature {name}: does not work here: {error}"),
        }
    }
    check_options(config, features)?;
    Ok(features)
}

/// Two features are used only by those who ask for them.
fn wanted(config: &Config, feature: Feature) -> bool {
    match feature {
        Feature::ZeroCopySend => config.zero_copy.is_some(),
        Feature::BusyPoll => config.busy_poll.is_some(),
        by_default => Features::by_default().has(by_default),
    }
}

/// Options that somebody asked for by name must work or say why they do not.
fn check_options(config: &Config, features: Features) -> Result<(), ProbeError> {
    if let Some(idle) = config.sqpoll {
        let sqpoll = UringConfig {
            sqpoll: Some(idle),
            ..small(Features::none())
        };
        build(sqpoll).map_err(|error| ProbeError::Feature {
            feature: "SQPOLL",
            error,
            remedy: "run with CAP_SYS_NICE on old kernels, or drop --sqpoll",
        })?;
    }
    let unsupported = || io::Error::from(io::ErrorKind::Unsupported);
    if config.busy_poll.is_some() && !features.has(Feature::BusyPoll) {
        let remedy = "it needs Linux 6.9 with CONFIG_NET_RX_BUSY_POLL; drop --busy-poll";
        return Err(ProbeError::Feature {
            feature: "busy polling",
            error: unsupported(),
            remedy,
        });
    }
    if config.zero_copy.is_some() && !features.has(Feature::ZeroCopySend) {
        let remedy = "it needs Linux 6.1 and must not be switched off; drop --zero-copy";
        return Err(ProbeError::Feature {
            feature: "zero-copy send",
            error: unsupported(),
            remedy,
        });
    }
    Ok(())
}

/// One no-operation through a ring with the flags of the floor, Linux 6.1.
fn nop() -> Result<(), ProbeError> {
    let ring = IoUring::builder()
        .setup_single_issuer()
        .setup_defer_taskrun()
        .build(8);
    let mut ring: IoUring = ring.map_err(classify)?;
    // SAFETY: a no-operation points to no memory.
    unsafe { ring.submission().push(&opcode::Nop::new().build()) }.expect("a new queue has room");
    ring.submit_and_wait(1).map_err(classify)?;
    match ring.completion().next() {
        Some(entry) if entry.result() == 0 => {}
        Some(entry) => return Err(classify(io::Error::from_raw_os_error(-entry.result()))),
        None => return Err(classify(io::Error::from_raw_os_error(libc::EINVAL))),
    }
    drop(ring);
    // The buffer ring belongs to the floor too.
    build(small(Features::none())).map(drop).map_err(classify)
}

fn classify(error: io::Error) -> ProbeError {
    let unavailable = |reason: &str, remedy: &str| {
        ProbeError::Unavailable(Unavailable {
            reason: reason.into(),
            remedy: remedy.into(),
        })
    };
    match error.raw_os_error() {
        Some(libc::EPERM) => match sysctl::read("kernel.io_uring_disabled").as_deref().map(str::trim) {
            Some("2") => unavailable(
                "it is disabled by the sysctl kernel.io_uring_disabled=2",
                "set it to 0 with `sysctl -w kernel.io_uring_disabled=0`, or use --engine epoll",
            ),
            Some("1") => unavailable(
                "the sysctl kernel.io_uring_disabled=1 reserves it for CAP_SYS_ADMIN and one group",
                "join the group of kernel.io_uring_group, set kernel.io_uring_disabled=0, or use --engine epoll",
            ),
            _ => unavailable(
                "a seccomp filter denies it (EPERM), as the default profiles of Docker and containerd do",
                "run the container with a seccomp profile that allows io_uring_setup, io_uring_enter and \
                 io_uring_register, as `ringmain tune export --as seccomp` writes it \
                 (docs/how-to/container.md), or use --engine epoll",
            ),
        },
        Some(libc::ENOSYS) => unavailable(
            "the kernel has no io_uring or a seccomp filter hides it (ENOSYS), as Podman's profile does",
            "use a kernel with CONFIG_IO_URING, or run the container with the seccomp profile that \
             `ringmain tune export --as seccomp` writes (docs/how-to/container.md), or use --engine epoll",
        ),
        Some(libc::EINVAL) => unavailable(
            "the kernel is too old: SINGLE_ISSUER, DEFER_TASKRUN and buffer rings are refused (EINVAL)",
            "use Linux 6.1 or newer, or --engine epoll",
        ),
        _ => ProbeError::Resources(error),
    }
}

fn is_shortage(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::ENOMEM | libc::EMFILE | libc::ENFILE)
    )
}

fn small(features: Features) -> UringConfig {
    UringConfig {
        submission_entries: 16,
        completion_entries: 64,
        receive_buffers: 4,
        receive_buffer_bytes: 4096,
        table: 8,
        features,
        ..UringConfig::default()
    }
}

fn build(config: UringConfig) -> io::Result<Uring> {
    build_in(config, Group::new(1)?, 0)
}

fn build_in(config: UringConfig, group: Arc<Group>, index: usize) -> io::Result<Uring> {
    Uring::new(config, group, index, Arc::new(|job| Err(PoolFull(job))))
}

const SLOT: Slot = Slot {
    index: 0,
    generation: 0,
};
const PATIENCE: Duration = Duration::from_secs(1);

fn unexpected(what: &str) -> io::Error {
    io::Error::other(format!("the self-test saw {what}"))
}

/// The next completion, or an error after a second without one.
fn next(ring: &mut Uring) -> io::Result<Completion> {
    for _ in 0..8 {
        if let Some(completion) = ring.next() {
            return Ok(completion);
        }
        ring.wait(Some(PATIENCE))?;
    }
    Err(unexpected("no completion"))
}

fn receive(ring: &mut Uring, socket: Socket, peer: &UnixStream) -> io::Result<()> {
    ring.recv(SLOT, socket, false);
    for _ in 0..2 {
        io::Write::write_all(&mut &*peer, b"probe")?;
        match next(ring)? {
            Completion::Received { mut data, more, .. } => {
                let right = data.bytes_mut() == b"probe";
                ring.give_back(data);
                if !right || !more {
                    return Err(unexpected("a receive that ended after one message"));
                }
            }
            other => return Err(unexpected(&format!("{other:?}"))),
        }
    }
    Ok(())
}

fn multishot_recv() -> io::Result<()> {
    let mut ring = build(small(Features::none().with(Feature::MultishotRecv)))?;
    let (ours, theirs) = UnixStream::pair()?;
    let socket = ring.adopt(OwnedFd::from(ours))?;
    receive(&mut ring, socket, &theirs)
}

/// Socket commands must work too, for a direct descriptor has no number that setsockopt(2) knows.
fn direct_descriptors() -> io::Result<()> {
    let features = Features::none()
        .with(Feature::DirectDescriptors)
        .with(Feature::MultishotRecv);
    let mut ring = build(small(features))?;
    let (ours, theirs) = UnixStream::pair()?;
    let socket = ring.adopt(OwnedFd::from(ours))?;
    ring.set_option(socket, SocketOption::KeepAlive(true))?;
    receive(&mut ring, socket, &theirs)?;
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let client = TcpStream::connect_timeout(&listener.local_addr()?, PATIENCE)?;
    let expected = Some(Addr::Inet(listener.local_addr()?));
    let socket = ring.adopt(OwnedFd::from(client))?;
    if ring.peer_addr(socket)? != expected {
        return Err(unexpected("a wrong peer address"));
    }
    ring.local_addr(socket).map(drop)
}

fn multishot_accept() -> io::Result<()> {
    let mut ring = build(small(Features::none().with(Feature::MultishotAccept)))?;
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let addr = listener.local_addr()?;
    let socket = ring.adopt_listener(OwnedFd::from(listener))?;
    ring.accept(SLOT, socket);
    for _ in 0..2 {
        let _client = TcpStream::connect_timeout(&addr, PATIENCE)?;
        match next(&mut ring)? {
            Completion::Accepted { socket, .. } => ring.close(SLOT, socket),
            other => return Err(unexpected(&format!("{other:?}"))),
        }
        match next(&mut ring)? {
            Completion::Closed { .. } => {}
            other => return Err(unexpected(&format!("{other:?}"))),
        }
    }
    Ok(())
}

fn registered_ring() -> io::Result<()> {
    let ring = build(small(Features::none().with(Feature::RegisteredRing)))?;
    if ring.in_use().has(Feature::RegisteredRing) {
        Ok(())
    } else {
        Err(io::ErrorKind::Unsupported.into())
    }
}

/// Two rings on this thread: one gives the other a socket.
fn message_ring() -> io::Result<()> {
    let features = Features::none()
        .with(Feature::DirectDescriptors)
        .with(Feature::MessageRing);
    let group = Group::new(2)?;
    let mut giver = build_in(small(features), Arc::clone(&group), 0)?;
    let mut taker = build_in(small(features), group, 1)?;
    let (ours, _theirs) = UnixStream::pair()?;
    let socket = giver.adopt(OwnedFd::from(ours))?;
    giver.give(SLOT, socket, 1, 7);
    match next(&mut giver)? {
        Completion::Given { result, .. } => result?,
        other => return Err(unexpected(&format!("{other:?}"))),
    }
    match next(&mut taker)? {
        Completion::Adopted { tag: 7, .. } => Ok(()),
        other => Err(unexpected(&format!("{other:?}"))),
    }
}

fn supported(code: u8) -> io::Result<()> {
    let ring = IoUring::new(2)?;
    let mut probe = io_uring::Probe::new();
    ring.submitter().register_probe(&mut probe)?;
    if probe.is_supported(code) {
        Ok(())
    } else {
        Err(io::ErrorKind::Unsupported.into())
    }
}

fn busy_poll() -> io::Result<()> {
    let config = UringConfig {
        napi: Some(Duration::from_micros(1)),
        ..small(Features::none())
    };
    build(config).map(drop)
}

#[cfg(test)]
mod tests;
