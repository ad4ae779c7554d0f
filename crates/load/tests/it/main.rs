//! Whole loads and fan-outs over real sockets, against servers that do what the test says.

mod push;
mod rounds;
