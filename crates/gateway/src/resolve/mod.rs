//! Name resolution by the host's settings: `/etc/hosts`, then the DNS servers of `/etc/resolv.conf`.
//!
//! Queries DNS itself, since the system's resolver does not report TTLs. IPv4 addresses are used if there are any, else IPv6
//! ones. Caches nothing: callers retain the last good result.

mod settings;

#[cfg(test)]
mod tests;

use std::future::{Future, poll_fn};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use ringmain_engine::{Addr, Cx};
use ringmain_wire::dns::{Answer, AnswerFault, Kind, Outcome, Question, parse};

pub(crate) use self::settings::ResolverSettings;
use crate::fault::Fault;
use crate::limits;

/// The addresses of a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ResolvedName {
    /// Sorted, so that equal sets compare equal.
    pub(crate) addresses: Vec<IpAddr>,
    /// The TTL, within [`limits::DNS_TTL_LEAST`] and [`limits::DNS_TTL_MOST`].
    pub(crate) ttl: Duration,
}

/// A failed lookup: the reason, and the delay before the next attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LookupError {
    /// [`Fault::DnsNotFound`], [`Fault::DnsEmpty`] or [`Fault::DnsFailed`].
    pub(crate) fault: Fault,
    pub(crate) retry_after: Duration,
}

/// Resolves a name by the host's current settings.
///
/// # Errors
/// The name has no address, or no server gave a valid response.
pub(crate) async fn resolve_name(cx: &Cx, name: &str) -> Result<ResolvedName, LookupError> {
    let settings = cx.blocking(ResolverSettings::read_host_files).await;
    match settings {
        Ok(settings) => resolve_with(cx, &settings, name).await,
        Err(_full) => Err(lookup_failure()),
    }
}

/// Resolves a name by these settings.
///
/// # Errors
/// The name has no address, or no server gave a valid response.
pub(crate) async fn resolve_with(
    cx: &Cx,
    settings: &ResolverSettings,
    name: &str,
) -> Result<ResolvedName, LookupError> {
    if let Some(known) = settings.known_addresses(name) {
        return Ok(known);
    }
    let mut last_error = None;
    for candidate in settings.candidates(name) {
        let mut no_addresses = None;
        for kind in [Kind::V4, Kind::V6] {
            let answer = query_servers(cx, settings, &candidate, kind)
                .await
                .ok_or_else(lookup_failure)?;
            let holds = Duration::from_secs(u64::from(answer.ttl));
            let fault = match answer.outcome {
                Outcome::Addresses(mut addresses) => {
                    addresses.sort_unstable();
                    addresses.dedup();
                    return Ok(ResolvedName {
                        addresses,
                        ttl: holds.clamp(limits::DNS_TTL_LEAST, limits::DNS_TTL_MOST),
                    });
                }
                Outcome::Empty => Fault::DnsEmpty,
                Outcome::NotFound => Fault::DnsNotFound,
            };
            let again = holds.clamp(limits::DNS_AGAIN, limits::DNS_TTL_MOST);
            no_addresses = Some(LookupError {
                fault,
                retry_after: again,
            });
            // The name has no records of any type.
            if fault == Fault::DnsNotFound {
                break;
            }
        }
        // A name that exists without an address is a more specific result than one that does not exist.
        if last_error.is_none_or(|last_error: LookupError| last_error.fault == Fault::DnsNotFound) {
            last_error = no_addresses;
        }
    }
    Err(last_error.unwrap_or_else(lookup_failure))
}

fn lookup_failure() -> LookupError {
    LookupError {
        fault: Fault::DnsFailed,
        retry_after: limits::DNS_AGAIN,
    }
}

/// Queries one server after the other, `attempts` times; `None`: no server gave a valid response.
async fn query_servers(cx: &Cx, settings: &ResolverSettings, name: &str, kind: Kind) -> Option<Answer> {
    for _ in 0..settings.attempts {
        for server in &settings.servers {
            let question = Question {
                id: cx.random() as u16,
                name,
                kind,
            };
            let result = query_udp(cx, *server, &question);
            match with_timeout(cx, settings.timeout, result).await {
                Some(Ok(answer)) => return Some(answer),
                Some(Err(error)) => log::debug!("DNS server {server}: {name}: {error}"),
                None => log::debug!("DNS server {server}: {name}: no answer in {:?}", settings.timeout),
            }
        }
    }
    None
}

async fn query_udp(cx: &Cx, server: SocketAddr, question: &Question<'_>) -> io::Result<Answer> {
    let mut message = Vec::new();
    question.write(&mut message).map_err(io::Error::other)?;
    let local: IpAddr = match server {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    // An ephemeral port for each question: a forger has to guess it.
    let socket = cx.bind_udp(SocketAddr::new(local, 0))?;
    socket.connect(server).await?;
    socket.send_to(&message, server).await?;
    loop {
        let (datagram, from) = socket.recv_from().await?;
        if from.is_some_and(|from| from != server) {
            continue;
        }
        match parse(&datagram, question) {
            Err(AnswerFault::Other) => {}
            Err(AnswerFault::Truncated) => return query_tcp(cx, server, question, &message).await,
            answer => return answer.map_err(io::Error::other),
        }
    }
}

/// Repeats a question over TCP, with a length before each message (RFC 1035 §4.2.2).
async fn query_tcp(
    cx: &Cx,
    server: SocketAddr,
    question: &Question<'_>,
    message: &[u8],
) -> io::Result<Answer> {
    let stream = cx.connect_stream(&Addr::Inet(server), None).await?;
    let length = u16::try_from(message.len()).map_err(io::Error::other)?;
    stream.write_all(&length.to_be_bytes()).await?;
    stream.write_all(message).await?;
    let mut length = [0; 2];
    stream.read_exact(&mut length).await?;
    let mut answer = vec![0; usize::from(u16::from_be_bytes(length))];
    stream.read_exact(&mut answer).await?;
    parse(&answer, question).map_err(io::Error::other)
}

/// Runs `work` for at most `span`; `None`: `span` has elapsed.
pub(crate) async fn with_timeout<T>(cx: &Cx, span: Duration, work: impl Future<Output = T>) -> Option<T> {
    let mut work = pin!(work);
    let mut sleep = pin!(cx.sleep(span));
    poll_fn(|context| match work.as_mut().poll(context) {
        Poll::Ready(done) => Poll::Ready(Some(done)),
        Poll::Pending => sleep.as_mut().poll(context).map(|()| None),
    })
    .await
}
