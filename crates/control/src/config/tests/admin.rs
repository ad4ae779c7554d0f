//! The administration listener as an address, and as a map.

use super::errors::check_errors;
use super::valid_config;

#[test]
fn admin_as_an_address() {
    let after = |admin: &str| format!("listen: :80\nto: http://a:1\nadmin: {admin}\n");
    for address in ["127.0.0.1:9001", "'[::1]:9001'", "unix:/run/admin.sock"] {
        let short = valid_config(&after(address)).admin.clone();
        let full = valid_config(&after(&format!("{{address: {address}}}")))
            .admin
            .clone();
        assert!(short.is_some(), "{address}");
        assert_eq!(short, full, "{address}");
    }
    let address = "expected an IP address and port, such as 127.0.0.1:8080, [::1]:8080 or :8080, or a Unix socket, such as \
                   unix:/run/app.sock or unix:@name, found";
    for (admin, expected) in [
        (
            "127.0.0.1:90010",
            format!("3:8: {address} `127.0.0.1:90010`; the port must be a number from 0 to 65535"),
        ),
        ("true", format!("3:8: {address} `true`")),
        (
            "[127.0.0.1:9001]",
            "3:8: expected a single value, or a map with the keys `address`, `hosts`, `token`, `metrics`, found a list".to_owned(),
        ),
        ("", "3:6: expected a string, found nothing".to_owned()),
        ("{}", "3:8: expected the key `address`, found none".to_owned()),
        (
            "{listen: 127.0.0.1:9001}",
            "3:9: expected one of the keys `address`, `hosts`, `token`, `metrics`, found `listen`; the listen addresses are its key `address`"
                .to_owned(),
        ),
        (
            ":80",
            "3:8: expected addresses that nothing else listens at, found `[::]:80`, as listener `default` has".to_owned(),
        ),
    ] {
        check_errors(&after(admin), &[&expected]);
    }
}
