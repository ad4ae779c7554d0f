//! Cross-origin resource sharing (the Fetch standard's CORS): preflights are answered here, and answers say which scripts may
//! read them. Whether a request is sent on at all is not decided by it: browsers judge, not servers.

use std::borrow::Cow;

use ringmain_web::Request;
use ringmain_wire::h1::FieldBlock;

use super::fields::options;
use crate::model::{Cors, Origin};
use crate::table::{Headers, is_token, preflight};

/// What a request's answer says to browsers.
#[derive(Debug, Default)]
pub(crate) struct Cross {
    pub(crate) fields: FieldBlock,
    /// It is all that is answered.
    pub(crate) is_preflight: bool,
}

/// What the answer to a request says.
pub(super) fn fields(cors: &Cors, req: &Request<'_>) -> Cross {
    let asked = preflight(req.method().as_str(), &Headers::Fields(req.head().fields));
    let mut fields = FieldBlock::new();
    let mut put = |name: &str, value: &str| {
        // Values are of the configuration, or were checked to be lists of tokens or an origin.
        let _ = fields.push(name, value.as_bytes());
    };
    let any = cors.origins.contains(&Origin::Any);
    // What differs by origin must not be taken for another one's.
    match (any && !cors.credentials, asked) {
        (true, None) => {}
        (false, None) => put("Vary", "Origin"),
        (_, Some(_)) => put(
            "Vary",
            "Origin, Access-Control-Request-Method, Access-Control-Request-Headers",
        ),
    }
    let origin = req.header("Origin").filter(|origin| is_allowed(cors, origin));
    let Some(origin) = origin else {
        return Cross {
            fields,
            is_preflight: asked.is_some(),
        };
    };
    let everyone = any && !cors.credentials;
    put("Access-Control-Allow-Origin", if everyone { "*" } else { origin });
    if cors.credentials {
        put("Access-Control-Allow-Credentials", "true");
    }
    match asked {
        None => {
            let exposed = joined(cors.exposed_headers.iter().map(|name| name.as_str()));
            if !exposed.is_empty() {
                put("Access-Control-Expose-Headers", &exposed);
            }
        }
        Some(method) => {
            let listed = || {
                let own = cors.methods.iter().map(|method| method.as_str());
                joined(["GET", "HEAD", "POST"].into_iter().chain(own))
            };
            // With credentials a star is a name like another.
            let methods = match (cors.any_method, cors.credentials) {
                (true, false) => "*".to_owned(),
                (true, true) => method.to_owned(),
                (false, _) => listed(),
            };
            put("Access-Control-Allow-Methods", &methods);
            let wanted = req.header("Access-Control-Request-Headers").filter(|list| {
                let names = || options(list.as_bytes());
                names().all(|name| str::from_utf8(name).is_ok_and(is_token))
            });
            let headers = match (cors.any_request_header, cors.credentials) {
                // A star does not cover `Authorization`: it is said by its name.
                (true, _) => wanted.unwrap_or_default().to_owned(),
                (false, _) => joined(cors.request_headers.iter().map(|name| name.as_str())),
            };
            if !headers.is_empty() {
                put("Access-Control-Allow-Headers", &headers);
            }
            if let Some(age) = cors.max_age {
                put("Access-Control-Max-Age", &age.as_secs().to_string());
            }
        }
    }
    Cross {
        fields,
        is_preflight: asked.is_some(),
    }
}

/// Whether scripts of an origin may read answers.
fn is_allowed(cors: &Cors, origin: &str) -> bool {
    let read = Parsed::of(origin);
    cors.origins.iter().any(|allowed| match allowed {
        // Documents without an origin of their own are anybody's: nobody's credentials are for them.
        Origin::Any => read.is_some() || (origin == "null" && !cors.credentials),
        Origin::Of { https, host, port } => read.as_ref().is_some_and(|read| {
            let own = if *https { 443 } else { 80 };
            read.https == Some(*https)
                && host.matches(&read.host)
                && read.port.unwrap_or(own) == port.unwrap_or(own)
        }),
    })
}

/// A serialised origin (RFC 6454 §6.2).
struct Parsed<'o> {
    /// `None`: another scheme.
    https: Option<bool>,
    /// In lower case.
    host: Cow<'o, str>,
    port: Option<u16>,
}

impl<'o> Parsed<'o> {
    fn of(text: &'o str) -> Option<Parsed<'o>> {
        let (scheme, rest) = text.split_once("://")?;
        let (host, port) = match rest.rsplit_once(':') {
            Some((host, port)) if !port.ends_with(']') => (host, Some(port.parse().ok()?)),
            _ => (rest, None),
        };
        let scheme_byte = |byte: u8| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte);
        let well = scheme.bytes().all(scheme_byte) && is_host(host);
        (well && !scheme.is_empty()).then(|| Parsed {
            https: match scheme {
                "https" => Some(true),
                "http" => Some(false),
                _ => None,
            },
            host: match host.bytes().any(|byte| byte.is_ascii_uppercase()) {
                true => host.to_ascii_lowercase().into(),
                // As browsers write it.
                false => host.into(),
            },
            port,
        })
    }
}

/// A host as browsers serialise it: labels of letters, digits, `-` and `_`, or an IPv6 address in brackets.
fn is_host(text: &str) -> bool {
    if let Some(address) = text.strip_prefix('[') {
        let address = address.strip_suffix(']').unwrap_or_default();
        return address.parse::<std::net::Ipv6Addr>().is_ok();
    }
    let byte = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
    let name = text.strip_suffix('.').unwrap_or(text);
    name.split('.')
        .all(|label| !label.is_empty() && label.bytes().all(byte))
}

fn joined<'n>(names: impl Iterator<Item = &'n str>) -> String {
    let mut all = String::new();
    for name in names {
        if !all.is_empty() {
            all.push_str(", ");
        }
        all.push_str(name);
    }
    all
}
