//! tl: a lean HTTPS load client, one thread, epoll, rustls. TLS 1.3 only.
//!
//! Says what `lg` says, in the same form: the line BEGIN when the window opens, then one line of `key=value`. Knows
//! nothing of the server process. Offers one group (X25519) and one suite (AES-256-GCM), so that every server does the
//! same work, and does not look at the certificate: `tls.py` does, before and after.

mod connection;
mod figures;
mod options;
mod session;

use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use mio::{Events, Poll, Token};

use connection::{Connection, Outcome};
use figures::Figures;
use options::{Mode, Options};
use session::Sessions;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// After a failed dial nothing is dialled for this long: a server that refuses is not hammered.
const REDIAL: Duration = Duration::from_millis(10);
/// A connection that has waited this long for its answer when the run ends is silent.
const SILENT: Duration = Duration::from_secs(1);
/// How long the first answer may take.
const LEARNING: Duration = Duration::from_secs(5);

fn main() {
    let options = Options::from_arguments().unwrap_or_else(|what| fail(&what));
    match run(&options) {
        Ok(line) => println!("{line}"),
        Err(error) => fail(&error.to_string()),
    }
}

fn fail(what: &str) -> ! {
    eprintln!("tl: {what}");
    std::process::exit(2)
}

/// The load, from the first answer, which says what all others must be, to the line of figures.
fn run(options: &Options) -> io::Result<String> {
    let answer = connection::learn(options, LEARNING)?;
    let mut load = Load {
        options,
        poll: Poll::new()?,
        sessions: (0..options.connections)
            .map(|_| Sessions::new(options.mode))
            .collect(),
        connections: (0..options.connections).map(|_| None).collect(),
        answer,
        figures: Figures::default(),
        hold_dials_until: Instant::now(),
        dials: 0,
    };
    let mut events = Events::with_capacity(1024);
    load.turn_until(Instant::now() + options.warmup, &mut events)?;
    // What went wrong before stays in the count: a wrong byte is a wrong byte.
    load.figures.begin();
    println!("BEGIN");
    let (begin, cpu) = (Instant::now(), figures::cpu_seconds());
    load.turn_until(begin + options.duration, &mut events)?;
    let elapsed = begin.elapsed();
    let silent = load
        .connections
        .iter()
        .flatten()
        .filter(|c| c.waited() > SILENT)
        .count();
    Ok(load
        .figures
        .line(elapsed, figures::cpu_seconds() - cpu, silent as u64))
}

struct Load<'o> {
    options: &'o Options,
    poll: Poll,
    /// One store of tickets a place, so that what a place resumes is its own last session.
    sessions: Vec<Sessions>,
    connections: Vec<Option<Connection>>,
    answer: connection::Answer,
    figures: Figures,
    hold_dials_until: Instant,
    dials: u64,
}

impl Load<'_> {
    fn turn_until(&mut self, end: Instant, events: &mut Events) -> io::Result<()> {
        loop {
            let now = Instant::now();
            if now >= end {
                return Ok(());
            }
            self.dial(now);
            match self.poll.poll(events, Some((end - now).min(REDIAL))) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                outcome => outcome?,
            }
            for event in events.iter() {
                self.advance(event.token().0, event.is_read_closed());
            }
        }
    }

    /// Fills the empty places.
    fn dial(&mut self, now: Instant) {
        for place in 0..self.connections.len() {
            if self.connections[place].is_none() && now >= self.hold_dials_until {
                self.dial_one(place);
            }
        }
    }

    fn dial_one(&mut self, place: usize) {
        let to = SocketAddr::from(([127, 0, 0, 1], self.options.port));
        let from = self.options.source(self.dials);
        self.dials += 1;
        let opened = Connection::open(to, from, &self.sessions[place], &self.options.request);
        let registered = opened.and_then(|mut connection| {
            connection.register(self.poll.registry(), Token(place))?;
            Ok(connection)
        });
        match registered {
            Ok(connection) => self.connections[place] = Some(connection),
            Err(_) => self.refused(),
        }
    }

    fn refused(&mut self) {
        self.figures.connect_errors += 1;
        self.hold_dials_until = Instant::now() + REDIAL;
    }

    /// Lets one connection go on; a handshake's place is dialled again at once.
    fn advance(&mut self, place: usize, ended: bool) {
        let Some(connection) = &mut self.connections[place] else {
            return;
        };
        let keep = self.options.mode == Mode::Keep;
        loop {
            match connection.advance(&self.answer, keep, ended) {
                Outcome::Waiting => return,
                Outcome::Answered(took) => {
                    self.figures.answered(took, connection.resumed());
                    if keep && connection.ask(&self.options.request).is_ok() {
                        continue;
                    }
                    let expected = self.options.mode != Mode::Resumed || connection.resumed();
                    self.figures.mismatched += u64::from(!keep && !expected && self.figures.measuring);
                }
                Outcome::Wrong => self.figures.mismatched += 1,
                Outcome::Lost => self.figures.lost += 1,
                Outcome::Refused => self.refused(),
            }
            self.connections[place] = None;
            if Instant::now() >= self.hold_dials_until {
                self.dial_one(place);
            }
            return;
        }
    }
}
