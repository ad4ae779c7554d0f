//! What both servers are started with: large buffers, the protocol's own deadlines off, as
//! in the entry of public benchmarks.

use ntex::http::{HttpServiceConfig, KeepAlive};
use ntex::{SharedCfg, io::IoConfig, time::Seconds};

thread_local!(static SETTINGS: SharedCfg = build());

fn build() -> SharedCfg {
    let io = IoConfig::new()
        .set_read_buf(65_535, 2048, 128)
        .set_write_buf(65_535, 2048, 128);
    let http = HttpServiceConfig::new()
        .set_keepalive(KeepAlive::Os)
        .set_client_timeout(Seconds::ZERO)
        .set_headers_read_rate(Seconds::ZERO, Seconds::ZERO, 0)
        .set_payload_read_rate(Seconds::ZERO, Seconds::ZERO, 0);
    SharedCfg::new("bench").add(io).add(http).into()
}

/// The settings, built once a thread.
pub fn settings() -> SharedCfg {
    SETTINGS.with(Clone::clone)
}

/// `127.0.0.1:$PORT`.
pub fn address() -> String {
    format!("127.0.0.1:{}", std::env::var("PORT").expect("PORT"))
}
