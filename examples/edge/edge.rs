//! A gateway with filters of its own: `cargo run --release -p ringmain-control --example edge`, before a server on port 3000.
//!
//! Arguments: a configuration file; `examples/edge/edge.yaml` if there is none. docs/filters.md explains how filters are written.

mod redact;
mod sign;

use ringmain_control::Exit;
use ringmain_control::edge::Edge;

fn main() -> Exit {
    let file = std::env::args().nth(1);
    Edge::from_file(file.unwrap_or_else(|| "examples/edge/edge.yaml".into()))
        .filter("sign", sign::configure)
        .filter("redact", redact::configure)
        .run()
}
