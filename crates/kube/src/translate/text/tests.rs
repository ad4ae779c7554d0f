//! Durations and PEM.

use std::time::Duration;

use super::{duration, has_pem};

#[test]
fn durations() {
    let ms = |text| duration(text).map(|found| found.as_millis());
    assert_eq!(ms("1h30m"), Some(5_400_000));
    assert_eq!(ms("10s500ms"), Some(10_500));
    assert_eq!(ms("0s"), Some(0));
    assert_eq!(duration("99999h"), Some(Duration::from_hours(99_999)));
    for text in [
        "",
        "1",
        "s",
        "1d",
        "1.5s",
        "-1s",
        "1s2s3s4s5s",
        "1 s",
        "99999999999999999999h",
        "1é",
    ] {
        assert_eq!(duration(text), None, "{text}");
    }
}

#[test]
fn pem() {
    let block = |label: &str, body: &str| format!("-----BEGIN {label}-----\n{body}\n-----END {label}-----\n");
    let certificate = block("CERTIFICATE", "MAA=");
    let is_certificate = |text: &str| has_pem(text.as_bytes(), "CERTIFICATE");
    assert!(is_certificate(&certificate));
    assert!(is_certificate(&format!("text\r\n{certificate}{certificate}")));
    assert!(has_pem(
        (block("EC PARAMETERS", "!") + &block("EC PRIVATE KEY", "MAA=")).as_bytes(),
        "PRIVATE KEY"
    ));
    assert!(!is_certificate(&block("PRIVATE KEY", "MAA=")));
    assert!(!is_certificate(&block("CERTIFICATE", "!!")));
    assert!(!is_certificate(&block("CERTIFICATE", "AAAA")), "no sequence");
    assert!(
        !is_certificate(&(certificate + "-----BEGIN CERTIFICATE-----\nMAA=")),
        "not closed"
    );
    assert!(!is_certificate("Hello world"));
    assert!(!has_pem(&[0xff, 0xfe], "CERTIFICATE"));
}
