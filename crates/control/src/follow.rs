//! The control thread: it sees that the configuration has changed, and has the gateway follow.
//!
//! ```text
//! change of a file ─▶ settled ─▶ read ─▶ the same? ─▶ nothing
//! SIGHUP ───────────────────────▶ read ─▶ no YAML? ─▶ told, and what served goes on
//!                                  └────▶ wrong parts go on as they were ─▶ Gateway::replace ─▶ told
//! ```
//!
//! One thread that waits for two descriptors needs no asynchronous runtime; what is asked over the network (brokers) has a thread
//! of its own with tokio. Workers never wait for this thread, and it never for them.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use ringmain_gateway::Gateway;
use ringmain_gateway::model::Config;
use ringmain_sys::clock;
use ringmain_sys::event::Event;
use ringmain_sys::memory;
use ringmain_sys::watch::{Watcher, Woken};

use crate::config::{ConfigError, Loaded};
use crate::file::{self, Print, Reading};
use crate::limits;
use crate::nats::Consumers;

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
}

/// What holds, and what was last read.
#[derive(Clone, Debug)]
pub struct State {
    /// The file.
    pub path: PathBuf,
    /// What is served, as it is written.
    pub text: Arc<str>,
    /// What is served.
    pub config: Arc<Config>,
    /// When that was read, since 1970.
    pub since: Duration,
    /// What is wrong with the file as it was last read.
    pub wrong: Vec<ConfigError>,
    /// Whether the file as it was last read is served, but for the parts that are wrong.
    pub is_current: bool,
    /// What of the file holds from the next start on only.
    pub at_restart: Vec<String>,
}

/// How often the configuration was read anew.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reloads {
    /// What was read is served now, if perhaps not all of it.
    pub good: u64,
    /// Nothing of what was read could be served.
    pub bad: u64,
}

/// What serving began with.
#[derive(Debug)]
pub struct Begun {
    /// The file.
    pub path: PathBuf,
    /// By what it is told from other readings.
    pub print: Print,
    /// The file, as it is written.
    pub text: Arc<str>,
    /// What it said.
    pub config: Arc<Config>,
    /// What was wrong with it.
    pub wrong: Vec<ConfigError>,
}

impl Control {
    /// Starts the thread. Changes since the file was read are not missed.
    ///
    /// # Errors
    /// No descriptor or no thread.
    pub fn start(gateway: Gateway, begun: Begun) -> io::Result<Control> {
        let shared = Arc::new(Shared {
            bell: Event::new()?,
            asked: AtomicBool::new(false),
            over: AtomicBool::new(false),
            good: AtomicU64::new(0),
            bad: AtomicU64::new(0),
            consumers: Consumers::new(gateway.inlet()),
            state: Mutex::new(State {
                path: begun.path.clone(),
                text: begun.text,
                config: Arc::clone(&begun.config),
                since: clock::realtime(),
                wrong: begun.wrong,
                is_current: true,
                at_restart: Vec::new(),
            }),
        });
        shared.consume(&begun.config);
        let follower = Follower {
            shared: Arc::clone(&shared),
            path: begun.path,
            print: begun.print,
            limits: gateway.limits(),
            started: begun.config,
            gateway,
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

    /// Has the file read anew, whether it has changed or not.
    pub fn read_anew(&self) {
        self.shared.asked.store(true, Ordering::Release);
        self.shared.bell.signal();
    }

    /// How often it was read anew.
    #[must_use]
    pub fn reloads(&self) -> Reloads {
        Reloads {
            good: self.shared.good.load(Ordering::Relaxed),
            bad: self.shared.bad.load(Ordering::Relaxed),
        }
    }

    /// Those that publish what brokers have.
    #[must_use]
    pub fn consumers(&self) -> &Consumers {
        &self.shared.consumers
    }

    /// What holds.
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
        }
    }
}

/// What the thread has.
struct Follower {
    shared: Arc<Shared>,
    gateway: Gateway,
    path: PathBuf,
    print: Print,
    /// What cannot change without a restart is compared with.
    started: Arc<Config>,
    limits: ringmain_web::Limits,
}

impl Follower {
    fn run(mut self) {
        let mut watcher = match Watcher::new() {
            Ok(watcher) => watcher,
            Err(error) => {
                log::warn!(
                    "changes of {} are not seen by themselves: {error}; raise the sysctl fs.inotify.max_user_instances, or \
                     send SIGHUP after a change",
                    self.path.display()
                );
                return self.run_blind();
            }
        };
        // Since the file was first read nobody has looked; and what that took is not needed any more.
        self.follow(&mut watcher, false);
        memory::give_back();
        loop {
            match watcher.wait(&self.shared.bell, None) {
                Ok(Woken::Bell) => {
                    if self.shared.over.load(Ordering::Acquire) {
                        return;
                    }
                    let asked = self.shared.asked.swap(false, Ordering::AcqRel);
                    self.follow(&mut watcher, asked);
                }
                Ok(Woken::Files) if has_changed(&mut watcher) => {
                    self.settle(&mut watcher);
                    self.follow(&mut watcher, false);
                }
                Ok(Woken::Files | Woken::Time) => {}
                Err(error) => {
                    log::error!("the control thread ends, and nothing is followed any more: {error}");
                    return;
                }
            }
        }
    }

    /// Without files being watched: only what is asked for.
    fn run_blind(mut self) {
        let bell = &self.shared;
        let bell = Arc::clone(bell);
        while bell.bell.wait().is_ok() {
            if bell.over.load(Ordering::Acquire) {
                return;
            }
            bell.asked.store(false, Ordering::Release);
            self.read(true);
        }
    }

    /// Waits until whoever writes is done, but not for long: files are often replaced in several steps.
    fn settle(&self, watcher: &mut Watcher) {
        let end = clock::monotonic() + limits::SETTLED_AT_LATEST;
        while clock::monotonic() < end {
            // Somebody who asks does not wait.
            match watcher.wait(&self.shared.bell, Some(limits::SETTLED_AFTER)) {
                Ok(Woken::Files) => drop(has_changed(watcher)),
                Ok(Woken::Bell) => {
                    self.shared.bell.signal();
                    return;
                }
                Ok(Woken::Time) | Err(_) => return,
            }
        }
    }

    /// Reads, and watches what was read; again if that became more.
    fn follow(&mut self, watcher: &mut Watcher, mut asked: bool) {
        for _ in 0..limits::READ_AGAIN {
            for (folder, error) in watcher.watch(self.print.paths()) {
                log::warn!(
                    "changes in {} are not seen by themselves: {error}",
                    folder.display()
                );
            }
            let watched: Vec<PathBuf> = self.print.paths().map(Path::to_owned).collect();
            self.read(asked);
            if self.print.paths().eq(watched.iter().map(PathBuf::as_path)) {
                return;
            }
            // What is named now was not watched while it was read.
            asked = false;
        }
    }

    /// Reads, and has the gateway follow if it is something else than before or was `asked` for.
    fn read(&mut self, asked: bool) {
        if !asked && file::is_as_before(&self.path, &self.print) {
            return;
        }
        let Reading { loaded, text, print } = match file::read(&self.path) {
            Ok(reading) => reading,
            Err(unreadable) => {
                if asked || unreadable.print != self.print {
                    self.print = unreadable.print.clone().with(&self.print);
                    self.refuse(Vec::new(), &unreadable.to_string());
                }
                return;
            }
        };
        if print == self.print && !asked {
            return;
        }
        let same = print == self.print;
        self.print = print;
        self.apply(loaded, text, same);
        // Reading takes several times of what is served of it.
        memory::give_back();
    }

    fn refuse(&self, wrong: Vec<ConfigError>, why: &str) {
        self.shared.bad.fetch_add(1, Ordering::Relaxed);
        log::error!("{why}; what served goes on serving");
        let mut state = self.shared.state();
        state.wrong = wrong;
        state.is_current = false;
    }

    fn apply(&self, mut loaded: Loaded, text: Arc<str>, same: bool) {
        let name = self.path.display();
        let last = Arc::clone(&self.shared.state().config);
        let Some((config, kept)) = loaded.take(Some(&last)) else {
            for error in &loaded.errors {
                log::error!("{error}");
            }
            let wrong = std::mem::take(&mut loaded.errors);
            return self.refuse(wrong, &format!("{name}: nothing of it can be served"));
        };
        let config = Arc::new(config);
        let begun = clock::monotonic();
        // What could not be listened at may be free now.
        let all_heard = self.gateway.unheard().is_empty();
        let problems = if *config == *last && same && all_heard {
            self.gateway.problems()
        } else {
            self.gateway.replace(Arc::clone(&config), clock::realtime())
        };
        let took = clock::monotonic() - begun;
        self.shared.consume(&config);
        let wrong = loaded.wrong(&problems);
        for error in &wrong {
            log::error!("{error}");
        }
        for (place, outcome) in &loaded.outcomes {
            if kept.contains(place) {
                log::warn!("{name}: {place}: it goes on as it was");
            } else {
                log::warn!("{name}: {place}: {outcome}");
            }
        }
        let at_restart = self.at_restart(&config);
        if !at_restart.is_empty() {
            log::warn!(
                "{name}: these hold from a restart on (SIGUSR2 does one without a connection refused): {}",
                at_restart.join(", ")
            );
        }
        if *config == *last {
            log::info!("{name}: read anew, and the same as before");
        } else {
            log::info!("{name}: read anew, and live {took:?} after it was");
        }
        let mut state = self.shared.state();
        // The table's own, which has the parts of the last one that are alike: none is held twice.
        state.config = Arc::clone(self.gateway.table().config());
        state.text = text;
        state.since = clock::realtime();
        state.wrong = wrong;
        state.is_current = true;
        state.at_restart = at_restart;
        self.shared.good.fetch_add(1, Ordering::Relaxed);
    }

    /// What cannot follow while it serves.
    fn at_restart(&self, config: &Config) -> Vec<String> {
        let started = &self.started;
        let changed = [
            ("limits of listeners", self.gateway.limits() != self.limits),
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

fn has_changed(watcher: &mut Watcher) -> bool {
    // Who cannot tell has to look.
    watcher.has_changed().unwrap_or(true)
}
