//! xitca-http by the lean dispatcher of its own benchmark entry, on one Tokio thread.

use xitca_http::h1::dispatcher_unreal::{Dispatcher, Request, Response};
use xitca_http::http::StatusCode;
use xitca_service::Service;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

#[derive(serde::Serialize)]
struct Hello {
    message: &'static str,
}

async fn answer<'h>(request: Request<'h, ()>, response: Response<'h>) -> Response<'h, 3> {
    let ok = |r: Response<'h>, kind| {
        r.status(StatusCode::OK)
            .header("content-type", kind)
            .header("server", "xitca")
    };
    match request.path {
        "/json" => {
            let hello = Hello {
                message: "Hello, World!",
            };
            let body = serde_json::to_vec(&hello).expect("a constant serialises");
            ok(response, "application/json").body(&body)
        }
        "/plaintext" => ok(response, "text/plain").body(b"Hello, World!"),
        _ => response
            .status(StatusCode::NOT_FOUND)
            .header("server", "xitca")
            .body(&[]),
    }
}

fn main() {
    let port: u16 = std::env::var("PORT").ok().and_then(|p| p.parse().ok()).expect("PORT");
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("runtime");
    tokio::task::LocalSet::new().block_on(&runtime, async {
        let socket = tokio::net::TcpSocket::new_v4().expect("socket");
        socket.set_reuseaddr(true).expect("reuse the address");
        socket.bind(([127, 0, 0, 1], port).into()).expect("bind");
        let listener = socket.listen(4096).expect("listen");
        let dispatcher = Dispatcher::new(answer, ());
        loop {
            let Ok((stream, _)) = listener.accept().await else {
                continue;
            };
            let dispatcher = dispatcher.clone();
            tokio::task::spawn_local(async move {
                let _ = dispatcher.call(stream.into()).await; // a peer that leaves is no event here
            });
        }
    });
}
