//! Starts a program that takes over listeners.
//!
//! `LISTEN_PID` must be the new process's own number, which is known only after the fork. So the whole
//! environment is laid out before, with room for the digits, and the child fills them in and executes the program
//! itself: neither allocates, as POSIX asks of the time between fork and exec.

use std::env;
use std::ffi::{CString, OsStr, OsString, c_char};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command};
use std::ptr;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, fcntl_dupfd_cloexec, retry_on_intr};
use rustix::pipe::{PipeFlags, pipe_with};

use super::{FIRST, READY, STATE, StatePipe};
use crate::clock;
use crate::notify::WATCHDOG_PID;

const PID_KEY: &[u8] = b"LISTEN_PID=";
/// The digits of the largest process number and the closing zero byte.
const PID_ROOM: usize = 11;

/// A process that has been given listeners.
#[derive(Debug)]
pub struct Successor {
    /// The process. Dropping it does not end it.
    pub process: Child,
    pipe: OwnedFd,
    state: Option<StatePipe>,
}

/// Starts `program`, a path that is not looked up, and hands it `listeners` with their names. It inherits the rest of
/// the environment, standard input and output, and begins with no signal blocked.
///
/// # Errors
/// As `fork(2)` and `execve(2)`; `InvalidInput` if a name is empty, longer than 255 bytes, or holds a colon or anything
/// but printable ASCII.
pub fn spawn_with(
    listeners: &[(BorrowedFd<'_>, &str)],
    program: &Path,
    args: &[OsString],
) -> io::Result<Successor> {
    check_names(listeners)?;
    // The descriptors' places in the child: the listeners, then the pipe of readiness, then that of the state.
    let end = FIRST + listeners.len() as RawFd + 2;
    let (pipe, child_pipe) = pipe_with(PipeFlags::CLOEXEC)?;
    let (child_state, state) = pipe_with(PipeFlags::CLOEXEC)?;
    // Duplicates above all places, so that no place is taken before its own duplicate is made.
    let fds = listeners
        .iter()
        .map(|(fd, _)| *fd)
        .chain([child_pipe.as_fd(), child_state.as_fd()]);
    let fds: Vec<OwnedFd> = fds
        .map(|fd| fcntl_dupfd_cloexec(fd, end))
        .collect::<Result<_, _>>()?;
    drop((child_pipe, child_state));
    let mut image = Image::new(program, args, environment(listeners, end - 2))?;
    let sources: Vec<RawFd> = fds.iter().map(AsRawFd::as_raw_fd).collect();
    // `Command` reports a failed exec through a pipe of its own, which must not lie in a place.
    let fillers = fill(end)?;
    let mut command = Command::new(program);
    let exec = move || {
        for (place, &source) in (FIRST..).zip(&sources) {
            // SAFETY: takes no pointers; nothing in this process, which is about to become another
            // program, uses the place.
            if unsafe { libc::dup2(source, place) } < 0 {
                return Err(io::Error::last_os_error());
            }
        }
        unblock_signals()?;
        Err(image.exec())
    };
    // SAFETY: the closure only calls dup2, pthread_sigmask, getpid and execve, and writes to memory that is there already.
    let process = unsafe { command.pre_exec(exec) }.spawn()?;
    drop((fds, fillers));
    let state = Some(StatePipe::new(state));
    Ok(Successor { process, pipe, state })
}

impl Successor {
    /// Takes the pipe by which the process receives state, once. Dropping it, or this, closes it: the process has no state then.
    pub fn take_state(&mut self) -> Option<StatePipe> {
        self.state.take()
    }

    /// Waits until the process has called [`super::ready`], at most `timeout`; `None` waits for ever.
    ///
    /// # Errors
    /// `TimedOut`, and the process goes on. If it ended before it was ready, how it ended; one that closed the
    /// pipe without a word is ended.
    pub fn wait_ready(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        let end = timeout.map(|timeout| clock::monotonic().saturating_add(timeout));
        loop {
            let left = end.map(|end| end.saturating_sub(clock::monotonic()));
            let left = left.and_then(|left| Timespec::try_from(left).ok());
            match poll(&mut [PollFd::new(&self.pipe, PollFlags::IN)], left.as_ref()) {
                Ok(0) => {
                    let text = format!("the new process {} is not ready yet", self.process.id());
                    return Err(io::Error::new(io::ErrorKind::TimedOut, text));
                }
                Ok(_) => break,
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        if retry_on_intr(|| rustix::io::read(&self.pipe, &mut [0; 1][..]))? == 1 {
            return Ok(());
        }
        // It has ended, or is about to: this does not change how. Only one that lives on is killed.
        self.process.kill()?;
        let status = self.process.wait()?;
        let text = format!("the new process ended before it was ready: {status}");
        Err(io::Error::other(text))
    }
}

fn check_names(listeners: &[(BorrowedFd<'_>, &str)]) -> io::Result<()> {
    let fits = |name: &str| {
        (1..=255).contains(&name.len())
            && name
                .bytes()
                .all(|b| (b.is_ascii_graphic() || b == b' ') && b != b':')
    };
    match listeners.iter().find(|(_, name)| !fits(name)) {
        None => Ok(()),
        Some((_, name)) => {
            let text = format!(
                "expected a listener's name of 1 to 255 printable ASCII characters without a colon; \
                 found `{name}`"
            );
            Err(io::Error::new(io::ErrorKind::InvalidInput, text))
        }
    }
}

/// This process's variables, but for those of the protocol, which are added without `LISTEN_PID`.
fn environment(listeners: &[(BorrowedFd<'_>, &str)], pipe: RawFd) -> Vec<(OsString, OsString)> {
    // The second is systemd's newer name of the process: stale, it would make a reader refuse.
    let ours = [
        "LISTEN_PID",
        "LISTEN_PIDFDID",
        "LISTEN_FDS",
        "LISTEN_FDNAMES",
        READY,
        STATE,
    ];
    let mut all: Vec<_> = env::vars_os()
        .filter(|(key, _)| !ours.iter().any(|name| key == OsStr::new(name)))
        .filter(|(key, value)| !is_own_watchdog(key, value))
        .collect();
    let names: Vec<&str> = listeners.iter().map(|(_, name)| *name).collect();
    all.push(("LISTEN_FDS".into(), listeners.len().to_string().into()));
    all.push(("LISTEN_FDNAMES".into(), names.join(":").into()));
    all.push((READY.into(), pipe.to_string().into()));
    all.push((STATE.into(), (pipe + 1).to_string().into()));
    all
}

/// Returns whether a variable says that the service manager expects pings of this process: from now on those of the successor.
fn is_own_watchdog(key: &OsStr, value: &OsStr) -> bool {
    key == WATCHDOG_PID && value.to_str() == Some(&std::process::id().to_string())
}

/// Occupies every free descriptor below `end`.
fn fill(end: RawFd) -> io::Result<Vec<OwnedFd>> {
    let null = rustix::fs::open(
        "/dev/null",
        rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::CLOEXEC,
        rustix::fs::Mode::empty(),
    )?;
    let mut fillers = vec![null];
    while let Some(last) = fillers.last().filter(|last| last.as_raw_fd() < end) {
        let next = fcntl_dupfd_cloexec(last, FIRST)?;
        fillers.push(next);
    }
    Ok(fillers)
}

/// Lets this thread get every signal again: what is blocked stays so across exec, and the new program
/// would never hear of SIGTERM. Between fork and exec: must not allocate.
pub(crate) fn unblock_signals() -> io::Result<()> {
    // SAFETY: all bytes zero is a valid `sigset_t`.
    let mut none: libc::sigset_t = unsafe { std::mem::zeroed() };
    // SAFETY: writes to and reads from the set only.
    let status = unsafe {
        libc::sigemptyset(&raw mut none);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const none, ptr::null_mut())
    };
    if status == 0 {
        Ok(())
    } else {
        Err(io::Error::from_raw_os_error(status))
    }
}

/// What `execve(2)` wants, laid out in memory.
struct Image {
    /// The strings that the pointers point to.
    _strings: Vec<CString>,
    args: Vec<*const c_char>,
    /// The first entry is for `pid`, whose place is known only when this value has its own.
    environment: Vec<*const c_char>,
    pid: [u8; PID_KEY.len() + PID_ROOM],
}

// SAFETY: the pointers point into `_strings`, whose buffers are this value's own and do not move with it.
unsafe impl Send for Image {}
// SAFETY: as above, and nothing can be changed through a shared reference.
unsafe impl Sync for Image {}

impl Image {
    fn new(program: &Path, args: &[OsString], variables: Vec<(OsString, OsString)>) -> io::Result<Image> {
        let mut strings = vec![CString::new(program.as_os_str().as_bytes())?];
        for arg in args {
            strings.push(CString::new(arg.as_bytes())?);
        }
        for (mut variable, value) in variables {
            variable.push("=");
            variable.push(value);
            strings.push(CString::new(variable.into_vec())?);
        }
        let pointers: Vec<*const c_char> = strings.iter().map(|string| string.as_ptr()).collect();
        // The first argument is the program itself.
        let (arg_pointers, variable_pointers) = pointers.split_at(1 + args.len());
        let mut args = arg_pointers.to_vec();
        args.push(ptr::null());
        let mut environment = vec![ptr::null()];
        environment.extend(variable_pointers);
        environment.push(ptr::null());
        let pid = [0; PID_KEY.len() + PID_ROOM];
        Ok(Image {
            _strings: strings,
            args,
            environment,
            pid,
        })
    }

    /// Becomes the program. Returns only why it could not. Between fork and exec: must not allocate.
    fn exec(&mut self) -> io::Error {
        let (key, digits) = self.pid.split_at_mut(PID_KEY.len());
        key.copy_from_slice(PID_KEY);
        // SAFETY: takes no pointers.
        write_decimal(digits, unsafe { libc::getpid() } as u32);
        self.environment[0] = self.pid.as_ptr().cast();
        // SAFETY: program, arguments and variables are strings that end with a zero byte, and both lists end
        // with a null pointer.
        unsafe {
            libc::execve(self.args[0], self.args.as_ptr(), self.environment.as_ptr());
        }
        io::Error::last_os_error()
    }
}

/// Writes a number without leading zeros, which some readers take for octal. What follows stays zero.
fn write_decimal(out: &mut [u8], mut number: u32) {
    let mut digits = [0; PID_ROOM];
    let mut at = PID_ROOM;
    loop {
        at -= 1;
        digits[at] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            break;
        }
    }
    out[..PID_ROOM - at].copy_from_slice(&digits[at..]);
}
