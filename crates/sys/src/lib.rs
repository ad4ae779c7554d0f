//! Safe wrappers of raw kernel interfaces. Knows nothing of workers, protocols or policy.

pub mod addr;
