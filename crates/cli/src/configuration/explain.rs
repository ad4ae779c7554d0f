//! `ringmain explain`: the route of a request, as text or JSON. Passthrough connections are in `stream`.

mod stream;

use std::fmt::Display;
use std::io::{self, Write};

use ringmain_gateway::model::{Addr, HeaderName, HeaderValue, MethodName};
use ringmain_gateway::table::{AddressId, Explanation, Headers, RequestFacts, Table, normalize_host};
use ringmain_web::path;
use ringmain_wire::h1::{FieldTable, HeadScanner, Parsed, parse_request};
use serde_json::{Value, json};

use crate::args::configuration::Explain;
use crate::error::CliError;
use crate::print_output;

/// The URL of a request, in parts.
struct Url<'u> {
    https: bool,
    authority: &'u str,
    /// `None`: the default port of the scheme.
    port: Option<u16>,
    /// Path and query in the form of a request line; empty: `/`.
    target: &'u str,
}

/// Explains the route of a request.
///
/// # Errors
/// Fails if the file or the request is invalid, or no rule matches.
pub(crate) fn explain(args: &Explain) -> Result<(), CliError> {
    // The program that serves the file may have custom filters.
    let checked = super::compile_file(&args.input, &|_| Ok(()))?;
    let name = args.input.path().display();
    let Some(table) = checked.table.filter(|_| checked.wrong.is_empty()) else {
        let checked_file = if args.input.is_stdin() {
            "-".to_owned()
        } else {
            name.to_string()
        };
        return Err(CliError::Other(format!(
            "{name}: invalid configuration; `ringmain check {checked_file}` lists the errors"
        )));
    };
    let (Some(method), Some(url)) = (&args.method, &args.url) else {
        return stream::explain_stream(args, &table);
    };
    MethodName::parse(method).map_err(|fault| CliError::Usage(fault.to_string()))?;
    let url = Url::parse(url)?;
    let head = url.request_head(method, &args.headers)?;
    let limits = ringmain_gateway::connection_limits(table.config()).http1;
    let mut fields = FieldTable::new(&limits);
    let refused = |why: &dyn Display| CliError::Other(format!("400 Bad Request: {why}"));
    // The gateway's parser, so that the same requests are rejected.
    let head = match parse_request(head.as_bytes(), &limits, &mut HeadScanner::new(), &mut fields) {
        Ok(Parsed::Complete { head, .. }) => head,
        Ok(Parsed::Partial) => return Err(refused(&"incomplete request head")),
        Err(fault) => return Err(refused(&fault)),
    };
    let (mut host_scratch, mut path_scratch) = (String::new(), String::new());
    let authority = head.authority.map(|authority| authority.as_str());
    let facts = RequestFacts {
        host: normalize_host(authority.unwrap_or_default(), &mut host_scratch),
        path: path::normalise(head.target.path(), &mut path_scratch).map_err(|fault| refused(&fault))?,
        method: head.method.as_str(),
        query: head.target.query().unwrap_or_default(),
        headers: Headers::Fields(head.fields),
    };
    let address = find_address(&table, &url, facts.host)?;
    let explanation = table.explain(address, &facts);
    print_output(|out| {
        if args.json {
            writeln!(out, "{:#}", explanation_json(&explanation))
        } else {
            print_explanation(&explanation, &facts, out)
        }
    })?;
    if explanation.selected.is_some() || explanation.to_https {
        return Ok(());
    }
    if let Some(fault) = explanation.fault {
        return Err(CliError::Other(format!("{}: {}", fault.status(), fault.text())));
    }
    let status = match explanation.listener {
        None if url.https => "421: no listener of that address matches its host",
        None => "404: no listener of that address matches its host",
        Some(_) => "404: no rule matches",
    };
    Err(CliError::Other(status.to_owned()))
}

impl Url<'_> {
    fn parse(text: &str) -> Result<Url<'_>, CliError> {
        let wrong = || {
            CliError::Usage(format!(
                "expected a URL such as http://shop.example/cart, found `{text}`"
            ))
        };
        let (scheme, rest) = text.split_once("://").ok_or_else(wrong)?;
        let https = match scheme {
            _ if scheme.eq_ignore_ascii_case("http") => false,
            _ if scheme.eq_ignore_ascii_case("https") => true,
            _ => return Err(wrong()),
        };
        let rest = rest.split_once('#').map_or(rest, |(rest, _)| rest);
        let end = rest.find(['/', '?']).unwrap_or(rest.len());
        let (authority, target) = rest.split_at(end);
        // Clients do not send the user information in the request line.
        let authority = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
        let port = match authority.rsplit_once(':') {
            Some((_, port)) if !port.contains(']') => Some(port.parse().map_err(|_| wrong())?),
            _ => None,
        };
        Ok(Url {
            https,
            authority,
            port,
            target,
        })
    }

    /// Returns the request head for this URL. A `Host` in `headers` takes precedence over that of the URL.
    fn request_head(&self, method: &str, headers: &[String]) -> Result<String, CliError> {
        let slash = if self.target.starts_with('/') { "" } else { "/" };
        let mut head = format!("{method} {slash}{} HTTP/1.1\r\n", self.target);
        let headers: Vec<(&str, &str)> = headers
            .iter()
            .map(|text| parse_header(text))
            .collect::<Result<_, _>>()?;
        let own = ("Host", self.authority);
        let has_host = headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("host"));
        let all = std::iter::once(&own).filter(|_| !has_host).chain(&headers);
        all.for_each(|&(name, value)| head.extend([name, ": ", value, "\r\n"]));
        head.push_str("\r\n");
        Ok(head)
    }
}

fn parse_header(text: &str) -> Result<(&str, &str), CliError> {
    let wrong = || {
        CliError::Usage(format!(
            "expected a header such as 'accept: text/html', found `{text}`"
        ))
    };
    let (name, value) = text.split_once(':').ok_or_else(wrong)?;
    let value = value.trim_matches([' ', '\t']);
    HeaderName::parse(name).map_err(|_| wrong())?;
    HeaderValue::parse(value).map_err(|_| wrong())?;
    Ok((name, value))
}

/// Returns the address that a client of this URL connects to: that with its port; without a port and a listener on the
/// default port, the first one of the scheme that matches the host.
fn find_address(table: &Table<()>, url: &Url<'_>, host: &str) -> Result<AddressId, CliError> {
    let spoken = |id: AddressId| {
        let mut listeners = table.addresses().listeners(id);
        listeners.any(|(_, listener)| listener.protocol.is_http() && listener.protocol.has_sni() == url.https)
    };
    let all: Vec<_> = table
        .addresses()
        .iter()
        .filter(|(id, _, _)| spoken(*id))
        .collect();
    let wanted = url.port.unwrap_or(if url.https { 443 } else { 80 });
    let has_port = |address: &Addr| matches!(address, Addr::Inet(address) if address.port() == wanted);
    let admits = |id: AddressId| table.addresses().select_listener(id, host).is_some();
    let with_port = || all.iter().find(|(_, address, _)| has_port(address));
    let with_host = || {
        all.iter()
            .find(|(id, _, _)| admits(*id))
            .filter(|_| url.port.is_none())
    };
    let first = || all.first().filter(|_| url.port.is_none());
    if let Some((id, ..)) = with_port().or_else(with_host).or_else(first) {
        return Ok(*id);
    }
    let scheme = if url.https { "https" } else { "http" };
    let there: Vec<_> = all.iter().map(|(_, address, _)| address.to_string()).collect();
    let there = if there.is_empty() {
        "none".to_owned()
    } else {
        there.join(", ")
    };
    Err(CliError::Other(format!(
        "no {scheme} listener on port {wanted}; {scheme} listeners: {there}"
    )))
}

fn print_explanation(
    explanation: &Explanation,
    facts: &RequestFacts<'_>,
    out: &mut dyn Write,
) -> io::Result<()> {
    match &explanation.listener {
        Some(name) => writeln!(out, "listener `{name}`")?,
        None => writeln!(out, "no listener for `{}`", facts.host)?,
    }
    for (name, why) in &explanation.other_listeners {
        writeln!(out, "  not `{name}`: {why}")?;
    }
    if explanation.to_https {
        return writeln!(out, "  redirects to HTTPS; routes are not evaluated");
    }
    if let Some(fault) = explanation.fault {
        return writeln!(out, "  rejects it: {}; routes are not evaluated", fault.text());
    }
    if let Some(path) = &explanation.path {
        writeln!(out, "  normalized path: `{path}`")?;
    }
    if let Some(method) = &explanation.preflight {
        writeln!(
            out,
            "  CORS preflight for {method}: answered by the rule for {method}"
        )?;
    }
    if let Some(taken) = &explanation.selected {
        let name = taken
            .name
            .as_ref()
            .map(|name| format!(" ({name})"))
            .unwrap_or_default();
        writeln!(
            out,
            "route `{}`, rule {}{name}, by {}",
            taken.route,
            taken.rule + 1,
            taken.matched_by
        )?;
        if let Some(broken) = &taken.broken {
            writeln!(out, "  respond 500: {broken}")?;
        }
        for step in &taken.steps {
            writeln!(out, "  {step}")?;
        }
    } else if explanation.listener.is_some() {
        writeln!(out, "no matching rule: 404")?;
    }
    if !explanation.rejected.is_empty() {
        writeln!(out, "rejected rules, the closest first:")?;
    }
    for rejected in &explanation.rejected {
        writeln!(
            out,
            "  route `{}`, rule {}: {}",
            rejected.route,
            rejected.rule + 1,
            rejected.reason.text()
        )?;
    }
    match explanation.omitted {
        0 => Ok(()),
        more => writeln!(out, "  and {more} more"),
    }
}

fn explanation_json(explanation: &Explanation) -> Value {
    let others = explanation
        .other_listeners
        .iter()
        .map(|(name, why)| json!({ "listener": &**name, "why": why }));
    let rejected = explanation.rejected.iter().map(|rejected| {
        json!({
            "route": &*rejected.route,
            "rule": rejected.rule + 1,
            "match": rejected.matching,
            "why": rejected.reason.text(),
        })
    });
    let taken = explanation.selected.as_ref().map(|taken| {
        json!({
            "route": &*taken.route,
            "rule": taken.rule + 1,
            "name": taken.name.as_deref(),
            "by": taken.matched_by,
            "steps": taken.steps,
            "broken": taken.broken,
        })
    });
    json!({
        "listener": explanation.listener.as_deref(),
        "to_https": explanation.to_https,
        "refused": explanation.fault.map(|fault| json!({ "status": fault.status(), "fault": fault.label() })),
        "path": explanation.path,
        "preflight": explanation.preflight,
        "other_listeners": others.collect::<Vec<_>>(),
        "taken": taken,
        "rejected": rejected.collect::<Vec<_>>(),
        "more": explanation.omitted,
    })
}
