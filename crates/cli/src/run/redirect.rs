//! A plaintext listener that redirects to HTTPS.

use ringmain_engine::Addr;
use ringmain_web::{App, Error, Flow, Reply, Request, Result};

/// Redirects requests at listener `number` to the same path over HTTPS, at `port`.
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
            "expected a Host field for the redirect to HTTPS, found none",
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

/// Returns path and query of a target, and the slash to insert before them (RFC 9112 §3.2).
pub(super) fn path_and_query(target: &str) -> (&'static str, &str) {
    if target.starts_with('/') {
        return ("", target);
    }
    // The host of the absolute form is that of the authority. Other forms have no path.
    let Some((_, behind)) = target.split_once("://") else {
        return ("/", "");
    };
    let place = behind.find(['/', '?']).map_or("", |at| &behind[at..]);
    (if place.starts_with('/') { "" } else { "/" }, place)
}

pub(super) fn strip_port(host: &str) -> &str {
    match host.rfind(':') {
        // Not a colon in [::1].
        Some(at) if !host[at..].contains(']') => &host[..at],
        _ => host,
    }
}

/// Returns the port of HTTPS: that of the first address with a port, except the plaintext listener.
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
