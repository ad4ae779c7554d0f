//! The smallest application: `cargo run --release --example hello`, then `curl 127.0.0.1:8080/hello/world`.

use ringmain::{App, Exit, Reply, Request, Result};

fn hello(req: &Request, reply: &mut Reply) -> Result {
    reply.text(format!("Hello, {}!\n", req.param("name")?))
}

fn main() -> Exit {
    let addr = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:8080".into());
    App::new().get("/hello/{name}", hello).run(&addr)
}
