//! Connection attempts to endpoints: TCP, the bytes before HTTP, TLS, and the faults of failures.

use std::io;
use std::time::Duration;

use ringmain_engine::stream::Stream;
use ringmain_engine::{Addr, Cx};
use ringmain_tls::{ConnectHandle, FaultKind, PeerName, Tls};

use crate::fault::{Fault, Violation};

/// The parameters of a connection attempt.
pub(crate) struct ConnectParams<'a> {
    pub(crate) addr: &'a Addr,
    /// The name that the certificate has to match.
    pub(crate) peer: Option<&'a PeerName>,
    /// `None`: no TLS.
    pub(crate) tls: Option<&'a ConnectHandle>,
    /// Bytes to send before all others.
    pub(crate) preamble: &'a [u8],
}

/// A failed connection attempt.
#[derive(Debug)]
pub(crate) struct ConnectError {
    pub(crate) fault: Fault,
    /// The rule of TLS that the endpoint violated, if any.
    pub(crate) detail: Option<Box<Violation>>,
}

impl From<Fault> for ConnectError {
    fn from(fault: Fault) -> ConnectError {
        ConnectError { fault, detail: None }
    }
}

/// Connects within `span`, including the TLS handshake.
///
/// # Errors
/// The fault of the attempt, with the violated rule of TLS if there is one.
pub(crate) async fn connect(
    cx: &Cx,
    params: &ConnectParams<'_>,
    span: Duration,
) -> Result<Stream, ConnectError> {
    let started_at = cx.now();
    let connected = cx.connect_within(params.addr, None, span).await;
    let stream = connected.map_err(|error| connect_fault(&error))?;
    if !params.preamble.is_empty() {
        stream
            .write_now(params.preamble)
            .map_err(|_closed| Fault::ConnectFailed)?;
    }
    let Some(handle) = params.tls else {
        return Ok(stream);
    };
    let peer = params.peer.ok_or(Fault::TlsCertificate)?;
    let remaining = span.saturating_sub(cx.now().since(started_at));
    stream.set_deadline(Some(remaining.max(Duration::from_millis(1))));
    let session = handle.connect(peer, cx.wall());
    match stream.secure(Box::new(session)).await {
        Ok(()) => Ok(stream),
        Err(error) => Err(tls_fault(&stream, &error)),
    }
}

fn connect_fault(error: &io::Error) -> Fault {
    match error.kind() {
        io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound => Fault::ConnectRefused,
        io::ErrorKind::TimedOut => Fault::ConnectTimeout,
        io::ErrorKind::AddrNotAvailable | io::ErrorKind::OutOfMemory | io::ErrorKind::WouldBlock => {
            Fault::NoResources
        }
        _ => match error.raw_os_error() {
            // ENFILE, EMFILE
            Some(23 | 24) => Fault::NoResources,
            _ => Fault::ConnectFailed,
        },
    }
}

fn tls_fault(stream: &Stream, error: &io::Error) -> ConnectError {
    if error.kind() == io::ErrorKind::TimedOut {
        return Fault::ConnectTimeout.into();
    }
    let tls_fault = stream.layer(|tls: &mut Tls| tls.fault().cloned()).flatten();
    let Some(tls_fault) = tls_fault else {
        return Fault::TlsFailed.into();
    };
    let fault = match tls_fault.kind {
        FaultKind::CertificateName
        | FaultKind::CertificateExpired
        | FaultKind::CertificateNotYetValid
        | FaultKind::CertificateIssuer
        | FaultKind::Certificate
        | FaultKind::CertificateMissing => Fault::TlsCertificate,
        _ => Fault::TlsFailed,
    };
    ConnectError {
        fault,
        detail: Some(Violation::from_tls(&tls_fault)),
    }
}
