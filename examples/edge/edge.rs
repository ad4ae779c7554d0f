//! A gateway with custom filters: `cargo run --release -p ringmain-control --example edge`, in front of a server on port 3000.
//!
//! Argument: a configuration file; default: `examples/edge/edge.yaml`. docs/how-to/custom-filters.md describes filters.

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
