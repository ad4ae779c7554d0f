//! hyper over rustls with aws-lc-rs, on one Tokio thread: `peer-hyper-rustls CERT KEY`. TLS 1.3 and 1.2, stateless
//! tickets, http/1.1 by ALPN; `peer-hyper-rustls CERT KEY h2` has h2 alone.

use std::convert::Infallible;
use std::sync::Arc;

use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{CONTENT_TYPE, HeaderValue, SERVER};
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode, body::Incoming};
use hyper_util::rt::TokioIo;
use rustls::ServerConfig;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject};
use tokio::net::{TcpListener, TcpSocket};
use tokio_rustls::TlsAcceptor;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

#[derive(serde::Serialize)]
struct Hello {
    message: &'static str,
}

async fn answer(request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    let (content_type, body) = match request.uri().path() {
        "/json" => {
            let hello = Hello {
                message: "Hello, World!",
            };
            let body = serde_json::to_vec(&hello).expect("a constant serialises");
            ("application/json", Bytes::from(body))
        }
        "/plaintext" => ("text/plain", Bytes::from_static(b"Hello, World!")),
        _ => {
            let mut missing = Response::new(Full::default());
            *missing.status_mut() = StatusCode::NOT_FOUND;
            return Ok(missing);
        }
    };
    let mut response = Response::new(Full::new(body));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    headers.insert(SERVER, HeaderValue::from_static("hyper"));
    Ok(response)
}

fn listen() -> TcpListener {
    let port: u16 = std::env::var("PORT").ok().and_then(|p| p.parse().ok()).expect("PORT");
    let socket = TcpSocket::new_v4().expect("socket");
    socket.set_reuseaddr(true).expect("reuse the address");
    socket.bind(([127, 0, 0, 1], port).into()).expect("bind");
    socket.listen(4096).expect("listen")
}

fn settings(certificate: &str, key: &str, h2: bool) -> ServerConfig {
    let chain: Result<Vec<_>, _> = CertificateDer::pem_file_iter(certificate).expect("CERT").collect();
    let key = PrivateKeyDer::from_pem_file(key).expect("KEY");
    let mut settings = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("its own versions")
        .with_no_client_auth()
        .with_single_cert(chain.expect("CERT"), key)
        .expect("KEY fits CERT");
    settings.alpn_protocols = vec![if h2 { b"h2".to_vec() } else { b"http/1.1".to_vec() }];
    settings.ticketer = aws_lc_rs::Ticketer::new().expect("random bytes");
    settings
}

/// Runs what a connection spawns on its own thread.
#[derive(Clone)]
struct Here;

impl<F: Future<Output = ()> + 'static> hyper::rt::Executor<F> for Here {
    fn execute(&self, task: F) {
        tokio::task::spawn_local(task);
    }
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let (certificate, key) = (arguments.next().expect("CERT"), arguments.next().expect("KEY"));
    let h2 = arguments.next().is_some_and(|word| word == "h2");
    let acceptor = TlsAcceptor::from(Arc::new(settings(&certificate, &key, h2)));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("runtime");
    tokio::task::LocalSet::new().block_on(&runtime, async {
        let listener = listen();
        loop {
            let Ok((stream, _)) = listener.accept().await else {
                continue;
            };
            let _ = stream.set_nodelay(true);
            let acceptor = acceptor.clone();
            tokio::task::spawn_local(async move {
                let Ok(stream) = acceptor.accept(stream).await else {
                    return;
                };
                if h2 {
                    let mut protocol = http2::Builder::new(Here);
                    protocol.max_concurrent_streams(256);
                    let connection = protocol.serve_connection(TokioIo::new(stream), service_fn(answer));
                    let _ = connection.await;
                    return;
                }
                let mut protocol = http1::Builder::new();
                let connection = protocol
                    .pipeline_flush(true)
                    .serve_connection(TokioIo::new(stream), service_fn(answer));
                let _ = connection.await; // a peer that leaves is no event here
            });
        }
    });
}
