//! The receivers of trades: standard output, NATS, a push server.

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
use crate::args::feed::{Feed, ReceiverArgs};
use crate::bench::resolve_target::resolve_addresses;
use crate::error::CliError;
use crate::secret::read_secret;

/// The receiver of the command line.
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

/// An open receiver.
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

/// The reason why a receiver accepts no more trades.
#[derive(Debug)]
pub(super) enum SinkError {
    /// The reader has closed the pipe, which is no error.
    Closed,
    /// The connection was lost, or cannot be opened; a later attempt may succeed.
    Lost(String),
    /// The receiver refuses trades permanently.
    Refused(String),
}

/// The placeholder of the share in subjects and channels.
const SYMBOL: &str = "{symbol}";

/// Parses the receiver of the command line.
pub(super) fn parse_target(args: &Feed) -> Result<Target, CliError> {
    let (to, receiver) = (&args.to, &args.receiver);
    if to == "-" {
        return Ok(Target::Lines);
    }
    if let Some((scheme @ ("nats" | "tls"), rest)) = to.split_once("://") {
        return Ok(Target::Nats {
            access: parse_nats_access(rest, scheme == "tls", receiver)?,
            subject: receiver.subject.clone(),
        });
    }
    let mut url = Url::parse(to)
        .map_err(|error| CliError::Usage(format!("{error}; or write -, or nats://HOST[:PORT]")))?;
    if url.scheme != Scheme::Http || url.secured_as.is_some() {
        return Err(CliError::Usage(format!(
            "{to}: expected -, nats://HOST, tls://HOST or http://HOST"
        )));
    }
    if url.path == "/" {
        "/api/publish".clone_into(&mut url.path);
    }
    Ok(Target::Push {
        url,
        channel: receiver.channel.clone(),
        api_key: read_secret(receiver.api_key.as_deref(), receiver.api_key_file.as_deref())?,
    })
}

/// Parses the part after `nats://` or `tls://`: login and server.
fn parse_nats_access(rest: &str, tls: bool, receiver: &ReceiverArgs) -> Result<NatsAccess, CliError> {
    let (login, place) = match rest.rsplit_once('@') {
        Some((login, place)) => (Some(login), place),
        None => (None, rest),
    };
    let server = parse_nats_server(place, tls)
        .ok_or_else(|| CliError::Usage("expected nats://[USER:PASSWORD@]HOST[:PORT]".to_owned()))?;
    let secret = |text: &str| Secret::new(text.as_bytes());
    let read = |path: &PathBuf| {
        std::fs::read(path).map_err(|error| CliError::Other(format!("{}: {error}", path.display())))
    };
    let login = match (login, &receiver.credentials) {
        (None, None) => NatsLogin::Anonymous,
        (None, Some(path)) => NatsLogin::Credentials(Secret::new(read(path)?)),
        (Some(_), Some(_)) => {
            let what = "the URL has a login, and --credentials is given: drop one";
            return Err(CliError::Usage(what.to_owned()));
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

/// Parses HOST[:PORT].
fn parse_nats_server(place: &str, tls: bool) -> Option<NatsServer> {
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
    /// Returns the name for messages, without secrets.
    pub(super) fn display_name(&self) -> String {
        match self {
            Target::Lines => "standard output".to_owned(),
            Target::Nats { access, .. } => {
                let server = &access.servers[0];
                format!("NATS at {}:{}", server.host, server.port)
            }
            Target::Push { url, .. } => format!("http://{}{}", url.host, url.path),
        }
    }

    /// Connects; may block.
    pub(super) fn connect(&self) -> Result<Sink, SinkError> {
        Ok(match self {
            Target::Lines => Sink::Lines(Lines::start().map_err(io_error)?),
            Target::Nats { access, subject } => Sink::Nats {
                publisher: Box::new(Publisher::connect(access).map_err(nats_error)?),
                subject: subject.clone(),
            },
            Target::Push {
                url,
                channel,
                api_key,
            } => {
                let addrs = resolve_addresses(&url.place).map_err(|failure| match failure {
                    CliError::Usage(why) | CliError::Other(why) => SinkError::Lost(why),
                })?;
                let http = Http::connect(&addrs, &url.host, &url.path, api_key.as_deref());
                Sink::Push {
                    http: Box::new(http.map_err(io_error)?),
                    channel: channel.clone(),
                }
            }
        })
    }
}

fn io_error(error: io::Error) -> SinkError {
    SinkError::Lost(error.to_string())
}

/// Converts an error of NATS.
fn nats_error(failure: ConnectionError) -> SinkError {
    if failure.is_permanent() {
        SinkError::Refused(failure.to_string())
    } else {
        SinkError::Lost(failure.to_string())
    }
}

impl Sink {
    /// Queues a trade, to be sent by [`Sink::drive`].
    pub(super) fn queue_trade(&mut self, symbol: &str, json: &str) -> Result<(), SinkError> {
        match self {
            Sink::Lines(lines) => {
                lines.next.extend_from_slice(json.as_bytes());
                lines.next.push(b'\n');
                lines.trades += 1;
                Ok(())
            }
            Sink::Nats { publisher, subject } => {
                let subject = subject.replace(SYMBOL, symbol);
                publisher.publish(&subject, json.as_bytes()).map_err(nats_error)
            }
            Sink::Push { http, channel } => http.queue_trade(&channel.replace(SYMBOL, symbol), json),
        }
    }

    /// Returns the number of queued bytes.
    pub(super) fn queued_bytes(&self) -> usize {
        match self {
            Sink::Lines(lines) => lines.next.len(),
            Sink::Nats { publisher, .. } => publisher.waiting(),
            Sink::Push { http, .. } => http.queued_bytes(),
        }
    }

    /// Returns the number of trades without confirmation.
    pub(super) fn unconfirmed(&self) -> u64 {
        match self {
            Sink::Lines(lines) => lines.trades + lines.written.load(Ordering::Acquire),
            Sink::Nats { publisher, .. } => publisher.unconfirmed(),
            Sink::Push { http, .. } => http.unconfirmed(),
        }
    }

    /// Sends queued trades and reads responses, for about `within` at most.
    pub(super) fn drive(&mut self, within: Duration) -> Result<(), SinkError> {
        match self {
            Sink::Lines(lines) => lines.drive(),
            Sink::Nats { publisher, .. } => publisher.send_pending(within).map_err(nats_error),
            Sink::Push { http, .. } => http.drive(),
        }
    }

    /// Returns the number of refused trades since the last call, and the error of the last one.
    pub(super) fn take_refusals(&mut self) -> Option<(u64, String)> {
        match self {
            Sink::Push { http, .. } => http.take_refusals(),
            _ => None,
        }
    }
}

/// Standard output, written by a thread: a slow reader does not delay the schedule.
pub(super) struct Lines {
    next: Vec<u8>,
    /// Lines in `next`.
    trades: u64,
    sender: SyncSender<(Vec<u8>, u64)>,
    /// Lines passed to the thread.
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
        builder.spawn(move || write_lines(&receiver, &left))?;
        Ok(Lines {
            next: Vec::new(),
            trades: 0,
            sender,
            written,
        })
    }

    fn drive(&mut self) -> Result<(), SinkError> {
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
            // The thread has reported any other error than a closed pipe.
            Err(TrySendError::Disconnected(_)) => Err(SinkError::Closed),
        }
    }
}

fn write_lines(receiver: &Receiver<(Vec<u8>, u64)>, left: &AtomicU64) {
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
