//! The HTTP/1.1 codec against its rules and laws.

mod against_httparse;
mod chunk_rules;
mod corpus;
mod cuts;
mod encoding;
mod forwarding_rules;
mod framing_rules;
mod line_rules;
mod response_rules;
mod rules;
mod support;
