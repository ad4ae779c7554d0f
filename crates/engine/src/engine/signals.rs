//! Running until a signal says otherwise.

use std::path::Path;
use std::sync::PoisonError;
use std::sync::atomic::Ordering;
use std::time::Duration;

use ringmain_sys::inherit;
use ringmain_sys::signal::{Signal, Signals};

use super::service::{self, Service};
use super::{Engine, EngineError, Reload, Running, Summary, system};
use crate::worker::Start;
use crate::worker::handler::Handler;

/// How often the main thread looks whether a worker has ended by itself.
const LOOK: Duration = Duration::from_millis(250);

/// How long a process that is started by another one puts off to be ready, and how often it checks meanwhile
/// ([`Engine::run_observed_until_ready`]).
const READY_WITHIN: Duration = Duration::from_secs(2);
const READY_CHECK: Duration = Duration::from_millis(5);

/// How long a successor may take until it serves.
const PATIENCE: Duration = Duration::from_secs(30);

/// Lets the signals that steer an engine wait for [`Engine::run_observed`] instead of ending the process. For
/// programs that start threads of their own before the engine: those must inherit what is blocked.
///
/// # Errors
/// No descriptor for them.
pub fn block_signals() -> Result<Signals, EngineError> {
    let watched = [
        Signal::Terminate,
        Signal::Interrupt,
        Signal::Quit,
        Signal::User1,
        Signal::User2,
        Signal::Hangup,
    ];
    Signals::block(&watched).map_err(system("signalfd"))
}

impl Engine {
    /// Starts the workers and waits for a signal.
    ///
    /// `SIGTERM`, `SIGINT`: graceful shutdown after [`Config::drain_delay`](crate::Config::drain_delay); a second one ends that delay, or
    /// else the process at once. `SIGQUIT`: at once.
    /// `SIGUSR2`: start this program anew with the same arguments and hand the listeners over.
    /// `SIGHUP` and `SIGUSR1` do nothing but being counted ([`Running::hangups`], [`Running::reopens`]), so that a closed
    /// terminal ends nothing.
    ///
    /// # Errors
    /// As [`Engine::start`], and the first worker that failed.
    pub fn run<H, F>(self, make: F) -> Result<Summary, EngineError>
    where
        H: Handler,
        F: Fn(Start<H::Mail>) -> H + Send + Sync + 'static,
    {
        // Before any other thread starts: they inherit what is blocked.
        let signals = block_signals()?;
        self.run_observed(&signals, make, |_| {})
    }

    /// As [`Engine::run`], for a program that has blocked the signals itself ([`block_signals`]).
    /// `observe` is called on this thread when all workers serve, and then every quarter of a second, sooner after
    /// a signal.
    ///
    /// # Errors
    /// As [`Engine::run`].
    pub fn run_observed<H, F>(
        self,
        signals: &Signals,
        make: F,
        observe: impl FnMut(&Running<H::Mail>),
    ) -> Result<Summary, EngineError>
    where
        H: Handler,
        F: Fn(Start<H::Mail>) -> H + Send + Sync + 'static,
    {
        self.run_observed_until_ready(signals, make, observe, || true)
    }

    /// As [`Engine::run_observed`], for a program that has more to set up once its workers serve: the process that started it may stop
    /// when `is_ready` says so, or after two seconds.
    ///
    /// # Errors
    /// As [`Engine::run`].
    pub fn run_observed_until_ready<H, F>(
        self,
        signals: &Signals,
        make: F,
        observe: impl FnMut(&Running<H::Mail>),
        is_ready: impl FnMut() -> bool,
    ) -> Result<Summary, EngineError>
    where
        H: Handler,
        F: Fn(Start<H::Mail>) -> H + Send + Sync + 'static,
    {
        // Now, while the name still means this file: an upgrade puts another one in its place, and that is the one to
        // start then.
        let program = std::env::current_exe().map_err(system("the program's own path"))?;
        let running = self.start(make)?;
        running.follow(signals, &program, observe, is_ready)
    }
}

impl<M: Send + 'static> Running<M> {
    fn follow(
        self,
        signals: &Signals,
        program: &Path,
        mut observe: impl FnMut(&Running<M>),
        mut is_ready: impl FnMut() -> bool,
    ) -> Result<Summary, EngineError> {
        let mut asked = false;
        let mut checks = READY_WITHIN.div_duration_f32(READY_CHECK) as u32;
        let service = service::current();
        let _keep_alive = self.keep_service_alive();
        while !self.is_over() {
            observe(&self);
            drop(self.take_reload());
            if self.is_drain_pending() && !self.has_successor() {
                self.report_stopping(service);
            }
            if self.drain_due_in().is_some_and(|left| left.is_zero()) {
                self.end_drain_delay();
            }
            checks = checks.saturating_sub(1);
            if checks > 0 && is_ready() {
                checks = 0;
            }
            let wait = match checks {
                0 => {
                    // A successor reports at the next look: until the previous process has announced it, the service manager does
                    // not accept its messages.
                    if !inherit::ready()
                        && let Some(service) = service
                    {
                        service.ready(self.addrs());
                    }
                    LOOK
                }
                _ => READY_CHECK,
            };
            let wait = self.drain_due_in().map_or(wait, |left| left.min(wait));
            let signal = signals.wait(Some(wait)).map_err(system("signalfd"))?;
            match signal {
                Some(Signal::Terminate | Signal::Interrupt) if !asked => {
                    asked = true;
                    self.report_stopping(service);
                    if self.is_drain_delayed() {
                        self.log_drain_delay();
                    }
                    self.begin_drain();
                    if self.is_draining() {
                        self.log_shutdown();
                    }
                }
                Some(Signal::Terminate | Signal::Interrupt) if self.is_drain_delayed() => {
                    self.end_drain_delay();
                }
                Some(Signal::Terminate | Signal::Interrupt | Signal::Quit) => self.stop(),
                Some(Signal::User2) => self.replace(program),
                Some(Signal::Hangup) => {
                    self.hangups.fetch_add(1, Ordering::Relaxed);
                    let reload = Some(Reload::begin());
                    // One that no observer has taken is finished by now.
                    *self.reload.lock().unwrap_or_else(PoisonError::into_inner) = reload;
                }
                Some(Signal::User1) => {
                    self.reopens.fetch_add(1, Ordering::Relaxed);
                }
                None => {}
            }
        }
        self.join()
    }

    /// Ends the delay before a shutdown, and begins it.
    fn end_drain_delay(&self) {
        self.shut_down();
        self.log_shutdown();
    }

    fn log_shutdown(&self) {
        let open = self.open_connections();
        log::info!("shutting down, {open} still open; a second signal ends them at once");
    }

    /// Hands the listeners to a new instance of this program.
    fn replace(&self, program: &Path) {
        let arguments: Vec<_> = std::env::args_os().skip(1).collect();
        match self.hand_over(program, &arguments, PATIENCE) {
            Ok(pid) => log::info!("process {pid} serves now; open connections here may finish"),
            Err(error) => {
                log::error!("the new instance did not come up, this one goes on serving: {error}");
                if let Some(service) = service::current() {
                    service.upgrade_failed(&error);
                }
            }
        }
    }

    fn report_stopping(&self, service: Option<&Service>) {
        if let Some(service) = service {
            service.stopping(self.open_connections(), self.delay_to_drain());
        }
    }
}
