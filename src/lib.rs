//! The library `ringmain`: a façade over the engine (and later the web framework).
//!
//! It owns nothing: it chooses what an application author sees. A plain application
//! pulls in no tokio, clap or Kubernetes crate.
#![forbid(unsafe_code)]

pub use ringmain_engine as engine;

use engine::{Addr, Config, Engine, Handler, ListenOptions, Start};

/// What `main` returns: prints one line on failure and ends with exit code 1.
pub enum Exit {
    /// All went well.
    Success,
    /// The line to print.
    Failure(String),
}

impl std::process::Termination for Exit {
    fn report(self) -> std::process::ExitCode {
        match self {
            Exit::Success => std::process::ExitCode::SUCCESS,
            Exit::Failure(line) => {
                use std::io::Write;
                // Nobody is left to hear of a broken standard error.
                let _ = writeln!(std::io::stderr(), "error: {line}");
                std::process::ExitCode::FAILURE
            }
        }
    }
}

/// Serves `addr` with the engine's defaults until a termination signal, then lets connections finish.
///
/// `make` makes the handler of each worker, on that worker's thread.
pub fn serve<H, F>(addr: &str, make: F) -> Exit
where
    H: Handler,
    F: Fn(Start<H::Mail>) -> H + Send + Sync + 'static,
{
    let run = || -> Result<(), Box<dyn std::error::Error>> {
        let addr: Addr = addr.parse()?;
        let mut engine = Engine::new(Config::default())?;
        engine.listen(&addr, &ListenOptions::default())?;
        engine.run(make)?;
        Ok(())
    };
    run().map_or_else(|error| Exit::Failure(error.to_string()), |()| Exit::Success)
}
