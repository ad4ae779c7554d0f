//! ntex without its framework: the HTTP/1.1 codec on a connection, heads written by hand,
//! one worker.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use ntex::fn_service;
use ntex::http::{DateService, HttpServiceConfig, h1};
use ntex::io::{Io, RecvError};

mod settings;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const JSON: &[u8] = b"HTTP/1.1 200 OK\r\nServer: ntex\r\nContent-Type: application/json\r\nContent-Length: 27\r\n";
const PLAINTEXT: &[u8] = b"HTTP/1.1 200 OK\r\nServer: ntex\r\nContent-Type: text/plain\r\nContent-Length: 13\r\n";
const MISSING: &[u8] = b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n";

#[derive(serde::Serialize)]
struct Hello {
    message: &'static str,
}

struct Connection {
    io: Io,
    codec: h1::Codec,
}

impl Future for Connection {
    type Output = Result<(), ()>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.as_mut().get_mut();
        loop {
            let request = match ready!(this.io.poll_recv(&this.codec, cx)) {
                Ok((request, _)) => request,
                Err(RecvError::WriteBackpressure) => {
                    let _ = ready!(this.io.poll_flush(cx, false));
                    continue;
                }
                Err(_) => return Poll::Ready(Ok(())),
            };
            let _ = this.io.with_write_buf(|out| match request.path() {
                "/json" => {
                    let hello = Hello {
                        message: "Hello, World!",
                    };
                    let mut body = [0u8; 64];
                    let mut cursor = std::io::Cursor::new(&mut body[..]);
                    serde_json::to_writer(&mut cursor, &hello).expect("a constant that fits");
                    let length = cursor.position() as usize;
                    out.extend_from_slice(JSON);
                    DateService.set_date_header2(out);
                    out.extend_from_slice(&body[..length]);
                }
                "/plaintext" => {
                    out.extend_from_slice(PLAINTEXT);
                    DateService.set_date_header2(out);
                    out.extend_from_slice(b"Hello, World!");
                }
                _ => out.extend_from_slice(MISSING),
            });
        }
    }
}

#[ntex::main]
async fn main() -> std::io::Result<()> {
    let serve = async |_| {
        fn_service(|io| Connection {
            io,
            codec: h1::Codec::new(0, settings::settings().get::<HttpServiceConfig>()),
        })
    };
    let server = ntex::server::build()
        .workers(1)
        .backlog(4096)
        .bind("bench", settings::address(), serve)?;
    server.config("bench", settings::settings()).run().await
}
