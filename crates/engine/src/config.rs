//! How an engine is set up, with the defaults that most want.

use std::time::Duration;

use crate::features::Features;
use crate::limits;

/// Which back-end to use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Choice {
    /// io_uring where it works, else epoll.
    #[default]
    Auto,
    /// io_uring or an error that says why not.
    Uring,
    /// epoll.
    Epoll,
}

/// Settings of an [`Engine`](crate::Engine). Limits that hold process-wide say so; the others are per worker.
#[derive(Clone, Debug)]
pub struct Config {
    /// The back-end.
    pub engine: Choice,
    /// Worker threads. `None`: one for each CPU that the process may use (affinity, CPU quota), and on
    /// io_uring as many more as [`Config::max_connections`] needs tables for; with [`Config::cpus`], one for each of those.
    pub workers: Option<usize>,
    /// Connections that the process holds at once (process-wide). `None`: as many as descriptors
    /// allow. Beyond it accepting pauses and clients wait in the listen queue.
    pub max_connections: Option<u32>,
    /// How long open connections may take to finish at shutdown.
    pub grace: Duration,
    /// The time between a termination signal and the shutdown ([`Running::begin_drain`](crate::Running::begin_drain)): listeners accept as
    /// before, and protocols ask their clients to use another connection. For load balancers that learn late that this process ends.
    /// Default: 0.
    pub drain_delay: Duration,
    /// The time over which [`Cx::drain_turn`](crate::Cx::drain_turn) spreads the ends of connections whose clients reconnect. Default:
    /// `None`, half of [`Config::grace`], at most [`limits::DRAIN_SPREAD`].
    pub drain_spread: Option<Duration>,
    /// How long a closed connection may take to hand its last bytes to the kernel. Longer: they are dropped
    /// and it ends with [`Reason::FlushTimeout`](crate::Reason::FlushTimeout).
    pub flush: Duration,
    /// Pin each worker to a CPU. Done only if there is one for each and no CPU quota.
    pub pin: bool,
    /// CPUs that the workers are pinned to, in turn: worker i runs on `cpus[i % cpus.len()]`, whatever the CPU quota and
    /// the number of workers. Empty: [`Config::pin`] decides. A CPU that the process may not use is an error.
    pub cpus: Vec<usize>,
    /// Start without any listener, for an engine that only opens connections. Else that is an error.
    pub clients_only: bool,
    /// Features of io_uring not to be used, even if they work.
    pub without: Features,
    /// Let a kernel thread submit for each worker; it spins and sleeps after being idle so long.
    /// Costs a CPU a worker.
    pub sqpoll: Option<Duration>,
    /// Busy-poll the network device for so long before sleeping (io_uring only).
    pub busy_poll: Option<Duration>,
    /// Send without copying from so many bytes on (io_uring only). Pays above 8 to 16 KiB on real devices
    /// and never on loopback, where the kernel copies all the same: then it is given up.
    pub zero_copy: Option<u32>,
    /// Steer connections to the worker on the CPU that received them, for this network interface.
    /// Its preconditions are checked first; unmet, a warning names the first and the kernel's hash stays.
    pub steer: Option<String>,
    /// A handler that holds its worker so long is named in the log.
    pub stall: Duration,
    /// Receive buffers of a worker on io_uring; a power of two up to 32,768.
    pub receive_buffers: u16,
    /// Bytes of each; see [`limits::RECEIVE_BUFFER_BYTES`].
    pub receive_buffer_bytes: u32,
    /// Threads for blocking work (process-wide).
    pub blocking_threads: usize,
}

impl Config {
    /// Returns [`Config::drain_spread`], or its default; at most [`Config::grace`].
    #[must_use]
    pub fn effective_drain_spread(&self) -> Duration {
        let default = (self.grace / 2).min(limits::DRAIN_SPREAD);
        self.drain_spread.unwrap_or(default).min(self.grace)
    }
}

impl Default for Config {
    fn default() -> Config {
        Config {
            engine: Choice::Auto,
            workers: None,
            max_connections: None,
            grace: Duration::from_secs(30),
            drain_delay: Duration::ZERO,
            drain_spread: None,
            flush: limits::FLUSH,
            pin: true,
            cpus: Vec::new(),
            clients_only: false,
            without: Features::none(),
            sqpoll: None,
            busy_poll: None,
            zero_copy: None,
            steer: None,
            stall: Duration::from_millis(500),
            receive_buffers: limits::RECEIVE_BUFFERS,
            receive_buffer_bytes: limits::RECEIVE_BUFFER_BYTES,
            blocking_threads: limits::BLOCKING_THREADS,
        }
    }
}
