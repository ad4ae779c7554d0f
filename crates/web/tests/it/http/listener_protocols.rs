//! Listeners with different listener protocols: each connection is handled by the listener protocol of its listener.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use ringmain_engine::{Addr, Config, Engine, ListenOptions};
use ringmain_web::{App, ListenerProtocol, ListenerProtocols, StreamConnection};

use crate::support::{Client, PATIENCE, get, serve_at};

on_every_backend! {
    a_stream_listener_serves_beside_an_http_listener,
    byte_streams_behind_a_proxy_header,
    an_entrance_becomes_another_one,
}

async fn echo(connection: StreamConnection) {
    let stream = &connection.stream;
    let mut buffer = [0; 100];
    while let Ok(count @ 1..) = stream.read(&mut buffer).await {
        if stream.write_all(&buffer[..count]).await.is_err() {
            return;
        }
    }
}

fn a_stream_listener_serves_beside_an_http_listener(config: Config) {
    let app = App::new()
        .get("/", |req, reply| {
            reply.text(format!("{} {}", req.listener(), req.scheme()))
        })
        .listener(1, ListenerProtocol::stream(echo))
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
    let running = engine.start(move |start| app.server(start)).expect("it starts");
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

fn byte_streams_behind_a_proxy_header(config: Config) {
    let tell = async |connection: StreamConnection| {
        let name = format!(
            "{:?} by {}\n",
            connection.remote().map(|it| it.ip()),
            connection.listener()
        );
        if connection.stream.write_all(name.as_bytes()).await.is_ok() {
            echo(connection).await;
        }
    };
    let entrance = ListenerProtocol::stream(tell).proxy_protocol(|_| true, PATIENCE);
    let server = serve_at(config, App::new().listener(0, entrance), None);
    let header = "PROXY TCP4 192.0.2.1 198.51.100.7 56324 443\r\n";
    // In one piece with the bytes behind it, split within the header, and split right behind it.
    for cut in [0, 10, header.len(), header.len() + 3] {
        let mut client = server.client();
        let all = [header, "hello"].concat();
        let (first, second) = all.split_at(cut);
        client.stream.write_all(first.as_bytes()).expect("it reads");
        client.stream.write_all(second.as_bytes()).expect("it reads");
        client
            .stream
            .shutdown(std::net::Shutdown::Write)
            .expect("it is open");
        let mut back = String::new();
        client.stream.read_to_string(&mut back).expect("the end");
        assert_eq!(back, "Some(192.0.2.1) by 0\nhello", "cut at {cut}");
    }
    let mut stranger = server.client();
    stranger
        .stream
        .write_all(b"hello, without a header")
        .expect("it reads");
    let mut back = Vec::new();
    // Closed, with or without a reset.
    let _ = stranger.stream.read_to_end(&mut back);
    assert_eq!(back, b"");
    server.shut_down();
}

fn an_entrance_becomes_another_one(config: Config) {
    let entrances = ListenerProtocols::default();
    let app = App::new()
        .listener_protocols(&entrances)
        .get("/", |_, reply| reply.text("http"));
    let server = serve_at(config, app, None);
    let mut old = server.client();
    old.send(get("/"));
    old.answer().expect(200, "http");
    entrances.set(0, ListenerProtocol::stream(echo));
    let mut bytes = server.client();
    bytes
        .stream
        .write_all(b"GET / HTTP/1.1\r\n\r\n")
        .expect("it reads");
    bytes
        .stream
        .shutdown(std::net::Shutdown::Write)
        .expect("it is open");
    let mut back = String::new();
    bytes.stream.read_to_string(&mut back).expect("the end");
    assert_eq!(back, "GET / HTTP/1.1\r\n\r\n");
    // An open connection continues unchanged.
    old.send(get("/"));
    old.answer().expect(200, "http");
    server.shut_down();
}
