//! The library `ringmain`: a façade over the engine (and later the web framework).
//!
//! It owns nothing: it chooses what an application author sees. A plain application
//! pulls in no tokio, clap or Kubernetes crate.
#![forbid(unsafe_code)]

pub use ringmain_engine as engine;
