//! Table tests of valid and invalid values.

use super::*;

#[test]
fn rates() {
    for (text, expect) in [
        ("1", 1.0),
        ("0.5", 0.5),
        ("200", 200.0),
        ("2.5k", 2500.0),
        ("50K", 50_000.0),
        ("1m", 1e6),
        ("1000m", 1e9),
    ] {
        assert_eq!(parse_request_rate(text), Ok(expect), "{text}");
    }
    for text in [
        "", "0", "-1", "k", "1e3", "inf", "nan", "1.2.3", "1001m", "10/s", "1 k", "5kk", "ü",
    ] {
        let error = parse_request_rate(text).unwrap_err();
        assert!(
            error.contains("at most 1000m, such as 200, 2.5k or 1m"),
            "{text}: {error}"
        );
    }
}

#[test]
fn bytes_in_hexadecimal_and_base64() {
    assert_eq!(parse_hex(""), Ok(Bytes(vec![])));
    assert_eq!(parse_hex("0a05fF"), Ok(Bytes(vec![10, 5, 255])));
    for text in ["0", "0a0", "0x0a", "zz", "\u{e4}\u{e4}"] {
        assert!(
            parse_hex(text).unwrap_err().contains("two hexadecimal digits"),
            "{text}"
        );
    }
    assert_eq!(parse_base64("CgU="), Ok(Bytes(vec![10, 5])));
    for text in ["CgU", "Cg-_", "C"] {
        assert!(
            parse_base64(text).unwrap_err().contains("expected base64"),
            "{text}"
        );
    }
}

#[test]
fn lists_of_cpus() {
    assert_eq!(parse_cpus("0"), Ok(vec![0]));
    assert_eq!(parse_cpus("8,0-3"), Ok(vec![0, 1, 2, 3, 8]));
    assert_eq!(parse_cpus("1023"), Ok(vec![1023]));
    for text in [
        "",
        ",",
        "1,",
        "3-1",
        "-1",
        "1-",
        "a",
        "+1",
        "1024",
        "0-99999999999999999999",
    ] {
        assert!(parse_cpus(text).unwrap_err().contains("such as 0-3,8"), "{text}");
    }
    assert_eq!(parse_cpus("0-2,1"), Err("expected each CPU once".into()));
}

#[test]
fn addresses_to_connect_from() {
    let written =
        |text| parse_sources(text).map(|addrs| addrs.iter().map(Addr::to_string).collect::<Vec<_>>());
    assert_eq!(written("10.0.0.1"), Ok(vec!["10.0.0.1:0".to_owned()]));
    let expect = ["127.0.0.255:0", "127.0.1.0:0"].map(str::to_owned).to_vec();
    assert_eq!(written("127.0.0.255-127.0.1.0"), Ok(expect));
    assert_eq!(written("::1-::2").unwrap(), ["[::1]:0", "[::2]:0"]);
    assert_eq!(written("10.0.0.0-10.0.15.255").unwrap().len(), 4096);
    for (text, expect) in [
        ("", "an IP address of this host"),
        ("localhost", "an IP address of this host"),
        ("10.0.0.1:80", "an IP address of this host"),
        ("10.0.0.1-::1", "one family"),
        ("10.0.0.2-10.0.0.1", "the lowest first"),
        ("10.0.0.0-10.0.16.0", "at most 4096"),
        ("::-ffff::", "at most 4096"),
    ] {
        assert!(parse_sources(text).unwrap_err().contains(expect), "{text}");
    }
}

#[test]
fn headers() {
    let header = |text: &str| text.parse::<Header>();
    assert_eq!(
        header("Accept: text/html"),
        Ok(Header("Accept".into(), "text/html".into()))
    );
    assert_eq!(header("X:a:b"), Ok(Header("X".into(), "a:b".into())));
    assert_eq!(header("X:"), Ok(Header("X".into(), String::new())));
    assert!(header("Accept").unwrap_err().contains("NAME: VALUE"));
}

#[test]
fn lists_of_statuses() {
    assert_eq!("200".parse(), Ok(Statuses(vec![200..=200])));
    assert_eq!("200-299,404".parse(), Ok(Statuses(vec![200..=299, 404..=404])));
    for text in ["", "99", "600", "2xx", "299-200", "200,", "200-"] {
        assert!(
            text.parse::<Statuses>().unwrap_err().contains("from 100 to 599"),
            "{text}"
        );
    }
}

#[test]
fn named_targets() {
    let named = |text: &str| text.parse::<Named>();
    assert_eq!(
        named("old=http://x/?a=b"),
        Ok(Named("old".into(), "http://x/?a=b".into()))
    );
    assert_eq!(named("v1.2+x=a"), Ok(Named("v1.2+x".into(), "a".into())));
    for text in [
        "",
        "=",
        "=x",
        "a=",
        "http://x/",
        "http://x/?a=b",
        "a b=c",
        &format!("{}=x", "a".repeat(41)),
    ] {
        assert!(
            named(text).unwrap_err().contains("old=http://127.0.0.1:8080/"),
            "{text}"
        );
    }
}

#[test]
fn destinations_of_results() {
    assert_eq!("-".parse(), Ok(File::StandardOutput));
    assert_eq!("a".parse(), Ok(File::Path("a".into())));
    assert!("".parse::<File>().is_err());
}

#[test]
fn processes_that_are_killed() {
    let found = parse_kill_at("4711@3s").unwrap();
    assert_eq!((found.pid, found.after), (4711, Time(Duration::from_secs(3))));
    assert_eq!(found.to_string(), "4711@3s");
    for (text, expect) in [
        ("4711", "expected a process ID, @ and a time"),
        ("0@3s", "expected a process ID"),
        ("-1@3s", "expected a process ID"),
        ("4711@", "expected a time from 0s"),
        ("4711@3", "write 3s for seconds"),
        ("4711@25h", "expected a time from 0s to 24h"),
    ] {
        let error = parse_kill_at(text).unwrap_err();
        assert!(error.contains(expect), "{text}: {error}");
    }
}

#[test]
fn numbers_of_runs() {
    assert_eq!(parse_run_number("0000002A"), Ok(42));
    for text in ["", "2a", "0x00002a", "+000002a", "0000002ab", "0000002g"] {
        assert!(
            parse_run_number(text)
                .unwrap_err()
                .contains("8 hexadecimal digits"),
            "{text}"
        );
    }
}
