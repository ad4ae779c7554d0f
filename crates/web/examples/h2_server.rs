//! A server for HTTP/2's conformance suite: bodies are read to their end before they are answered, as h2spec takes for granted.
//!
//! `h2_server ADDR [tls]`: in the clear, or by a development certificate.

use std::time::UNIX_EPOCH;

use ringmain_tls::{Acceptor, Development, ServerSettings, http_protocols};
use ringmain_web::{App, Entrance, Exit, Reply, Request, Result};

fn answer(req: &Request<'_>, reply: &mut Reply<'_>) -> Result {
    reply.text(format!("{} bytes\n", req.body().len()))
}

fn acceptor() -> std::result::Result<Acceptor, Box<dyn std::error::Error>> {
    let now = UNIX_EPOCH.elapsed()?;
    let settings = ServerSettings {
        certificates: vec![Development::new(&[], now)?.pair],
        alpn: http_protocols(),
        ..ServerSettings::default()
    };
    Ok(Acceptor::new(&settings, now)?)
}

fn main() -> Exit {
    let mut args = std::env::args().skip(1);
    let addr = args.next().unwrap_or_else(|| "127.0.0.1:8080".into());
    let mut app = App::new().get("/", answer).post("/", answer);
    if args.next().as_deref() == Some("tls") {
        app = match acceptor() {
            Ok(acceptor) => app.listener(0, Entrance::https(&acceptor)),
            Err(error) => return Exit::Failure(error.to_string()),
        };
    }
    app.run(&addr)
}
