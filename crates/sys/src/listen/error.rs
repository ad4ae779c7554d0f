//! Why a listener could not be opened, in words that somebody can act on.

use std::io;
use std::net::SocketAddr;
use std::path::Path;

use rustix::io::Errno;

use crate::addr::Addr;
use crate::sysctl;

/// A listener could not be opened. Displayed in one line that ends with what to do.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen on {addr}: {what}")]
pub struct ListenError {
    /// The address that was asked for.
    pub addr: Addr,
    /// What is wrong and what to do.
    pub what: String,
    /// What the kernel said.
    pub source: io::Error,
}

impl ListenError {
    pub(super) fn new(addr: &Addr, what: String, source: io::Error) -> ListenError {
        ListenError {
            addr: addr.clone(),
            what,
            source,
        }
    }

    pub(super) fn inet(addr: &Addr, inet: &SocketAddr, error: io::Error) -> ListenError {
        let (ip, port) = (inet.ip(), inet.port());
        let what = match Errno::from_io_error(&error) {
            Some(Errno::ADDRINUSE) => format!(
                "port {port} is in use by another socket; to see whose, run: ss -ltnp 'sport = :{port}'"
            ),
            Some(Errno::ACCESS) => {
                let start = unprivileged_port_start();
                format!(
                    "no permission for port {port}: ports below {start} need the capability \
                     CAP_NET_BIND_SERVICE; grant it (setcap cap_net_bind_service=+ep PROGRAM, or \
                     AmbientCapabilities=CAP_NET_BIND_SERVICE in the systemd unit), lower the sysctl \
                     net.ipv4.ip_unprivileged_port_start, or take a port from {start} up"
                )
            }
            Some(Errno::ADDRNOTAVAIL) => format!(
                "no interface of this host has the address {ip}; to see those there are, run: ip -brief address"
            ),
            Some(Errno::AFNOSUPPORT) if inet.is_ipv6() => {
                format!("this host has no IPv6; take an IPv4 address, such as 0.0.0.0:{port}")
            }
            Some(Errno::MFILE) => "no descriptor is free; raise the limit of open files (ulimit -n, \
                 or LimitNOFILE= in the systemd unit)"
                .to_owned(),
            _ => error.to_string(),
        };
        ListenError::new(addr, what, error)
    }

    pub(super) fn unix(addr: &Addr, error: io::Error) -> ListenError {
        let directory = addr
            .path()
            .and_then(Path::parent)
            .unwrap_or(Path::new("/"))
            .display();
        let what = match Errno::from_io_error(&error) {
            Some(Errno::ADDRINUSE) => {
                "it is in use by another process; to see whose, run: ss -lxp".to_owned()
            }
            Some(Errno::NOENT) => {
                format!("the directory {directory} does not exist; create it first")
            }
            Some(Errno::NOTDIR) => {
                format!("{directory} is not a directory; take another path")
            }
            Some(Errno::ACCESS | Errno::PERM) => format!(
                "no permission to create files in {directory}; give this user write and search \
                 permission there or take another path"
            ),
            Some(Errno::ROFS) => format!(
                "{directory} is on a read-only file system; take a path on a writable one, such as /run"
            ),
            _ => error.to_string(),
        };
        ListenError::new(addr, what, error)
    }
}

fn unprivileged_port_start() -> u32 {
    let value = sysctl::read("net.ipv4.ip_unprivileged_port_start");
    // 1024 is what the kernel begins with.
    value.and_then(|text| text.parse().ok()).unwrap_or(1024)
}
