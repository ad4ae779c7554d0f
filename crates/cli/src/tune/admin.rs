//! Queries the admin server of a running Ringmain for the accepted connections of each worker.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use crate::error::CliError;
use crate::limits::{ADMIN_BYTES, ADMIN_TIMEOUT};

/// Returns the number of accepted connections of each worker, in the order of the workers.
pub(super) fn accepted_connections(admin: SocketAddr) -> Result<Vec<u64>, CliError> {
    let text = fetch_metrics(admin).map_err(|error| {
        CliError::Other(format!(
            "cannot read the metrics at http://{admin}/metrics: {error}"
        ))
    })?;
    let counts = parse_accepted(&text);
    if counts.is_empty() {
        return Err(CliError::Other(format!(
            "expected the metric ringmain_connections_accepted_total at http://{admin}/metrics, found none: check that \
             this is the `admin` address of its configuration"
        )));
    }
    Ok(counts)
}

fn fetch_metrics(admin: SocketAddr) -> std::io::Result<String> {
    let mut stream = TcpStream::connect_timeout(&admin, ADMIN_TIMEOUT)?;
    stream.set_read_timeout(Some(ADMIN_TIMEOUT))?;
    stream.set_write_timeout(Some(ADMIN_TIMEOUT))?;
    write!(
        stream,
        "GET /metrics HTTP/1.1\r\nHost: {admin}\r\nConnection: close\r\n\r\n"
    )?;
    let mut bytes = Vec::new();
    stream.take(ADMIN_BYTES).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Parses the samples `ringmain_connections_accepted_total{worker="N"} COUNT`.
fn parse_accepted(text: &str) -> Vec<u64> {
    let sample = |line: &str| {
        let rest = line.strip_prefix("ringmain_connections_accepted_total{worker=\"")?;
        let (worker, count) = rest.split_once("\"} ")?;
        Some((worker.parse::<usize>().ok()?, count.trim().parse::<u64>().ok()?))
    };
    let mut counts: Vec<(usize, u64)> = text.lines().filter_map(sample).collect();
    counts.sort_unstable();
    counts.into_iter().map(|(_, count)| count).collect()
}
