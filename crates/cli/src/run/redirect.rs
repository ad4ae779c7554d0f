//! A listener in the clear that sends clients to https.

use ringmain_engine::Addr;
use ringmain_web::{App, Error, Flow, Reply, Request, Result};

/// Has what comes by listener `number` sent to the same place on https, at `port`.
pub(super) fn redirect_to_https(app: App, number: u32, port: u16) -> App {
    app.before(move |request, reply| {
        if request.listener() != number {
            return Ok(Flow::Continue);
        }
        send_redirect(request, reply, port)?;
        Ok(Flow::Stop)
    })
}

fn send_redirect(request: &Request<'_>, reply: &mut Reply<'_>, port: u16) -> Result {
    let Some(host) = request.host().map(strip_port).filter(|host| !host.is_empty()) else {
        return Err(Error::bad_request(
            "expected a Host field that says whom to ask by https, found none",
        ));
    };
    let (slash, place) = path_and_query(request.target());
    let location = match port {
        443 => format!("https://{host}{slash}{place}"),
        port => format!("https://{host}:{port}{slash}{place}"),
    };
    // RFC 9110 §15.4.9: the method stays.
    reply.status(308).header("Location", location)?;
    Ok(())
}

/// Path and query of a target, with the slash that has to be put in front (RFC 9112 §3.2).
pub(super) fn path_and_query(target: &str) -> (&'static str, &str) {
    if target.starts_with('/') {
        return ("", target);
    }
    // The absolute form names a host of its own, which is the one of the authority. Other forms have no path.
    let Some((_, behind)) = target.split_once("://") else {
        return ("/", "");
    };
    let place = behind.find(['/', '?']).map_or("", |at| &behind[at..]);
    (if place.starts_with('/') { "" } else { "/" }, place)
}

pub(super) fn strip_port(host: &str) -> &str {
    match host.rfind(':') {
        // Not the colons within [::1].
        Some(at) if !host[at..].contains(']') => &host[..at],
        _ => host,
    }
}

/// The port that clients are sent to: that of the first address that has one and is not the listener in the clear.
pub(super) fn https_port(addrs: &[Addr], plain: u32) -> Option<u16> {
    let others = addrs
        .iter()
        .enumerate()
        .filter(|(number, _)| *number != plain as usize);
    others.map(|(_, addr)| addr).find_map(|addr| match addr {
        Addr::Inet(addr) => Some(addr.port()),
        _ => None,
    })
}
