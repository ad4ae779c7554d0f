//! gRPC's and gRPC-Web's parts against their rules and laws.

mod encodings;
mod fields;
mod messages;
mod text;
mod web;
