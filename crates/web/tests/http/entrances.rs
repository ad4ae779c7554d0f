//! Listeners that differ: what becomes of a connection follows from the one by which it came.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use ringmain_engine::stream::Stream;
use ringmain_engine::{Addr, Config, Engine, ListenOptions};
use ringmain_web::{App, Entrance};

use crate::support::{Client, PATIENCE, get};

on_every_backend!(a_listener_of_bytes_stands_beside_one_of_http);

async fn echo(stream: Stream) {
    let mut buffer = [0; 100];
    while let Ok(count @ 1..) = stream.read(&mut buffer).await {
        if stream.write_all(&buffer[..count]).await.is_err() {
            return;
        }
    }
}

fn a_listener_of_bytes_stands_beside_one_of_http(config: Config) {
    let site = App::new()
        .get("/", |req, reply| {
            reply.text(format!("{} {}", req.listener(), req.scheme()))
        })
        .listener(1, Entrance::stream(echo))
        .build()
        .expect("an application");
    let mut engine = Engine::new(config).expect("the back-end is there");
    let any: Addr = "127.0.0.1:0".parse().expect("an address");
    let addrs: Vec<SocketAddr> = (0..3)
        .map(|_| match engine.listen(&any, &ListenOptions::default()) {
            Ok(Addr::Inet(addr)) => addr,
            other => panic!("a free port: {other:?}"),
        })
        .collect();
    let running = engine.start(move |start| site.server(start)).expect("it starts");
    for (addr, listener) in [(addrs[0], 0), (addrs[2], 2)] {
        let mut client = Client::new(addr);
        client.send(get("/"));
        assert_eq!(client.answer().text(), format!("{listener} http"));
    }
    let mut bytes = TcpStream::connect(addrs[1]).expect("it listens");
    bytes.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    bytes.write_all(b"GET / HTTP/1.1\r\n\r\n").expect("it reads");
    bytes.shutdown(std::net::Shutdown::Write).expect("it is open");
    let mut back = String::new();
    bytes.read_to_string(&mut back).expect("the end");
    assert_eq!(back, "GET / HTTP/1.1\r\n\r\n");
    running.shut_down();
    running.join().expect("an orderly end");
}
