//! A reverse proxy on Pingora: from 127.0.0.1:$PORT to 127.0.0.1:$UPSTREAM, on one thread, connections kept.

use async_trait::async_trait;
use pingora::prelude::*;
use pingora::proxy::{http_proxy_service, ProxyHttp, Session};
use pingora::server::configuration::ServerConf;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Everything goes to this port.
struct To(u16);

#[async_trait]
impl ProxyHttp for To {
    type CTX = ();

    fn new_ctx(&self) {}

    async fn upstream_peer(&self, _: &mut Session, _: &mut ()) -> Result<Box<HttpPeer>> {
        Ok(Box::new(HttpPeer::new(("127.0.0.1", self.0), false, String::new())))
    }
}

fn port(name: &str) -> u16 {
    let value = std::env::var(name).ok().and_then(|text| text.parse().ok());
    value.unwrap_or_else(|| panic!("{name}: expected a port number in the environment"))
}

fn main() {
    let settings = ServerConf {
        threads: 1,
        work_stealing: false,
        upstream_keepalive_pool_size: 1024,
        ..ServerConf::default()
    };
    let mut server = Server::new_with_opt_and_conf(None, settings);
    server.bootstrap();
    let mut proxy = http_proxy_service(&server.configuration, To(port("UPSTREAM")));
    proxy.add_tcp(&format!("127.0.0.1:{}", port("PORT")));
    server.add_service(proxy);
    server.run_forever();
}
