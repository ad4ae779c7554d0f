//! The text and kernel forms of addresses.

use ringmain_sys::addr::{Addr, SockAddr, UNIX_NAME_LIMIT};

fn check(text: &str, expect: Addr, shown: &str) {
    let addr: Addr = text.parse().unwrap_or_else(|e| panic!("{text}: {e}"));
    assert_eq!(addr, expect, "{text}");
    assert_eq!(addr.to_string(), shown, "{text}");
    assert_eq!(shown.parse::<Addr>().unwrap(), addr, "{shown}");
    assert_eq!(addr.to_sockaddr().unwrap().to_addr(), Some(addr), "{text}");
}

fn inet(text: &str) -> Addr {
    Addr::Inet(text.parse().unwrap())
}

#[test]
fn forms_that_are_taken() {
    check("127.0.0.1:80", inet("127.0.0.1:80"), "127.0.0.1:80");
    check("[::1]:80", inet("[::1]:80"), "[::1]:80");
    check("[fe80::1%3]:80", inet("[fe80::1%3]:80"), "[fe80::1%3]:80");
    check(":80", inet("[::]:80"), "[::]:80");
    check("0.0.0.0:0", inet("0.0.0.0:0"), "0.0.0.0:0");
    check(
        "/run/x.sock",
        Addr::Unix("/run/x.sock".into()),
        "unix:/run/x.sock",
    );
    check(
        "unix:/run/a b.sock",
        Addr::Unix("/run/a b.sock".into()),
        "unix:/run/a b.sock",
    );
    check(
        "unix:/run/größe",
        Addr::Unix("/run/größe".into()),
        "unix:/run/größe",
    );
    check("@name", Addr::Abstract(b"name".to_vec()), "unix:@name");
    check("unix:@name", Addr::Abstract(b"name".to_vec()), "unix:@name");
    check("unix:@@", Addr::Abstract(b"@".to_vec()), "unix:@@");
    check(
        "@a\\x00\\xff\\x5cb",
        Addr::Abstract(b"a\0\xff\\b".to_vec()),
        "unix:@a\\x00\\xff\\x5cb",
    );
    let longest = format!("/{}", "x".repeat(UNIX_NAME_LIMIT - 1));
    check(
        &longest,
        Addr::Unix(longest.clone().into()),
        &format!("unix:{longest}"),
    );
    let longest = "x".repeat(UNIX_NAME_LIMIT);
    check(
        &format!("@{longest}"),
        Addr::Abstract(longest.clone().into()),
        &format!("unix:@{longest}"),
    );
}

fn check_refused(text: &str, expect: &str) {
    let error = text.parse::<Addr>().expect_err(text).to_string();
    assert!(error.contains(expect), "{text}: {error}");
    assert!(error.contains(text), "{text}: {error}");
}

#[test]
fn forms_that_are_refused() {
    check_refused("localhost:80", "; write 127.0.0.1:80 or [::1]:80");
    check_refused(
        "localhost:80",
        "expected an IP address and port, such as 127.0.0.1:8080, ",
    );
    check_refused(
        "example.com:80",
        "; host names are not looked up here, write the IP address",
    );
    check_refused("127.0.0.1", "; add a port: 127.0.0.1:8080");
    check_refused("::1", "; add a port: [::1]:8080");
    check_refused("[::1]", "; add a port: [::1]:8080");
    check_refused("1:2:3:4:5:6:7:80", "; add a port: [1:2:3:4:5:6:7:80]:8080");
    check_refused(
        "1:2:3:4:5:6:7:8:80",
        "; put the IPv6 address in brackets: [1:2:3:4:5:6:7:8]:80",
    );
    check_refused("8080", "; for port 8080 on every address write :8080");
    check_refused("*:80", "; for every address write :80");
    check_refused("127.0.0.1:65536", "; the port must be a number from 0 to 65535");
    check_refused("127.0.0.1:+80", "; the port must be a number");
    check_refused(":+80", "; the port must be a number");
    check_refused("127.0.0.1:", "the port must be");
    check_refused("", "found ``");
    check_refused("run/x.sock", "expected an IP address");
    check_refused("unix:run/x.sock", "expected an absolute path");
    check_refused("unix:", "expected an absolute path");
    check_refused("@", "expected a name after the `@`");
    check_refused("/a\\q", "expected two hexadecimal digits");
    check_refused("/a\\x+1", "expected two hexadecimal digits");
    check_refused("/a\\x", "expected two hexadecimal digits");
    check_refused("/a\\x00b", "expected a path without a zero byte");
    check_refused(
        &format!("/{}", "x".repeat(UNIX_NAME_LIMIT)),
        "at most 107 bytes; found 108 bytes",
    );
    check_refused(
        &format!("@{}", "x".repeat(UNIX_NAME_LIMIT + 1)),
        "found 108 bytes",
    );
}

#[test]
fn names_that_were_not_parsed_are_checked_on_the_way_to_the_kernel() {
    let long = "x".repeat(UNIX_NAME_LIMIT + 1);
    for addr in [
        Addr::Unix(long.clone().into()),
        Addr::Unix("/a\0b".into()),
        Addr::Unix("".into()),
        Addr::Abstract(long.into_bytes()),
        Addr::Abstract(Vec::new()),
    ] {
        let error = addr.to_sockaddr().expect_err(&addr.to_string());
        assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput, "{addr}");
    }
}

#[test]
fn a_kernel_address_that_says_nothing_is_none() {
    // SAFETY: all bytes zero is a valid `sockaddr_storage`.
    let mut storage: libc::sockaddr_storage = unsafe { std::mem::zeroed() };
    assert_eq!(SockAddr::from_raw(storage, 0).to_addr(), None);
    storage.ss_family = libc::AF_UNIX as u16;
    assert_eq!(SockAddr::from_raw(storage, 0).to_addr(), None);
    assert_eq!(SockAddr::from_raw(storage, 2).to_addr(), None);
    assert_eq!(SockAddr::from_raw(storage, u32::MAX).len(), 128);
    storage.ss_family = libc::AF_INET as u16;
    assert_eq!(SockAddr::from_raw(storage, 4).to_addr(), None);
    storage.ss_family = libc::AF_NETLINK as u16;
    assert_eq!(SockAddr::from_raw(storage, 12).to_addr(), None);
}
