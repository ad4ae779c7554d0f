//! The cost of a request: serves a given number of requests in a simulated world, for callgrind to count.
//!
//!     cargo build --release -p ringmain-web --all-features --example request_cost
//!     valgrind --tool=callgrind --toggle-collect='*Worker*::work' target/release/examples/request_cost /json 20000
//!
//! A third argument sends `PIPELINED` requests at once. The first 100 cover one-time costs: measure 1,000 and 2,000, and divide the
//! difference.

use ringmain_web::testing::TestClient;
use ringmain_web::{App, Reply, Request, Result};
use serde::Serialize;

const PIPELINED: usize = 16;

#[derive(Serialize)]
struct Message {
    message: &'static str,
}

fn json(_: &Request<'_>, reply: &mut Reply<'_>) -> Result {
    reply.json(&Message {
        message: "Hello, World!",
    })
}

fn plaintext(_: &Request<'_>, reply: &mut Reply<'_>) -> Result {
    reply.text("Hello, World!")
}

fn main() {
    let mut words = std::env::args().skip(1);
    let path = words.next().unwrap_or_else(|| "/json".to_owned());
    let count: usize = words
        .next()
        .map_or(1000, |count| count.parse().expect("a number of requests"));
    let at_once = if words.next().is_some() { PIPELINED } else { 1 };
    let app = App::new()
        .get("/json", json)
        .get("/plaintext", plaintext)
        .health();
    let mut client = TestClient::new(app).expect("an application");
    let mut connection = client.raw();
    let request = format!("GET {path} HTTP/1.1\r\nHost: 127.0.0.1:8080\r\n\r\n").repeat(at_once);
    for _ in 0..(100 + count) / at_once {
        connection.send(&request);
        for _ in 0..at_once {
            assert_eq!(connection.reply().status(), 200);
        }
    }
}
