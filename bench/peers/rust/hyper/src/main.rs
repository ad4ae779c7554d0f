//! hyper on one Tokio thread. `pipeline_flush` is what hyper offers for pipelined requests.

use std::convert::Infallible;

use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{CONTENT_TYPE, HeaderValue, SERVER};
use hyper::server::conn::http1;
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

fn main() {
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
                let mut protocol = http1::Builder::new();
                let connection = protocol
                    .pipeline_flush(true)
                    .serve_connection(TokioIo::new(stream), service_fn(answer));
                let _ = connection.await; // a peer that leaves is no event here
            });
        }
    });
}
