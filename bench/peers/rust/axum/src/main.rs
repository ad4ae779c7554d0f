//! axum as its documentation starts a server, on one Tokio thread and with TCP_NODELAY.

use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use axum::serve::ListenerExt;
use axum::{Json, Router, routing::get};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

#[derive(serde::Serialize)]
struct Hello {
    message: &'static str,
}

const NAME: HeaderValue = HeaderValue::from_static("axum");

async fn json() -> Response {
    let hello = Hello {
        message: "Hello, World!",
    };
    ([(header::SERVER, NAME)], Json(hello)).into_response()
}

async fn plaintext() -> Response {
    let text = HeaderValue::from_static("text/plain");
    ([(header::SERVER, NAME), (header::CONTENT_TYPE, text)], "Hello, World!").into_response()
}

fn main() {
    let port: u16 = std::env::var("PORT").ok().and_then(|p| p.parse().ok()).expect("PORT");
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("runtime");
    runtime.block_on(async {
        let socket = tokio::net::TcpSocket::new_v4().expect("socket");
        socket.set_reuseaddr(true).expect("reuse the address");
        socket.bind(([127, 0, 0, 1], port).into()).expect("bind");
        let listener = socket.listen(4096).expect("listen").tap_io(|stream| {
            let _ = stream.set_nodelay(true);
        });
        let app = Router::new()
            .route("/json", get(json))
            .route("/plaintext", get(plaintext));
        axum::serve(listener, app).await.expect("serve");
    });
}
