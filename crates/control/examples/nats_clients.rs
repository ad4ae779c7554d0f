//! CPU of a client of core NATS for a message that is received and dropped: our own client, or `async-nats` (decision 0027).
//!
//! ```text
//! nats_clients own|async-nats HOST:PORT SUBJECTS MESSAGES
//! ```
//!
//! Subscribes, waits for the first message, and prints microseconds of CPU time for each of the following ones, all on one thread.
#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a program for the terminal"
)]

use std::error::Error;
use std::hint::black_box;

use futures_util::StreamExt;
use ringmain_control::nats::protocol::ServerEvent;
use ringmain_control::nats::{ConnectOptions, Connection, runtime};
use ringmain_gateway::model::{NatsAccess, NatsLogin, NatsServer};
use ringmain_sys::process::thread_cpu_time;

/// Counts messages and the CPU time that they cost.
struct Meter {
    left: u64,
    messages: u64,
    began: Option<std::time::Duration>,
}

impl Meter {
    /// Counts one message. Returns whether it was the last one.
    fn count(&mut self) -> bool {
        if self.began.is_none() {
            self.began = Some(thread_cpu_time());
            return false;
        }
        self.left -= 1;
        self.left == 0
    }

    fn print(&self, name: &str) {
        let used = thread_cpu_time() - self.began.unwrap_or_default();
        println!(
            "{name}: {:.2} us",
            used.as_secs_f64() * 1e6 / self.messages as f64
        );
    }
}

async fn own(host: &str, port: u16, subjects: &str, meter: &mut Meter) -> Result<(), Box<dyn Error>> {
    let server = NatsServer {
        host: host.into(),
        port,
        tls: false,
    };
    let access = ConnectOptions::new(&NatsAccess {
        servers: vec![server.clone()],
        login: NatsLogin::Anonymous,
        tls: None,
    })?;
    let mut connection = Connection::open(&access, &server).await?;
    connection.subscribe(subjects, 1)?;
    connection.flush().await?;
    loop {
        let mut is_pinged = false;
        while let Some(event) = connection.event()? {
            match event {
                ServerEvent::Message { subject, payload, .. } => {
                    black_box((subject, payload));
                    if meter.count() {
                        return Ok(());
                    }
                }
                ServerEvent::Ping => is_pinged = true,
                _ => {}
            }
        }
        if is_pinged {
            connection.pong();
            connection.flush().await?;
        }
        connection.fill().await?;
    }
}

async fn theirs(address: &str, subjects: &str, meter: &mut Meter) -> Result<(), Box<dyn Error>> {
    let client = async_nats::connect(address).await?;
    let mut messages = client.subscribe(subjects.to_owned()).await?;
    client.flush().await?;
    while let Some(message) = messages.next().await {
        black_box((&message.subject, &message.payload));
        if meter.count() {
            return Ok(());
        }
    }
    Err("the connection has ended".into())
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [client, address, subjects, messages] = &arguments[..] else {
        return Err("expected own|async-nats HOST:PORT SUBJECTS MESSAGES".into());
    };
    let (host, port) = address.rsplit_once(':').ok_or("expected HOST:PORT")?;
    let messages: u64 = messages.parse()?;
    let mut meter = Meter {
        left: messages,
        messages,
        began: None,
    };
    let runtime = runtime()?;
    match &**client {
        "own" => runtime.block_on(own(host, port.parse()?, subjects, &mut meter))?,
        "async-nats" => runtime.block_on(theirs(address, subjects, &mut meter))?,
        other => return Err(format!("expected own or async-nats, found {other}").into()),
    }
    meter.print(client);
    Ok(())
}
