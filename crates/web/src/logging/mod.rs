//! The access log, the fields that handlers add to it, and the log lines of a program that has set no logger.
//!
//! Owns the text of lines and the redaction of tokens. Knows no connection.

pub mod access_log;
pub(crate) mod log_field;
pub(crate) mod log_limit;
pub(crate) mod redact;
pub(crate) mod stderr_logger;

pub use access_log::AccessLog;
pub use log_field::LogField;
pub use log_limit::{LogLimit, SuppressedLines};
pub use redact::{REDACTED_PARAMS, RedactedParams};
pub use stderr_logger::init_stderr_logger;
