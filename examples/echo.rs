//! A TCP echo server, as in the classic echo benchmark.
//!
//! `cargo run --release --example echo -- 127.0.0.1:7000`

use ringmain::engine::{Conn, on_data};

fn main() -> ringmain::Exit {
    let addr = std::env::args().nth(1).unwrap_or("127.0.0.1:7000".into());
    ringmain::serve(&addr, |_| {
        on_data(|conn: Conn<'_>, bytes: &mut [u8]| match conn.write(bytes) {
            Ok(()) => bytes.len(),
            Err(_) => 0,
        })
    })
}
