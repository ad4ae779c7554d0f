//! Rounds: an engine for each, its workers begun together, their figures put together.
//!
//! Owns the thread between the workers and whoever watches. Knows no output.

mod collect;
mod error;

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use ringmain_engine::backend::Time;
use ringmain_engine::{Config, Engine, Running};

use self::collect::Collector;
pub use self::error::RunError;
use crate::client::{Client, News, Order, Secures, check_http2};
use crate::figures::Figures;
use crate::limits;
use crate::plan::{Pace, Plan, Protocol};
use crate::report::{Interval, Round};
use crate::server::Server;
use crate::traffic::{Socket, Traffic};

/// How often it is looked at whether the run was cut short.
const LOOK: Duration = Duration::from_millis(50);

/// What can be shown while a round runs.
#[derive(Debug)]
pub enum Progress<'a> {
    /// Connections are being opened.
    Connecting,
    /// All stand; load begins, not counted yet.
    Warming,
    /// Counting has begun.
    Measuring,
    /// An interval is over.
    Interval {
        /// In short.
        interval: &'a Interval,
        /// Whole.
        figures: &'a Figures,
    },
    /// Nothing new for a while: what shows the passing of time may show it.
    Waiting,
}

/// One plan, to be carried out round by round.
#[derive(Debug)]
pub struct Session {
    plan: Arc<Plan>,
    traffic: Arc<Traffic>,
    stop: Arc<AtomicBool>,
    engine: String,
}

impl Session {
    /// Checks that the plan makes sense and the engine is there.
    ///
    /// # Errors
    /// [`RunError::Plan`] names the setting; [`RunError::Engine`] says why a forced engine is not there,
    /// [`RunError::Tls`] what is wrong with certificates and keys.
    pub fn new(plan: Plan, traffic: Traffic) -> Result<Session, RunError> {
        check(&plan, &traffic)?;
        secures(&plan)?;
        let engine = Engine::new(config(&plan))?;
        Ok(Session {
            engine: engine.selection().to_string(),
            plan: Arc::new(plan),
            traffic: Arc::new(traffic),
            stop: Arc::new(AtomicBool::new(false)),
        })
    }

    /// The plan.
    #[must_use]
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// The engine that it runs on, and why.
    #[must_use]
    pub fn engine(&self) -> &str {
        &self.engine
    }

    /// Set to true it ends the round that runs; what was measured so far is its result.
    #[must_use]
    pub fn stop(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.stop)
    }

    /// Carries out round `number`, from 0. With a `server` to watch its use is part of the result.
    ///
    /// # Errors
    /// Connections that do not come about within [`Plan::connect_timeout`] (at once if the first is refused), a worker that
    /// ended, a server that is gone.
    pub fn round(
        &self,
        number: u32,
        server: Option<&mut Server>,
        show: &mut dyn FnMut(Progress<'_>),
    ) -> Result<Round, RunError> {
        let mut config = config(&self.plan);
        config.workers = Some(self.plan.threads);
        let engine = Engine::new(config)?;
        let (news, told) = mpsc::channel();
        let (plan, traffic) = (Arc::clone(&self.plan), Arc::clone(&self.traffic));
        let news = std::sync::Mutex::new(news);
        let secures = secures(&plan)?;
        let running = engine.start(move |start| {
            let news = news.lock().expect("nothing panics with it").clone();
            let secure = secures.as_ref().map(Secures::handle);
            Client::new(&start, &plan, &traffic, number, secure, news)
        })?;
        let round = self.conduct(&running, &told, server, show);
        match &round {
            // Connections that have a way to say goodbye do.
            Ok(_) => running.shut_down(),
            Err(_) => running.stop(),
        }
        running.join()?;
        round
    }

    fn conduct(
        &self,
        running: &Running<Order>,
        told: &Receiver<News>,
        server: Option<&mut Server>,
        show: &mut dyn FnMut(Progress<'_>),
    ) -> Result<Round, RunError> {
        show(Progress::Connecting);
        let at = self.wait_standing(running, told, show)?;
        show(Progress::Warming);
        self.order(running, Order::Begin { at });
        let mut collector = Collector::new(&self.plan, server);
        let mut ending = false;
        loop {
            match told.recv_timeout(LOOK) {
                Ok(news) => {
                    collector.take(news, show)?;
                    if collector.is_done() {
                        return collector.finish();
                    }
                }
                Err(RecvTimeoutError::Disconnected) => return Err(RunError::Worker),
                Err(RecvTimeoutError::Timeout) if running.is_over() => return Err(RunError::Worker),
                Err(RecvTimeoutError::Timeout) => show(Progress::Waiting),
            }
            if !ending && self.stop.load(Ordering::Relaxed) {
                ending = true;
                self.order(running, Order::End);
            }
        }
    }

    /// Waits until all connections of all workers stand; returns the moment to begin.
    fn wait_standing(
        &self,
        running: &Running<Order>,
        told: &Receiver<News>,
        show: &mut dyn FnMut(Progress<'_>),
    ) -> Result<Time, RunError> {
        let mut begin = Time(0);
        let mut standing = 0;
        let mut failure = None;
        #[expect(
            clippy::disallowed_methods,
            reason = "this thread has no engine whose clock it could ask"
        )]
        let began = Instant::now();
        while standing < self.plan.threads {
            match told.recv_timeout(LOOK) {
                Ok(News::Standing { now }) => {
                    begin = begin.max(now);
                    standing += 1;
                }
                Ok(News::NotConnected { error }) => {
                    let last = standing == 0 && failure.is_none() && is_final(error.kind());
                    failure = Some(error);
                    if last {
                        return Err(self.not_connected(failure, began.elapsed()));
                    }
                }
                Ok(_) => {}
                Err(RecvTimeoutError::Timeout) if !running.is_over() => show(Progress::Waiting),
                Err(_) => return Err(RunError::Worker),
            }
            if self.stop.load(Ordering::Relaxed) {
                return Err(RunError::Stopped);
            }
            // However busy the workers are telling of failures.
            if began.elapsed() >= self.plan.connect_timeout {
                return Err(self.not_connected(failure, began.elapsed()));
            }
        }
        Ok(begin)
    }

    fn not_connected(&self, last: Option<io::Error>, waited: Duration) -> RunError {
        RunError::NotConnected {
            target: self.plan.target.to_string(),
            connections: self.plan.connections,
            waited,
            last,
        }
    }

    fn order(&self, running: &Running<Order>, order: Order) {
        for worker in 0..self.plan.threads {
            // A worker that has ended is noticed by its silence.
            let _ = running.inbox(worker).post(order);
        }
    }
}

/// Whether another attempt has no prospect: nobody listens there, or who does wants none of it.
pub(crate) fn is_final(kind: io::ErrorKind) -> bool {
    use io::ErrorKind;
    matches!(
        kind,
        ErrorKind::ConnectionRefused
            | ErrorKind::NotFound
            | ErrorKind::PermissionDenied
            | ErrorKind::HostUnreachable
            | ErrorKind::NetworkUnreachable
            // A handshake was refused.
            | ErrorKind::InvalidData
    )
}

/// What begins the TLS of a round's connections, and with whom.
fn secures(plan: &Plan) -> Result<Option<Secures>, RunError> {
    Ok(plan.tls.as_ref().map(Secures::new).transpose()?)
}

fn config(plan: &Plan) -> Config {
    Config {
        engine: plan.engine,
        workers: Some(plan.threads),
        clients_only: true,
        grace: limits::CLOSE_WAIT,
        cpus: plan.cpus.clone(),
        pin: false,
        ..Config::default()
    }
}

/// What no plan may ask for.
fn check(plan: &Plan, traffic: &Traffic) -> Result<(), RunError> {
    let fault = |setting, expected: String, found: String| {
        Err(RunError::Plan {
            setting,
            expected,
            found,
        })
    };
    check_counts(plan)?;
    if plan.protocol.is_http2()
        && let Err(found) = check_http2(traffic)
    {
        return fault("http2", "requests that HTTP/2 can carry".into(), found);
    }
    if plan.pipeline > 1 && !plan.protocol.is_http2() && !traffic.may_pipeline() {
        let expected = "1 where a flow has several steps, pauses or captures".into();
        return fault("pipeline", expected, plan.pipeline.to_string());
    }
    if plan.reconnect_after == Some(0) {
        return fault("reconnect-every", "at least 1".into(), "0".into());
    }
    let socket = traffic.socket().map(Socket::protocol);
    if socket.is_some_and(|said| said != plan.protocol)
        || (socket.is_none() && matches!(plan.protocol, Protocol::WebSocket(_)))
    {
        let expected = "the protocol of the requests".into();
        return fault("protocol", expected, format!("{:?}", plan.protocol));
    }
    if let Protocol::Echo { bytes } = plan.protocol
        && !(1..=limits::ECHO_BYTES).contains(&bytes)
    {
        return fault(
            "echo",
            format!("messages of 1 to {} bytes", limits::ECHO_BYTES),
            bytes.to_string(),
        );
    }
    if plan.timeout.is_zero() {
        return fault("timeout", "more than 0".into(), "0".into());
    }
    if plan.interval < limits::INTERVAL {
        return fault(
            "interval",
            format!("at least {:?}", limits::INTERVAL),
            format!("{:?}", plan.interval),
        );
    }
    match plan.pace {
        Pace::Constant(rate) | Pace::Poisson(rate) if !(rate > 0.0 && rate <= limits::RATE) => fault(
            "rate",
            format!("more than 0, at most {}", limits::RATE),
            rate.to_string(),
        ),
        _ => Ok(()),
    }
}

/// How many connections, threads and requests at once there may be.
fn check_counts(plan: &Plan) -> Result<(), RunError> {
    let fault = |setting, expected: String, found: String| {
        Err(RunError::Plan {
            setting,
            expected,
            found,
        })
    };
    let connections = plan.connections;
    if connections == 0 || connections > limits::CONNECTIONS {
        return fault(
            "connections",
            format!("1 to {}", limits::CONNECTIONS),
            connections.to_string(),
        );
    }
    if plan.threads == 0 || plan.threads > connections as usize {
        let expected = format!("1 to the number of connections ({connections})");
        return fault("threads", expected, plan.threads.to_string());
    }
    if plan.pipeline == 0 || plan.pipeline > limits::PIPELINE {
        return fault(
            "pipeline",
            format!("1 to {}", limits::PIPELINE),
            plan.pipeline.to_string(),
        );
    }
    Ok(())
}
