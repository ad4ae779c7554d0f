//! HTTP applications on the engine: an [`App`] of routes and hooks, requests in, replies out.
//!
//! Owns connections at the level of HTTP (deadlines, keep-alive, bodies with back-pressure), routing and the types that a handler
//! uses. Knows no system call and no byte of framing: those belong to the engine and the codec.
#![forbid(unsafe_code)]

mod accept;
pub mod access_log;
mod app;
mod conditional;
mod cookie;
mod date;
mod entrance;
mod error;
mod exit;
mod expected;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
#[cfg(feature = "grpc")]
pub mod grpc;
mod hidden;
mod incoming;
mod inner;
mod json;
pub mod limits;
mod local;
mod location;
mod log_limit;
pub mod media_type;
mod note;
mod origin;
pub mod path;
mod plain_log;
mod preamble;
mod process;
pub mod query;
mod reply;
mod request;
mod request_id;
mod router;
mod server;
mod site;
pub mod stats;
#[cfg(feature = "testing")]
pub mod testing;
mod text;
mod word;
pub mod ws;

pub use access_log::AccessLog;
pub use app::{App, AppError, Group};
pub use bytes::Bytes;
pub use conditional::{Precondition, Validators};
pub use cookie::{CookieFault, Cookies, SameSite, SetCookie};
pub use date::http_date;
pub use entrance::{Entrance, Entrances};
pub use error::{Error, Result};
pub use exit::Exit;
pub use hidden::{HIDDEN, RedactedParams};
pub use incoming::{Incoming, Logging, Passed};
pub use limits::Limits;
pub use log_limit::{LeftOut, LogLimit};
pub use note::Note;
pub use plain_log::start as log_plainly;
pub use process::serve;
pub use query::Query;
pub use reply::Reply;
pub use request::Request;
pub use request_id::RequestId;
pub use ringmain_tls as tls;
pub use ringmain_wire::h1::{FieldBlock, Framing, Method, Version};
pub use ringmain_wire::sse::Event;
pub use server::Server;
pub use server::early::{Early, Ticket, TicketId};
pub use server::stream::EventStream;
pub use site::{Flow, Site};
pub use ws::{Origins, Socket, Ws, WsFrame, WsOptions, WsStream};
