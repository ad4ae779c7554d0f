//! Cross-origin resource sharing (the Fetch standard's CORS): preflights are answered here, and answers say which scripts may
//! read them. Whether a request is sent on at all is not decided by it: browsers judge, not servers.

use ringmain_web::Request;
use ringmain_wire::h1::FieldBlock;

use super::fields::options;
use crate::model::{Cors, Origin, SerializedOrigin};
use crate::table::{Headers, is_token, preflight};

/// The methods that browsers allow in any case (Fetch §2.2.1).
const SAFELISTED_METHODS: &str = "GET, HEAD, POST";

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
    // With credentials a star is the name of a header.
    let names = cors.exposed_headers.iter().map(|name| name.as_str());
    let exposed = joined(names.filter(|name| !(cors.credentials && *name == "*")));
    if !exposed.is_empty() {
        put("Access-Control-Expose-Headers", &exposed);
    }
    if let Some(method) = asked {
        let listed = || match &cors.methods[..] {
            [] => SAFELISTED_METHODS.to_owned(),
            methods => joined(methods.iter().map(|method| method.as_str())),
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
    Cross {
        fields,
        is_preflight: asked.is_some(),
    }
}

/// Returns whether scripts of an origin may read responses.
fn is_allowed(cors: &Cors, origin: &str) -> bool {
    match SerializedOrigin::parse(origin) {
        Some(origin) => cors.origins.iter().any(|allowed| allowed.matches(&origin)),
        // Any page can have an opaque origin: credentials are not for it.
        None => origin == "null" && !cors.credentials && cors.origins.contains(&Origin::Any),
    }
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
