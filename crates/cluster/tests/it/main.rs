//! Tests of nodes of a cluster.

mod entries;
mod frames;
mod handover;
mod logged;
mod logged_history;
mod nodes;
mod simulation;
