//! The HTTP/2 codec against its rules and laws.

mod cuts;
mod ending;
mod floods;
mod flow;
mod heads;
mod messages;
mod rules;
mod support;
