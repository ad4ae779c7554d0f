//! HTTP applications on the engine: an [`App`] of routes and hooks, requests in, replies out.
//!
//! Owns connections at the level of HTTP (deadlines, keep-alive, bodies with back-pressure), routing and the types that a handler
//! uses. Knows no system call and no byte of framing: those belong to the engine and the codec.
#![forbid(unsafe_code)]

mod app;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
#[cfg(feature = "grpc")]
pub mod grpc;
mod http;
pub mod limits;
mod logging;
mod router;
mod server;
pub mod stats;
#[cfg(feature = "testing")]
pub mod testing;
pub mod ws;

pub use app::{App, AppError, CompiledApp, Exit, Flow, Group, ListenerProtocol, ListenerProtocols, serve};
pub use bytes::Bytes;
pub use http::{
    CookieFault, Cookies, Error, Precondition, Query, Reply, Request, RequestId, Result, SameSite, SetCookie,
    Validators, http_date, media_type, path, query,
};
pub use limits::Limits;
pub use logging::{
    AccessLog, LogField, LogLimit, REDACTED_PARAMS, RedactedParams, SuppressedLines, access_log,
    init_stderr_logger, process_log,
};
pub use ringmain_tls as tls;
pub use ringmain_wire::h1::{FieldBlock, Framing, Method, Version};
pub use ringmain_wire::sse::Event;
pub use server::{
    AbortHandle, EventStream, Responder, ResponderId, Server, StartedWorker, StreamConnection, StreamLog,
    StreamLogRecord, StreamLogs,
};
pub use ws::{Origins, Socket, Ws, WsFrame, WsOptions, WsStream};
