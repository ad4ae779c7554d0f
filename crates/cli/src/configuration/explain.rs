//! `ringmain explain`: a request in words, and what becomes of it. Connections that are not looked into are in `stream`.

mod stream;

use std::fmt::Display;
use std::io::{self, Write};

use ringmain_gateway::model::{Addr, HeaderName, HeaderValue, MethodName};
use ringmain_gateway::table::{AddressId, Explanation, Headers, RequestFacts, Table, host};
use ringmain_web::path;
use ringmain_wire::h1::{FieldTable, HeadScanner, Parsed, parse_request};
use serde_json::{Value, json};

use crate::args::configuration::Explain;
use crate::error::CliError;
use crate::print_output;

/// A request's URL, in parts.
struct Url<'u> {
    https: bool,
    authority: &'u str,
    /// `None`: the scheme's own.
    port: Option<u16>,
    /// Path and query, as a request line has them; empty: `/`.
    target: &'u str,
}

/// Says where a request goes.
pub(crate) fn explain(args: &Explain) -> Result<(), CliError> {
    // Whether this program has the filters of a file is for whoever serves it.
    let checked = super::compile_file(&args.file, &|_| Ok(()))?;
    let name = args.file.display();
    let Some(table) = checked.table.filter(|_| checked.wrong.is_empty()) else {
        return Err(CliError::Other(format!(
            "{name}: it is wrong; `ringmain check {name}` says what"
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
    // The gateway's own parser, so that the same requests are rejected.
    let head = match parse_request(head.as_bytes(), &limits, &mut HeadScanner::new(), &mut fields) {
        Ok(Parsed::Complete { head, .. }) => head,
        Ok(Parsed::Partial) => return Err(refused(&"the head has no end")),
        Err(fault) => return Err(refused(&fault)),
    };
    let (mut host_scratch, mut path_scratch) = (String::new(), String::new());
    let authority = head.authority.map(|authority| authority.as_str());
    let facts = RequestFacts {
        host: host(authority.unwrap_or_default(), &mut host_scratch),
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
    if explanation.taken.is_some() || explanation.to_https {
        return Ok(());
    }
    if let Some(fault) = explanation.refused {
        return Err(CliError::Other(format!("{}: {}", fault.status(), fault.text())));
    }
    let status = match explanation.listener {
        None if url.https => "421: no listener of that address is for its host",
        None => "404: no listener of that address is for its host",
        Some(_) => "404: no rule takes it",
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
        // Clients send names and passwords elsewhere, if at all.
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

    /// The head that a client of this URL sends. A `Host` among the headers has precedence over the URL's.
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

/// The address that a client of this URL connects to: the one with its port; if it tells none and there is none with the
/// scheme's own, the first of the scheme that is for its host.
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
    let admits = |id: AddressId| table.addresses().admit(id, host).is_some();
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
        "no listener of {scheme} has port {wanted}; its addresses are: {there}"
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
    for (name, why) in &explanation.others {
        writeln!(out, "  not `{name}`: {why}")?;
    }
    if explanation.to_https {
        return writeln!(out, "  redirects to https; no route is looked at");
    }
    if let Some(fault) = explanation.refused {
        return writeln!(out, "  refuses it: {}; no route is looked at", fault.text());
    }
    if let Some(path) = &explanation.path {
        writeln!(out, "  its path is matched as `{path}`")?;
    }
    if let Some(method) = &explanation.preflight {
        writeln!(
            out,
            "  a preflight for {method}: it is answered by CORS of the rule for {method}"
        )?;
    }
    if let Some(taken) = &explanation.taken {
        let name = taken
            .name
            .as_ref()
            .map(|name| format!(" ({name})"))
            .unwrap_or_default();
        writeln!(
            out,
            "route `{}`, rule {}{name}, by {}",
            taken.route, taken.rule, taken.by
        )?;
        if let Some(broken) = &taken.broken {
            writeln!(out, "  answer 500: {broken}")?;
        }
        for step in &taken.steps {
            writeln!(out, "  {step}")?;
        }
    } else if explanation.listener.is_some() {
        writeln!(out, "no rule: 404")?;
    }
    if !explanation.rejected.is_empty() {
        writeln!(out, "not taken by, the nearest first:")?;
    }
    for rejected in &explanation.rejected {
        writeln!(
            out,
            "  route `{}`, rule {}: {}",
            rejected.route,
            rejected.rule,
            rejected.why.text()
        )?;
    }
    match explanation.more {
        0 => Ok(()),
        more => writeln!(out, "  and {more} more"),
    }
}

fn explanation_json(explanation: &Explanation) -> Value {
    let others = explanation
        .others
        .iter()
        .map(|(name, why)| json!({ "listener": &**name, "why": why }));
    let rejected = explanation.rejected.iter().map(|rejected| {
        json!({
            "route": &*rejected.route,
            "rule": rejected.rule,
            "match": rejected.matching,
            "why": rejected.why.text(),
        })
    });
    let taken = explanation.taken.as_ref().map(|taken| {
        json!({
            "route": &*taken.route,
            "rule": taken.rule,
            "name": taken.name.as_deref(),
            "by": taken.by,
            "steps": taken.steps,
            "broken": taken.broken,
        })
    });
    json!({
        "listener": explanation.listener.as_deref(),
        "to_https": explanation.to_https,
        "refused": explanation.refused.map(|fault| json!({ "status": fault.status(), "fault": fault.label() })),
        "path": explanation.path,
        "preflight": explanation.preflight,
        "other_listeners": others.collect::<Vec<_>>(),
        "taken": taken,
        "rejected": rejected.collect::<Vec<_>>(),
        "more": explanation.more,
    })
}
