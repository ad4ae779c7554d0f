//! The server under test for the runner of `connectrpc.com/conformance`: `cargo xtask suite grpc`.
//!
//! It receives its configuration on standard input, writes its address to standard output, and serves until it is terminated.

mod messages;
mod service;

use std::error::Error;
use std::io::{Read, Write};
use std::sync::Arc;
use std::time::UNIX_EPOCH;

use ringmain_engine::{Addr, Config, Engine, ListenOptions};
use ringmain_web::grpc::prost::Message;
use ringmain_web::tls::{Acceptor, ClientCertificates, KeyPair, Pem, ServerSettings};
use ringmain_web::{App, ListenerProtocol};

use self::messages::{ServerCompatRequest, ServerCompatResponse};

fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    let _signals = ringmain_engine::block_signals()?;
    let asked: ServerCompatRequest = read()?;
    let mut app = App::new().grpc(service::service(asked.message_receive_limit));
    let mut pem_cert = Vec::new();
    if asked.use_tls {
        let credentials = asked.server_creds.unwrap_or_default();
        pem_cert.clone_from(&credentials.cert);
        let pem = |source: &str, bytes| Pem {
            source: source.to_owned(),
            bytes,
        };
        let pair = KeyPair {
            chain: pem("the runner's certificate", credentials.cert),
            key: pem("the runner's key", credentials.key),
        };
        let client_certificates = if asked.client_tls_cert.is_empty() {
            ClientCertificates::Off
        } else {
            ClientCertificates::Required(pem("the client's certificate", asked.client_tls_cert))
        };
        let settings = ServerSettings {
            certificates: vec![pair],
            client_certificates,
            alpn: vec![b"h2".to_vec(), b"http/1.1".to_vec()],
            ..ServerSettings::default()
        };
        let acceptor = Acceptor::new(&settings, UNIX_EPOCH.elapsed()?)?;
        app = app.listener(0, ListenerProtocol::https(&acceptor));
    }
    let app = app.build()?;
    let config = Config {
        workers: Some(1),
        pin: false,
        ..Config::default()
    };
    let mut engine = Engine::new(config)?;
    let addr = engine.listen(&"127.0.0.1:0".parse()?, &ListenOptions::default())?;
    let Addr::Inet(addr) = addr else {
        return Err("expected an internet address".into());
    };
    let served = Arc::clone(&app);
    let running = engine.start(move |start| served.server(start))?;
    write(&ServerCompatResponse {
        host: addr.ip().to_string(),
        port: addr.port().into(),
        pem_cert,
    })?;
    running.join()?;
    Ok(())
}

/// A message with its length in front, four bytes with the most significant one first.
fn read<T: Message + Default>() -> Result<T, Box<dyn Error + Send + Sync>> {
    let mut length = [0; 4];
    let mut input = std::io::stdin().lock();
    input.read_exact(&mut length)?;
    let mut bytes = Vec::new();
    input
        .take(u32::from_be_bytes(length).into())
        .read_to_end(&mut bytes)?;
    Ok(T::decode(bytes.as_slice())?)
}

fn write(message: &impl Message) -> Result<(), Box<dyn Error + Send + Sync>> {
    let bytes = message.encode_to_vec();
    let mut output = std::io::stdout().lock();
    output.write_all(&u32::try_from(bytes.len())?.to_be_bytes())?;
    output.write_all(&bytes)?;
    output.flush()?;
    Ok(())
}
