//! Marks and limits.
