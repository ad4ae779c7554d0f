//! Control from outside: an example as a process, and a NATS server whose messages are published.

mod edge;
mod nats;
mod nats_protocol;
mod push_cluster;
