//! Whole loads and fan-outs over real sockets, against scripted servers.

mod push;
mod rounds;
