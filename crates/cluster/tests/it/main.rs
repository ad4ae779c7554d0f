//! Tests of nodes of a cluster.

mod frames;
mod nodes;
mod simulation;
