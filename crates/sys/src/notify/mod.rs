//! Messages to the service manager that started this process: the protocol of `sd_notify(3)`.
//!
//! Owns the socket and the environment variables; knows nothing of the messages' order. No small crate has it whole: `sd-notify` does
//! not support abstract sockets.

use std::env;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

/// The address of the service manager's socket.
const SOCKET: &str = "NOTIFY_SOCKET";
/// The longest time between two pings, in microseconds.
const WATCHDOG: &str = "WATCHDOG_USEC";
/// The process that is to send the pings.
pub(crate) const WATCHDOG_PID: &str = "WATCHDOG_PID";
/// A service manager that does not read its socket blocks the sender no longer than this.
const SEND_TIMEOUT: Duration = Duration::from_secs(1);

/// A socket of the service manager.
#[derive(Debug)]
pub struct NotifySocket(UnixDatagram);

impl NotifySocket {
    /// Connects to the socket that the environment names; `None` without one.
    ///
    /// # Errors
    /// Those of [`NotifySocket::connect`].
    pub fn from_environment() -> io::Result<Option<NotifySocket>> {
        match env::var_os(SOCKET) {
            Some(address) if !address.is_empty() => NotifySocket::connect(&address).map(Some),
            _ => Ok(None),
        }
    }

    /// Connects to a path, or to an abstract socket (`@name`).
    ///
    /// # Errors
    /// `InvalidInput` for any other address, such as `vsock:2:1`; those of `connect(2)`.
    pub fn connect(address: &OsStr) -> io::Result<NotifySocket> {
        let address = match address.as_bytes() {
            [b'@', name @ ..] if !name.is_empty() => SocketAddr::from_abstract_name(name)?,
            [b'/', ..] => SocketAddr::from_pathname(address)?,
            _ => {
                let text = format!(
                    "expected a path or @name in {SOCKET}; found `{}`",
                    address.display()
                );
                return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
            }
        };
        let socket = UnixDatagram::unbound()?;
        socket.connect_addr(&address)?;
        socket.set_write_timeout(Some(SEND_TIMEOUT))?;
        Ok(NotifySocket(socket))
    }

    /// Sends assignments, one in a line, as one message.
    ///
    /// # Errors
    /// Those of `send(2)`; `WouldBlock` if the service manager has not read its socket for a second.
    pub fn send(&self, assignments: &str) -> io::Result<()> {
        self.0.send(assignments.as_bytes()).map(drop)
    }
}

/// Returns the time within which the service manager expects each ping of this process, if it expects any.
#[must_use]
pub fn watchdog_interval() -> Option<Duration> {
    watchdog_from(
        env::var_os(WATCHDOG),
        env::var_os(WATCHDOG_PID),
        std::process::id(),
    )
}

fn watchdog_from(microseconds: Option<OsString>, pid: Option<OsString>, own: u32) -> Option<Duration> {
    let number = |value: &OsStr| value.to_str()?.parse::<u64>().ok();
    let is_ours = pid.is_none_or(|pid| number(&pid) == Some(own.into()));
    let microseconds = number(&microseconds?).filter(|count| *count > 0 && is_ours)?;
    Some(Duration::from_micros(microseconds))
}

#[cfg(test)]
mod tests;
