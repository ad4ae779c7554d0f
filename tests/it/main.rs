//! The examples at work, and what README and guide say of the code.

mod support;

mod documents;
mod examples;
