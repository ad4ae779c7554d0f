//! Status lines and reason phrases (RFC 9110 §15). Constant bytes for the statuses that have a name.

macro_rules! statuses {
    ($($code:literal $reason:literal,)*) => {
        /// The reason phrase of a status; empty if it has no name.
        #[must_use]
        pub const fn reason(status: u16) -> &'static str {
            match status { $($code => $reason,)* _ => "" }
        }

        /// The whole line of a status with a name.
        pub(super) const fn line(status: u16) -> Option<&'static [u8]> {
            match status {
                $($code => Some(concat!("HTTP/1.1 ", $code, " ", $reason, "\r\n").as_bytes()),)*
                _ => None,
            }
        }
    };
}

/// Whether a response with that status may have content (RFC 9110 §15.2, §15.3.5, §15.3.6, §15.4.5). A 205 says so by a length
/// of 0, the others by having no length.
#[must_use]
pub const fn allows_content(status: u16) -> bool {
    !matches!(status, 100..=199 | 204 | 205 | 304)
}

statuses! {
    200 "OK",
    100 "Continue",
    101 "Switching Protocols",
    103 "Early Hints",
    201 "Created",
    202 "Accepted",
    203 "Non-Authoritative Information",
    204 "No Content",
    205 "Reset Content",
    206 "Partial Content",
    300 "Multiple Choices",
    301 "Moved Permanently",
    302 "Found",
    303 "See Other",
    304 "Not Modified",
    307 "Temporary Redirect",
    308 "Permanent Redirect",
    400 "Bad Request",
    401 "Unauthorized",
    402 "Payment Required",
    403 "Forbidden",
    404 "Not Found",
    405 "Method Not Allowed",
    406 "Not Acceptable",
    407 "Proxy Authentication Required",
    408 "Request Timeout",
    409 "Conflict",
    410 "Gone",
    411 "Length Required",
    412 "Precondition Failed",
    413 "Content Too Large",
    414 "URI Too Long",
    415 "Unsupported Media Type",
    416 "Range Not Satisfiable",
    417 "Expectation Failed",
    421 "Misdirected Request",
    422 "Unprocessable Content",
    425 "Too Early",
    426 "Upgrade Required",
    428 "Precondition Required",
    429 "Too Many Requests",
    431 "Request Header Fields Too Large",
    451 "Unavailable For Legal Reasons",
    500 "Internal Server Error",
    501 "Not Implemented",
    502 "Bad Gateway",
    503 "Service Unavailable",
    504 "Gateway Timeout",
    505 "HTTP Version Not Supported",
    507 "Insufficient Storage",
}
