//! Many clients of the Centrifuge protocol on one thread, each of which believes its server, as SDKs do: the same clients as those of
//! `tests/cluster/crowd.py`, in numbers for which Python would take the CPU from the servers.
//!
//! ```text
//! standard input: setup, commands ─▶ loop: epoll, timers ─▶ clients ─▶ beliefs ─▶ report: standard output
//! ```
//!
//! It reads one line of JSON, `{"ports": …, "clients": [[channels, token], …], …}`, then commands as `[name, arguments…]`, and writes a
//! line of JSON for each. Knows no right value: the parent process judges.
#![forbid(unsafe_code)]
#![allow(clippy::disallowed_methods, reason = "clients of real servers have real time")]

mod beliefs;
mod client;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use rustix::event::{Timespec, epoll};
use rustix::io::Errno;
use rustix::time::{ClockId, clock_gettime};
use serde::Deserialize;
use serde_json::{Value, json};

use beliefs::Beliefs;
use client::Client;

/// The token of standard input in the epoll set; clients have their indices.
const INPUT: u64 = u64::MAX;
const EVENTS: usize = 1024;
/// More than any message in one read.
const READ_BYTES: usize = 1 << 18;

#[derive(Deserialize)]
struct Setup {
    ports: Vec<u16>,
    clients: Vec<ClientSetup>,
    connect_rate: f64,
    seed: u64,
    /// The first delay before a client reconnects is drawn from this range, in seconds. Later ones double its end.
    reconnect: (f64, f64),
}

/// Channels, a token, and a port, which is not supported.
#[derive(Deserialize)]
struct ClientSetup(Vec<String>, Option<String>, Option<u16>);

/// An action of a client at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Action {
    Connect {
        client: usize,
        life: u32,
    },
    GiveUp {
        client: usize,
        life: u32,
    },
    Subscribe {
        client: usize,
        life: u32,
        subscription: usize,
    },
}

/// The parts that all clients share.
struct SharedState {
    ports: Vec<u16>,
    reconnect: (f64, f64),
    random: u64,
    epoll: OwnedFd,
    timers: BinaryHeap<Reverse<(Duration, u64, Action)>>,
    timers_set: u64,
    beliefs: Beliefs,
}

impl SharedState {
    fn at(&mut self, when: Duration, action: Action) {
        self.timers_set += 1;
        self.timers.push(Reverse((when, self.timers_set, action)));
    }

    /// SplitMix64 (Steele, Lea and Flood, 2014).
    fn draw(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.random ^ (self.random >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn draw_between(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * (self.draw() >> 11) as f64 / (1_u64 << 53) as f64
    }
}

/// Returns the time on the host's monotonic clock.
fn now() -> Duration {
    let now = clock_gettime(ClockId::Monotonic);
    Duration::new(
        now.tv_sec.cast_unsigned(),
        u32::try_from(now.tv_nsec).unwrap_or_default(),
    )
}

struct Crowd {
    shared: SharedState,
    /// Standard input. Commands may already be in its buffer, of which epoll knows nothing.
    input: BufReader<File>,
    clients: Vec<Client>,
    buffer: Vec<u8>,
}

impl Crowd {
    fn new(mut input: BufReader<File>) -> io::Result<Crowd> {
        let mut line = String::new();
        input.read_line(&mut line)?;
        let setup: Setup = serde_json::from_str(&line)?;
        let mut shared = SharedState {
            ports: setup.ports,
            reconnect: setup.reconnect,
            random: setup.seed,
            epoll: epoll::create(epoll::CreateFlags::CLOEXEC)?,
            timers: BinaryHeap::new(),
            timers_set: 0,
            beliefs: Beliefs::default(),
        };
        let data = epoll::EventData::new_u64(INPUT);
        epoll::add(&shared.epoll, input.get_ref(), data, epoll::EventFlags::IN)?;
        let start = now();
        let mut clients = Vec::new();
        for (index, ClientSetup(channels, token, port)) in setup.clients.into_iter().enumerate() {
            if port.is_some() {
                return Err(io::Error::other("expected no port of a client's own"));
            }
            let channels = channels
                .iter()
                .map(|channel| shared.beliefs.channels.number(channel));
            clients.push(Client::new(index, channels.collect(), token));
            let delay = Duration::from_secs_f64(index as f64 / setup.connect_rate);
            shared.at(
                start + delay,
                Action::Connect {
                    client: index,
                    life: 0,
                },
            );
        }
        Ok(Crowd {
            shared,
            input,
            clients,
            buffer: vec![0; READ_BYTES],
        })
    }

    /// Runs until standard input ends, or the command `end`.
    fn run(&mut self) -> io::Result<()> {
        let mut events = Vec::with_capacity(EVENTS);
        loop {
            while !self.input.buffer().is_empty() {
                if !self.run_command()? {
                    return Ok(());
                }
            }
            self.run_timers();
            let wait = match self.shared.timers.peek() {
                Some(Reverse((when, ..))) => when.saturating_sub(now()).min(Duration::from_millis(100)),
                None => Duration::from_millis(100),
            };
            let wait = Timespec {
                tv_sec: 0,
                tv_nsec: wait.as_nanos() as i64,
            };
            events.clear();
            match epoll::wait(
                &self.shared.epoll,
                rustix::buffer::spare_capacity(&mut events),
                Some(&wait),
            ) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            for event in &events {
                if event.data.u64() == INPUT {
                    if !self.run_command()? {
                        return Ok(());
                    }
                } else if let Some(client) = self.clients.get_mut(event.data.u64() as usize) {
                    client.ready(event.flags, &mut self.shared, &mut self.buffer);
                }
            }
        }
    }

    fn run_timers(&mut self) {
        let now = now();
        while let Some(Reverse((when, _, action))) = self.shared.timers.peek().copied()
            && when <= now
        {
            self.shared.timers.pop();
            let (Action::Connect { client, .. }
            | Action::GiveUp { client, .. }
            | Action::Subscribe { client, .. }) = action;
            self.clients[client].act(action, &mut self.shared);
        }
    }

    /// Runs the next command. The parent process sends one only after the answer to the one before. Returns `false` at the end.
    fn run_command(&mut self) -> io::Result<bool> {
        let mut line = String::new();
        if self.input.read_line(&mut line)? == 0 {
            return Ok(false);
        }
        let (name, arguments) = match serde_json::from_str::<Vec<Value>>(&line)?.split_first() {
            Some((Value::String(name), arguments)) => (name.clone(), arguments.to_vec()),
            _ => {
                return Err(io::Error::other(format!(
                    "expected [name, arguments…], found {line}"
                )));
            }
        };
        let answer = self.answer(&name, &arguments)?;
        let mut output = io::stdout().lock();
        writeln!(output, "{answer}")?;
        output.flush()?;
        Ok(name != "end")
    }

    fn answer(&mut self, name: &str, arguments: &[Value]) -> io::Result<Value> {
        Ok(match name {
            "live" => {
                let open = self.clients.iter().filter(|client| !client.is_ended());
                let subscriptions = open.flat_map(|client| &client.subscriptions);
                let (mut live, mut wanted) = (0, 0);
                for subscription in subscriptions {
                    live += u32::from(subscription.is_live);
                    wanted += 1;
                }
                json!([live, wanted])
            }
            "set_ports" => {
                let ports = arguments.first().cloned().unwrap_or_default();
                self.shared.ports = serde_json::from_value(ports)?;
                Value::Null
            }
            "mark" => {
                self.shared.beliefs.mark();
                Value::Null
            }
            "report" => {
                let mut by_port = BTreeMap::new();
                for port in self.clients.iter().filter_map(Client::open_port) {
                    *by_port.entry(port.to_string()).or_default() += 1;
                }
                serde_json::to_value(self.shared.beliefs.report(by_port))?
            }
            "behind" => {
                let wanted = arguments.first().cloned().unwrap_or_default();
                let is_end = arguments.get(1).and_then(Value::as_bool).unwrap_or_default();
                self.behind(&serde_json::from_value(wanted)?, is_end)
            }
            "end" => Value::Null,
            _ => return Err(io::Error::other(format!("expected a command, found {name}"))),
        })
    }

    /// Returns how many subscriptions lack the last number of a publisher, of `{publisher: {channel: number}}`, and the first ones.
    fn behind(&self, wanted: &BTreeMap<String, BTreeMap<String, u64>>, is_end: bool) -> Value {
        let beliefs = &self.shared.beliefs;
        let (mut count, mut some) = (0, Vec::new());
        for (publisher, channels) in wanted {
            for client in self.clients.iter().filter(|client| !client.is_ended()) {
                for subscription in &client.subscriptions {
                    let channel = beliefs.channels.text(subscription.channel);
                    let last = channels.get(channel).copied().unwrap_or_default();
                    if let Some(number) = beliefs.lacks(subscription, publisher, last, is_end) {
                        count += 1;
                        if some.len() < 3 {
                            some.push(json!([
                                client.index,
                                client.port,
                                channel,
                                publisher,
                                number,
                                last
                            ]));
                        }
                    }
                }
            }
        }
        json!([count, some])
    }
}

fn main() -> io::Result<()> {
    let input = File::from(io::stdin().as_fd().try_clone_to_owned()?);
    Crowd::new(BufReader::new(input))?.run()
}
