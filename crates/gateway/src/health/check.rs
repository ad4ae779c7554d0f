//! Active health checks of an endpoint.

use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;

use ringmain_engine::backend::Time;
use ringmain_engine::stream::Stream;
use ringmain_engine::{Addr, Cx};
use ringmain_tls::ConnectHandle;
use ringmain_wire::h1::{
    FieldBlock, FieldTable, Fields, Framing, HeadScanner, Limits, Method, Parsed, RequestEncoder,
    parse_response,
};

use super::CheckVerdict;
use crate::balance::{LOAD_HEADER, LoadReport};
use crate::limits;
use crate::model::{ActiveHealth, HealthCheck, UpstreamProtocol};
use crate::resolve::with_timeout;
use crate::upstream::h2::{
    H2Pool, H2Request, H2ResponsePart, H2Session, H2Stream, SessionParams, negotiated_h2,
    send_request as send_h2_request,
};
use crate::upstream::transport::{Transport, proxy_header};
use crate::upstream::{EndpointId, UpstreamEndpoint, UpstreamState, connect};

/// The subject and the settings of a health check.
#[derive(Clone, Debug)]
pub(crate) struct HealthTarget {
    pub(crate) upstream: Arc<UpstreamState>,
    pub(crate) transport: Arc<Transport>,
    pub(crate) endpoint: Arc<UpstreamEndpoint>,
    pub(crate) health: ActiveHealth,
}

impl HealthTarget {
    /// Returns whether a check of the other target would be the same.
    pub(crate) fn is_same(&self, other: &HealthTarget) -> bool {
        Arc::ptr_eq(&self.transport, &other.transport)
            && Arc::ptr_eq(&self.endpoint.state, &other.endpoint.state)
            && self.endpoint.tls_name == other.endpoint.tls_name
            && self.health == other.health
    }

    /// Records a load report, which is valid for [`limits::LOAD_REPORT_INTERVALS`]. Returns whether the endpoint has begun or ceased to
    /// leave.
    fn record_load(&self, load: Option<LoadReport>, now: Time) -> bool {
        let validity = self.health.every * limits::LOAD_REPORT_INTERVALS + self.health.timeout;
        self.endpoint.state.record_load(load, now.after(validity).0)
    }

    /// Returns the address that the check connects to: the endpoint's own, unless a port is configured for checks.
    fn address(&self) -> Addr {
        match (&self.endpoint.addr, self.health.port) {
            (Addr::Inet(address), Some(port)) => {
                let mut address = *address;
                address.set_port(port);
                Addr::Inet(address)
            }
            (addr, _) => addr.clone(),
        }
    }
}

/// Checks an endpoint periodically until the task is cancelled.
pub(crate) async fn run_checks(cx: Cx, target: HealthTarget) {
    let tls = target
        .transport
        .connector
        .as_ref()
        .and_then(|connector| connector.as_ref().ok());
    let tls = tls.map(|connector| Rc::new(connector.handle()));
    let mut streak = ResultStreak::default();
    loop {
        let started_at = cx.now();
        let answer = with_timeout(
            &cx,
            target.health.timeout,
            check_once(&cx, &target, tls.as_deref()),
        )
        .await;
        let checked = answer.unwrap_or_else(|| {
            let reason = format!("no response within {:?}", target.health.timeout);
            Err(HealthCheckError::no_response(reason))
        });
        // Without a response the last report remains until it is stale.
        let load = match &checked {
            Ok(load) => Some(*load),
            Err(error) => error.responds.then_some(error.load),
        };
        let is_leave_changed = load.is_some_and(|load| target.record_load(load, cx.now()));
        let health = &target.endpoint.state.health();
        let error = checked.as_ref().err().map(|error| error.reason.as_str());
        health.record_check(error, cx.wall());
        let before = health.verdict();
        let verdict = streak.add(checked.is_ok(), before, &target.health);
        let responds = checked.as_ref().map_or_else(|error| error.responds, |_| true);
        let is_new = health.record_response(responds);
        if responds && target.address() == target.endpoint.addr {
            health.record_check_connected(started_at);
        }
        if verdict != before {
            health.set_verdict(verdict);
        }
        if verdict != before || is_new || is_leave_changed {
            target.upstream.bump_health_version();
        }
        if verdict != before {
            let (name, addr) = (&target.upstream.name, &target.endpoint.addr);
            match verdict {
                CheckVerdict::Unhealthy => {
                    let reason = error.unwrap_or_default();
                    log::warn!(
                        event = "endpoint_unhealthy", upstream:% = name, endpoint:% = addr, reason:% = reason;
                        "upstream `{name}`: {addr} is unhealthy: {reason}"
                    );
                }
                CheckVerdict::Healthy | CheckVerdict::Unknown if before == CheckVerdict::Unhealthy => {
                    log::info!(
                        event = "endpoint_healthy", upstream:% = name, endpoint:% = addr;
                        "upstream `{name}`: {addr} is healthy again"
                    );
                }
                CheckVerdict::Healthy | CheckVerdict::Unknown => {}
            }
        }
        // Jitter, so that endpoints and gateways do not check at the same time.
        let factor = 0.9 + 0.2 * (cx.random() >> 11) as f64 / (1_u64 << 53) as f64;
        cx.sleep(target.health.every.mul_f64(factor)).await;
    }
}

/// Consecutive results of one kind.
#[derive(Debug, Default)]
struct ResultStreak {
    good: bool,
    length: u8,
}

impl ResultStreak {
    fn add(&mut self, good: bool, before: CheckVerdict, rules: &ActiveHealth) -> CheckVerdict {
        self.length = if self.good == good {
            self.length.saturating_add(1)
        } else {
            1
        };
        self.good = good;
        match (before, good) {
            // The very first result counts at once.
            (CheckVerdict::Unknown, true) => CheckVerdict::Healthy,
            (CheckVerdict::Unknown, false) => CheckVerdict::Unhealthy,
            (CheckVerdict::Unhealthy, true) if self.length >= rules.healthy_after => CheckVerdict::Healthy,
            (CheckVerdict::Healthy, false) if self.length >= rules.unhealthy_after => CheckVerdict::Unhealthy,
            _ => before,
        }
    }
}

/// The reason for a failed health check.
#[derive(Debug)]
struct HealthCheckError {
    /// The message for operators.
    reason: String,
    /// There was a response, though not an accepted one.
    responds: bool,
    /// The load report of that response.
    load: Option<LoadReport>,
}

impl HealthCheckError {
    fn no_response(reason: String) -> HealthCheckError {
        HealthCheckError {
            reason,
            responds: false,
            load: None,
        }
    }

    fn bad_response(reason: String) -> HealthCheckError {
        HealthCheckError {
            reason,
            responds: true,
            load: None,
        }
    }
}

/// The part of a response that a check reads: the status, and the load report if there is a valid one.
type CheckResponse = (u16, Option<LoadReport>);

/// Runs one check. Returns the load report.
///
/// # Errors
/// The endpoint did not pass.
async fn check_once(
    cx: &Cx,
    target: &HealthTarget,
    tls: Option<&ConnectHandle>,
) -> Result<Option<LoadReport>, HealthCheckError> {
    if let Some(Err(reason)) = &target.transport.connector {
        return Err(HealthCheckError::no_response(format!("no TLS: {reason}")));
    }
    let endpoint = &*target.endpoint;
    let addr = target.address();
    let version = target.transport.proxy_protocol();
    let proxy_header = version.map_or_else(Vec::new, |version| proxy_header(version, None));
    let params = connect::ConnectParams {
        addr: &addr,
        peer: endpoint.tls_name.as_ref(),
        tls,
        preamble: &proxy_header,
    };
    let connected = connect::connect(cx, &params, target.health.timeout).await;
    let stream = connected.map_err(|error| {
        HealthCheckError::no_response(match error.detail {
            Some(detail) => format!("{}: {}", detail.rule, detail.text),
            None => error.fault.text().to_owned(),
        })
    })?;
    let by_streams = match target.transport.protocol() {
        UpstreamProtocol::Http1 => false,
        UpstreamProtocol::Http2 if tls.is_none() => true,
        UpstreamProtocol::Http2 if !negotiated_h2(&stream) => {
            return Err(HealthCheckError::bad_response(
                "the endpoint does not speak HTTP/2".to_owned(),
            ));
        }
        UpstreamProtocol::Http2 | UpstreamProtocol::Auto => negotiated_h2(&stream),
    };
    match &target.health.check {
        HealthCheck::Connect => Ok(None),
        HealthCheck::Http {
            target: path,
            host,
            statuses,
        } => {
            let host = host.as_ref().map_or(&*endpoint.authority, |host| host.as_str());
            let response = if by_streams {
                let channel = open_h2_stream(cx, stream, tls.is_some());
                h2_response(&channel, path, host).await
            } else {
                stream.set_deadline(Some(target.health.timeout));
                http1_response(&stream, path, host).await
            };
            match response {
                Some((status, load)) if statuses.contains(status) => Ok(load),
                Some((status, load)) => Err(HealthCheckError {
                    load,
                    ..HealthCheckError::bad_response(format!(
                        "expected a status from {} to {}, found {status}",
                        statuses.first, statuses.last
                    ))
                }),
                None => Err(HealthCheckError::no_response(
                    "no valid response to the health check".to_owned(),
                )),
            }
        }
    }
}

/// Opens a stream of an HTTP/2 session that serves this check alone.
fn open_h2_stream(cx: &Cx, stream: Stream, secure: bool) -> H2Stream {
    let params = SessionParams {
        stream,
        permit: None,
        endpoint: EndpointId::default(),
        secure,
        streams: 1,
        lifetime: Some(1),
    };
    H2Session::new(cx, &H2Pool::new(), params).reserve_stream()
}

/// Returns the load report of a response.
fn load_report(fields: &Fields<'_>) -> Option<LoadReport> {
    LoadReport::parse(fields.all(LOAD_HEADER).next()?)
}

/// Returns the response to a GET over HTTP/2.
async fn h2_response(channel: &H2Stream, target: &str, host: &str) -> Option<CheckResponse> {
    let mut fields = FieldBlock::new();
    fields.push("user-agent", b"ringmain-health").ok()?;
    let request = H2Request {
        method: Method::Get,
        target,
        authority: host,
        fields: &fields,
        body: None,
    };
    let mut table = FieldTable::new(&Limits {
        fields: limits::RESPONSE_FIELDS,
        ..Limits::INTERNET
    });
    let mut response = None;
    let heard = send_h2_request(channel, &request, &mut table, |heard| {
        if let H2ResponsePart::Head(head) = heard {
            response = Some((head.status, load_report(&head.fields)));
        }
        false
    });
    let _ = heard.await;
    response
}

/// Returns the response to a GET over HTTP/1.1.
async fn http1_response(stream: &Stream, target: &str, host: &str) -> Option<CheckResponse> {
    let mut out = Vec::new();
    let mut head = RequestEncoder::new(&mut out, Method::Get, target, host).ok()?;
    head.field("User-Agent", b"ringmain-health").ok()?;
    // The request has no body to finish.
    let _ = head.finish(Framing::None, false).ok()?;
    stream.write_all(&out).await.ok()?;
    let mut scanner = HeadScanner::new();
    let mut table = FieldTable::new(&Limits::INTERNET);
    loop {
        let mut found = None;
        let read = poll_fn(|context| {
            stream.poll_received(context, |bytes| {
                match parse_response(bytes, Method::Get, &Limits::INTERNET, &mut scanner, &mut table) {
                    Ok(Parsed::Complete { head, bytes }) => {
                        let response = (head.status, load_report(&head.fields));
                        found = (!head.is_interim()).then_some(Some(response));
                        bytes
                    }
                    Ok(Parsed::Partial) => 0,
                    Err(_) => {
                        found = Some(None);
                        bytes.len()
                    }
                }
            })
        });
        match (read.await, found) {
            (_, Some(response)) => return response,
            (Ok(0) | Err(_), None) => return None,
            (Ok(_), None) => {}
        }
    }
}
