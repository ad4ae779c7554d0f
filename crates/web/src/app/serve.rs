//! A program that listens on one address, or on inherited listeners, until a signal ends it: the whole `main` of a simple server.
//!
//! Knows no request: it also runs handlers of bytes.

use ringmain_engine::{Addr, Config, Engine, Handler, ListenOptions, Start, block_signals, inherit};

use crate::app::exit::Exit;
use crate::logging::stderr_logger;

/// Serves `addr` with a handler of the engine (bytes, not HTTP) and the engine's defaults until a termination signal, then lets
/// connections finish. Address and log are those of [`App::run`](crate::App::run).
///
/// `create` builds the handler of each worker, on that worker's thread.
pub fn serve<H, F>(addr: &str, create: F) -> Exit
where
    H: Handler,
    F: Fn(Start<H::Mail>) -> H + Send + Sync + 'static,
{
    Exit::from(run(addr, Config::default(), create))
}

pub(crate) fn run<H, F>(addr: &str, config: Config, create: F) -> Result<(), Box<dyn std::error::Error>>
where
    H: Handler,
    F: Fn(Start<H::Mail>) -> H + Send + Sync + 'static,
{
    let inherited = inherit::take()?;
    stderr_logger::init_stderr_logger();
    let addr: Addr = addr.parse()?;
    let mut engine = Engine::new(config)?;
    let mut addrs = engine.inherit(inherited)?;
    if addrs.is_empty() {
        addrs.push(engine.listen(&addr, &ListenOptions::default())?);
    }
    // Before any thread is started: threads inherit the mask of blocked signals.
    let signals = block_signals()?;
    // Logged when all workers serve, so that scripts can wait for it.
    let on_listening = move |_: &_| {
        for addr in addrs.drain(..) {
            log::info!("listening on {addr}");
        }
    };
    engine.run_observed(&signals, create, on_listening)?;
    Ok(())
}
