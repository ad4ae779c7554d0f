//! Developer tasks: `cargo xtask tidy|ci|suite`.

fn main() {}
