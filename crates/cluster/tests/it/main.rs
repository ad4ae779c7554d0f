//! Tests of nodes of a cluster.

mod frames;
mod handover;
mod nodes;
mod simulation;
