//! Plans on recorded hosts, changes in namespaces of their own, profiles of a real program.

mod support;

mod apply;
mod golden;
mod namespace;
mod profile;
