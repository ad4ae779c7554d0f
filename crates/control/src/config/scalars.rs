//! Values that are written as strings: hosts, paths, times, sizes, addresses, statuses. Does not know keys.

mod kubernetes;
mod shares;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use ringmain_gateway::model::{
    Addr, AddrError, EndpointLocation, HeaderName, HeaderValue, Hostname, JwtAlgorithm, LogDestination,
    MethodName, Network, Origin, PasswordHash, Path, Pattern, StatusRange, SubjectName, TlsVersion,
};

pub(super) use self::kubernetes::{ServiceName, ServicePort};
pub(super) use self::shares::{Fraction, Multiple};
use super::error::{quote, suggest};
use super::fields::ParseScalar;
use crate::limits;

fn invalid<T>(expected: &str, found: &str) -> Result<T, String> {
    Err(format!("expected {expected}, found {}", quote(found)))
}

/// Implements [`ParseScalar`] for types of the model that parse themselves.
macro_rules! impl_scalar {
    ($($type:ident $name:literal $description:literal $examples:expr;)*) => {$(
        impl ParseScalar for $type {
            const NAME: &'static str = $name;
            const DESCRIPTION: &'static str = $description;
            const EXAMPLES: &'static [&'static str] = &$examples;

            fn parse(text: &str) -> Result<$type, String> {
                $type::parse(text).map_err(|fault| fault.to_string())
            }
        }
    )*};
}

impl_scalar! {
    Hostname "host" "A host: `shop.example`, or `*.shop.example` for all hosts below it." ["shop.example", "*.shop.example"];
    Path "path" "A path that starts with `/`, without a query. Percent-encoding is decoded." ["/cart", "/assets/"];
    HeaderName "header name" "The name of a header, case-insensitive." ["X-Request-Id"];
    HeaderValue "header value" "The value of a header." ["no-store", "max-age=60"];
    MethodName "method" "A method in capital letters: `GET`." ["GET", "POST"];
    Pattern "expression" "A regular expression in the syntax of the Rust crate `regex` that matches the whole value: linear time, without look-around and back-references. At most 1024 bytes, and 256 KiB when compiled." ["/items/[0-9]+"];
    Origin "origin" "The origin of scripts: `https://shop.example`, `https://*.shop.example:8443` for all hosts below one, `https://*` for all hosts, `http://localhost:*` for all ports, `capacitor://localhost` of an application, or `*` for all. Default port: the default port of the scheme." ["https://shop.example", "*"];
    Network "network" "A network: `10.0.0.0/8`, `fd00::/8`, or a single address." ["10.0.0.0/8", "fd00::/8"];
}

impl ParseScalar for Addr {
    const NAME: &'static str = "address";
    const DESCRIPTION: &'static str =
        "A listen address: `0.0.0.0:80`, `[::1]:80`, `:80` for all addresses, or `unix:/run/web.sock`.";
    const EXAMPLES: &'static [&'static str] = &["0.0.0.0:80", "unix:/run/web.sock"];

    fn parse(text: &str) -> Result<Addr, String> {
        text.parse().map_err(|fault: AddrError| {
            let message = fault.to_string();
            // The message has the part that was found after a semicolon.
            let expected = message
                .split_once("; found")
                .map_or(&*message, |(expected, _)| expected);
            let hint = match &fault {
                AddrError::Unknown { hint, .. } => hint,
                _ => "",
            };
            format!("{expected}, found {}{hint}", quote(text))
        })
    }
}

impl ParseScalar for PasswordHash {
    const NAME: &'static str = "password hash";
    const DESCRIPTION: &'static str =
        "A password hash by bcrypt, argon2 or SHA-crypt, as written by `htpasswd -B` and `mkpasswd`.";
    const EXAMPLES: &'static [&'static str] = &["$5$saltstring$5B8vYYiY.CVt1RlTTf8KbXBH3hsxY/GNooZaBBGWEc5"];
    const PATTERN: &'static str = "^\\$(2[abxy]|argon2(id|i|d)|5|6)\\$";

    fn parse(text: &str) -> Result<PasswordHash, String> {
        PasswordHash::parse(text).map_err(|fault| fault.to_string())
    }
}

impl ParseScalar for JwtAlgorithm {
    const NAME: &'static str = "algorithm";
    const DESCRIPTION: &'static str = "A signature algorithm: RS256, RS384, RS512, PS256, PS384, PS512, ES256, ES384, ES512, EdDSA, HS256, HS384 or HS512.";
    const EXAMPLES: &'static [&'static str] = &["ES256", "EdDSA"];
    const PATTERN: &'static str = "^((RS|PS|ES|HS)(256|384|512)|EdDSA)$";

    fn parse(text: &str) -> Result<JwtAlgorithm, String> {
        match JwtAlgorithm::from_name(text) {
            Some(algorithm) => Ok(algorithm),
            None => invalid("an algorithm such as RS256, ES256 or EdDSA (never `none`)", text),
        }
    }
}

/// The URL of a page: its server and path.
#[derive(Clone, Debug)]
pub(super) struct PageUrl {
    pub(super) origin: UpstreamUrl,
    pub(super) path: String,
}

impl ParseScalar for PageUrl {
    const NAME: &'static str = "page";
    const DESCRIPTION: &'static str = "A URL with a path: `https://id.example/keys`.";
    const EXAMPLES: &'static [&'static str] = &["https://id.example/keys"];
    const PATTERN: &'static str = "^https?://[^/]+/";

    fn parse(text: &str) -> Result<PageUrl, String> {
        let expected = "a URL with a path, such as https://id.example/keys";
        let authority = text.find("://").map(|at| at + 3);
        let slash = authority.and_then(|from| Some(from + text[from..].find('/')?));
        let Some((origin, path)) = slash.map(|at| text.split_at(at)) else {
            return invalid(expected, text);
        };
        if !is_path(path) {
            return invalid(expected, text);
        }
        let origin = UpstreamUrl::parse(origin)?;
        Ok(PageUrl {
            origin,
            path: path.to_owned(),
        })
    }
}

/// Returns whether a text can be a request target: a path, optionally with a query.
pub(super) fn is_path(text: &str) -> bool {
    text.starts_with('/') && text.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'#')
}

/// The SHA-256 of an API key.
#[derive(Clone, Debug)]
pub(super) struct KeyDigest(pub(super) [u8; 32]);

impl ParseScalar for KeyDigest {
    const NAME: &'static str = "key digest";
    const DESCRIPTION: &'static str =
        "`sha256:` and the SHA-256 digest of a key, as written by `printf %s KEY | sha256sum`.";
    const EXAMPLES: &'static [&'static str] =
        &["sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"];
    const PATTERN: &'static str = "^sha256:[0-9a-fA-F]{64}$";

    fn parse(text: &str) -> Result<KeyDigest, String> {
        let digits = text.strip_prefix("sha256:").filter(|digits| digits.len() == 64);
        let digits = digits.filter(|digits| digits.bytes().all(|byte| byte.is_ascii_hexdigit()));
        // The invalid text is not quoted: it may be a key.
        let expected =
            "expected `sha256:` and 64 hexadecimal digits (printf %s KEY | sha256sum), found something else";
        let digits = digits.ok_or(expected)?;
        let mut digest = [0; 32];
        for (byte, pair) in digest.iter_mut().zip(digits.as_bytes().as_chunks::<2>().0) {
            let pair = str::from_utf8(pair).map_err(|_| expected)?;
            *byte = u8::from_str_radix(pair, 16).map_err(|_| expected)?;
        }
        Ok(KeyDigest(digest))
    }
}

/// A time; `Off` where `off` is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Time(pub(super) Duration);

/// Units of times, in microseconds.
const TIMES: [(&str, u64); 6] = [
    ("us", 1),
    ("ms", 1_000),
    ("s", 1_000_000),
    ("m", 60_000_000),
    ("h", 3_600_000_000),
    ("d", 86_400_000_000),
];

/// Units of sizes; `k` is 1024.
const SIZES: [(&str, u64); 7] = [
    ("B", 1),
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("k", 1 << 10),
    ("m", 1 << 20),
    ("g", 1 << 30),
];

/// Parses a number and its unit.
fn scaled(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let (_, factor) = units
        .iter()
        .find(|(name, _)| *name == unit.trim_start_matches(' '))?;
    number.parse::<u64>().ok()?.checked_mul(*factor)
}

impl ParseScalar for Time {
    const NAME: &'static str = "time";
    const DESCRIPTION: &'static str =
        "A time with its unit (us, ms, s, m, h, d), at most 365 days: `500ms`, `10s`, `2m`.";
    const EXAMPLES: &'static [&'static str] = &["500ms", "10s"];
    const PATTERN: &'static str = "^[0-9]+ ?(us|ms|s|m|h|d)$";

    fn parse(text: &str) -> Result<Time, String> {
        let time = scaled(text, &TIMES).map(Duration::from_micros);
        match time.filter(|time| *time <= limits::MAX_TIME) {
            Some(time) => Ok(Time(time)),
            None => invalid(
                "a time with its unit (us, ms, s, m, h, d), such as 500ms, 10s or 2m",
                text,
            ),
        }
    }
}

/// A time, or `off`.
#[derive(Clone, Copy, Debug)]
pub(super) struct TimeOrOff(pub(super) Option<Duration>);

impl ParseScalar for TimeOrOff {
    const NAME: &'static str = "time or off";
    const DESCRIPTION: &'static str = "A time with its unit, such as `10s`, or `off`: unlimited.";
    const EXAMPLES: &'static [&'static str] = &["10s", "off"];
    const PATTERN: &'static str = "^([0-9]+ ?(us|ms|s|m|h|d)|off)$";

    fn parse(text: &str) -> Result<TimeOrOff, String> {
        if text == "off" {
            return Ok(TimeOrOff(None));
        }
        let Time(time) = Time::parse(text).map_err(|message| {
            message.replacen("a time with its unit", "`off`, or a time with its unit", 1)
        })?;
        Ok(TimeOrOff(Some(time)))
    }
}

/// A number of bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct ByteSize(pub(super) u64);

impl ParseScalar for ByteSize {
    const NAME: &'static str = "size";
    const DESCRIPTION: &'static str =
        "A size with its unit (B, KiB, MiB, GiB; k, m and g are synonyms): `64KiB`, `1MiB`.";
    const EXAMPLES: &'static [&'static str] = &["64KiB", "1MiB"];
    const PATTERN: &'static str = "^[0-9]+ ?(B|KiB|MiB|GiB|k|m|g)$";

    fn parse(text: &str) -> Result<ByteSize, String> {
        match scaled(text, &SIZES) {
            Some(size) => Ok(ByteSize(size)),
            None => {
                let wrong = invalid(
                    "a size with its unit (B, KiB, MiB, GiB), such as 64KiB or 1MiB",
                    text,
                );
                wrong.map_err(|message| message + &binary_unit_advice(text))
            }
        }
    }
}

/// Suggests the binary unit in place of a decimal one.
fn binary_unit_advice(text: &str) -> String {
    let units = [("kb", "KiB"), ("mb", "MiB"), ("gb", "GiB")];
    let lower = text.to_ascii_lowercase();
    let found = units
        .iter()
        .find_map(|(unit, binary)| Some((lower.strip_suffix(unit)?.trim_end(), binary)));
    match found {
        Some((number, binary)) if number.parse::<u64>().is_ok() => format!("; write {number}{binary}"),
        _ => String::new(),
    }
}

/// A number of bytes, or `off`.
#[derive(Clone, Copy, Debug)]
pub(super) struct ByteSizeOrOff(pub(super) Option<u64>);

impl ParseScalar for ByteSizeOrOff {
    const NAME: &'static str = "size or off";
    const DESCRIPTION: &'static str = "A size with its unit, such as `1MiB`, or `off`: unlimited.";
    const EXAMPLES: &'static [&'static str] = &["1MiB", "off"];
    const PATTERN: &'static str = "^([0-9]+ ?(B|KiB|MiB|GiB|k|m|g)|off)$";

    fn parse(text: &str) -> Result<ByteSizeOrOff, String> {
        if text == "off" {
            return Ok(ByteSizeOrOff(None));
        }
        let ByteSize(size) = ByteSize::parse(text).map_err(|message| {
            message.replacen("a size with its unit", "`off`, or a size with its unit", 1)
        })?;
        Ok(ByteSizeOrOff(Some(size)))
    }
}

impl ParseScalar for StatusRange {
    const NAME: &'static str = "status";
    const DESCRIPTION: &'static str = "A status such as `502`, or a class such as `5xx`.";
    const EXAMPLES: &'static [&'static str] = &["502", "5xx"];
    const PATTERN: &'static str = "^([2-5][0-9][0-9]|[2-5]xx)$";
    const ALLOWS_NUMBER: bool = true;

    fn parse(text: &str) -> Result<StatusRange, String> {
        if let [class @ b'2'..=b'5', b'x', b'x'] = text.as_bytes() {
            let first = u16::from(class - b'0') * 100;
            return Ok(StatusRange {
                first,
                last: first + 99,
            });
        }
        match text.parse() {
            Ok(status @ 200..=599) => Ok(StatusRange::one(status)),
            _ => invalid("a status such as 502, or a class such as 5xx", text),
        }
    }
}

/// A condition for a retry.
#[derive(Clone, Copy, Debug)]
pub(super) enum RetryCondition {
    Connect,
    Reset,
    Timeout,
    Status(StatusRange),
}

impl ParseScalar for RetryCondition {
    const NAME: &'static str = "condition";
    const DESCRIPTION: &'static str = "A condition for a retry: `connect`, `reset`, `timeout`, a status such as `502`, or a class such as `5xx`.";
    const EXAMPLES: &'static [&'static str] = &["connect", "503"];
    const PATTERN: &'static str = "^(connect|reset|timeout|[2-5][0-9][0-9]|[2-5]xx)$";
    const ALLOWS_NUMBER: bool = true;

    fn parse(text: &str) -> Result<RetryCondition, String> {
        Ok(match text {
            "connect" => RetryCondition::Connect,
            "reset" => RetryCondition::Reset,
            "timeout" => RetryCondition::Timeout,
            _ => match StatusRange::parse(text) {
                Ok(statuses) => RetryCondition::Status(statuses),
                Err(_) => {
                    return invalid(
                        "`connect`, `reset`, `timeout`, a status such as 502 or a class such as 5xx",
                        text,
                    );
                }
            },
        })
    }
}

impl ParseScalar for TlsVersion {
    const NAME: &'static str = "TLS version";
    const DESCRIPTION: &'static str = "A TLS version: `1.2` or `1.3`.";
    const EXAMPLES: &'static [&'static str] = &["1.2", "1.3"];
    fn parse(text: &str) -> Result<TlsVersion, String> {
        match text {
            "1.2" => Ok(TlsVersion::Tls12),
            "1.3" => Ok(TlsVersion::Tls13),
            _ => invalid("1.2 or 1.3", text),
        }
    }
}

impl ParseScalar for SubjectName {
    const NAME: &'static str = "subject name";
    const DESCRIPTION: &'static str = "A host, or a URI such as `spiffe://shop.example/cart`.";
    const EXAMPLES: &'static [&'static str] = &["cart.internal", "spiffe://shop.example/cart"];

    fn parse(text: &str) -> Result<SubjectName, String> {
        if text.contains("://") {
            return Ok(SubjectName::Uri(text.into()));
        }
        <Hostname as ParseScalar>::parse(text).map(SubjectName::Host)
    }
}

impl ParseScalar for EndpointLocation {
    const NAME: &'static str = "endpoint address";
    const DESCRIPTION: &'static str = "The address of an endpoint: `10.0.0.1:3000`, `[::1]:3000`, `cart.internal:3000`, or `unix:/run/cart.sock`.";
    const EXAMPLES: &'static [&'static str] = &["10.0.0.1:3000", "cart.internal:3000"];

    fn parse(text: &str) -> Result<EndpointLocation, String> {
        const EXPECTED: &str = "an address and port, a host and port, or unix:/path";
        if let Some(path) = text.strip_prefix("unix:") {
            return if path.starts_with('/') {
                Ok(EndpointLocation::Unix(path.into()))
            } else {
                invalid(EXPECTED, text)
            };
        }
        if let Ok(address) = text.parse::<SocketAddr>() {
            return Ok(EndpointLocation::Address(address));
        }
        let (host, port) = text.rsplit_once(':').unwrap_or((text, ""));
        match (Hostname::parse(host), port.parse()) {
            (Ok(name), Ok(port)) if name.wildcard_suffix().is_none() => {
                Ok(EndpointLocation::Host { name, port })
            }
            _ => invalid(EXPECTED, text),
        }
    }
}

/// A target: the name of an upstream, or a URL.
#[derive(Clone, Debug)]
pub(super) enum UpstreamTarget {
    Upstream(String),
    Url(UpstreamUrl),
}

/// An upstream in a line.
#[derive(Clone, Debug)]
pub(super) struct UpstreamUrl {
    pub(super) tls: bool,
    /// By prior knowledge.
    pub(super) http2: bool,
    pub(super) at: EndpointLocation,
    pub(super) text: String,
}

impl ParseScalar for UpstreamTarget {
    const NAME: &'static str = "target";
    const DESCRIPTION: &'static str = "The name of an upstream, or a URL without a path: `http://127.0.0.1:3000`, `https://api.example`, `h2c://127.0.0.1:50051` (HTTP/2 without TLS), `unix:/run/app.sock`.";
    const EXAMPLES: &'static [&'static str] = &["http://127.0.0.1:3000", "unix:/run/app.sock"];

    fn parse(text: &str) -> Result<UpstreamTarget, String> {
        if text.starts_with("unix:") || text.contains("://") {
            return UpstreamUrl::parse(text).map(UpstreamTarget::Url);
        }
        if EndpointLocation::parse(text).is_ok() {
            return invalid(
                &format!("the name of an upstream or a URL (write http://{text})"),
                text,
            );
        }
        Ok(UpstreamTarget::Upstream(text.to_owned()))
    }
}

impl ParseScalar for UpstreamUrl {
    const NAME: &'static str = "URL";
    const DESCRIPTION: &'static str = "A URL without a path: `http://127.0.0.1:3000`, `https://api.example`, `h2c://127.0.0.1:50051` (HTTP/2 without TLS), `unix:/run/app.sock`.";
    const EXAMPLES: &'static [&'static str] = &["http://127.0.0.1:3000", "https://api.example"];

    fn parse(text: &str) -> Result<UpstreamUrl, String> {
        let url = |(tls, http2), at| UpstreamUrl {
            tls,
            http2,
            at,
            text: text.to_owned(),
        };
        if text.starts_with("unix:") {
            return EndpointLocation::parse(text).map(|at| url((false, false), at));
        }
        let ((tls, http2), rest) = if let Some(rest) = text.strip_prefix("http://") {
            ((false, false), rest)
        } else if let Some(rest) = text.strip_prefix("https://") {
            ((true, false), rest)
        } else if let Some(rest) = text.strip_prefix("h2c://") {
            ((false, true), rest)
        } else {
            let advice = match text.split_once("://") {
                Some(("redis", rest)) => format!("; a Redis is written http://{rest}"),
                Some(("rediss", rest)) => format!("; a Redis over TLS is written https://{rest}"),
                _ => String::new(),
            };
            let wrong = invalid("a URL of http://, https:// or h2c://, or unix:/path", text);
            return wrong.map_err(|message| message + &advice);
        };
        let authority = rest.strip_suffix('/').unwrap_or(rest);
        if authority.contains('/') {
            return invalid("a URL without a path (`rewrite` changes paths)", text);
        }
        let has_port = authority
            .rsplit_once(':')
            .is_some_and(|(_, port)| !port.contains(']'));
        let port = if tls { 443 } else { 80 };
        let full = if has_port {
            authority.to_owned()
        } else {
            format!("{authority}:{port}")
        };
        match EndpointLocation::parse(&full) {
            Ok(at) => Ok(url((tls, http2), at)),
            Err(_) => invalid("a URL such as http://127.0.0.1:3000 or https://api.example", text),
        }
    }
}

/// A method of gRPC, or all of a service's.
#[derive(Clone, Debug)]
pub(super) struct GrpcMethodName {
    pub(super) service: String,
    pub(super) method: Option<String>,
}

impl ParseScalar for GrpcMethodName {
    const NAME: &'static str = "gRPC method";
    const DESCRIPTION: &'static str =
        "A gRPC service with its package, or one of its methods: `shop.v1.Cart`, `shop.v1.Cart/Add`.";
    const EXAMPLES: &'static [&'static str] = &["shop.v1.Cart", "shop.v1.Cart/Add"];
    const PATTERN: &'static str = "^[A-Za-z_][A-Za-z0-9_.]*(/[A-Za-z_][A-Za-z0-9_]*)?$";

    fn parse(text: &str) -> Result<GrpcMethodName, String> {
        let (service, method) = match text.split_once('/') {
            None => (text, None),
            Some((service, method)) => (service, Some(method)),
        };
        let is_name = |name: &str| {
            name.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_')
                && name
                    .bytes()
                    .all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
        };
        if !service.split('.').all(is_name) || !method.is_none_or(is_name) {
            return invalid(
                "a service of gRPC such as shop.v1.Cart, or shop.v1.Cart/Add",
                text,
            );
        }
        Ok(GrpcMethodName {
            service: service.to_owned(),
            method: method.map(str::to_owned),
        })
    }
}

impl ParseScalar for LogDestination {
    const NAME: &'static str = "log destination";
    const DESCRIPTION: &'static str =
        "`stdout`, `stderr`, or the path of a file, relative to the configuration file.";
    const EXAMPLES: &'static [&'static str] = &["stdout", "access.log"];

    fn parse(text: &str) -> Result<LogDestination, String> {
        const EXPECTED: &str = "`stdout`, `stderr`, or the path of a file";
        match text {
            "stdout" => return Ok(LogDestination::Stdout),
            "stderr" => return Ok(LogDestination::Stderr),
            "off" | "none" | "-" => {
                return invalid(&format!("{EXPECTED} (without the key there is no log)"), text);
            }
            _ => {}
        }
        let name = text.rsplit('/').next().unwrap_or_default();
        if matches!(name, "" | "." | "..") || text.chars().any(char::is_control) {
            return invalid(EXPECTED, text);
        }
        // A misspelling would become a file in the current directory. A path marks an intended file.
        let streams = ["stdout", "stderr"];
        if !text.contains('/')
            && let Some(suggestion) = suggest(&text.to_ascii_lowercase(), streams)
        {
            let expected = format!("{EXPECTED} (`{suggestion}`, or ./{text} if a file is meant)");
            return invalid(&expected, text);
        }
        if text.starts_with("syslog:") {
            let expected = format!("{EXPECTED}; whoever sends lines to syslog reads them from there");
            return invalid(&expected, text);
        }
        Ok(LogDestination::File(PathBuf::from(text)))
    }
}
