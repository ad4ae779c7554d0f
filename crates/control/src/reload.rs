//! The control thread: it notices that the configuration has changed, and has the gateway follow.
//!
//! ```text
//! change of a file ─┬▶ read ─▶ the same for the settling time? ─▶ something new? ─▶ verify ─┬▶ Gateway::replace_atomically
//! SIGHUP ───────────┘   ▲────── no, or a file is being written ◀┘                          └▶ wrong: nothing changes
//! ```
//!
//! One thread that waits for two descriptors needs no asynchronous runtime; connections to brokers have a separate thread with
//! tokio. Workers never wait for this thread, and it never waits for them.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use ringmain_engine::Reload;
use ringmain_gateway::Gateway;
use ringmain_gateway::model::{Config, PushCluster};
use ringmain_sources::Sources;
use ringmain_sys::clock;
use ringmain_sys::event::Event;
use ringmain_sys::memory;
use ringmain_sys::watch::{Watcher, Woken};

use crate::cluster::Cluster;
use crate::config::{ConfigError, KubernetesSource, Loaded};
use crate::file::{self, Fingerprint, LoadedFile, UnreadableFile};
use crate::limits;
use crate::merge::ConfigMerger;
use crate::nats::Consumers;
use crate::process_log;
use crate::push_cluster;
use crate::push_node::PushNode;
use crate::verify::{self, Rejected};

/// The control thread's handle. Dropping it ends the thread.
#[derive(Debug)]
pub struct ConfigWatcher {
    context: Arc<WatchContext>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct WatchContext {
    wakeup: Event,
    /// A requested reload that has not started.
    request: Mutex<Option<Reload>>,
    is_stopping: AtomicBool,
    succeeded: AtomicU64,
    failed: AtomicU64,
    status: Mutex<ConfigStatus>,
    consumers: Consumers,
    sources: Sources,
    /// The node of this process in a cluster of push servers.
    push_cluster: Option<PushNode>,
    cluster: Option<Cluster>,
}

/// The served configuration, and the result of the last reload.
#[derive(Clone, Debug)]
pub struct ConfigStatus {
    /// The file.
    pub path: PathBuf,
    /// The text that is served.
    pub text: Arc<str>,
    /// The configuration that is served.
    pub config: Arc<Config>,
    /// The time at which it was loaded, since 1970.
    pub loaded_at: Duration,
    /// The errors of the file as last read; with errors it is not applied.
    pub errors: Vec<ConfigError>,
    /// The reason why the file could not be read at the last reload.
    pub unreadable: Option<String>,
    /// The file as last read is the served configuration.
    pub is_current: bool,
    /// The time of the last reload, successful or not, since 1970.
    pub attempted_at: Duration,
    /// Keys whose new values apply after a restart only.
    pub restart_required: Vec<String>,
}

/// The numbers of reloads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reloads {
    /// The file is served since.
    pub succeeded: u64,
    /// The file was rejected, and nothing has changed.
    pub failed: u64,
}

/// The configuration at the start.
#[derive(Debug)]
pub struct InitialConfig {
    /// The file.
    pub path: PathBuf,
    /// Identifies the files that were read.
    pub fingerprint: Fingerprint,
    /// The file's text.
    pub text: Arc<str>,
    /// The parsed configuration.
    pub config: Arc<Config>,
    /// Kubernetes as a second source.
    pub kubernetes: Option<Arc<KubernetesSource>>,
}

impl ConfigWatcher {
    /// Starts the thread, and that of a second source. Changes since the file was read are not missed.
    ///
    /// # Errors
    /// No descriptor, no thread, or no access to the second source.
    pub fn start(gateway: Gateway, initial: InitialConfig) -> io::Result<ConfigWatcher> {
        let has_objects = initial.kubernetes.is_some();
        let limits = gateway.limits();
        let merger = ConfigMerger::new(gateway.clone(), Arc::clone(&initial.config), has_objects);
        let merger = Arc::new(merger);
        let cluster = initial.kubernetes.as_ref();
        let cluster = cluster.map(|settings| Cluster::start(settings, Arc::clone(&merger)));
        let context = Arc::new(WatchContext {
            wakeup: Event::new()?,
            request: Mutex::default(),
            is_stopping: AtomicBool::new(false),
            succeeded: AtomicU64::new(0),
            failed: AtomicU64::new(0),
            consumers: Consumers::new(gateway.inlet()),
            sources: Sources::new(gateway.inlet()),
            cluster: cluster.transpose()?,
            push_cluster: push_cluster::start(&gateway, &initial.config)?.map(PushNode::new),
            status: Mutex::new(ConfigStatus {
                path: initial.path.clone(),
                text: initial.text,
                config: Arc::clone(&initial.config),
                loaded_at: clock::realtime(),
                errors: Vec::new(),
                unreadable: None,
                is_current: true,
                attempted_at: clock::realtime(),
                restart_required: Vec::new(),
            }),
        });
        context.update_sources(&initial.config);
        let thread_state = WatchThread {
            context: Arc::clone(&context),
            path: initial.path,
            fingerprint: initial.fingerprint,
            limits,
            started: initial.config,
            merger,
            kubernetes: initial.kubernetes,
        };
        let builder = std::thread::Builder::new().name("ringmain-control".into());
        #[expect(
            clippy::disallowed_methods,
            reason = "the one thread of control: it waits for files, which no worker may"
        )]
        let thread = builder.spawn(move || thread_state.run())?;
        Ok(ConfigWatcher {
            context,
            thread: Some(thread),
        })
    }

    /// Requests a reload of the file, whether it has changed or not.
    pub fn reload(&self) {
        self.reload_as(Reload::begin());
    }

    /// As [`ConfigWatcher::reload`], for a reload that was reported to the service manager before.
    pub fn reload_as(&self, request: Reload) {
        // One that has not started yet covers this one.
        self.context.lock_request().get_or_insert(request);
        self.context.wakeup.signal();
    }

    /// Returns the numbers of reloads.
    #[must_use]
    pub fn reloads(&self) -> Reloads {
        Reloads {
            succeeded: self.context.succeeded.load(Ordering::Relaxed),
            failed: self.context.failed.load(Ordering::Relaxed),
        }
    }

    /// Returns the consumers of brokers.
    #[must_use]
    pub fn consumers(&self) -> &Consumers {
        &self.context.consumers
    }

    /// Returns the sources of publications.
    #[must_use]
    pub fn sources(&self) -> &Sources {
        &self.context.sources
    }

    /// Returns the node of this process in a cluster of push servers.
    #[must_use]
    pub fn push_cluster(&self) -> Option<&PushNode> {
        self.context.push_cluster.as_ref()
    }

    /// Returns the cluster that is followed.
    #[must_use]
    pub fn cluster(&self) -> Option<&Cluster> {
        self.context.cluster.as_ref()
    }

    /// Returns the served configuration, and the result of the last reload.
    #[must_use]
    pub fn status(&self) -> ConfigStatus {
        self.context.lock_status().clone()
    }
}

impl Drop for ConfigWatcher {
    fn drop(&mut self) {
        self.context.is_stopping.store(true, Ordering::Release);
        self.context.wakeup.signal();
        if let Some(thread) = self.thread.take() {
            // A panic has been logged.
            let _ = thread.join();
        }
    }
}

impl WatchContext {
    fn lock_request(&self) -> MutexGuard<'_, Option<Reload>> {
        self.request.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take_request(&self) -> Option<Reload> {
        self.lock_request().take()
    }

    fn lock_status(&self) -> MutexGuard<'_, ConfigStatus> {
        self.status.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts and stops consumers of brokers as configured. A configuration without `push`, or with an invalid one, leaves them
    /// unchanged, like push itself.
    fn update_sources(&self, config: &Config) {
        if let Some(push) = &config.push {
            self.consumers.follow(&push.nats);
            self.sources.follow(&push.sources);
        }
    }
}

/// The state of the thread.
struct WatchThread {
    context: Arc<WatchContext>,
    merger: Arc<ConfigMerger>,
    kubernetes: Option<Arc<KubernetesSource>>,
    path: PathBuf,
    fingerprint: Fingerprint,
    /// The configuration at the start, for comparison of keys that need a restart.
    started: Arc<Config>,
    limits: ringmain_web::Limits,
}

/// The reason why a wait has ended.
enum WakeReason {
    /// The timeout has expired.
    TimedOut,
    /// A watched file has changed.
    Changed,
    /// A reload was requested.
    Requested(Reload),
    /// The thread is to end.
    Stopped,
}

impl WatchThread {
    fn run(mut self) {
        let mut watcher = match Watcher::new() {
            Ok(watcher) => watcher,
            Err(error) => {
                log::warn!(
                    "cannot watch {} for changes: {error}; raise the sysctl fs.inotify.max_user_instances, or send SIGHUP \
                     after a change",
                    self.path.display()
                );
                return self.run_without_inotify();
            }
        };
        // The file was not watched since it was first read; and the memory of that reading is not needed any more.
        self.debounce(&mut watcher, None);
        memory::give_back();
        loop {
            match self.wait_for_wakeup(&mut watcher, None) {
                Ok(WakeReason::Stopped) => return,
                Ok(WakeReason::TimedOut) => {}
                Ok(WakeReason::Changed) => self.debounce(&mut watcher, None),
                Ok(WakeReason::Requested(request)) => self.debounce(&mut watcher, Some(request)),
                Err(error) => {
                    log::error!(
                        "the configuration is no longer watched for changes: {error}; send SIGHUP after a change"
                    );
                    return self.run_without_inotify();
                }
            }
        }
    }

    /// Reloads on request only: files are not watched.
    fn run_without_inotify(mut self) {
        let context = Arc::clone(&self.context);
        while context.wakeup.wait().is_ok() {
            let mut request = None;
            loop {
                if context.is_stopping.load(Ordering::Acquire) {
                    return;
                }
                request = request.or(context.take_request());
                let read = file::read(&self.path);
                let debounced = context.wakeup.wait_for(limits::DEBOUNCE);
                if debounced.is_ok_and(|again| !again) && fingerprint_of(&read).is_unchanged(&self.path) {
                    self.apply_reading(read, request);
                    break;
                }
            }
        }
    }

    /// Waits for a change of a watched file, a request, or the time.
    fn wait_for_wakeup(&self, watcher: &mut Watcher, time: Option<Duration>) -> io::Result<WakeReason> {
        let end = time.map(|time| clock::monotonic() + time);
        loop {
            let remaining = end.map(|end| end.saturating_sub(clock::monotonic()));
            match watcher.wait(&self.context.wakeup, remaining)? {
                Woken::Bell if self.context.is_stopping.load(Ordering::Acquire) => {
                    return Ok(WakeReason::Stopped);
                }
                Woken::Bell => {
                    if let Some(request) = self.context.take_request() {
                        return Ok(WakeReason::Requested(request));
                    }
                }
                // On an error any file may have changed.
                Woken::Files if watcher.has_changed().unwrap_or(true) => return Ok(WakeReason::Changed),
                Woken::Time => return Ok(WakeReason::TimedOut),
                Woken::Files => {}
            }
        }
    }

    /// Waits until the files have been unchanged for the debounce time and none is being written, then applies them if their
    /// contents differ from the previous reading, or there is a `request`. A partially written file is never applied.
    fn debounce(&mut self, watcher: &mut Watcher, mut request: Option<Reload>) {
        loop {
            // Unread events may report a file that is being written.
            let _ = watcher.has_changed();
            let reason = if let Some(file) = watcher.being_written() {
                let writes = watcher.writes();
                let reason = self.wait_for_wakeup(watcher, Some(limits::WRITER_TIMEOUT));
                if matches!(reason, Ok(WakeReason::TimedOut)) && watcher.writes() == writes {
                    log::warn!(
                        "{} is still open in a program that has written to it: applying its present contents",
                        file.display()
                    );
                    watcher.forget_writers();
                }
                reason
            } else {
                self.watch_paths(watcher, &self.fingerprint);
                if request.is_none() && file::matches_disk(&self.path, &self.fingerprint) {
                    return;
                }
                let read = file::read(&self.path);
                self.watch_paths(watcher, fingerprint_of(&read));
                let reason = self.wait_for_wakeup(watcher, Some(limits::DEBOUNCE));
                let is_quiet =
                    matches!(reason, Ok(WakeReason::TimedOut)) && watcher.being_written().is_none();
                if is_quiet && fingerprint_of(&read).is_unchanged(&self.path) {
                    self.apply_reading(read, request);
                    return;
                }
                reason
            };
            match reason {
                Ok(WakeReason::Requested(later)) => request = request.or(Some(later)),
                Ok(WakeReason::Changed | WakeReason::TimedOut) => {}
                // The caller reports the error.
                Ok(WakeReason::Stopped) => return self.context.wakeup.signal(),
                Err(_) => return,
            }
        }
    }

    fn watch_paths(&self, watcher: &mut Watcher, fingerprint: &Fingerprint) {
        let paths: BTreeSet<&Path> = self.fingerprint.paths().chain(fingerprint.paths()).collect();
        for (folder, error) in watcher.watch(paths.into_iter()) {
            log::warn!("cannot watch {} for changes: {error}", folder.display());
        }
    }

    /// Applies a stable reading if it differs from the previous one, or there is a `request`.
    fn apply_reading(&mut self, read: Result<LoadedFile, Box<UnreadableFile>>, request: Option<Reload>) {
        let fingerprint = match &read {
            Ok(reading) => reading.fingerprint.clone(),
            Err(unreadable) => unreadable.fingerprint.clone().merged_with(&self.fingerprint),
        };
        let is_same = fingerprint.has_same_contents(&self.fingerprint);
        self.fingerprint = fingerprint;
        if request.is_none() && is_same {
            return;
        }
        let reload = request.unwrap_or_else(Reload::begin);
        let status = match read {
            Ok(LoadedFile { loaded, text, .. }) => {
                let status = self.apply_config(loaded, text);
                // Reading takes several times the memory of the served configuration.
                memory::give_back();
                status
            }
            Err(unreadable) => {
                log::error!("{unreadable}");
                self.record_rejection(Vec::new(), Some(unreadable.to_string()));
                format!("Keeping the previous configuration: {unreadable}")
            }
        };
        reload.finish(&status);
    }

    /// Records that the file was rejected: its errors, or the reason why it could not be read.
    fn record_rejection(&self, errors: Vec<ConfigError>, unreadable: Option<String>) {
        self.context.failed.fetch_add(1, Ordering::Relaxed);
        process_log::log_rejection(&self.path);
        let mut status = self.context.lock_status();
        status.errors = errors;
        status.unreadable = unreadable;
        status.is_current = false;
        status.attempted_at = clock::realtime();
    }

    /// Returns the result in a line.
    fn apply_config(&self, mut loaded: Loaded, text: Arc<str>) -> String {
        let name = self.path.display();
        let last = Arc::clone(&self.context.lock_status().config);
        let initial = clock::monotonic();
        let config = match verify::apply(&self.merger, &mut loaded, &last) {
            Ok(config) => config,
            Err(Rejected { errors, omitted }) => {
                errors.iter().for_each(process_log::log_config_error);
                if omitted > 0 {
                    log::error!("{name}: {omitted} more errors");
                }
                let first = errors
                    .first()
                    .map(|error| format!(": {error}"))
                    .unwrap_or_default();
                self.record_rejection(errors, None);
                return format!("Keeping the previous configuration{first}");
            }
        };
        let duration = clock::monotonic() - initial;
        process_log::apply_format(&config);
        loaded.warnings.iter().for_each(process_log::log_config_warning);
        self.context.update_sources(&config);
        if let Some(cluster) = &self.context.cluster {
            cluster.update_statuses();
        }
        let restart_required = self.restart_required(&config, loaded.kubernetes.as_ref());
        if !restart_required.is_empty() {
            let keys = restart_required.join(", ");
            log::warn!(
                event = "restart_required", file:% = name, keys = keys.as_str();
                "{name}: changes of these keys require a restart (SIGUSR2 restarts without refusing connections): {keys}"
            );
        }
        let outcome = if *config == *last {
            "reloaded: unchanged".to_owned()
        } else {
            format!("reloaded in {duration:?}")
        };
        log::info!(
            event = "configuration_reloaded", file:% = name, duration_us = duration.as_micros() as u64;
            "{name}: configuration {outcome}"
        );
        let mut status = self.context.lock_status();
        status.config = config;
        status.text = text;
        status.loaded_at = clock::realtime();
        status.attempted_at = status.loaded_at;
        status.errors = Vec::new();
        status.unreadable = None;
        status.is_current = true;
        status.restart_required = restart_required;
        self.context.succeeded.fetch_add(1, Ordering::Relaxed);
        format!("Configuration {outcome}")
    }

    /// Lists the changed keys that need a restart.
    fn restart_required(&self, config: &Config, kubernetes: Option<&Arc<KubernetesSource>>) -> Vec<String> {
        let started = &self.started;
        let limits = self.merger.gateway().limits();
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
            (
                "push.cluster",
                cluster_of(config).is_some_and(|cluster| Some(cluster) != cluster_of(started)),
            ),
            ("limits.drain", config.limits.drain != started.limits.drain),
            (
                "limits.drain_delay",
                config.limits.drain_delay != started.limits.drain_delay,
            ),
            (
                "limits.drain_spread",
                config.limits.drain_spread != started.limits.drain_spread,
            ),
        ];
        let changed = changed.into_iter().filter(|(_, changed)| *changed);
        changed.map(|(name, _)| name.to_owned()).collect()
    }
}

/// Returns the configured nodes of push. A configuration without `push` leaves push unchanged.
fn cluster_of(config: &Config) -> Option<Option<&PushCluster>> {
    let push = config.push.as_ref();
    push.map(|push| push.cluster.as_deref())
}

/// Returns the fingerprint of the files that were read.
fn fingerprint_of(read: &Result<LoadedFile, Box<UnreadableFile>>) -> &Fingerprint {
    match read {
        Ok(file) => &file.fingerprint,
        Err(unreadable) => &unreadable.fingerprint,
    }
}
