//! A raw loop on monoio: httparse, constant heads, one write for all requests of a read.
//!
//! Usage: `PORT=n peer-monoio uring|epoll`. Counts as a floor: no routes, limits or timers.

use std::cell::RefCell;
use std::time::{Duration, SystemTime};

use monoio::io::{AsyncReadRent, AsyncWriteRentExt};
use monoio::net::{ListenerOpts, TcpListener, TcpStream};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const BUFFER_BYTES: usize = 16 * 1024;
const JSON: &[u8] =
    b"HTTP/1.1 200 OK\r\nServer: monoio\r\nContent-Type: application/json\r\nContent-Length: 27\r\nDate: ";
const PLAINTEXT: &[u8] =
    b"HTTP/1.1 200 OK\r\nServer: monoio\r\nContent-Type: text/plain\r\nContent-Length: 13\r\nDate: ";

#[derive(serde::Serialize)]
struct Hello {
    message: &'static str,
}

thread_local!(static DATE: RefCell<String> = const { RefCell::new(String::new()) });

fn refresh_date() {
    DATE.set(httpdate::fmt_http_date(SystemTime::now()));
}

/// Appends the answers to all whole requests in `data`. Returns the bytes consumed, `None`
/// for what is no request.
fn answer(data: &[u8], out: &mut Vec<u8>) -> Option<usize> {
    let mut position = 0;
    while position < data.len() {
        let mut headers = [httparse::EMPTY_HEADER; 32];
        let mut request = httparse::Request::new(&mut headers);
        let httparse::Status::Complete(bytes) = request.parse(&data[position..]).ok()? else {
            break;
        };
        position += bytes;
        let json = request.path == Some("/json");
        out.extend_from_slice(if json { JSON } else { PLAINTEXT });
        DATE.with_borrow(|date| out.extend_from_slice(date.as_bytes()));
        out.extend_from_slice(b"\r\n\r\n");
        if json {
            let hello = Hello {
                message: "Hello, World!",
            };
            serde_json::to_writer(&mut *out, &hello).expect("a constant serialises");
        } else {
            out.extend_from_slice(b"Hello, World!");
        }
    }
    Some(position)
}

async fn serve(mut stream: TcpStream) {
    let mut buffer = Vec::with_capacity(BUFFER_BYTES);
    let mut out = Vec::with_capacity(BUFFER_BYTES);
    let mut rest: Vec<u8> = Vec::new();
    loop {
        let (received, returned) = stream.read(buffer).await;
        buffer = returned;
        if received.unwrap_or(0) == 0 {
            return;
        }
        out.clear();
        if rest.is_empty() {
            let Some(used) = answer(&buffer, &mut out) else { return };
            rest.extend_from_slice(&buffer[used..]);
        } else {
            rest.extend_from_slice(&buffer);
            let Some(used) = answer(&rest, &mut out) else { return };
            rest.drain(..used);
        }
        buffer.clear();
        let (sent, returned) = stream.write_all(out).await;
        out = returned;
        if sent.is_err() {
            return;
        }
    }
}

async fn run() {
    let port = std::env::var("PORT").expect("PORT");
    refresh_date();
    monoio::spawn(async {
        loop {
            monoio::time::sleep(Duration::from_millis(500)).await;
            refresh_date();
        }
    });
    let options = ListenerOpts::new().backlog(4096);
    let listener = TcpListener::bind_with_config(format!("127.0.0.1:{port}"), &options).expect("listen");
    loop {
        if let Ok((stream, _)) = listener.accept().await {
            let _ = stream.set_nodelay(true);
            monoio::spawn(serve(stream));
        }
    }
}

fn main() {
    if std::env::args().nth(1).as_deref() == Some("epoll") {
        let mut runtime = monoio::RuntimeBuilder::<monoio::LegacyDriver>::new()
            .enable_timer()
            .build()
            .expect("runtime");
        runtime.block_on(run());
    } else {
        let builder = monoio::RuntimeBuilder::<monoio::IoUringDriver>::new().with_entries(4096);
        builder.enable_timer().build().expect("runtime").block_on(run());
    }
}
