//! The state of this process as its service manager knows it: starting, serving, reloading, stopping, replaced.
//!
//! ```text
//!             ready()             begin_reload()
//! Starting ───────────▶ Serving ◀────────────────▶ Serving, reloads pending
//!     │                    │     last Reload drops
//!     ├─────────┬──────────┤ stopping() with a delay
//!     │         │          ▼
//!     │         │       Delayed: pings only
//!     │         ▼          │
//!     └─────▶ Ended ◀──────┘ stopping(), replaced_by(): no message is sent afterwards
//! ```
//!
//! One for the process, like the variable `NOTIFY_SOCKET` that names the service manager's socket; without it nothing is sent.
//! A service manager accepts messages of the main process alone (`NotifyAccess=main`), so that the previous process announces its
//! successor, and reports nothing afterwards.

use std::fmt::Write;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use ringmain_sys::addr::Addr;
use ringmain_sys::clock;
use ringmain_sys::notify::{NotifySocket, watchdog_interval};

use crate::limits;
use crate::worker::shared::{Shared, State};

/// The service manager of this process.
static SERVICE: LazyLock<Option<Service>> = LazyLock::new(|| match NotifySocket::from_environment() {
    Ok(socket) => socket.map(|socket| Service::new(socket, watchdog_interval())),
    Err(error) => {
        log::warn!("cannot notify the service manager: {error}");
        None
    }
});

/// Returns the service manager of this process, if there is one.
pub(super) fn current() -> Option<&'static Service> {
    SERVICE.as_ref()
}

/// A reload in progress. When the last one is dropped, the service manager receives `READY=1`.
///
/// Without a service manager it has no effect.
#[derive(Debug)]
#[must_use = "dropping it reports the reload as finished"]
pub struct Reload {
    service: Option<&'static Service>,
}

impl Reload {
    /// Reports that a reload has started. A later call while one is pending reports the later time.
    pub fn begin() -> Reload {
        let service = current();
        if let Some(service) = service {
            service.begin_reload();
        }
        Reload { service }
    }

    /// Finishes the reload, and reports its result in a line.
    pub fn finish(self, status: &str) {
        if let Some(service) = self.service {
            service.lock().status = Some(status.to_owned());
        }
    }
}

impl Drop for Reload {
    fn drop(&mut self) {
        if let Some(service) = self.service {
            service.finish_reload();
        }
    }
}

/// The connection to a service manager.
#[derive(Debug)]
pub(super) struct Service {
    socket: NotifySocket,
    watchdog: Option<Duration>,
    progress: Mutex<Progress>,
    has_failed: AtomicBool,
}

#[derive(Debug, Default)]
struct Progress {
    phase: Phase,
    pending_reloads: usize,
    /// The result of the last reload, until it is reported.
    status: Option<String>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Phase {
    #[default]
    Starting,
    Serving,
    /// A shutdown is announced, and connections are still accepted.
    Delayed,
    Ended,
}

impl Service {
    fn new(socket: NotifySocket, watchdog: Option<Duration>) -> Service {
        Service {
            socket,
            watchdog,
            progress: Mutex::default(),
            has_failed: AtomicBool::new(false),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends a message. The first failure is logged.
    fn send(&self, message: &str) {
        if let Err(error) = self.socket.send(message)
            && !self.has_failed.swap(true, Ordering::Relaxed)
        {
            log::warn!("cannot notify the service manager: {error}");
        }
    }

    /// Returns the ping that a message includes if the service manager expects any.
    fn ping_line(&self) -> &'static str {
        if self.watchdog.is_some() {
            "\nWATCHDOG=1"
        } else {
            ""
        }
    }

    /// The process serves at these addresses.
    pub(super) fn ready(&self, addrs: &[Addr]) {
        let mut progress = self.lock();
        if progress.phase != Phase::Starting {
            return;
        }
        progress.phase = Phase::Serving;
        let ping = self.ping_line();
        let status = status_line(&listening(addrs));
        if progress.pending_reloads > 0 {
            // Its end reports readiness.
            self.send(&format!("{}{status}{ping}", reloading_line()));
        } else {
            self.send(&format!("READY=1{status}{ping}"));
        }
    }

    fn begin_reload(&self) {
        let mut progress = self.lock();
        progress.pending_reloads += 1;
        if progress.phase == Phase::Serving {
            self.send(&reloading_line());
        }
    }

    fn finish_reload(&self) {
        let mut progress = self.lock();
        progress.pending_reloads -= 1;
        if progress.phase == Phase::Serving && progress.pending_reloads == 0 {
            let status = progress.status.take();
            let status = status.map_or_else(String::new, |status| status_line(&status));
            self.send(&format!("READY=1{status}"));
        }
    }

    /// Graceful shutdown has started, with this many open connections, or starts after a delay. To be called again after that.
    pub(super) fn stopping(&self, connections: u32, delay: Option<Duration>) {
        let mut progress = self.lock();
        let announced = match progress.phase {
            Phase::Starting | Phase::Serving => "STOPPING=1",
            Phase::Delayed if delay.is_none() => "",
            Phase::Delayed | Phase::Ended => return,
        };
        let (phase, status) = match delay {
            Some(delay) => (
                Phase::Delayed,
                format!(
                    "Shutting down in {} s, still serving; connections open: {connections}",
                    delay.as_millis().div_ceil(1000)
                ),
            ),
            None => (
                Phase::Ended,
                format!("Shutting down, connections still open: {connections}"),
            ),
        };
        progress.phase = phase;
        let status = status_line(&status);
        self.send(format!("{announced}{status}").trim_start());
    }

    /// A process has taken over the listeners.
    pub(super) fn replaced_by(&self, pid: u32) {
        let status = status_line(&format!("Process {pid} has taken over the listeners"));
        let ping = self.ping_line();
        self.end(&format!("MAINPID={pid}{status}{ping}"));
    }

    /// Sends the last message.
    fn end(&self, message: &str) {
        let mut progress = self.lock();
        if progress.phase != Phase::Ended {
            progress.phase = Phase::Ended;
            self.send(message);
        }
    }

    /// The upgrade has failed, and this process continues to serve.
    pub(super) fn upgrade_failed(&self, error: &io::Error) {
        if self.lock().phase == Phase::Serving {
            self.send(
                status_line(&format!(
                    "Upgrade failed, the previous process still serves: {error}"
                ))
                .trim_start(),
            );
        }
    }

    fn ping(&self) {
        if matches!(self.lock().phase, Phase::Serving | Phase::Delayed) {
            self.send("WATCHDOG=1");
        }
    }
}

fn reloading_line() -> String {
    format!("RELOADING=1\nMONOTONIC_USEC={}", clock::monotonic().as_micros())
}

/// Returns an assignment after a line break, from a text of any form.
fn status_line(text: &str) -> String {
    let text: String = text.chars().take(limits::SERVICE_STATUS_CHARS).collect();
    format!("\nSTATUS={}", text.replace(['\n', '\r'], " "))
}

fn listening(addrs: &[Addr]) -> String {
    let mut text = "Listening on ".to_owned();
    for (index, addr) in addrs.iter().enumerate() {
        // Writing to a string cannot fail.
        let _ = write!(text, "{}{addr}", if index == 0 { "" } else { ", " });
    }
    text
}

/// Sends pings while all workers turn.
pub(super) struct KeepAlive {
    stop: Option<mpsc::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl KeepAlive {
    /// Starts the thread if the service manager expects pings.
    pub(super) fn start(service: &'static Service, shared: Arc<Shared>) -> io::Result<Option<KeepAlive>> {
        let Some(interval) = service.watchdog else {
            return Ok(None);
        };
        let (stop, stopped) = mpsc::channel();
        let body = move || {
            let pause = (interval / 8).max(limits::SERVICE_PING_PAUSE);
            let mut pings = PingSchedule::new(shared.workers.len(), 4);
            while stopped.recv_timeout(pause) == Err(mpsc::RecvTimeoutError::Timeout) {
                // Connections are finishing: workers that have none left do not turn.
                let drains = shared.state() >= State::Draining;
                let turns = shared
                    .workers
                    .iter()
                    .map(|worker| worker.counters.turns.load(Ordering::Relaxed));
                if pings.is_due(turns, drains) {
                    service.ping();
                }
                // An idle worker sleeps until it is woken.
                shared.workers.iter().for_each(|worker| worker.doorbell.ring());
            }
        };
        let builder = std::thread::Builder::new().name("ringmain-notify".into());
        #[expect(
            clippy::disallowed_methods,
            reason = "no worker may be the one that reports whether workers turn"
        )]
        let thread = builder.spawn(body)?;
        Ok(Some(KeepAlive {
            stop: Some(stop),
            thread: Some(thread),
        }))
    }
}

impl Drop for KeepAlive {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            // A panic has been logged.
            let _ = thread.join();
        }
    }
}

/// Decides at which checks a ping is sent.
#[derive(Debug)]
struct PingSchedule {
    /// Turns of each worker at the last check.
    turns: Vec<u64>,
    /// Checks from a ping to the next.
    checks_per_ping: u32,
    /// Checks since the last ping.
    checks: u32,
}

impl PingSchedule {
    fn new(workers: usize, checks_per_ping: u32) -> PingSchedule {
        PingSchedule {
            turns: vec![0; workers],
            checks_per_ping,
            checks: 0,
        }
    }

    /// Returns whether a ping is to be sent: none was sent for a while, and each worker has turned since the last check.
    fn is_due(&mut self, turns: impl Iterator<Item = u64>, exempt: bool) -> bool {
        let mut all_turned = true;
        for (last, now) in self.turns.iter_mut().zip(turns) {
            all_turned &= *last != now;
            *last = now;
        }
        self.checks += 1;
        let due = self.checks >= self.checks_per_ping && (all_turned || exempt);
        if due {
            self.checks = 0;
        }
        due
    }
}

#[cfg(test)]
mod tests;
