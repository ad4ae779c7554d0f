//! The types of HTTP that handlers use: requests, replies, errors, and the fields and formats in them.
//!
//! Owns the representation of messages. Knows no connection and no route.

pub(crate) mod client_text;
pub(crate) mod conditional;
pub(crate) mod cookie;
pub(crate) mod date;
pub(crate) mod error;
pub(crate) mod expected_type;
pub(crate) mod json;
pub(crate) mod location;
pub mod media_type;
pub(crate) mod negotiation;
pub mod path;
pub mod query;
pub(crate) mod reply;
pub(crate) mod request;
pub(crate) mod request_id;

pub use conditional::{Precondition, Validators};
pub use cookie::{CookieFault, Cookies, SameSite, SetCookie};
pub use date::http_date;
pub use error::{Error, Result};
pub use query::Query;
pub use reply::Reply;
pub use request::Request;
pub use request_id::RequestId;
