//! The gateway's listeners: opened, or taken over from the process before.

use ringmain_engine::{Addr, Engine};
use ringmain_gateway::Gateway;
use ringmain_sys::inherit::{self, Inherited};

use super::{EdgeError, EdgeSettings, other};

/// Opens addresses in their order, or takes over listeners that were inherited from the previous process.
pub(super) fn open_listeners(
    settings: &EdgeSettings,
    engine: &mut Engine,
    inherited: &mut Vec<Inherited>,
    addrs: &[Addr],
) -> Result<Vec<Addr>, EdgeError> {
    // Exact addresses first: their sockets must not be used for port 0.
    let mut taken_by_address: Vec<Vec<Inherited>> = addrs
        .iter()
        .map(|required| take_matching(inherited, |found| found == required))
        .collect();
    for (required, taken) in addrs.iter().zip(&mut taken_by_address) {
        if let (Addr::Inet(required), true) = (required, taken.is_empty())
            && required.port() == 0
        {
            let matches = |found: &Addr| matches!(found, Addr::Inet(found) if found.ip() == required.ip());
            let found = inherited.iter().map(|it| it.addr.clone()).find(matches);
            *taken = take_matching(inherited, |addr| Some(addr) == found.as_ref());
        }
    }
    let mut opened = Vec::with_capacity(addrs.len());
    for (required, taken) in addrs.iter().zip(taken_by_address) {
        if taken.is_empty() {
            let listened = engine.listen(required, &settings.listen);
            opened.push(
                listened.map_err(|error| EdgeError::Other(format!("{error}{}", unused_hint(inherited))))?,
            );
            continue;
        }
        let found = engine.inherit(taken).map_err(other)?;
        found
            .iter()
            .for_each(|addr| log::info!("handed over to this process: {addr}"));
        opened.extend(found);
    }
    Ok(opened)
}

/// Binds the UDP addresses. They are not handed over: the predecessor of this process closes its sockets once this one serves.
pub(super) fn bind_datagrams(gateway: &Gateway, workers: usize) -> Result<(), EdgeError> {
    let bound = gateway.bind_datagrams(workers, inherit::has_predecessor());
    bound.map(drop).map_err(|problems| {
        let problems: Vec<_> = problems.iter().map(ToString::to_string).collect();
        EdgeError::Other(problems.join("; "))
    })
}

/// Removes and returns the listeners for which `is_required` returns true.
pub(super) fn take_matching(
    inherited: &mut Vec<Inherited>,
    is_required: impl Fn(&Addr) -> bool,
) -> Vec<Inherited> {
    inherited.extract_if(.., |it| is_required(&it.addr)).collect()
}

/// Names the inherited listeners that no configured address has matched, for the error of an address that is in use.
fn unused_hint(inherited: &[Inherited]) -> String {
    if inherited.is_empty() {
        return String::new();
    }
    let unused: Vec<_> = inherited
        .iter()
        .map(|unused| format!("{} ({})", unused.addr, unused.name))
        .collect();
    format!(
        "; inherited listeners with other addresses than those of the configuration: {}",
        unused.join(", ")
    )
}

/// Logs the inherited listeners that the configuration does not use.
pub(super) fn log_unused(inherited: &[Inherited]) {
    for surplus in inherited {
        log::warn!(
            "closed the inherited listener {}, which the configuration does not use",
            surplus.addr
        );
    }
}
