//! Connections that start with a PROXY protocol header: the client's address, and the trusted proxies.

use std::time::Duration;

use ringmain_engine::Config;
use ringmain_web::{App, ListenerProtocol};

use crate::support::{End, Server, get, serve};

on_every_backend! {
    the_header_names_the_client,
    cut_anywhere,
    invalid_headers_close_the_connection,
    untrusted_peers_are_closed,
}

fn app(trusted: bool) -> App {
    let entrance = ListenerProtocol::http()
        .proxy_protocol(move |peer| trusted && peer.is_some(), Duration::from_secs(3600));
    App::new().listener(0, entrance).get("/", |req, reply| {
        reply.text(
            req.remote()
                .map_or_else(|| "nobody".to_owned(), |remote| remote.to_string()),
        )
    })
}

const V1: &[u8] = b"PROXY TCP4 192.0.2.1 198.51.100.7 56324 443\r\n";
const V2: &[u8] = b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c\xc0\0\x02\x02\xc6\x33\x64\x07\xdc\x04\x01\xbb";
const LOCAL: &[u8] = b"\r\n\r\n\0\r\nQUIT\n\x20\0\0\0";

#[track_caller]
fn check(server: &Server, header: &[u8], expected: &str) {
    let mut client = server.client();
    client.send([header, get("/").as_bytes()].concat());
    client.answer().expect(200, expected);
    client.send(get("/"));
    client.answer().expect(200, expected);
}

fn the_header_names_the_client(engine: Config) {
    let server = serve(engine, app(true));
    check(&server, V1, "192.0.2.1:56324");
    check(&server, V2, "192.0.2.2:56324");
    let mut client = server.client();
    let own = client.stream.local_addr().expect("connected").to_string();
    client.send([LOCAL, get("/").as_bytes()].concat());
    client.answer().expect(200, &own);
    server.shut_down();
}

fn cut_anywhere(engine: Config) {
    let server = serve(engine, app(true));
    for header in [V1, V2] {
        for cut in 1..header.len() {
            let mut client = server.client();
            client.send(&header[..cut]);
            client.send([&header[cut..], get("/").as_bytes()].concat());
            assert_eq!(client.answer().status, 200, "cut at {cut}");
        }
    }
    server.shut_down();
}

fn invalid_headers_close_the_connection(engine: Config) {
    let server = serve(engine, app(true));
    for bytes in [
        "GET / HTTP/1.1\r\nHost: a\r\n\r\n",
        "PROXY TCP4 x y 1 2\r\n",
        "\x16\x03\x01",
    ] {
        let mut client = server.client();
        client.send(bytes);
        let (rest, _) = client.rest();
        assert_eq!(rest, b"", "{bytes}");
    }
    // One that ends within it.
    let mut client = server.client();
    client.send(&V1[..10]);
    client.finish();
    assert_eq!(client.rest(), (Vec::new(), End::Orderly));
    server.shut_down();
}

fn untrusted_peers_are_closed(engine: Config) {
    let server = serve(engine, app(false));
    let mut client = server.client();
    let _ = client.send_behind([V1, get("/").as_bytes()].concat()).join();
    assert_eq!(client.rest().0, b"");
    server.shut_down();
}
