//! Tasks that follow a configuration, by name: all of them on one thread with tokio, which is started with the first.
//!
//! ```text
//! configuration ─ follow ─▶ thread ─ unchanged: continues
//!                                  ─ changed, removed: told to stop, aborted after STOP_TIMEOUT
//!                                  ─ new: started; started again after a panic
//! ```
//!
//! Workers never wait for this thread. Knows no broker.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use ringmain_push::ThreadPublisher;
use tokio::sync::watch;
use tokio::task::JoinHandle as TaskHandle;
use tokio::time::sleep;

use crate::limits;
use crate::linger::Linger;

/// A task with its configuration. `S` is its state, which lasts as long as its name is configured.
#[derive(Debug)]
pub struct Member<C, S> {
    /// Its name.
    pub name: Arc<str>,
    /// Its configuration.
    pub config: Arc<C>,
    /// Its state.
    pub status: Arc<S>,
    /// Its own inlet for publications, so that channels remember their source.
    pub inlet: ThreadPublisher,
    /// Its number, one for each name.
    pub number: u32,
}

impl<C, S> Clone for Member<C, S> {
    fn clone(&self) -> Self {
        Member {
            name: Arc::clone(&self.name),
            config: Arc::clone(&self.config),
            status: Arc::clone(&self.status),
            inlet: self.inlet.clone(),
            number: self.number,
        }
    }
}

type Members<C, S> = BTreeMap<Arc<str>, Member<C, S>>;
/// The thread, with the sender of its configuration, that ends it when it is dropped.
type Thread<C, S> = (watch::Sender<Members<C, S>>, JoinHandle<()>);
type Task = Pin<Box<dyn Future<Output = ()> + Send>>;
type Run<C, S> = dyn Fn(Member<C, S>, watch::Receiver<()>) -> Task + Send + Sync;

/// The tasks of a kind. Dropping it ends them.
pub struct Supervisor<C, S> {
    /// The name of the thread.
    thread_name: &'static str,
    inlet: ThreadPublisher,
    linger: Arc<Linger>,
    run: Arc<Run<C, S>>,
    state: Mutex<State<C, S>>,
}

struct State<C, S> {
    members: Members<C, S>,
    numbers: u32,
    thread: Option<Thread<C, S>>,
}

impl<C, S> std::fmt::Debug for Supervisor<C, S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Supervisor").field(&self.thread_name).finish()
    }
}

impl<C, S> Supervisor<C, S>
where
    C: PartialEq + Send + Sync + 'static,
    S: Default + Send + Sync + 'static,
{
    /// Without tasks. `run` is a task: it ends soon once its receiver reports a change, or that the sender is gone.
    #[must_use]
    pub fn new(
        thread_name: &'static str,
        inlet: ThreadPublisher,
        run: impl Fn(Member<C, S>, watch::Receiver<()>) -> Task + Send + Sync + 'static,
    ) -> Supervisor<C, S> {
        Supervisor {
            thread_name,
            inlet,
            linger: Arc::default(),
            run: Arc::new(run),
            state: Mutex::new(State {
                members: BTreeMap::new(),
                numbers: 0,
                thread: None,
            }),
        }
    }

    /// The same with pauses of the thread while records arrive.
    pub(crate) fn with_linger(mut self, linger: Arc<Linger>) -> Supervisor<C, S> {
        self.linger = linger;
        self
    }

    /// Runs the configured tasks. Those that have not changed continue; the state of a name continues in any case. `add` is called for
    /// each new name before its task starts.
    pub fn follow(&self, configured: &BTreeMap<Arc<str>, Arc<C>>, add: impl Fn(&Arc<str>, &C)) {
        let state = &mut *self.state();
        let mut members = Members::new();
        for (name, config) in configured {
            let config = Arc::clone(config);
            let member = match state.members.remove(name) {
                Some(member) => Member { config, ..member },
                None => {
                    add(name, &config);
                    state.numbers += 1;
                    Member {
                        name: Arc::clone(name),
                        config,
                        status: Arc::default(),
                        inlet: self.inlet.for_source(),
                        number: state.numbers,
                    }
                }
            };
            members.insert(Arc::clone(name), member);
        }
        state.members.clone_from(&members);
        match &state.thread {
            // It has ended only if it could not start, which was logged.
            Some((sender, _)) => drop(sender.send(members)),
            None if members.is_empty() => {}
            None => {
                let (sender, receiver) = watch::channel(members);
                let (inlet, run) = (self.inlet.clone(), Arc::clone(&self.run));
                let linger = Arc::clone(&self.linger);
                let builder = std::thread::Builder::new().name(self.thread_name.into());
                #[expect(
                    clippy::disallowed_methods,
                    reason = "the one thread of these tasks: they wait for brokers, which no worker may"
                )]
                let thread = builder.spawn(move || serve(receiver, &inlet, linger, &run));
                match thread {
                    Ok(thread) => state.thread = Some((sender, thread)),
                    Err(error) => log::error!("the thread {} cannot be started: {error}", self.thread_name),
                }
            }
        }
    }

    /// The tasks that are configured, by name.
    #[must_use]
    pub fn members(&self) -> Vec<Member<C, S>> {
        self.state().members.values().cloned().collect()
    }

    fn state(&self) -> MutexGuard<'_, State<C, S>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<C, S> Drop for Supervisor<C, S> {
    fn drop(&mut self) {
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        if let Some((sender, thread)) = state.thread.take() {
            drop(sender);
            // A panic was logged.
            let _ = thread.join();
        }
    }
}

/// A task that runs, with the sender that ends it when it is dropped.
struct Running<C> {
    config: Arc<C>,
    _stop: watch::Sender<()>,
    task: TaskHandle<()>,
}

/// Returns a runtime of one thread, the caller's, for connections.
///
/// # Errors
/// No descriptors.
pub fn runtime() -> std::io::Result<tokio::runtime::Runtime> {
    builder().build()
}

fn builder() -> tokio::runtime::Builder {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_io().enable_time();
    builder
}

/// The thread: runs the configured tasks, until the handle is dropped.
fn serve<C, S>(
    mut wanted: watch::Receiver<Members<C, S>>,
    inlet: &ThreadPublisher,
    linger: Arc<Linger>,
    run: &Arc<Run<C, S>>,
) where
    C: PartialEq + Send + Sync + 'static,
    S: Send + Sync + 'static,
{
    let runtime = builder().on_thread_park(move || linger.pause()).build();
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(error) => return log::error!("no broker is read: {error}"),
    };
    runtime.block_on(async {
        let mut running: BTreeMap<Arc<str>, Running<C>> = BTreeMap::new();
        loop {
            let now = wanted.borrow_and_update().clone();
            let (kept, ended): (BTreeMap<_, _>, BTreeMap<_, _>) = std::mem::take(&mut running)
                .into_iter()
                .partition(|(name, task)| now.get(name).is_some_and(|member| member.config == task.config));
            running = kept;
            end(ended).await;
            for (name, member) in now {
                running.entry(name).or_insert_with(|| start(member, run));
            }
            let is_over = tokio::select! {
                changed = wanted.changed() => changed.is_err(),
                // The successor reads from the committed positions, and gets this process's partitions at once.
                () = frozen(inlet) => true,
            };
            if is_over {
                return end(running).await;
            }
        }
    });
    // A name that is being looked up is not waited for.
    runtime.shutdown_background();
}

/// Waits until a successor publishes.
async fn frozen(inlet: &ThreadPublisher) {
    while !inlet.is_frozen() {
        sleep(limits::COMMIT_INTERVAL).await;
    }
}

/// Ends tasks, within one deadline for all.
async fn end<C>(tasks: BTreeMap<Arc<str>, Running<C>>) {
    let tasks: Vec<TaskHandle<()>> = tasks.into_values().map(|Running { task, .. }| task).collect();
    let deadline = tokio::time::Instant::now() + limits::STOP_TIMEOUT;
    for mut task in tasks {
        if tokio::time::timeout_at(deadline, &mut task).await.is_err() {
            task.abort();
        }
    }
}

fn start<C, S>(member: Member<C, S>, run: &Arc<Run<C, S>>) -> Running<C>
where
    C: Send + Sync + 'static,
    S: Send + Sync + 'static,
{
    let (stop, stopped) = watch::channel(());
    Running {
        config: Arc::clone(&member.config),
        _stop: stop,
        task: tokio::spawn(supervise(member, Arc::clone(run), stopped)),
    }
}

/// Ends a task with itself.
pub(crate) struct Abort(pub(crate) TaskHandle<()>);

impl Drop for Abort {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Runs a task once there are workers, and starts it again after a panic.
async fn supervise<C, S>(member: Member<C, S>, run: Arc<Run<C, S>>, mut stopped: watch::Receiver<()>)
where
    C: Send + Sync + 'static,
    S: Send + Sync + 'static,
{
    let mut waited = Duration::ZERO;
    while !member.inlet.is_ready() {
        tokio::select! {
            _ = stopped.changed() => return,
            () = sleep(limits::READY_CHECK_INTERVAL) => waited += limits::READY_CHECK_INTERVAL,
        }
        if waited == limits::LOG_INTERVAL {
            log::warn!(
                "source {}: no worker has started within {waited:?}; still waiting",
                member.name
            );
        }
    }
    loop {
        let mut task = Abort(tokio::spawn(run(member.clone(), stopped.clone())));
        let Err(error) = (&mut task.0).await else { return };
        log::error!("source {}: {error}; it is started again", member.name);
        tokio::select! {
            _ = stopped.changed() => return,
            () = sleep(limits::PANIC_WAIT) => {}
        }
    }
}
