//! Running until a signal says otherwise.

use std::time::Duration;

use ringmain_sys::inherit;
use ringmain_sys::signal::{Signal, Signals};

use super::{Engine, EngineError, Running, Summary, system};
use crate::worker::Start;
use crate::worker::handler::Handler;

/// How often the main thread looks whether a worker has ended by itself.
const LOOK: Duration = Duration::from_millis(250);

impl Engine {
    /// Starts the workers and waits for a signal.
    ///
    /// `SIGTERM`, `SIGINT`: graceful shutdown, the second one at once. `SIGQUIT`: at once.
    /// `SIGUSR2`: start this program anew with the same arguments and hand the listeners over.
    /// `SIGHUP` does nothing, so that a closed terminal ends nothing.
    ///
    /// # Errors
    /// As [`Engine::start`], and the first worker that failed.
    pub fn run<H, F>(self, make: F) -> Result<Summary, EngineError>
    where
        H: Handler,
        F: Fn(Start<H::Mail>) -> H + Send + Sync + 'static,
    {
        // Before any other thread starts: they inherit what is blocked.
        let watched = [
            Signal::Terminate,
            Signal::Interrupt,
            Signal::Quit,
            Signal::User2,
            Signal::Hangup,
        ];
        let signals = Signals::block(&watched).map_err(system("signalfd"))?;
        let running = self.start(make)?;
        inherit::ready();
        running.follow(&signals)
    }
}

impl<M: Send + 'static> Running<M> {
    fn follow(self, signals: &Signals) -> Result<Summary, EngineError> {
        let mut asked = false;
        while !self.is_over() {
            let signal = signals.wait(Some(LOOK)).map_err(system("signalfd"))?;
            match signal {
                Some(Signal::Terminate | Signal::Interrupt) if !asked => {
                    asked = true;
                    let open: u32 = self.report().workers.iter().map(|w| w.connections).sum();
                    log::info!(
                        "shutting down: {open} open connections may finish; a second signal ends them"
                    );
                    self.shut_down();
                }
                Some(Signal::Terminate | Signal::Interrupt | Signal::Quit) => self.stop(),
                Some(Signal::User2) => self.replace(),
                Some(Signal::Hangup | Signal::User1) | None => {}
            }
        }
        self.join()
    }

    /// Hands the listeners to a new instance of this program.
    fn replace(&self) {
        let program = std::env::current_exe();
        let arguments: Vec<_> = std::env::args_os().skip(1).collect();
        let outcome =
            program.and_then(|program| self.hand_over(&program, &arguments, Duration::from_secs(30)));
        match outcome {
            Ok(pid) => log::info!("process {pid} serves now; open connections here may finish"),
            Err(error) => log::error!("the new instance did not come up, this one goes on serving: {error}"),
        }
    }
}
