//! A server for HTTP/2's conformance suite: bodies are read to their end before they are answered, as h2spec takes for granted.
//!
//! `h2_server ADDR [tls|h2c]`: in the clear beside HTTP/1.1, by a development certificate, or in the clear alone.

use std::time::UNIX_EPOCH;

use ringmain_tls::{Acceptor, DevCertificate, ServerSettings, http_protocols};
use ringmain_web::{App, Exit, ListenerProtocol, Reply, Request, Result};

fn answer(req: &Request<'_>, reply: &mut Reply<'_>) -> Result {
    reply.text(format!("{} bytes\n", req.body().len()))
}

fn acceptor() -> std::result::Result<Acceptor, Box<dyn std::error::Error>> {
    let now = UNIX_EPOCH.elapsed()?;
    let settings = ServerSettings {
        certificates: vec![DevCertificate::new(&[], now)?.pair],
        alpn: http_protocols(),
        ..ServerSettings::default()
    };
    Ok(Acceptor::new(&settings, now)?)
}

fn main() -> Exit {
    let mut args = std::env::args().skip(1);
    let addr = args.next().unwrap_or_else(|| "127.0.0.1:8080".into());
    let mut app = App::new().get("/", answer).post("/", answer);
    app = match args.next().as_deref() {
        None => app,
        Some("h2c") => app.listener(0, ListenerProtocol::h2c()),
        Some("tls") => match acceptor() {
            Ok(acceptor) => app.listener(0, ListenerProtocol::https(&acceptor)),
            Err(error) => return Exit::Failure(error.to_string()),
        },
        Some(other) => return Exit::Failure(format!("expected `tls`, `h2c` or nothing, found `{other}`")),
    };
    app.run(&addr)
}
