//! hyper on one Tokio thread. `pipeline_flush` is what hyper offers for pipelined requests; `peer-hyper h2c` speaks HTTP/2 instead.

use std::convert::Infallible;

use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{CONTENT_TYPE, HeaderValue, SERVER};
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode, body::Incoming};
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpSocket};

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

/// Runs what a connection spawns on its own thread.
#[derive(Clone)]
struct Here;

impl<F: Future<Output = ()> + 'static> hyper::rt::Executor<F> for Here {
    fn execute(&self, task: F) {
        tokio::task::spawn_local(task);
    }
}

fn main() {
    let h2c = std::env::args().nth(1).is_some_and(|word| word == "h2c");
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
            tokio::task::spawn_local(async move {
                if h2c {
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
