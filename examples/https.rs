//! HTTPS: `cargo run --release --example https`, then `curl --insecure https://127.0.0.1:8443/`.
//!
//! Arguments: an address, then files of a certificate chain and of its key (PEM). Without files it uses a self-signed
//! certificate for this host, which clients do not trust. `POST /certificates`, only from this host, reloads the files; open
//! connections are kept.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTimeError, UNIX_EPOCH};

use ringmain::tls::{
    Acceptor, ConfigError, DevCertificate, KeyPair, ServerSettings, http_protocols, pem_file,
};
use ringmain::{App, Error, Exit, ListenerProtocol, Reply, Request, Result};

fn hello(req: &Request, reply: &mut Reply) -> Result {
    match req.tls() {
        Some(tls) => reply.text(format!("Hello over {} with {}!\n", tls.version.name(), tls.suite)),
        None => reply.text("Hello over plaintext!\n"),
    }
}

/// Returns the wall time, for the validity of certificates.
fn now() -> std::result::Result<Duration, SystemTimeError> {
    UNIX_EPOCH.elapsed()
}

fn settings(
    files: &[String],
) -> std::result::Result<ServerSettings, Box<dyn std::error::Error + Send + Sync>> {
    let pair = match files {
        [chain, key, ..] => KeyPair {
            chain: pem_file(Path::new(chain)).map_err(ConfigError::from)?,
            key: pem_file(Path::new(key)).map_err(ConfigError::from)?,
        },
        _ => DevCertificate::new(&[], now()?)?.pair,
    };
    Ok(ServerSettings {
        certificates: vec![pair],
        alpn: http_protocols(),
        ..ServerSettings::default()
    })
}

fn main() -> Exit {
    let mut args = std::env::args().skip(1);
    let addr = args.next().unwrap_or_else(|| "127.0.0.1:8443".into());
    let files: Arc<[String]> = args.collect();
    let acceptor = settings(&files).and_then(|settings| Ok(Acceptor::new(&settings, now()?)?));
    let acceptor = match acceptor {
        Ok(acceptor) => acceptor,
        Err(error) => return Exit::Failure(error.to_string()),
    };
    App::new()
        .get("/", hello)
        .listener(0, ListenerProtocol::https(&acceptor))
        .post_async("/certificates", async move |req, reply| {
            if !req.remote().is_some_and(|client| client.ip().is_loopback()) {
                return Err(Error::forbidden("only for this host"));
            }
            let (files, acceptor) = (Arc::clone(&files), acceptor.clone());
            // Files are read on the blocking pool.
            let read = move || settings(&files).and_then(|settings| Ok(acceptor.reload(&settings, now()?)?));
            match req.cx().blocking(read).await? {
                Ok(reload) => reply.text(format!("{reload}\n")),
                Err(error) => reply.status(422).text(format!("{error}\n")),
            }
        })
        .run(&addr)
}
