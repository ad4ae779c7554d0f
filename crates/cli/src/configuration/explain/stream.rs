//! `ringmain explain` for a passthrough connection, as text or JSON.

use std::io::{self, Write};

use ringmain_gateway::model::{Addr, Hostname, Listener, Protocol};
use ringmain_gateway::table::{AddressId, StreamExplanation, Table};
use serde_json::{Value, json};

use crate::args::configuration::Explain;
use crate::error::CliError;
use crate::print_output;

/// Explains the route of a connection.
///
/// # Errors
/// Fails if the listener or the name is invalid, or no stream matches.
pub(super) fn explain_stream(args: &Explain, table: &Table<()>) -> Result<(), CliError> {
    let sni = args.sni.as_deref().map(parse_server_name).transpose()?;
    let sni = sni.as_ref().map(Hostname::as_str);
    let address = find_address(table, args.listener.as_deref(), sni)?;
    let explanation = table.explain_stream(address, sni);
    print_output(|out| {
        if args.json {
            writeln!(out, "{:#}", explanation_json(&explanation))
        } else {
            print_explanation(&explanation, sni, out)
        }
    })?;
    if explanation.selected.is_some() {
        return Ok(());
    }
    let asked = sni.map_or_else(|| "a client without SNI".to_owned(), |sni| format!("`{sni}`"));
    Err(CliError::Other(match explanation.protocol {
        None => format!("closed: no listener of that address matches {asked}"),
        Some(protocol) if protocol.is_http() => {
            "this is an HTTP listener: use ringmain explain FILE METHOD URL".to_owned()
        }
        Some(_) => format!("closed: no stream matches {asked}"),
    }))
}

/// Parses a server name (SNI), which is never a wildcard.
fn parse_server_name(text: &str) -> Result<Hostname, CliError> {
    let hostname = Hostname::parse(text).ok();
    let hostname = hostname.filter(|name| name.wildcard_suffix().is_none());
    hostname.ok_or_else(|| {
        CliError::Usage(format!(
            "--sni: expected a host such as mail.shop.example, found `{text}`"
        ))
    })
}

/// Returns the address of the connection: the wanted one, else the first passthrough listener, preferably one that matches the
/// server name.
fn find_address(table: &Table<()>, wanted: Option<&str>, sni: Option<&str>) -> Result<AddressId, CliError> {
    let addresses = table.addresses();
    let some = |id: AddressId, fits: &dyn Fn(&Listener) -> bool| {
        let mut listeners = addresses.listeners(id);
        listeners.any(|(_, listener)| fits(listener))
    };
    if let Some(wanted) = wanted {
        let named = |id: AddressId| some(id, &|listener| *listener.name == *wanted);
        let mut all = addresses.iter();
        let found = all.find(|(id, address, _)| named(*id) || matches_address(address, wanted));
        return found.map(|(id, ..)| id).ok_or_else(|| {
            let there = addresses.iter().flat_map(|(id, address, _)| {
                let listeners = addresses.listeners(id);
                listeners.map(move |(_, listener)| format!("{} ({address})", listener.name))
            });
            let there: Vec<_> = there.collect();
            CliError::Other(format!("no listener `{wanted}`; listeners: {}", there.join(", ")))
        });
    }
    let passes = |listener: &Listener| {
        let by_name = matches!(listener.protocol, Protocol::Tls | Protocol::TlsPassthrough);
        by_name || (sni.is_none() && listener.protocol == Protocol::Tcp)
    };
    let takes = |id: AddressId| {
        let listener = addresses.select_listener(id, sni.unwrap_or_default());
        listener.is_some_and(|listener| passes(table.listener(listener)))
    };
    let found = addresses.iter().find(|(id, ..)| takes(*id));
    let found = found.or_else(|| addresses.iter().find(|(id, ..)| some(*id, &passes)));
    found.map(|(id, ..)| id).ok_or_else(|| {
        CliError::Other(
            "no passthrough listener: expected the protocol `tcp`, `tls` or `tls_passthrough`".to_owned(),
        )
    })
}

/// Returns whether `wanted` is this address, or its port.
fn matches_address(address: &Addr, wanted: &str) -> bool {
    let port = wanted.strip_prefix(':').unwrap_or(wanted).parse();
    match address {
        Addr::Inet(address) if port == Ok(address.port()) => true,
        address => address.to_string() == wanted,
    }
}

fn print_explanation(
    explanation: &StreamExplanation,
    sni: Option<&str>,
    out: &mut dyn Write,
) -> io::Result<()> {
    match (&explanation.listener, sni) {
        (Some(name), _) => writeln!(out, "listener `{name}`")?,
        (None, Some(sni)) => writeln!(out, "no listener for `{sni}`")?,
        (None, None) => writeln!(out, "no listener for a client without SNI")?,
    }
    if sni.is_some() && explanation.protocol == Some(Protocol::Tcp) {
        writeln!(out, "  a TCP listener: SNI is ignored")?;
    }
    for (name, why) in &explanation.other_listeners {
        writeln!(out, "  not `{name}`: {why}")?;
    }
    if let Some(taken) = &explanation.selected {
        writeln!(out, "stream `{}`, by {}", taken.route, taken.matched_by)?;
        for step in &taken.steps {
            writeln!(out, "  {step}")?;
        }
    } else if explanation.protocol.is_some_and(|protocol| !protocol.is_http()) {
        writeln!(out, "no matching stream: the connection is closed")?;
    }
    if !explanation.rejected.is_empty() {
        writeln!(out, "rejected streams, the closest first:")?;
    }
    for (name, why) in &explanation.rejected {
        writeln!(out, "  stream `{name}`: {}", why.text())?;
    }
    match explanation.omitted {
        0 => Ok(()),
        more => writeln!(out, "  and {more} more"),
    }
}

fn explanation_json(explanation: &StreamExplanation) -> Value {
    let others = explanation
        .other_listeners
        .iter()
        .map(|(name, why)| json!({ "listener": &**name, "why": why }));
    let rejected = explanation
        .rejected
        .iter()
        .map(|(name, why)| json!({ "stream": &**name, "why": why.text() }));
    let taken = explanation.selected.as_ref().map(|taken| {
        json!({
            "stream": &*taken.route,
            "by": taken.matched_by,
            "steps": taken.steps,
        })
    });
    json!({
        "listener": explanation.listener.as_deref(),
        "other_listeners": others.collect::<Vec<_>>(),
        "taken": taken,
        "rejected": rejected.collect::<Vec<_>>(),
        "more": explanation.omitted,
    })
}
