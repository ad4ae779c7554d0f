//! WebSocket echo on fastwebsockets, upgraded by hyper as in its own example, on one Tokio thread. Any path.

use bytes::Bytes;
use fastwebsockets::{FragmentCollector, OpCode, WebSocketError, upgrade};
use http_body_util::Empty;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, body::Incoming};
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpSocket};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

async fn echo(upgraded: upgrade::UpgradeFut) -> Result<(), WebSocketError> {
    let mut socket = FragmentCollector::new(upgraded.await?);
    loop {
        let frame = socket.read_frame().await?;
        match frame.opcode {
            OpCode::Close => return Ok(()),
            OpCode::Text | OpCode::Binary => socket.write_frame(frame).await?,
            _ => {}
        }
    }
}

async fn answer(mut request: Request<Incoming>) -> Result<Response<Empty<Bytes>>, WebSocketError> {
    let (response, upgraded) = upgrade::upgrade(&mut request)?;
    tokio::spawn(async {
        let _ = echo(upgraded).await; // a peer that leaves is no event here
    });
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
    runtime.block_on(async {
        let listener = listen();
        loop {
            let Ok((stream, _)) = listener.accept().await else {
                continue;
            };
            let _ = stream.set_nodelay(true);
            tokio::spawn(async move {
                let connection = http1::Builder::new()
                    .serve_connection(TokioIo::new(stream), service_fn(answer))
                    .with_upgrades();
                let _ = connection.await;
            });
        }
    });
}
