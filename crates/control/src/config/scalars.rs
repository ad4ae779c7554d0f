//! How values are written as texts: hosts, paths, times, sizes, addresses, statuses. Knows no key.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use ringmain_gateway::model::{
    Addr, HeaderName, HeaderValue, Hostname, JwtAlgorithm, LogDestination, MethodName, Network, Origin,
    PasswordHash, Path, Pattern, StatusRange, SubjectName, TlsVersion, Where,
};

use super::error::{quoted, suggestion};
use super::fields::Parse;
use crate::limits;

fn wrong<T>(expected: &str, found: &str) -> Result<T, String> {
    Err(format!("expected {expected}, found {}", quoted(found)))
}

/// Types of the model that read themselves.
macro_rules! own {
    ($($type:ident $name:literal $about:literal,)*) => {$(
        impl Parse for $type {
            const NAME: &'static str = $name;
            const ABOUT: &'static str = $about;

            fn parse(text: &str) -> Result<$type, String> {
                $type::parse(text).map_err(|fault| fault.to_string())
            }
        }
    )*};
}

own! {
    Hostname "host" "A host: `shop.example`, or `*.shop.example` for all below it.",
    Path "path" "A path that begins with `/`, without a query. Escapes are decoded.",
    HeaderName "header name" "The name of a header, in any case.",
    HeaderValue "header value" "The value of a header.",
    MethodName "method" "A method in capital letters: `GET`.",
    Pattern "expression" "A regular expression that the whole text must match, as in Rust's crate `regex`: linear in the text, no look-around, no back-references. At most 1024 bytes, and 256 KiB once compiled.",
    Origin "origin" "The origin of scripts: `https://shop.example`, `https://*.shop.example:8443` for all hosts below one, `https://*` for all hosts, `http://localhost:*` for all ports, `capacitor://localhost` of an application, or `*` for all. Without a port the scheme's default port is meant.",
    Network "network" "A network: `10.0.0.0/8`, `fd00::/8`, or one address.",
}

impl Parse for Addr {
    const NAME: &'static str = "address";
    const ABOUT: &'static str =
        "Where to listen: `0.0.0.0:80`, `[::1]:80`, `:80` for all addresses, or `unix:/run/web.sock`.";

    fn parse(text: &str) -> Result<Addr, String> {
        text.parse().map_err(|fault: ringmain_gateway::model::AddrError| {
            let message = fault.to_string();
            // Its own form has the found part behind a semicolon.
            let expected = message
                .split_once("; found")
                .map_or(&*message, |(expected, _)| expected);
            format!("{expected}, found {}", quoted(text))
        })
    }
}

impl Parse for PasswordHash {
    const NAME: &'static str = "password hash";
    const ABOUT: &'static str =
        "A password's hash by bcrypt, argon2 or SHA-crypt, as `htpasswd -B` and `mkpasswd` make it.";
    const SHAPE: &'static str = "^\\$(2[abxy]|argon2(id|i|d)|5|6)\\$";

    fn parse(text: &str) -> Result<PasswordHash, String> {
        PasswordHash::parse(text).map_err(|fault| fault.to_string())
    }
}

impl Parse for JwtAlgorithm {
    const NAME: &'static str = "algorithm";
    const ABOUT: &'static str =
        "RS256, RS384, RS512, PS256, PS384, PS512, ES256, ES384, ES512, EdDSA, HS256, HS384 or HS512.";
    const SHAPE: &'static str = "^((RS|PS|ES|HS)(256|384|512)|EdDSA)$";

    fn parse(text: &str) -> Result<JwtAlgorithm, String> {
        match JwtAlgorithm::from_name(text) {
            Some(algorithm) => Ok(algorithm),
            None => wrong("an algorithm such as RS256, ES256 or EdDSA (never `none`)", text),
        }
    }
}

/// A URL of one page: who serves it, and its path.
#[derive(Clone, Debug)]
pub(super) struct PageUrl {
    pub(super) at: Url,
    pub(super) path: String,
}

impl Parse for PageUrl {
    const NAME: &'static str = "page";
    const ABOUT: &'static str = "A URL with a path: `https://id.example/keys`.";
    const SHAPE: &'static str = "^https?://[^/]+/";

    fn parse(text: &str) -> Result<PageUrl, String> {
        let expected = "a URL with a path, such as https://id.example/keys";
        let authority = text.find("://").map(|at| at + 3);
        let slash = authority.and_then(|from| Some(from + text[from..].find('/')?));
        let Some((origin, path)) = slash.map(|at| text.split_at(at)) else {
            return wrong(expected, text);
        };
        if !is_path(path) {
            return wrong(expected, text);
        }
        let at = Url::parse(origin)?;
        Ok(PageUrl {
            at,
            path: path.to_owned(),
        })
    }
}

/// Whether a text can be asked for as it is: a path, perhaps with a query.
pub(super) fn is_path(text: &str) -> bool {
    text.starts_with('/') && text.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'#')
}

/// The SHA-256 of an API key.
#[derive(Clone, Debug)]
pub(super) struct KeyDigest(pub(super) [u8; 32]);

impl Parse for KeyDigest {
    const NAME: &'static str = "key digest";
    const ABOUT: &'static str =
        "The SHA-256 of a key, as `printf %s KEY | sha256sum` writes it, behind `sha256:`.";
    const SHAPE: &'static str = "^sha256:[0-9a-fA-F]{64}$";

    fn parse(text: &str) -> Result<KeyDigest, String> {
        let digits = text.strip_prefix("sha256:").filter(|digits| digits.len() == 64);
        let digits = digits.filter(|digits| digits.bytes().all(|byte| byte.is_ascii_hexdigit()));
        // What is wrong is not repeated: it may be a key.
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

/// Units of sizes; what is written `k` is 1024 everywhere here.
const SIZES: [(&str, u64); 7] = [
    ("B", 1),
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("k", 1 << 10),
    ("m", 1 << 20),
    ("g", 1 << 30),
];

/// A number and its unit.
fn scaled(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let (_, factor) = units
        .iter()
        .find(|(name, _)| *name == unit.trim_start_matches(' '))?;
    number.parse::<u64>().ok()?.checked_mul(*factor)
}

impl Parse for Time {
    const NAME: &'static str = "time";
    const ABOUT: &'static str = "A time with its unit (us, ms, s, m, h, d): `500ms`, `10s`, `2m`.";
    const SHAPE: &'static str = "^[0-9]+ ?(us|ms|s|m|h|d)$";

    fn parse(text: &str) -> Result<Time, String> {
        let time = scaled(text, &TIMES).map(Duration::from_micros);
        match time.filter(|time| *time <= limits::LONGEST) {
            Some(time) => Ok(Time(time)),
            None => wrong(
                "a time with its unit (us, ms, s, m, h, d), such as 500ms, 10s or 2m",
                text,
            ),
        }
    }
}

/// A time, or `off`.
#[derive(Clone, Copy, Debug)]
pub(super) struct TimeOrOff(pub(super) Option<Duration>);

impl Parse for TimeOrOff {
    const NAME: &'static str = "time or off";
    const ABOUT: &'static str = "A time with its unit, such as `10s`; or `off` for any time.";
    const SHAPE: &'static str = "^([0-9]+ ?(us|ms|s|m|h|d)|off)$";

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
pub(super) struct Size(pub(super) u64);

impl Parse for Size {
    const NAME: &'static str = "size";
    const ABOUT: &'static str =
        "A size with its unit (B, KiB, MiB, GiB; k, m and g are the same): `64KiB`, `1MiB`.";
    const SHAPE: &'static str = "^[0-9]+ ?(B|KiB|MiB|GiB|k|m|g)$";

    fn parse(text: &str) -> Result<Size, String> {
        match scaled(text, &SIZES) {
            Some(size) => Ok(Size(size)),
            None => wrong(
                "a size with its unit (B, KiB, MiB, GiB), such as 64KiB or 1MiB",
                text,
            ),
        }
    }
}

/// A number of bytes, or `off`.
#[derive(Clone, Copy, Debug)]
pub(super) struct SizeOrOff(pub(super) Option<u64>);

impl Parse for SizeOrOff {
    const NAME: &'static str = "size or off";
    const ABOUT: &'static str = "A size with its unit, such as `1MiB`; or `off` for any size.";
    const SHAPE: &'static str = "^([0-9]+ ?(B|KiB|MiB|GiB|k|m|g)|off)$";

    fn parse(text: &str) -> Result<SizeOrOff, String> {
        if text == "off" {
            return Ok(SizeOrOff(None));
        }
        let Size(size) = Size::parse(text).map_err(|message| {
            message.replacen("a size with its unit", "`off`, or a size with its unit", 1)
        })?;
        Ok(SizeOrOff(Some(size)))
    }
}

impl Parse for StatusRange {
    const NAME: &'static str = "status";
    const ABOUT: &'static str = "A status such as `502`, or a class such as `5xx`.";
    const SHAPE: &'static str = "^([2-5][0-9][0-9]|[2-5]xx)$";
    const NUMBER: bool = true;

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
            _ => wrong("a status such as 502, or a class such as 5xx", text),
        }
    }
}

/// After what a request is tried again.
#[derive(Clone, Copy, Debug)]
pub(super) enum Condition {
    Connect,
    Reset,
    Timeout,
    Status(StatusRange),
}

impl Parse for Condition {
    const NAME: &'static str = "condition";
    const ABOUT: &'static str =
        "`connect`, `reset`, `timeout`, a status such as `502`, or a class such as `5xx`.";
    const SHAPE: &'static str = "^(connect|reset|timeout|[2-5][0-9][0-9]|[2-5]xx)$";
    const NUMBER: bool = true;

    fn parse(text: &str) -> Result<Condition, String> {
        Ok(match text {
            "connect" => Condition::Connect,
            "reset" => Condition::Reset,
            "timeout" => Condition::Timeout,
            _ => match StatusRange::parse(text) {
                Ok(statuses) => Condition::Status(statuses),
                Err(_) => {
                    return wrong(
                        "`connect`, `reset`, `timeout`, a status such as 502 or a class such as 5xx",
                        text,
                    );
                }
            },
        })
    }
}

impl Parse for TlsVersion {
    const NAME: &'static str = "TLS version";
    const ABOUT: &'static str = "`1.2` or `1.3`.";
    const SHAPE: &'static str = "";

    fn parse(text: &str) -> Result<TlsVersion, String> {
        match text {
            "1.2" => Ok(TlsVersion::Tls12),
            "1.3" => Ok(TlsVersion::Tls13),
            _ => wrong("1.2 or 1.3", text),
        }
    }
}

impl Parse for SubjectName {
    const NAME: &'static str = "subject name";
    const ABOUT: &'static str = "A host, or a URI such as `spiffe://shop.example/cart`.";

    fn parse(text: &str) -> Result<SubjectName, String> {
        if text.contains("://") {
            return Ok(SubjectName::Uri(text.into()));
        }
        <Hostname as Parse>::parse(text).map(SubjectName::Host)
    }
}

impl Parse for Where {
    const NAME: &'static str = "endpoint address";
    const ABOUT: &'static str =
        "`10.0.0.1:3000`, `[::1]:3000`, `cart.internal:3000`, or `unix:/run/cart.sock`.";

    fn parse(text: &str) -> Result<Where, String> {
        const EXPECTED: &str = "an address and port, a host and port, or unix:/path";
        if let Some(path) = text.strip_prefix("unix:") {
            return if path.starts_with('/') {
                Ok(Where::Unix(path.into()))
            } else {
                wrong(EXPECTED, text)
            };
        }
        if let Ok(address) = text.parse::<SocketAddr>() {
            return Ok(Where::Address(address));
        }
        let (host, port) = text.rsplit_once(':').unwrap_or((text, ""));
        match (Hostname::parse(host), port.parse()) {
            (Ok(name), Ok(port)) if name.wildcard_suffix().is_none() => Ok(Where::Host { name, port }),
            _ => wrong(EXPECTED, text),
        }
    }
}

/// Who answers: the name of an upstream, or where one is.
#[derive(Clone, Debug)]
pub(super) enum To {
    Upstream(String),
    Url(Url),
}

/// An upstream in a line.
#[derive(Clone, Debug)]
pub(super) struct Url {
    pub(super) tls: bool,
    /// By prior knowledge.
    pub(super) http2: bool,
    pub(super) at: Where,
    pub(super) text: String,
}

impl Parse for To {
    const NAME: &'static str = "target";
    const ABOUT: &'static str = "The name of an upstream, or a URL without a path: `http://127.0.0.1:3000`, `https://api.example`, `h2c://127.0.0.1:50051` (HTTP/2 without TLS), `unix:/run/app.sock`.";

    fn parse(text: &str) -> Result<To, String> {
        if text.starts_with("unix:") || text.contains("://") {
            return Url::parse(text).map(To::Url);
        }
        if Where::parse(text).is_ok() {
            return wrong(
                &format!("the name of an upstream or a URL (write http://{text})"),
                text,
            );
        }
        Ok(To::Upstream(text.to_owned()))
    }
}

impl Parse for Url {
    const NAME: &'static str = "URL";
    const ABOUT: &'static str = "A URL without a path: `http://127.0.0.1:3000`, `https://api.example`, `h2c://127.0.0.1:50051` (HTTP/2 without TLS), `unix:/run/app.sock`.";

    fn parse(text: &str) -> Result<Url, String> {
        let url = |(tls, http2), at| Url {
            tls,
            http2,
            at,
            text: text.to_owned(),
        };
        if text.starts_with("unix:") {
            return Where::parse(text).map(|at| url((false, false), at));
        }
        let ((tls, http2), rest) = if let Some(rest) = text.strip_prefix("http://") {
            ((false, false), rest)
        } else if let Some(rest) = text.strip_prefix("https://") {
            ((true, false), rest)
        } else if let Some(rest) = text.strip_prefix("h2c://") {
            ((false, true), rest)
        } else {
            return wrong("a URL of http://, https:// or h2c://, or unix:/path", text);
        };
        let authority = rest.strip_suffix('/').unwrap_or(rest);
        if authority.contains('/') {
            return wrong("a URL without a path (`rewrite` changes paths)", text);
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
        match Where::parse(&full) {
            Ok(at) => Ok(url((tls, http2), at)),
            Err(_) => wrong("a URL such as http://127.0.0.1:3000 or https://api.example", text),
        }
    }
}

/// A method of gRPC, or all of a service's.
#[derive(Clone, Debug)]
pub(super) struct GrpcName {
    pub(super) service: String,
    pub(super) method: Option<String>,
}

impl Parse for GrpcName {
    const NAME: &'static str = "gRPC method";
    const ABOUT: &'static str =
        "A service of gRPC with its package, or one of its methods: `shop.v1.Cart`, `shop.v1.Cart/Add`.";
    const SHAPE: &'static str = "^[A-Za-z_][A-Za-z0-9_.]*(/[A-Za-z_][A-Za-z0-9_]*)?$";

    fn parse(text: &str) -> Result<GrpcName, String> {
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
            return wrong(
                "a service of gRPC such as shop.v1.Cart, or shop.v1.Cart/Add",
                text,
            );
        }
        Ok(GrpcName {
            service: service.to_owned(),
            method: method.map(str::to_owned),
        })
    }
}

impl Parse for LogDestination {
    const NAME: &'static str = "log destination";
    const ABOUT: &'static str =
        "`stdout`, `stderr`, or the path of a file, which counts from where the configuration file is.";

    fn parse(text: &str) -> Result<LogDestination, String> {
        const EXPECTED: &str = "`stdout`, `stderr`, or the path of a file";
        match text {
            "stdout" => return Ok(LogDestination::Stdout),
            "stderr" => return Ok(LogDestination::Stderr),
            "off" | "none" | "-" => {
                return wrong(&format!("{EXPECTED} (without the key there is no log)"), text);
            }
            _ => {}
        }
        let name = text.rsplit('/').next().unwrap_or_default();
        if matches!(name, "" | "." | "..") || text.chars().any(char::is_control) {
            return wrong(EXPECTED, text);
        }
        // A slip of the hand would be a file that nobody looks for. One that is meant has a path.
        let streams = ["stdout", "stderr"];
        if !text.contains('/')
            && let Some(meant) = suggestion(&text.to_ascii_lowercase(), streams)
        {
            let expected = format!("{EXPECTED} (`{meant}`, or ./{text} if a file is meant)");
            return wrong(&expected, text);
        }
        if text.starts_with("syslog:") {
            let expected = format!("{EXPECTED}; whoever sends lines to syslog reads them from there");
            return wrong(&expected, text);
        }
        Ok(LogDestination::File(PathBuf::from(text)))
    }
}

/// So many out of so many: `1%`, `0.5%`, `1/1000`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Share(pub(super) ringmain_gateway::model::Share);

impl Parse for Share {
    const NAME: &'static str = "share";
    const ABOUT: &'static str = "A share: `10%`, `0.5%` or `1/1000`.";
    const SHAPE: &'static str = "^([0-9]+(\\.[0-9]{1,4})?%|[0-9]+/[0-9]+)$";

    fn parse(text: &str) -> Result<Share, String> {
        let share = |part: u32, of: u32| ringmain_gateway::model::Share { part, of };
        let found = match (text.strip_suffix('%'), text.split_once('/')) {
            (Some(percent), _) => {
                let (whole, parts) = percent.split_once('.').unwrap_or((percent, "0"));
                let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
                let number = digits(whole) && digits(parts) && parts.len() <= 4;
                let scaled = |parts: &str| format!("{parts:0<4}").parse::<u32>().ok();
                let whole = whole.parse::<u32>().ok().filter(|whole| number && *whole <= 100);
                whole
                    .zip(scaled(parts))
                    .map(|(whole, parts)| share(whole * 10_000 + parts, 1_000_000))
            }
            (None, Some((part, of))) => part
                .parse()
                .ok()
                .zip(of.parse().ok())
                .map(|(part, of)| share(part, of)),
            (None, None) => None,
        };
        match found.filter(|share| share.part <= share.of && share.of > 0) {
            Some(share) => Ok(Share(share)),
            None => wrong("a share of at most the whole, such as 10%, 0.5% or 1/1000", text),
        }
    }
}
