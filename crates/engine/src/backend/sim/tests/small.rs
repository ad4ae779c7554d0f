//! Single rules of the simulated kernel.
