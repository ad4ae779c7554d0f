//! The access log and the fields that handlers add to it; the format of the process log, and its logger in a program that has set
//! none.
//!
//! Owns the text of lines and the redaction of tokens. Knows no connection.

pub mod access_log;
mod json_text;
pub(crate) mod log_field;
pub(crate) mod log_limit;
pub mod process_log;
pub(crate) mod redact;
pub(crate) mod stderr_logger;

pub use access_log::AccessLog;
pub use log_field::LogField;
pub use log_limit::{LogLimit, SuppressedLines};
pub use redact::{REDACTED_PARAMS, RedactedParams};
pub use stderr_logger::init_stderr_logger;
