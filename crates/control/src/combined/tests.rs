//! Tests of two sources.
