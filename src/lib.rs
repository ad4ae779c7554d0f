//! The library `ringmain`: HTTP applications on the engine.
//!
//! A façade: it owns nothing and chooses what an application author sees. A plain application pulls in no
//! tokio, clap or Kubernetes crate.
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
//! How the rest goes: the [guide].
#![forbid(unsafe_code)]

pub use ringmain_engine as engine;
pub use ringmain_web::*;

#[doc = include_str!("../docs/framework.md")]
pub mod guide {}
