//! Where trades go.

use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::time::Duration;

use ringmain_control::nats::{ConnectionError, Publisher};
use ringmain_gateway::model::{NatsAccess, NatsLogin, NatsServer, NatsTls, Secret};
use ringmain_load::target::{Scheme, Target as Url};

use super::http::Http;
use crate::args::feed::{Feed, Receiver as Receiving};
use crate::bench::place::addresses;
use crate::failure::Failure;
use crate::secret::secret;

/// What the command line says of it.
pub(super) enum Target {
    Lines,
    Nats {
        access: NatsAccess,
        subject: String,
    },
    Push {
        url: Url,
        channel: String,
        api_key: Option<String>,
    },
}

/// One that takes trades.
pub(super) enum Sink {
    Lines(Lines),
    Nats {
        publisher: Box<Publisher>,
        subject: String,
    },
    Push {
        http: Box<Http>,
        channel: String,
    },
}

/// Why it takes none any more.
#[derive(Debug)]
pub(super) enum Trouble {
    /// Nobody wants more: there is nothing wrong with that.
    Over,
    /// The connection is gone, or cannot be had; another may be better.
    Lost(String),
    /// Another would be of no use.
    Refused(String),
}

/// What stands for a share in subjects and channels.
const SYMBOL: &str = "{symbol}";

/// Reads the command line.
pub(super) fn target(args: &Feed) -> Result<Target, Failure> {
    let (to, receiver) = (&args.to, &args.receiver);
    if to == "-" {
        return Ok(Target::Lines);
    }
    if let Some((scheme @ ("nats" | "tls"), rest)) = to.split_once("://") {
        return Ok(Target::Nats {
            access: access(rest, scheme == "tls", receiver)?,
            subject: receiver.subject.clone(),
        });
    }
    let mut url = Url::parse(to)
        .map_err(|error| Failure::Usage(format!("{error}; or write -, or nats://HOST[:PORT]")))?;
    if url.scheme != Scheme::Http || url.secured_as.is_some() {
        return Err(Failure::Usage(format!(
            "{to}: expected -, nats://HOST, tls://HOST or http://HOST: nothing else is spoken here"
        )));
    }
    if url.path == "/" {
        "/api/publish".clone_into(&mut url.path);
    }
    Ok(Target::Push {
        url,
        channel: receiver.channel.clone(),
        api_key: secret(receiver.api_key.as_deref(), receiver.api_key_file.as_deref())?,
    })
}

/// What stands behind `nats://` or `tls://`, and who signs in there.
fn access(rest: &str, tls: bool, receiver: &Receiving) -> Result<NatsAccess, Failure> {
    let (login, place) = match rest.rsplit_once('@') {
        Some((login, place)) => (Some(login), place),
        None => (None, rest),
    };
    let server = server(place, tls)
        .ok_or_else(|| Failure::Usage("expected nats://[USER:PASSWORD@]HOST[:PORT]".to_owned()))?;
    let secret = |text: &str| Secret::new(text.as_bytes());
    let read = |path: &PathBuf| {
        std::fs::read(path).map_err(|error| Failure::Other(format!("{}: {error}", path.display())))
    };
    let login = match (login, &receiver.credentials) {
        (None, None) => NatsLogin::Nobody,
        (None, Some(path)) => NatsLogin::Credentials(Secret::new(read(path)?)),
        (Some(_), Some(_)) => {
            let what = "either a user in the URL, or --credentials";
            return Err(Failure::Usage(what.to_owned()));
        }
        (Some(login), None) => match login.split_once(':') {
            Some((user, password)) => NatsLogin::User {
                user: user.into(),
                password: secret(password),
            },
            None => NatsLogin::Token(secret(login)),
        },
    };
    let authorities = receiver.ca.as_ref().map(read).transpose()?;
    Ok(NatsAccess {
        servers: vec![server],
        login,
        tls: authorities.map(|authorities| NatsTls {
            authorities: Some(authorities.into()),
            ..NatsTls::default()
        }),
    })
}

/// A host, perhaps with a port.
fn server(place: &str, tls: bool) -> Option<NatsServer> {
    let place = place.strip_suffix('/').unwrap_or(place);
    let (host, port) = match place.rsplit_once(':') {
        Some((host, port)) if !port.contains(']') => (host, port.parse().ok()?),
        _ => (place, 4222),
    };
    let host = host.trim_matches(['[', ']']);
    let is_host = !host.is_empty() && !host.contains(['/', ' ', '@']);
    is_host.then(|| NatsServer {
        host: host.into(),
        port,
        tls,
    })
}

impl Target {
    /// For messages: without what is secret.
    pub(super) fn shown(&self) -> String {
        match self {
            Target::Lines => "standard output".to_owned(),
            Target::Nats { access, .. } => {
                let server = &access.servers[0];
                format!("NATS at {}:{}", server.host, server.port)
            }
            Target::Push { url, .. } => format!("http://{}{}", url.host, url.path),
        }
    }

    /// Connects, however long that takes.
    pub(super) fn open(&self) -> Result<Sink, Trouble> {
        Ok(match self {
            Target::Lines => Sink::Lines(Lines::start().map_err(lost)?),
            Target::Nats { access, subject } => Sink::Nats {
                publisher: Box::new(Publisher::connect(access).map_err(trouble)?),
                subject: subject.clone(),
            },
            Target::Push {
                url,
                channel,
                api_key,
            } => {
                let addrs = addresses(&url.place).map_err(|failure| match failure {
                    Failure::Usage(why) | Failure::Other(why) => Trouble::Lost(why),
                })?;
                let http = Http::connect(&addrs, &url.host, &url.path, api_key.as_deref());
                Sink::Push {
                    http: Box::new(http.map_err(lost)?),
                    channel: channel.clone(),
                }
            }
        })
    }
}

fn lost(error: io::Error) -> Trouble {
    Trouble::Lost(error.to_string())
}

/// What a NATS makes of it.
fn trouble(failure: ConnectionError) -> Trouble {
    match failure.is_permanent() {
        true => Trouble::Refused(failure.to_string()),
        false => Trouble::Lost(failure.to_string()),
    }
}

impl Sink {
    /// Takes a trade, to be sent by [`Sink::carry_on`].
    pub(super) fn put(&mut self, symbol: &str, json: &str) -> Result<(), Trouble> {
        match self {
            Sink::Lines(lines) => {
                lines.next.extend_from_slice(json.as_bytes());
                lines.next.push(b'\n');
                lines.trades += 1;
                Ok(())
            }
            Sink::Nats { publisher, subject } => {
                let subject = subject.replace(SYMBOL, symbol);
                publisher.publish(&subject, json.as_bytes()).map_err(trouble)
            }
            Sink::Push { http, channel } => http.put(&channel.replace(SYMBOL, symbol), json),
        }
    }

    /// Bytes that were taken and not sent.
    pub(super) fn waiting(&self) -> usize {
        match self {
            Sink::Lines(lines) => lines.next.len(),
            Sink::Nats { publisher, .. } => publisher.waiting(),
            Sink::Push { http, .. } => http.waiting(),
        }
    }

    /// Trades of which it is not known whether they have arrived.
    pub(super) fn pending(&self) -> u64 {
        match self {
            Sink::Lines(lines) => lines.trades + lines.written.load(Ordering::Acquire),
            Sink::Nats { publisher, .. } => publisher.unconfirmed(),
            Sink::Push { http, .. } => http.pending(),
        }
    }

    /// Sends, for about so long at most, and hears what is said.
    pub(super) fn carry_on(&mut self, within: Duration) -> Result<(), Trouble> {
        match self {
            Sink::Lines(lines) => lines.carry_on(),
            Sink::Nats { publisher, .. } => publisher.send_pending(within).map_err(trouble),
            Sink::Push { http, .. } => http.carry_on(),
        }
    }

    /// How many were refused since it was last asked, and what was said of the last.
    pub(super) fn refusals(&mut self) -> Option<(u64, String)> {
        match self {
            Sink::Push { http, .. } => http.refusals(),
            _ => None,
        }
    }
}

/// Standard output, written by a thread: a reader that takes nothing does not hold up the clock.
pub(super) struct Lines {
    next: Vec<u8>,
    /// Lines in it.
    trades: u64,
    sender: SyncSender<(Vec<u8>, u64)>,
    /// Lines that the thread has, or that are on their way there.
    written: Arc<AtomicU64>,
}

impl Lines {
    fn start() -> io::Result<Lines> {
        let (sender, receiver) = sync_channel(1);
        let written = Arc::new(AtomicU64::new(0));
        let left = Arc::clone(&written);
        let builder = std::thread::Builder::new().name("ringmain-output".into());
        #[expect(
            clippy::disallowed_methods,
            reason = "writing to standard output may block, which no simulation has"
        )]
        builder.spawn(move || write(&receiver, &left))?;
        Ok(Lines {
            next: Vec::new(),
            trades: 0,
            sender,
            written,
        })
    }

    fn carry_on(&mut self) -> Result<(), Trouble> {
        if self.next.is_empty() {
            return Ok(());
        }
        self.written.fetch_add(self.trades, Ordering::AcqRel);
        match self
            .sender
            .try_send((std::mem::take(&mut self.next), self.trades))
        {
            Ok(()) => {
                self.trades = 0;
                Ok(())
            }
            Err(TrySendError::Full((next, trades))) => {
                self.written.fetch_sub(trades, Ordering::AcqRel);
                self.next = next;
                Ok(())
            }
            // A reader that has left has seen enough; what else it was the thread has said.
            Err(TrySendError::Disconnected(_)) => Err(Trouble::Over),
        }
    }
}

fn write(receiver: &Receiver<(Vec<u8>, u64)>, left: &AtomicU64) {
    let mut out = io::stdout().lock();
    for (bytes, trades) in receiver {
        if let Err(error) = out.write_all(&bytes).and_then(|()| out.flush()) {
            if error.kind() != io::ErrorKind::BrokenPipe {
                log::error!("cannot write to standard output: {error}");
            }
            return;
        }
        left.fetch_sub(trades, Ordering::AcqRel);
    }
}
