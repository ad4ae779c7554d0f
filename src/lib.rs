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
#![forbid(unsafe_code)]

pub use ringmain_engine as engine;
pub use ringmain_web::*;

use engine::{Addr, Config, Engine, Handler, ListenOptions, Start};

/// Serves `addr` by a handler of the engine's (bytes, not HTTP) with the engine's defaults until a termination signal,
/// then lets connections finish.
///
/// `make` makes the handler of each worker, on that worker's thread.
pub fn serve<H, F>(addr: &str, make: F) -> Exit
where
    H: Handler,
    F: Fn(Start<H::Mail>) -> H + Send + Sync + 'static,
{
    let run = || -> std::result::Result<(), Box<dyn std::error::Error>> {
        let addr: Addr = addr.parse()?;
        let mut engine = Engine::new(Config::default())?;
        engine.listen(&addr, &ListenOptions::default())?;
        engine.run(make)?;
        Ok(())
    };
    Exit::from(run())
}
