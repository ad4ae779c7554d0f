//! Error codes (RFC 9113 §7).

use std::fmt;

/// Why a stream or a connection ends. Peers may say numbers without a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ErrorCode(pub u32);

macro_rules! codes {
    ($($name:ident $number:literal $about:literal,)*) => {
        impl ErrorCode {
            $(#[doc = $about] pub const $name: ErrorCode = ErrorCode($number);)*

            /// Its name; `None` for a number without one.
            #[must_use]
            pub const fn name(self) -> Option<&'static str> {
                match self.0 { $($number => Some(stringify!($name)),)* _ => None }
            }
        }
    };
}

codes! {
    NO_ERROR 0 "Nothing is wrong.",
    PROTOCOL_ERROR 1 "A rule was broken that has no code of its own.",
    INTERNAL_ERROR 2 "The sender's own fault.",
    FLOW_CONTROL_ERROR 3 "Windows were not kept.",
    SETTINGS_TIMEOUT 4 "Settings were not acknowledged.",
    STREAM_CLOSED 5 "A frame on a stream that was ended.",
    FRAME_SIZE_ERROR 6 "A length that a frame cannot have.",
    REFUSED_STREAM 7 "Nothing was done for the stream: the request may be sent again.",
    CANCEL 8 "Nobody wants the stream any more.",
    COMPRESSION_ERROR 9 "Header blocks cannot be read any more.",
    CONNECT_ERROR 10 "What CONNECT led to is over.",
    ENHANCE_YOUR_CALM 11 "Too much of something.",
    INADEQUATE_SECURITY 12 "TLS is not good enough.",
    HTTP_1_1_REQUIRED 13 "The request needs HTTP/1.1.",
}

impl fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "error {:#x}", self.0),
        }
    }
}
