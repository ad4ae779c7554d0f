//! Cross-origin resource sharing (the Fetch standard's CORS): preflight responses, and the fields that let scripts read a response. Does
//! not decide whether a request is forwarded: browsers enforce CORS, not servers.

use ringmain_web::Request;
use ringmain_wire::h1::FieldBlock;

use super::hop_by_hop::list_elements;
use crate::model::{Cors, Origin, SerializedOrigin};
use crate::table::{Headers, announced_method, is_token};

/// The methods that browsers allow in any case (Fetch §2.2.1).
const SAFELISTED_METHODS: &str = "GET, HEAD, POST";

/// The CORS fields of a response.
#[derive(Debug, Default)]
pub(crate) struct CorsHeaders {
    pub(crate) fields: FieldBlock,
    /// Set if the response consists of nothing else.
    pub(crate) is_preflight: bool,
}

/// Builds the CORS fields of the response to a request.
pub(super) fn build_headers(cors: &Cors, req: &Request<'_>) -> CorsHeaders {
    let announced = announced_method(req.method().as_str(), &Headers::Fields(req.head().fields));
    let mut fields = FieldBlock::new();
    let mut set = |name: &str, value: &str| {
        // Values are from the configuration, or were checked to be lists of tokens or an origin.
        let _ = fields.push(name, value.as_bytes());
    };
    let any = cors.origins.contains(&Origin::Any);
    // A response that depends on the origin must not be cached for another one.
    let allows_all = any && !cors.credentials;
    match (allows_all, announced) {
        (true, None) => {}
        (false, None) => set("Vary", "Origin"),
        (_, Some(_)) => set(
            "Vary",
            "Origin, Access-Control-Request-Method, Access-Control-Request-Headers",
        ),
    }
    let origin = req
        .header("Origin")
        .filter(|origin| is_origin_allowed(cors, origin));
    let Some(origin) = origin else {
        return CorsHeaders {
            fields,
            is_preflight: announced.is_some(),
        };
    };
    let allowed_origin = if allows_all { "*" } else { origin };
    set("Access-Control-Allow-Origin", allowed_origin);
    if cors.credentials {
        set("Access-Control-Allow-Credentials", "true");
    }
    // With credentials `*` is a literal header name.
    let names = cors.exposed_headers.iter().map(|name| name.as_str());
    let exposed = join_names(names.filter(|name| !(cors.credentials && *name == "*")));
    if !exposed.is_empty() {
        set("Access-Control-Expose-Headers", &exposed);
    }
    if let Some(method) = announced {
        set_preflight_fields(cors, req, method, &mut set);
    }
    CorsHeaders {
        fields,
        is_preflight: announced.is_some(),
    }
}

/// Sets the fields that only a preflight response has: methods, request headers, and the time to cache them.
fn set_preflight_fields(cors: &Cors, req: &Request<'_>, method: &str, set: &mut impl FnMut(&str, &str)) {
    let allowed_methods = || match &cors.methods[..] {
        [] => SAFELISTED_METHODS.to_owned(),
        methods => join_names(methods.iter().map(|method| method.as_str())),
    };
    // With credentials `*` is a literal method name.
    let methods = match (cors.any_method, cors.credentials) {
        (true, false) => "*".to_owned(),
        (true, true) => method.to_owned(),
        (false, _) => allowed_methods(),
    };
    set("Access-Control-Allow-Methods", &methods);
    let requested = req.header("Access-Control-Request-Headers").filter(|list| {
        let names = || list_elements(list.as_bytes());
        names().all(|name| str::from_utf8(name).is_ok_and(is_token))
    });
    let headers = match (cors.any_request_header, cors.credentials) {
        // `*` does not cover `Authorization`, which is listed by name.
        (true, _) => requested.unwrap_or_default().to_owned(),
        (false, _) => join_names(cors.request_headers.iter().map(|name| name.as_str())),
    };
    if !headers.is_empty() {
        set("Access-Control-Allow-Headers", &headers);
    }
    if let Some(age) = cors.max_age {
        set("Access-Control-Max-Age", &age.as_secs().to_string());
    }
}

/// Returns whether scripts of an origin may read responses.
fn is_origin_allowed(cors: &Cors, origin: &str) -> bool {
    match SerializedOrigin::parse(origin) {
        Some(origin) => cors.origins.iter().any(|allowed| allowed.matches(&origin)),
        // Any page can have an opaque origin: it gets no credentials.
        None => origin == "null" && !cors.credentials && cors.origins.contains(&Origin::Any),
    }
}

fn join_names<'n>(names: impl Iterator<Item = &'n str>) -> String {
    let mut all = String::new();
    for name in names {
        if !all.is_empty() {
            all.push_str(", ");
        }
        all.push_str(name);
    }
    all
}
