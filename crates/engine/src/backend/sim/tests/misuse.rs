//! Each way to break the contract is caught, with a message that names it.
