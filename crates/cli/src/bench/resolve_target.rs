//! From a target to addresses: resolves names, connects, and starts servers.

use std::net::ToSocketAddrs;

use ringmain_engine::Addr;
use ringmain_load::server::{Server, Start, reach_all};
use ringmain_load::target::Place;

use super::interrupt::Interrupt;
use crate::args::bench::Started;
use crate::error::CliError;

/// Returns the addresses of a target, in the order of attempts.
///
/// # Errors
/// Fails if the name cannot be resolved.
pub(crate) fn resolve_addresses(place: &Place) -> Result<Vec<Addr>, CliError> {
    let (host, port) = match place {
        Place::Addrs(addrs) => return Ok(addrs.clone()),
        Place::Name { host, port } => (host.as_str(), *port),
    };
    let found = (host, port).to_socket_addrs();
    let mut addrs: Vec<Addr> = found
        .map_err(|error| CliError::Other(format!("cannot resolve the host {host}: {error}")))?
        .map(Addr::from)
        .collect();
    addrs.dedup();
    if addrs.is_empty() {
        return Err(CliError::Other(format!("the host {host} has no address")));
    }
    Ok(addrs)
}

/// The server whose CPU time and memory are measured, if any.
#[derive(Clone, Copy, Debug)]
pub(super) enum ServerSource<'a> {
    Nothing,
    Process(u32),
    Command(&'a str),
}

/// Returns the addresses that accept connections, at least one, and the server, which is started if it is a command.
pub(super) fn reach_target(
    addrs: &[Addr],
    watched: ServerSource<'_>,
    started: &Started,
    interrupt: &Interrupt,
) -> Result<(Option<Server>, Vec<Addr>), CliError> {
    if let ServerSource::Command(command) = watched {
        let start = Start {
            command,
            cpus: started.server_cpus.as_deref().unwrap_or_default(),
            addrs,
            patience: started.server_wait.0,
        };
        let (server, addr) =
            Server::start(&start, &mut |time| interrupt.pause(time)).map_err(CliError::other)?;
        return Ok((Some(server), vec![addr]));
    }
    let server = match watched {
        ServerSource::Process(pid) => Some(Server::watch(pid).map_err(CliError::other)?),
        _ => None,
    };
    let addrs = reach_all(addrs).map_err(CliError::other)?;
    Ok((server, addrs))
}
