//! Whether something takes connections at an address.
//!
//! Blocking, one attempt for each address; for the time before a run.

use std::fmt;
use std::io;
use std::net::TcpStream;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixStream};

use ringmain_engine::Addr;

use crate::limits;

/// Each address that was tried, and what the system said.
#[derive(Debug)]
pub struct Unreachable(pub Vec<(Addr, io::Error)>);

impl std::error::Error for Unreachable {}

impl fmt::Display for Unreachable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str("there is no address to connect to");
        }
        for (index, (addr, error)) in self.0.iter().enumerate() {
            let separator = if index > 0 { "; " } else { "" };
            write!(f, "{separator}cannot connect to {addr}: {}", reason(error))?;
        }
        Ok(())
    }
}

/// What the system said, and what it mostly means.
fn reason(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => "connection refused, nothing listens there".into(),
        io::ErrorKind::NotFound => "there is no such socket".into(),
        io::ErrorKind::TimedOut => format!("no response within {}s", limits::SERVER_CONNECT.as_secs_f64()),
        _ => error.to_string(),
    }
}

/// The first of the addresses that takes a connection, which is closed at once.
///
/// # Errors
/// None does: each with its reason.
pub fn reach(addrs: &[Addr]) -> Result<Addr, Unreachable> {
    let mut errors = Vec::new();
    for addr in addrs {
        match connect(addr) {
            Ok(()) => return Ok(addr.clone()),
            Err(error) => errors.push((addr.clone(), error)),
        }
    }
    Err(Unreachable(errors))
}

/// Returns the addresses that accept a connection, of the family of the first one that does: a name with several addresses is loaded at
/// all of them, and `localhost` at one.
///
/// # Errors
/// None accepts one: each with its reason.
pub fn reach_all(addrs: &[Addr]) -> Result<Vec<Addr>, Unreachable> {
    let first = reach(addrs)?;
    let is_v6 = |addr: &Addr| matches!(addr, Addr::Inet(addr) if addr.is_ipv6());
    let others = addrs
        .iter()
        .filter(|addr| **addr != first && is_v6(addr) == is_v6(&first) && connect(addr).is_ok());
    Ok(std::iter::once(first.clone()).chain(others.cloned()).collect())
}

fn connect(addr: &Addr) -> io::Result<()> {
    match addr {
        Addr::Inet(addr) => {
            TcpStream::connect_timeout(addr, limits::SERVER_CONNECT)?;
        }
        Addr::Unix(path) => {
            UnixStream::connect(path)?;
        }
        Addr::Abstract(name) => {
            UnixStream::connect_addr(&SocketAddr::from_abstract_name(name)?)?;
        }
    }
    Ok(())
}
