//! Where trades go.

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::time::Duration;

use ringmain_control::nats::Publisher;
use ringmain_gateway::model::{NatsAccess, NatsLogin, NatsServer, Secret};
use ringmain_load::target::{Scheme, Target as Url};

use super::http::Http;
use crate::args::feed::Feed;
use crate::failure::Failure;

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
    /// Until there is another connection.
    Nobody,
    Lines(Lines),
    Nats {
        publisher: Box<Publisher>,
        subject: String,
        /// Bytes that were not sent when it was last looked.
        waiting: usize,
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
    /// The connection is gone, or cannot be had.
    Lost(String),
}

/// What stands for a share in subjects and channels.
const SYMBOL: &str = "{symbol}";

/// Reads the command line.
pub(super) fn target(args: &Feed) -> Result<Target, Failure> {
    let (to, receiver) = (&args.to, &args.receiver);
    let wrong = |what: &str| Failure::Usage(format!("{to}: {what}"));
    if to == "-" {
        return Ok(Target::Lines);
    }
    if let Some((scheme @ ("nats" | "tls"), rest)) = to.split_once("://") {
        let (login, place) = match rest.rsplit_once('@') {
            Some((login, place)) => (Some(login), place),
            None => (None, rest),
        };
        let server = server(place, scheme == "tls")
            .ok_or_else(|| Failure::Usage("expected nats://[USER:PASSWORD@]HOST[:PORT]".to_owned()))?;
        let secret = |text: &str| Secret::new(text.as_bytes());
        let login = match (login, &receiver.credentials) {
            (None, None) => NatsLogin::Nobody,
            (None, Some(path)) => {
                let read = std::fs::read(path)
                    .map_err(|error| Failure::Other(format!("{}: {error}", path.display())))?;
                NatsLogin::Credentials(Secret::new(read))
            }
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
        return Ok(Target::Nats {
            access: NatsAccess {
                servers: vec![server],
                login,
                tls: None,
            },
            subject: receiver.subject.clone(),
        });
    }
    let mut url = Url::parse(to).map_err(|error| {
        let what = "; or write -, or nats://HOST[:PORT]";
        Failure::Usage(format!("{error}{what}"))
    })?;
    if url.scheme != Scheme::Http || url.secured_as.is_some() {
        return Err(wrong(
            "expected -, nats://HOST, tls://HOST or http://HOST: nothing else is spoken here",
        ));
    }
    if url.path == "/" {
        "/api/publish".clone_into(&mut url.path);
    }
    Ok(Target::Push {
        url,
        channel: receiver.channel.clone(),
        api_key: receiver.api_key.clone(),
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

    pub(super) fn open(&self) -> Result<Sink, Trouble> {
        Ok(match self {
            Target::Lines => Sink::Lines(Lines::start().map_err(lost)?),
            Target::Nats { access, subject } => Sink::Nats {
                publisher: Box::new(Publisher::connect(access).map_err(lost)?),
                subject: subject.clone(),
                waiting: 0,
            },
            Target::Push {
                url,
                channel,
                api_key,
            } => Sink::Push {
                http: Box::new(Http::connect(url, api_key.as_deref()).map_err(Trouble::Lost)?),
                channel: channel.clone(),
            },
        })
    }
}

fn lost(error: impl std::fmt::Display) -> Trouble {
    Trouble::Lost(error.to_string())
}

impl Sink {
    /// Takes a trade, to be sent by [`Sink::carry_on`].
    pub(super) fn put(&mut self, symbol: &str, json: &str) -> Result<(), Trouble> {
        match self {
            Sink::Nobody => Ok(()),
            Sink::Lines(lines) => {
                lines.next.extend_from_slice(json.as_bytes());
                lines.next.push(b'\n');
                Ok(())
            }
            Sink::Nats {
                publisher,
                subject,
                waiting,
            } => {
                *waiting += json.len();
                let subject = subject.replace(SYMBOL, symbol);
                publisher.publish(&subject, json.as_bytes()).map_err(lost)
            }
            Sink::Push { http, channel } => {
                http.put(&channel.replace(SYMBOL, symbol), json);
                Ok(())
            }
        }
    }

    /// Bytes that were taken and not sent.
    pub(super) fn waiting(&self) -> usize {
        match self {
            Sink::Nobody => 0,
            Sink::Lines(lines) => lines.next.len() + lines.written.load(Ordering::Acquire),
            Sink::Nats { waiting, .. } => *waiting,
            Sink::Push { http, .. } => http.waiting(),
        }
    }

    /// Sends, for about so long at most.
    pub(super) fn carry_on(&mut self, within: Duration) -> Result<(), Trouble> {
        match self {
            Sink::Nobody => Ok(()),
            Sink::Lines(lines) => lines.carry_on(),
            Sink::Nats {
                publisher, waiting, ..
            } => {
                *waiting = publisher.carry_on(within).map_err(lost)?;
                Ok(())
            }
            Sink::Push { http, .. } => http.carry_on(within).map_err(Trouble::Lost),
        }
    }

    /// How many were refused, and what was said of the last.
    pub(super) fn refused(&self) -> Option<(u64, String)> {
        match self {
            Sink::Push { http, .. } => http.refused(),
            _ => None,
        }
    }
}

/// Standard output, written by a thread: a reader that takes nothing holds up nobody else.
pub(super) struct Lines {
    next: Vec<u8>,
    sender: SyncSender<Vec<u8>>,
    /// Bytes that the thread has, or that are on their way there.
    written: Arc<AtomicUsize>,
}

impl Lines {
    fn start() -> io::Result<Lines> {
        let (sender, receiver) = sync_channel(1);
        let written = Arc::new(AtomicUsize::new(0));
        let left = Arc::clone(&written);
        let builder = std::thread::Builder::new().name("ringmain-output".into());
        #[expect(
            clippy::disallowed_methods,
            reason = "writing to standard output may block, which no simulation has"
        )]
        builder.spawn(move || write(&receiver, &left))?;
        Ok(Lines {
            next: Vec::new(),
            sender,
            written,
        })
    }

    fn carry_on(&mut self) -> Result<(), Trouble> {
        if self.next.is_empty() {
            return Ok(());
        }
        let length = self.next.len();
        self.written.fetch_add(length, Ordering::AcqRel);
        match self.sender.try_send(std::mem::take(&mut self.next)) {
            Ok(()) => Ok(()),
            Err(TrySendError::Full(next)) => {
                self.written.fetch_sub(length, Ordering::AcqRel);
                self.next = next;
                pause();
                Ok(())
            }
            // A reader that has left has seen enough.
            Err(TrySendError::Disconnected(_)) => Err(Trouble::Over),
        }
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "for a real reader of standard output, which no simulation has"
)]
fn pause() {
    std::thread::sleep(crate::limits::FEED_STEP);
}

fn write(receiver: &Receiver<Vec<u8>>, left: &AtomicUsize) {
    let mut out = io::stdout().lock();
    for bytes in receiver {
        if let Err(error) = out.write_all(&bytes).and_then(|()| out.flush()) {
            if error.kind() != io::ErrorKind::BrokenPipe {
                log::error!("cannot write to standard output: {error}");
            }
            return;
        }
        left.fetch_sub(bytes.len(), Ordering::AcqRel);
    }
}
