//! A plan for tests.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use ringmain_engine::Choice;

use super::plan::{Form, Format, Node, Plan, Publishing, Transport};

/// Ten clients on one channel, ten publications a second.
pub(super) fn plan() -> Plan {
    let target = SocketAddr::from((Ipv4Addr::LOCALHOST, 9)).into();
    Plan {
        nodes: vec![Node {
            name: "ws://127.0.0.1:9".into(),
            target,
            host: "127.0.0.1:9".into(),
            path: "/connection/websocket".into(),
            tls: None,
        }],
        transport: Transport::WebSocket(Format::Json),
        token: None,
        sources: Vec::new(),
        clients: 10,
        channels: 1,
        each: 1,
        prefix: "bench".into(),
        publishing: Some(Publishing {
            target: SocketAddr::from((Ipv4Addr::LOCALHOST, 9)).into(),
            tls: None,
            host: "127.0.0.1:9".into(),
            path: "/api/publish".into(),
            api_key: None,
            form: Form::Api,
            connections: 1,
        }),
        broker: None,
        rate: 10.0,
        common: None,
        size: 200,
        conflated: None,
        slow: 0.0,
        slow_pace: 0.25,
        connect_rate: None,
        kill: None,
        kill_server: None,
        reconnect: Duration::from_secs(1),
        listening: None,
        timeout: Duration::from_secs(5),
        connect_timeout: Duration::from_secs(5),
        warmup: Duration::from_secs(1),
        duration: Duration::from_secs(1),
        settle: Duration::from_secs(1),
        threads: 1,
        cpus: Vec::new(),
        engine: Choice::Auto,
    }
}
