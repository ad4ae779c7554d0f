//! Tests of requested URLs, by the fields of proxies and those that a client adds in front.

use ringmain_wire::h1::{FieldTable, HeadScanner, Limits, Parsed, parse_request};

use super::RequestUrl;
use crate::model::{ClientAddress, ClientHeader, HeaderName, Network};

fn config(header: ClientHeader) -> ClientAddress {
    ClientAddress {
        trusted: vec![Network::parse("10.0.0.0/8").expect("a network")],
        header,
        hops: None,
    }
}

/// Returns the URL of a request over HTTP to `inside:8080` whose trusted peer sends these fields.
fn url(config: &ClientAddress, headers: &str) -> String {
    let text = format!("GET / HTTP/1.1\r\nHost: inside:8080\r\n{headers}\r\n");
    let mut table = FieldTable::new(&Limits::INTERNET);
    let mut scanner = HeadScanner::new();
    let parsed = parse_request(text.as_bytes(), &Limits::INTERNET, &mut scanner, &mut table);
    let Ok(Parsed::Complete { head, .. }) = parsed else {
        panic!("a head: {text}");
    };
    let received = RequestUrl::from_connection(false, head.authority.map(|authority| authority.as_str()));
    let peer = "10.0.0.1".parse().expect("an address");
    let RequestUrl { https, host, port } = received.with_forwarded(config, peer, &head.fields);
    let scheme = if https { "https" } else { "http" };
    let port = port.map_or_else(String::new, |port| format!(":{port}"));
    format!("{scheme}://{}{port}", host.unwrap_or("-"))
}

#[test]
fn x_forwarded_fields_override() {
    let config = config(ClientHeader::XForwardedFor);
    for (headers, expected) in [
        ("", "http://inside:8080"),
        ("X-Forwarded-Proto: https\r\n", "https://inside:8080"),
        (
            "X-Forwarded-Proto: WSS\r\nX-Forwarded-Host: a.example\r\n",
            "https://a.example",
        ),
        ("X-Forwarded-Host: a.example:81\r\n", "http://a.example:81"),
        (
            "X-Forwarded-Host: a.example:81\r\nX-Forwarded-Port: 82\r\n",
            "http://a.example:82",
        ),
        ("X-Forwarded-Host: [fd00::1]:81\r\n", "http://[fd00::1]:81"),
        (
            "X-Forwarded-Port: 443\r\nX-Forwarded-Proto: https\r\n",
            "https://inside:443",
        ),
        // Invalid scheme, host and port.
        (
            "X-Forwarded-Proto: file\r\nX-Forwarded-Host: a/b\r\nX-Forwarded-Port: +1\r\n",
            "http://inside:8080",
        ),
        ("X-Forwarded-Host: u@a.example\r\n", "http://inside:8080"),
        ("X-Forwarded-Host: [fd00::1\r\n", "http://inside:8080"),
        ("X-Forwarded-Host: [fd00::1]x\r\n", "http://inside:8080"),
        (
            "X-Forwarded-Host: a:65536\r\nX-Forwarded-Port: 65536\r\n",
            "http://inside:8080",
        ),
        (
            "X-Forwarded-Host: \r\nX-Forwarded-Proto: \r\n",
            "http://inside:8080",
        ),
        // `Forwarded` is not this listener's header: the peer may have it from a client.
        (
            "Forwarded: for=192.0.2.1;proto=https;host=evil\r\n",
            "http://inside:8080",
        ),
    ] {
        assert_eq!(url(&config, headers), expected, "{headers}");
    }
}

#[test]
fn the_element_of_the_outermost_trusted_proxy_applies() {
    let config = config(ClientHeader::XForwardedFor);
    // A proxy appends to the value that its client sent.
    let one = "X-Forwarded-For: 6.6.6.6, 192.0.2.1\r\nX-Forwarded-Proto: http, https\r\nX-Forwarded-Host: evil, real\r\n";
    assert_eq!(url(&config, one), "https://real");
    // Two proxies append.
    let two = "X-Forwarded-For: 192.0.2.1, 10.0.0.2\r\nX-Forwarded-Proto: https, http\r\nX-Forwarded-Host: real, inner\r\n";
    assert_eq!(url(&config, two), "https://real");
    let forged = "X-Forwarded-For: 6.6.6.6, 192.0.2.1, 10.0.0.2\r\nX-Forwarded-Proto: http, https, http\r\n";
    assert_eq!(url(&config, forged), "https://inside:8080");
    // The first one replaces, the second one forwards the fields that it received.
    let passed = "X-Forwarded-For: 192.0.2.1, 10.0.0.2\r\nX-Forwarded-Proto: https\r\n";
    assert_eq!(url(&config, passed), "https://inside:8080");
}

#[test]
fn forwarded_applies_alone_if_configured() {
    let config = config(ClientHeader::Forwarded);
    for (headers, expected) in [
        (
            "Forwarded: for=192.0.2.1;proto=https;host=a.example\r\n",
            "https://a.example",
        ),
        (
            "Forwarded: for=192.0.2.1; Proto=HTTPS ;host=\"a.example:81\"\r\n",
            "https://a.example:81",
        ),
        (
            "Forwarded: for=6.6.6.6;proto=http;host=evil, for=192.0.2.1;proto=https;host=real\r\n",
            "https://real",
        ),
        (
            "Forwarded: for=192.0.2.1;proto=https;host=real, for=10.0.0.2;proto=http;host=inner\r\n",
            "https://real",
        ),
        (
            "X-Forwarded-Proto: https\r\nX-Forwarded-Host: evil\r\n",
            "http://inside:8080",
        ),
    ] {
        assert_eq!(url(&config, headers), expected, "{headers}");
    }
}

#[test]
fn named_header_has_one_element() {
    let config = config(ClientHeader::Named(
        HeaderName::parse("True-Client-IP").expect("a name"),
    ));
    let headers = "True-Client-IP: 192.0.2.1\r\nX-Forwarded-Proto: https\r\nX-Forwarded-Host: a.example\r\n";
    assert_eq!(url(&config, headers), "https://a.example");
}

#[test]
fn default_ports_belong_to_the_scheme_that_they_were_sent_with() {
    let received = RequestUrl::from_connection(false, Some("shop.example:80"));
    assert_eq!(received.port, Some(80));
    let config = config(ClientHeader::XForwardedFor);
    assert_eq!(
        url(&config, "X-Forwarded-Host: a:80\r\nX-Forwarded-Proto: https\r\n"),
        "https://a"
    );
}
