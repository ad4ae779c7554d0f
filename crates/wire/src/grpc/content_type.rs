//! `Content-Type`: whether a body is gRPC, in which form, and how its messages are written.

/// The forms of gRPC's bodies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Dialect {
    /// Messages, and trailers of HTTP behind them.
    Grpc,
    /// gRPC-Web: trailers are a frame of the body.
    Web,
    /// The same in base64.
    WebText,
}

/// What a `Content-Type` says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ContentType<'a> {
    /// The form.
    pub dialect: Dialect,
    /// What stands behind `+`: how messages are written. Without it Protobuf is meant, as with `proto`.
    pub format: Option<&'a str>,
}

const WEB_TEXT: &[u8] = b"application/grpc-web-text";
const WEB: &[u8] = b"application/grpc-web";
const GRPC: &[u8] = b"application/grpc";

impl<'a> ContentType<'a> {
    /// Reads a value: `application/grpc`, `application/grpc-web+proto`, `application/grpc-web-text;charset=utf-8`. `None`: it is not
    /// gRPC.
    #[must_use]
    pub fn parse(value: &'a [u8]) -> Option<Self> {
        let end = value.iter().position(|&byte| byte == b';').unwrap_or(value.len());
        let essence = value[..end].trim_ascii();
        let names = [
            (Dialect::WebText, WEB_TEXT),
            (Dialect::Web, WEB),
            (Dialect::Grpc, GRPC),
        ];
        names.into_iter().find_map(|(dialect, name)| {
            let (found, rest) = essence.split_at_checked(name.len())?;
            if !found.eq_ignore_ascii_case(name) {
                return None;
            }
            let format = match rest {
                [] => None,
                [b'+', format @ ..] if !format.is_empty() => Some(str::from_utf8(format).ok()?),
                _ => return None,
            };
            Some(Self { dialect, format })
        })
    }

    /// Whether messages are Protobuf.
    #[must_use]
    pub fn is_proto(&self) -> bool {
        self.format
            .is_none_or(|format| format.eq_ignore_ascii_case("proto"))
    }

    /// The value for an answer in Protobuf, as the request said it: with `+proto` or without.
    #[must_use]
    pub const fn of_answer(&self) -> &'static str {
        match (self.dialect, self.format.is_some()) {
            (Dialect::Grpc, false) => "application/grpc",
            (Dialect::Grpc, true) => "application/grpc+proto",
            (Dialect::Web, false) => "application/grpc-web",
            (Dialect::Web, true) => "application/grpc-web+proto",
            (Dialect::WebText, false) => "application/grpc-web-text",
            (Dialect::WebText, true) => "application/grpc-web-text+proto",
        }
    }
}
