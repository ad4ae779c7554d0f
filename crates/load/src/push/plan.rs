//! What a fan-out is: how many listen to what, what is published how often, for how long.
//!
//! Plain data. Knows neither how it was written down nor how it is carried out.

use std::sync::Arc;
use std::time::Duration;

use ringmain_engine::{Addr, Choice};
use ringmain_sys::process;

use super::broker::Broker;
use super::stamp;
use crate::limits;
use crate::plan::Tls;

/// The nodes under test, their clients and the publications.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Endpoints that clients connect to, spread round robin; from 1 to [`limits::NODES`].
    pub nodes: Vec<Node>,
    /// What they speak.
    pub transport: Transport,
    /// A token that all of them show.
    pub token: Option<String>,
    /// The addresses of this host to connect from, taken in turn; empty lets the kernel choose.
    pub sources: Vec<Addr>,
    /// Clients; at most [`limits::CONNECTIONS`].
    pub clients: u32,
    /// Channels besides the common one; at most [`limits::PUSH_CHANNELS`].
    pub channels: u32,
    /// To how many of them a client subscribes; at most [`limits::PUSH_SUBSCRIPTIONS`].
    pub each: u32,
    /// What the names of channels begin with; a number follows, or `all`.
    pub prefix: String,
    /// How to publish; `None`: nothing is published, and clients only stand there.
    pub publishing: Option<Publishing>,
    /// Publications are written as records to a broker that the server reads, instead of by [`Plan::publishing`]; `None`: they are not.
    pub broker: Option<BrokerPlan>,
    /// Publications a second to the channels, taken in turn, all together; 0 for none.
    pub rate: f64,
    /// Publications a second to one more channel that all clients subscribe to; `None`: there is no such channel.
    pub common: Option<f64>,
    /// Bytes of a publication's data, from 48 to [`limits::PUBLICATION_BYTES`].
    pub size: u32,
    /// The server sends clients the newest value of a channel only, this far apart: what they do not get is conflated and
    /// not lost, and how fresh their values are is counted.
    pub conflated: Option<Duration>,
    /// The share of clients that read slowly, 0 to 1.
    pub slow: f64,
    /// The rate at which those read, as a share of the required rate.
    pub slow_pace: f64,
    /// Clients that begin to connect in a second; `None`: as fast as it goes.
    pub connect_rate: Option<f64>,
    /// When all clients are cut off while publications count, to come back and to recover what they missed; `None`: never.
    pub kill: Option<Kill>,
    /// A process that receives SIGKILL while publications count; `None`: none.
    pub kill_server: Option<KillServer>,
    /// The time after which a client whose session or attempt has ended connects again.
    pub reconnect: Duration,
    /// Publications arrive from an external producer, stamped with this run number, instead of from [`Plan::publishing`]; `None`: they
    /// do not.
    pub listening: Option<u32>,
    /// How long one client may take to connect and subscribe.
    pub timeout: Duration,
    /// How long all of them may take, before the run fails.
    pub connect_timeout: Duration,
    /// Publications before it is counted.
    pub warmup: Duration,
    /// How long publications count.
    pub duration: Duration,
    /// How long it is waited afterwards for what is on its way.
    pub settle: Duration,
    /// Threads of clients. One more publishes.
    pub threads: usize,
    /// The CPU of each thread, in turn; empty leaves it to the kernel.
    pub cpus: Vec<usize>,
    /// The engine.
    pub engine: Choice,
}

/// When all clients' connections end without a word, as by a network that fails or a proxy that is started anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kill {
    /// From the beginning of what counts; before its end.
    pub after: Duration,
    /// Again so long after each time, at most [`limits::KILLS`] times in all; `None`: once.
    pub every: Option<Duration>,
}

/// An endpoint that clients connect to.
#[derive(Clone, Debug)]
pub struct Node {
    /// The URL as the user wrote it, for reports.
    pub name: String,
    /// Address of the server.
    pub target: Addr,
    /// Value of the `Host` field.
    pub host: String,
    /// Path and query.
    pub path: String,
    /// TLS of the connections; `None`: cleartext.
    pub tls: Option<Tls>,
}

/// A process that is killed during the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KillServer {
    /// Its number.
    pub pid: u32,
    /// Time of SIGKILL since publications count; before their end.
    pub after: Duration,
}

/// What clients speak.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// The client protocol over WebSocket.
    WebSocket(Format),
    /// Server-sent events to clients that only listen; JSON.
    Sse,
}

/// How messages are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Objects, one a line.
    Json,
    /// Messages behind their lengths, in the subprotocol `centrifuge-protobuf`.
    Protobuf,
}

/// How publications reach the server.
#[derive(Clone, Debug)]
pub struct Publishing {
    /// Where to.
    pub target: Addr,
    /// How these connections are secured; `None`: not at all.
    pub tls: Option<Tls>,
    /// What is said in `Host`.
    pub host: String,
    /// Path and query.
    pub path: String,
    /// What is said in `X-API-Key`.
    pub api_key: Option<String>,
    /// What a request's body looks like.
    pub form: Form,
    /// Connections that publish; each channel has one of them, so that its publications stay in order.
    pub connections: u32,
}

/// Publications as records of a broker.
#[derive(Clone, Debug)]
pub struct BrokerPlan {
    /// The broker.
    pub broker: Arc<dyn Broker>,
    /// Values are commands of the server API (`{"method": "publish", "payload": …}`), instead of the data of publications.
    pub commands: bool,
}

/// What the body of a publishing request looks like, and which answer is a right one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// `{"channel": …, "data": …}`; 200 without an `error` in the body.
    Api,
    /// So many of these at most in one request, from 1 to [`limits::PUBLISHES_IN_REQUEST`], as
    /// `{"parallel": true, "commands": [{"publish": …}, …]}`; 200 with a reply without an `error` for each.
    Batch(u16),
    /// The channel's name, a space and the data, on a line; so many lines at most in one request, from 1 to
    /// [`limits::PUBLISHES_IN_REQUEST`]; any 2xx.
    Lines(u16),
}

impl Kill {
    /// Each time, from the beginning of a run that counts for so long.
    pub(super) fn moments(self, duration: Duration) -> impl Iterator<Item = Duration> {
        let next = move |at: &Duration| self.every.and_then(|every| at.checked_add(every));
        std::iter::successors(Some(self.after), next).take_while(move |at| *at < duration)
    }
}

impl Plan {
    /// Publications a second to the channels in turn, and to the common one.
    pub(super) fn rates(&self) -> [f64; 2] {
        [self.rate, self.common.unwrap_or(0.0)]
    }

    /// Whether what clients miss is to come to them when they are back: else it is lost. Of conflated values the newest is all
    /// that anybody is to have.
    pub(super) fn recovers(&self) -> bool {
        let is_killed = self.kill.is_some() || self.kill_server.is_some();
        is_killed && self.has_publications() && self.conflated.is_none()
    }

    /// Returns whether this process publishes.
    pub(super) fn publishes(&self) -> bool {
        self.publishing.is_some() || self.broker.is_some()
    }

    /// Whether publications are expected, from this process or from an external producer.
    pub(super) fn has_publications(&self) -> bool {
        self.publishes() || self.listening.is_some()
    }

    /// Whether clients retain the positions of their subscriptions and recover from them.
    pub(super) fn is_positioned(&self) -> bool {
        self.kill.is_some() || self.is_audited()
    }

    /// Whether positions and recoveries are compared across clients.
    pub(super) fn is_audited(&self) -> bool {
        self.nodes.len() > 1 || self.kill_server.is_some() || self.listening.is_some()
    }

    /// What makes no sense: the setting, what it may be, and what it is.
    pub(super) fn fault(&self) -> Option<(&'static str, String, String)> {
        let range = |setting, least: u64, most: u64, found: u64| {
            (!(least..=most).contains(&found))
                .then(|| (setting, format!("{least} to {most}"), found.to_string()))
        };
        let rate = |setting, found: f64, least: f64| {
            let fits = found.is_finite() && found >= least && found <= limits::RATE;
            (!fits).then(|| {
                (
                    setting,
                    format!("a rate of at most {}", limits::RATE),
                    found.to_string(),
                )
            })
        };
        let share = |setting, found: f64| {
            (!(0.0..=1.0).contains(&found)).then(|| (setting, "0 to 1".to_owned(), found.to_string()))
        };
        let clients = u64::from(self.clients);
        range("clients", 1, u64::from(limits::CONNECTIONS), clients)
            .or_else(|| {
                range(
                    "threads",
                    1,
                    clients.min(limits::THREADS as u64 - 1),
                    self.threads as u64,
                )
            })
            .or_else(|| {
                range(
                    "channels",
                    1,
                    u64::from(limits::PUSH_CHANNELS),
                    u64::from(self.channels),
                )
            })
            .or_else(|| {
                let most = self.channels.min(limits::PUSH_SUBSCRIPTIONS);
                range("subscriptions", 1, u64::from(most), u64::from(self.each))
            })
            .or_else(|| rate("rate", self.rate, 0.0))
            .or_else(|| rate("common", self.common.unwrap_or(0.0), 0.0))
            .or_else(|| {
                rate(
                    "connect-rate",
                    self.connect_rate.unwrap_or(1.0),
                    f64::MIN_POSITIVE,
                )
            })
            .or_else(|| {
                range(
                    "size",
                    stamp::BYTES as u64,
                    u64::from(limits::PUBLICATION_BYTES),
                    u64::from(self.size),
                )
            })
            .or_else(|| share("slow", self.slow))
            .or_else(|| share("slow-pace", self.slow_pace))
            .or_else(|| self.length_fault())
            .or_else(|| {
                let found = self.nodes.len() as u64;
                range("nodes", 1, limits::NODES as u64, found)
            })
            .or_else(|| self.kill_fault())
            .or_else(|| self.kill_server_fault())
            .or_else(|| self.listening_fault())
            .or_else(|| self.name_fault())
    }

    fn length_fault(&self) -> Option<(&'static str, String, String)> {
        if self.duration.is_zero() {
            return Some(("duration", "more than 0".into(), "0".into()));
        }
        let span = (self.warmup + self.duration).as_secs_f64();
        let publications = self.rate.max(self.common.unwrap_or(0.0)) * span;
        (publications > f64::from(limits::PUBLICATIONS)).then(|| {
            let expected = format!("at most {} publications in all", limits::PUBLICATIONS);
            (
                "duration",
                expected,
                format!("{publications:.0}: lower the rate or the duration"),
            )
        })
    }

    fn kill_fault(&self) -> Option<(&'static str, String, String)> {
        let kill = self.kill?;
        if kill.after >= self.duration {
            let (expected, found) = (self.duration, kill.after);
            return Some((
                "kill",
                format!("less than the duration, {expected:?}"),
                format!("{found:?}"),
            ));
        }
        let is_often = kill.every.is_some_and(|every| every.is_zero())
            || kill.moments(self.duration).nth(limits::KILLS).is_some();
        is_often.then(|| {
            let expected = format!("at most {} times in all", limits::KILLS);
            ("kill-every", expected, "more".into())
        })
    }

    fn kill_server_fault(&self) -> Option<(&'static str, String, String)> {
        let KillServer { pid, after } = self.kill_server?;
        let fault = |expected: String, found: String| Some(("kill-server", expected, found));
        if after >= self.duration {
            return fault(
                format!("a time before the end of the duration, {:?}", self.duration),
                format!("{after:?}"),
            );
        }
        if self.kill.is_some() {
            return fault("no --kill in the same run".into(), "both".into());
        }
        if pid == std::process::id() {
            return fault(
                "the number of a server's process".into(),
                format!("{pid}, which is this program"),
            );
        }
        let is_running = process::stat(pid).is_some_and(|stat| !stat.ended);
        if is_running {
            None
        } else {
            fault(
                "the number of a running process".into(),
                format!("no process {pid} (`ps -e` lists them)"),
            )
        }
    }

    fn listening_fault(&self) -> Option<(&'static str, String, String)> {
        self.listening?;
        let other = [
            ("publishing", self.publishes()),
            ("conflated", self.conflated.is_some()),
            ("warmup", !self.warmup.is_zero()),
        ];
        let (setting, _) = other.into_iter().find(|(_, given)| *given)?;
        let expected = "none where publications arrive from an external producer";
        Some((setting, expected.into(), "one".into()))
    }

    /// Names are written as they are into JSON, lines and addresses.
    fn name_fault(&self) -> Option<(&'static str, String, String)> {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.:/#@!".contains(&byte);
        let fits = self.prefix.len() <= limits::PREFIX_BYTES && self.prefix.bytes().all(plain);
        let found = self
            .prefix
            .escape_debug()
            .take(2 * limits::PREFIX_BYTES)
            .collect();
        let expected = format!(
            "at most {} ASCII letters, digits and -_.:/#@!",
            limits::PREFIX_BYTES
        );
        (!fits).then_some(("prefix", expected, found))
    }
}
