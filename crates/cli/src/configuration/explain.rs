//! `ringmain explain`: a request in words, and what becomes of it. Connections that are not looked into are in `stream`.

mod stream;

use std::io::{self, Write};

use ringmain_gateway::model::{Addr, HeaderName, MethodName};
use ringmain_gateway::table::{AddressId, Explanation, Headers, RequestFacts, Table, host};
use ringmain_web::path;
use serde_json::{Value, json};

use crate::args::configuration::Explain;
use crate::failure::Failure;
use crate::print;

/// A request's URL, in parts.
struct Url<'u> {
    https: bool,
    authority: &'u str,
    /// `None`: the scheme's own.
    port: Option<u16>,
    path: &'u str,
    query: &'u str,
}

/// Says where a request goes.
pub(crate) fn explain(args: &Explain) -> Result<(), Failure> {
    // Whether this program has the filters of a file is for whoever serves it.
    let checked = super::read(&args.file, &|_| Ok(()))?;
    let name = args.file.display();
    let Some(table) = checked.table.filter(|_| checked.wrong.is_empty()) else {
        return Err(Failure::Other(format!(
            "{name}: it is wrong; `ringmain check {name}` says what"
        )));
    };
    let (Some(method), Some(url)) = (&args.method, &args.url) else {
        return stream::explain(args, &table);
    };
    MethodName::parse(method).map_err(|fault| Failure::Usage(fault.to_string()))?;
    let url = Url::parse(url)?;
    let headers: Vec<(&str, &[u8])> = args
        .headers
        .iter()
        .map(|text| header(text))
        .collect::<Result<_, _>>()?;
    let (mut host_scratch, mut path_scratch) = (String::new(), String::new());
    let facts = RequestFacts {
        host: host(url.authority, &mut host_scratch),
        path: path::normalise(url.path, &mut path_scratch)
            .map_err(|fault| Failure::Other(format!("400 Bad Request: {fault}")))?,
        method,
        query: url.query,
        headers: Headers::List(&headers),
    };
    let address = address(&table, &url, facts.host)?;
    let explanation = table.explain(address, &facts);
    print(|out| {
        if args.json {
            writeln!(out, "{:#}", as_json(&explanation))
        } else {
            told(&explanation, &facts, out)
        }
    })?;
    if explanation.taken.is_some() || explanation.to_https {
        return Ok(());
    }
    let status = match explanation.listener {
        None if url.https => "421: no listener of that address is for its host",
        None => "404: no listener of that address is for its host",
        Some(_) => "404: no rule takes it",
    };
    Err(Failure::Other(status.to_owned()))
}

impl Url<'_> {
    fn parse(text: &str) -> Result<Url<'_>, Failure> {
        let wrong = || {
            Failure::Usage(format!(
                "expected a URL such as http://shop.example/cart, found `{text}`"
            ))
        };
        let (https, rest) = match text.split_once("://") {
            Some(("http", rest)) => (false, rest),
            Some(("https", rest)) => (true, rest),
            _ => return Err(wrong()),
        };
        let rest = rest.split_once('#').map_or(rest, |(rest, _)| rest);
        let end = rest.find(['/', '?']).unwrap_or(rest.len());
        let (authority, target) = rest.split_at(end);
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let port = match authority.rsplit_once(':') {
            Some((_, port)) if !port.contains(']') => Some(port.parse().map_err(|_| wrong())?),
            _ => None,
        };
        Ok(Url {
            https,
            authority,
            port,
            path: if path.is_empty() { "/" } else { path },
            query,
        })
    }
}

fn header(text: &str) -> Result<(&str, &[u8]), Failure> {
    let wrong = || {
        Failure::Usage(format!(
            "expected a header such as 'accept: text/html', found `{text}`"
        ))
    };
    let (name, value) = text.split_once(':').ok_or_else(wrong)?;
    HeaderName::parse(name).map_err(|_| wrong())?;
    Ok((name, value.trim().as_bytes()))
}

/// The address that a client of this URL connects to: the one with its port; if it tells none and there is none with the
/// scheme's own, the first of the scheme that is for its host.
fn address(table: &Table<()>, url: &Url<'_>, host: &str) -> Result<AddressId, Failure> {
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
    Err(Failure::Other(format!(
        "no listener of {scheme} has port {wanted}; its addresses are: {there}"
    )))
}

fn told(explanation: &Explanation, facts: &RequestFacts<'_>, out: &mut dyn Write) -> io::Result<()> {
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

fn as_json(explanation: &Explanation) -> Value {
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
        "other_listeners": others.collect::<Vec<_>>(),
        "taken": taken,
        "rejected": rejected.collect::<Vec<_>>(),
        "more": explanation.more,
    })
}
