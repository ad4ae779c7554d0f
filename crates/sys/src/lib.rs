//! Safe wrappers of raw kernel interfaces. Knows nothing of workers, protocols or policy.

pub mod addr;
pub mod cpu;
pub mod limits;
pub mod listen;
pub mod socket;
