//! HTTP applications, WebSockets, server-sent events and gRPC on io_uring, with epoll as the fallback.
//!
//! This crate re-exports the API for applications: [`App`], requests and replies from `ringmain_web`, and the event loop as
//! [`engine`]. A plain application depends on no tokio, clap or Kubernetes crate.
//!
//! ```no_run
//! use ringmain::{App, Exit, Reply, Request, Result};
//!
//! fn hello(req: &Request, reply: &mut Reply) -> Result {
//!     reply.text(format!("Hello, {}!\n", req.param("name")?))
//! }
//!
//! fn main() -> Exit {
//!     App::new().get("/hello/{name}", hello).run("127.0.0.1:8080")
//! }
//! ```
//!
//! The [guide] describes routing, state, streaming, limits and deployment.
#![forbid(unsafe_code)]

pub use ringmain_engine as engine;
pub use ringmain_web::*;

#[doc = include_str!("../docs/framework.md")]
pub mod guide {
    #[doc = include_str!("../docs/how-to/app-deploy.md")]
    pub mod deployment {}
    #[doc = include_str!("../docs/how-to/app-errors.md")]
    pub mod errors {}
    #[doc = include_str!("../docs/how-to/app-from-axum.md")]
    pub mod from_axum {}
    #[doc = include_str!("../docs/how-to/app-grpc.md")]
    pub mod grpc {}
    #[doc = include_str!("../docs/how-to/app-requests.md")]
    pub mod requests {}
    #[doc = include_str!("../docs/how-to/app-routing.md")]
    pub mod routing {}
    #[doc = include_str!("../docs/how-to/app-start.md")]
    pub mod start {}
    #[doc = include_str!("../docs/how-to/app-streaming.md")]
    pub mod streaming {}
    #[doc = include_str!("../docs/how-to/app-testing.md")]
    pub mod testing {}
    #[doc = include_str!("../docs/how-to/app-tls.md")]
    pub mod tls {}
    #[doc = include_str!("../docs/how-to/app-tokio.md")]
    pub mod tokio {}
    #[doc = include_str!("../docs/how-to/app-websockets.md")]
    pub mod websockets {}
}
