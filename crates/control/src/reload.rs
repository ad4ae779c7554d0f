//! The control thread: it notices that the configuration has changed, and has the gateway follow.
//!
//! ```text
//! change of a file ─┬▶ read ─▶ the same for the settling time? ─▶ something new? ─▶ verify ─┬▶ Gateway::replace_whole
//! SIGHUP ───────────┘   ▲────── no, or a file is being written ◀┘                          └▶ wrong: nothing changes
//! ```
//!
//! One thread that waits for two descriptors needs no asynchronous runtime; what is requested over the network (brokers) has a
//! thread of its own with tokio. Workers never wait for this thread, and it never for them.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use ringmain_gateway::Gateway;
use ringmain_gateway::model::Config;
use ringmain_sources::Sources;
use ringmain_sys::clock;
use ringmain_sys::event::Event;
use ringmain_sys::memory;
use ringmain_sys::watch::{Watcher, Woken};

use crate::cluster::Cluster;
use crate::merge::Combined;
use crate::config::{ConfigError, Kubernetes, Loaded};
use crate::file::{self, Print, Reading, Unreadable};
use crate::limits;
use crate::nats::Consumers;
use crate::verify::{self, Rejected};

/// The control thread's handle. Dropping it ends the thread.
#[derive(Debug)]
pub struct Control {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    bell: Event,
    asked: AtomicBool,
    over: AtomicBool,
    good: AtomicU64,
    bad: AtomicU64,
    state: Mutex<State>,
    consumers: Consumers,
    sources: Sources,
    cluster: Option<Cluster>,
}

/// The configuration that is served, and what was last read.
#[derive(Clone, Debug)]
pub struct State {
    /// The file.
    pub path: PathBuf,
    /// The text that is served.
    pub text: Arc<str>,
    /// The configuration that is served.
    pub config: Arc<Config>,
    /// When that was read, since 1970.
    pub since: Duration,
    /// What is wrong with the file as it was last read: then it is not served.
    pub wrong: Vec<ConfigError>,
    /// Whether the file as it was last read is served.
    pub is_current: bool,
    /// When the file was last read to be served, since 1970.
    pub tried: Duration,
    /// Keys whose values hold from the next start on only.
    pub at_restart: Vec<String>,
}

/// How often the configuration was reloaded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reloads {
    /// The file is served since.
    pub good: u64,
    /// The file was rejected, and nothing has changed.
    pub bad: u64,
}

/// The configuration at the start.
#[derive(Debug)]
pub struct Begun {
    /// The file.
    pub path: PathBuf,
    /// By what it is told from other readings.
    pub print: Print,
    /// The file's text.
    pub text: Arc<str>,
    /// What it means.
    pub config: Arc<Config>,
    /// Kubernetes as a second source.
    pub kubernetes: Option<Arc<Kubernetes>>,
}

impl Control {
    /// Starts the thread, and that of a second source. Changes since the file was read are not missed.
    ///
    /// # Errors
    /// No descriptor, no thread, or no access to the second source.
    pub fn start(gateway: Gateway, begun: Begun) -> io::Result<Control> {
        let has_objects = begun.kubernetes.is_some();
        let limits = gateway.limits();
        let combined = Combined::new(gateway.clone(), Arc::clone(&begun.config), has_objects);
        let combined = Arc::new(combined);
        let cluster = begun.kubernetes.as_ref();
        let cluster = cluster.map(|settings| Cluster::start(settings, Arc::clone(&combined)));
        let shared = Arc::new(Shared {
            bell: Event::new()?,
            asked: AtomicBool::new(false),
            over: AtomicBool::new(false),
            good: AtomicU64::new(0),
            bad: AtomicU64::new(0),
            consumers: Consumers::new(gateway.inlet()),
            sources: Sources::new(gateway.inlet()),
            cluster: cluster.transpose()?,
            state: Mutex::new(State {
                path: begun.path.clone(),
                text: begun.text,
                config: Arc::clone(&begun.config),
                since: clock::realtime(),
                wrong: Vec::new(),
                is_current: true,
                tried: clock::realtime(),
                at_restart: Vec::new(),
            }),
        });
        shared.consume(&begun.config);
        let follower = Follower {
            shared: Arc::clone(&shared),
            path: begun.path,
            print: begun.print,
            limits,
            started: begun.config,
            combined,
            kubernetes: begun.kubernetes,
        };
        let builder = std::thread::Builder::new().name("ringmain-control".into());
        #[expect(
            clippy::disallowed_methods,
            reason = "the one thread of control: it waits for files, which no worker may"
        )]
        let thread = builder.spawn(move || follower.run())?;
        Ok(Control {
            shared,
            thread: Some(thread),
        })
    }

    /// Has the file reloaded, whether it has changed or not.
    pub fn reload(&self) {
        self.shared.asked.store(true, Ordering::Release);
        self.shared.bell.signal();
    }

    /// How often it was reloaded.
    #[must_use]
    pub fn reloads(&self) -> Reloads {
        Reloads {
            good: self.shared.good.load(Ordering::Relaxed),
            bad: self.shared.bad.load(Ordering::Relaxed),
        }
    }

    /// The consumers of brokers.
    #[must_use]
    pub fn consumers(&self) -> &Consumers {
        &self.shared.consumers
    }

    /// The sources of publications.
    #[must_use]
    pub fn sources(&self) -> &Sources {
        &self.shared.sources
    }

    /// The cluster that is followed.
    #[must_use]
    pub fn cluster(&self) -> Option<&Cluster> {
        self.shared.cluster.as_ref()
    }

    /// The configuration that is served, and what was last read.
    #[must_use]
    pub fn state(&self) -> State {
        self.shared.state().clone()
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        self.shared.over.store(true, Ordering::Release);
        self.shared.bell.signal();
        if let Some(thread) = self.thread.take() {
            // What it panicked of was said.
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has consumers of brokers at work as the configuration wants them. One without `push`, or with a wrong one, leaves them as it
    /// leaves push.
    fn consume(&self, config: &Config) {
        if let Some(push) = &config.push {
            self.consumers.follow(&push.nats);
            self.sources.follow(&push.sources);
        }
    }
}

/// What the thread has.
struct Follower {
    shared: Arc<Shared>,
    combined: Arc<Combined>,
    kubernetes: Option<Arc<Kubernetes>>,
    path: PathBuf,
    print: Print,
    /// What cannot change without a restart is compared with.
    started: Arc<Config>,
    limits: ringmain_web::Limits,
}

/// How a wait ends.
enum Waited {
    /// The time is over.
    Quiet,
    /// A watched file has changed.
    Changed,
    /// A reload was requested.
    Requested,
    /// The thread is to end.
    Over,
}

impl Follower {
    fn run(mut self) {
        let mut watcher = match Watcher::new() {
            Ok(watcher) => watcher,
            Err(error) => {
                log::warn!(
                    "changes of {} are not noticed: {error}; raise the sysctl fs.inotify.max_user_instances, or send SIGHUP \
                     after a change",
                    self.path.display()
                );
                return self.run_blind();
            }
        };
        // Nobody has watched since the file was first read; and the memory that took is not needed any more.
        self.follow(&mut watcher, false);
        memory::give_back();
        loop {
            match self.wait(&mut watcher, None) {
                Ok(Waited::Over) => return,
                Ok(Waited::Quiet) => {}
                Ok(waited) => self.follow(&mut watcher, matches!(waited, Waited::Requested)),
                Err(error) => {
                    log::error!("the control thread ends, and nothing is followed any more: {error}");
                    return;
                }
            }
        }
    }

    /// Without files being watched: at a request only.
    fn run_blind(mut self) {
        let shared = Arc::clone(&self.shared);
        while shared.bell.wait().is_ok() {
            loop {
                if shared.over.load(Ordering::Acquire) {
                    return;
                }
                shared.asked.store(false, Ordering::Release);
                let read = file::read(&self.path);
                let settled = shared.bell.wait_for(limits::SETTLED_AFTER);
                if settled.is_ok_and(|again| !again) && print(&read).is_unchanged(&self.path) {
                    self.take(read, true);
                    break;
                }
            }
        }
    }

    /// Waits for a change of a watched file, a request, or the time.
    fn wait(&self, watcher: &mut Watcher, time: Option<Duration>) -> io::Result<Waited> {
        let end = time.map(|time| clock::monotonic() + time);
        loop {
            let left = end.map(|end| end.saturating_sub(clock::monotonic()));
            match watcher.wait(&self.shared.bell, left)? {
                Woken::Bell if self.shared.over.load(Ordering::Acquire) => return Ok(Waited::Over),
                Woken::Bell if self.shared.asked.swap(false, Ordering::AcqRel) => {
                    return Ok(Waited::Requested);
                }
                // Without an answer it may have been anything.
                Woken::Files if watcher.has_changed().unwrap_or(true) => return Ok(Waited::Changed),
                Woken::Time => return Ok(Waited::Quiet),
                Woken::Bell | Woken::Files => {}
            }
        }
    }

    /// Reads until the files have been the same for the settling time and none of them is being written, then applies them: if
    /// they have other contents than before, or a reload was `requested`. A text of which half is written is never applied.
    fn follow(&mut self, watcher: &mut Watcher, mut requested: bool) {
        loop {
            // What was not taken yet may say that a file is being written.
            let _ = watcher.has_changed();
            let waited = if let Some(file) = watcher.being_written() {
                let writes = watcher.writes();
                let waited = self.wait(watcher, Some(limits::WRITER_SILENCE));
                if matches!(waited, Ok(Waited::Quiet)) && watcher.writes() == writes {
                    log::warn!(
                        "{} is kept open by a program that has written to it",
                        file.display()
                    );
                    watcher.forget_writers();
                }
                waited
            } else {
                self.watch(watcher, &self.print);
                if !requested && file::is_as_before(&self.path, &self.print) {
                    return;
                }
                let read = file::read(&self.path);
                self.watch(watcher, print(&read));
                let waited = self.wait(watcher, Some(limits::SETTLED_AFTER));
                let is_quiet = matches!(waited, Ok(Waited::Quiet)) && watcher.being_written().is_none();
                if is_quiet && print(&read).is_unchanged(&self.path) {
                    self.take(read, requested);
                    return;
                }
                waited
            };
            match waited {
                Ok(Waited::Requested) => requested = true,
                Ok(Waited::Changed | Waited::Quiet) => {}
                // The caller finds the error again.
                Ok(Waited::Over) => return self.shared.bell.signal(),
                Err(_) => return,
            }
        }
    }

    fn watch(&self, watcher: &mut Watcher, print: &Print) {
        let paths: BTreeSet<&Path> = self.print.paths().chain(print.paths()).collect();
        for (folder, error) in watcher.watch(paths.into_iter()) {
            log::warn!("changes in {} are not noticed: {error}", folder.display());
        }
    }

    /// Applies a reading whose files have settled, if it is something else than before or was `requested`.
    fn take(&mut self, read: Result<Reading, Box<Unreadable>>, requested: bool) {
        match read {
            Ok(Reading { loaded, text, print }) => {
                let is_same = print.has_contents_of(&self.print);
                self.print = print;
                if requested || !is_same {
                    self.apply(loaded, text);
                    // Reading takes several times the memory of what is served.
                    memory::give_back();
                }
            }
            Err(unreadable) => {
                let print = unreadable.print.clone().with(&self.print);
                let is_same = print.has_contents_of(&self.print);
                self.print = print;
                if requested || !is_same {
                    log::error!("{unreadable}");
                    self.reject(Vec::new());
                }
            }
        }
    }

    fn reject(&self, wrong: Vec<ConfigError>) {
        self.shared.bad.fetch_add(1, Ordering::Relaxed);
        let name = self.path.display();
        log::error!(
            "{name}: configuration rejected: keeping the previous configuration, nothing has changed"
        );
        let mut state = self.shared.state();
        state.wrong = wrong;
        state.is_current = false;
        state.tried = clock::realtime();
    }

    fn apply(&self, mut loaded: Loaded, text: Arc<str>) {
        let name = self.path.display();
        let last = Arc::clone(&self.shared.state().config);
        let begun = clock::monotonic();
        let config = match verify::reload(&self.combined, &mut loaded, &last) {
            Ok(config) => config,
            Err(Rejected { errors, more }) => {
                for error in &errors {
                    log::error!("{error}");
                }
                if more > 0 {
                    log::error!("{name}: {more} more errors");
                }
                return self.reject(errors);
            }
        };
        let took = clock::monotonic() - begun;
        for warning in &loaded.warnings {
            log::warn!("{warning}");
        }
        self.shared.consume(&config);
        if let Some(cluster) = &self.shared.cluster {
            cluster.report_again();
        }
        let at_restart = self.at_restart(&config, loaded.kubernetes.as_ref());
        if !at_restart.is_empty() {
            log::warn!(
                "{name}: these hold from a restart on (SIGUSR2 does one without a connection refused): {}",
                at_restart.join(", ")
            );
        }
        if *config == *last {
            log::info!("{name}: configuration reloaded: unchanged");
        } else {
            log::info!("{name}: configuration reloaded in {took:?}");
        }
        let mut state = self.shared.state();
        state.config = config;
        state.text = text;
        state.since = clock::realtime();
        state.tried = state.since;
        state.wrong = Vec::new();
        state.is_current = true;
        state.at_restart = at_restart;
        self.shared.good.fetch_add(1, Ordering::Relaxed);
    }

    /// What cannot follow while it serves.
    fn at_restart(&self, config: &Config, kubernetes: Option<&Arc<Kubernetes>>) -> Vec<String> {
        let started = &self.started;
        let limits = self.combined.gateway().limits();
        let changed = [
            (
                "limits of listeners",
                limits != self.limits && self.kubernetes.is_none(),
            ),
            ("kubernetes", kubernetes != self.kubernetes.as_ref()),
            ("admin", config.admin != started.admin),
            ("access_log", config.access_log != started.access_log),
            (
                "limits.connections",
                config.limits.connections != started.limits.connections,
            ),
            ("limits.drain", config.limits.drain != started.limits.drain),
        ];
        let changed = changed.into_iter().filter(|(_, changed)| *changed);
        changed.map(|(name, _)| name.to_owned()).collect()
    }
}

/// The files of a reading.
fn print(read: &Result<Reading, Box<Unreadable>>) -> &Print {
    match read {
        Ok(reading) => &reading.print,
        Err(unreadable) => &unreadable.print,
    }
}
