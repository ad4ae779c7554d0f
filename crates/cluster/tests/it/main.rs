//! Tests of nodes of a cluster.

mod entries;
mod frames;
mod handover;
mod logged;
mod nodes;
mod simulation;
