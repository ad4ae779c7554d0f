//! Scenario files from their text to the bytes that are sent, and what is said of wrong ones.

mod structure;

use std::io;
use std::time::Duration;

use crate::traffic::{Sequence, Values};

use super::*;

const EXAMPLE: &str = include_str!("../../../../examples/scenario.yaml");
const SCHEMA: &str = include_str!("../../../../docs/bench-scenario.schema.json");
const SCHEMA_PATH: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../docs/bench-scenario.schema.json"
);

fn no_files(_: &str) -> io::Result<Vec<u8>> {
    Err(io::Error::from(io::ErrorKind::NotFound))
}

fn loaded(text: &str) -> Scenario {
    load("s.yaml", text, &mut no_files).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

/// A file of one flow, given the lines of its only step, from column 9 on.
fn of_step(step: &str) -> String {
    format!(
        "flows:\n  - name: f\n    steps:\n      - {}\n",
        step.replace('\n', "\n        ")
    )
}

/// The requests of one run through the first flow, with every captured value empty.
fn written(scenario: &Scenario) -> Vec<String> {
    let traffic = scenario.traffic("host:1").unwrap();
    let mut random = fastrand::Rng::with_seed(1);
    let mut sequence = Sequence::new(0, 1);
    let steps = traffic.flows()[0].steps.iter();
    let requests = steps.map(|step| {
        let mut out = Vec::new();
        step.write(&mut out, &Values::default(), &mut random, &mut sequence);
        String::from_utf8(out).unwrap()
    });
    requests.collect()
}

#[track_caller]
fn sends(step: &str, request: &str) {
    assert_eq!(
        written(&loaded(&of_step(step))),
        [request.replace('\n', "\r\n")],
        "{step}"
    );
}

#[track_caller]
fn refused(text: &str, message: &str) {
    let error = load("s.yaml", text, &mut no_files)
        .map(drop)
        .unwrap_err()
        .to_string();
    assert_eq!(error, format!("s.yaml:{message}"), "{text}");
}

#[test]
fn the_example_is_a_scenario() {
    let scenario = loaded(EXAMPLE);
    let expected = Settings {
        connections: Some(64),
        warmup: Some(Duration::from_secs(2)),
        duration: Some(Duration::from_secs(10)),
        timeout: Some(Duration::from_secs(5)),
        seed: Some(1),
        target: scenario.settings.target.clone(),
        thresholds: scenario.settings.thresholds.clone(),
        ..Settings::default()
    };
    assert_eq!(scenario.settings, expected);
    let target = scenario.settings.target.as_ref().unwrap();
    assert_eq!(target.value, "http://127.0.0.1:8080");
    let line = EXAMPLE.lines().nth(target.line as usize - 1).unwrap();
    assert_eq!(&line[target.column as usize - 1..], target.value);
    let traffic = scenario.traffic("127.0.0.1:8080").unwrap();
    let flows: Vec<_> = traffic
        .flows()
        .iter()
        .map(|flow| (flow.name.as_str(), flow.weight, flow.steps.len()))
        .collect();
    assert_eq!(flows, [("read", 3, 1), ("account", 1, 3)]);
    assert!(!traffic.may_pipeline());
    let [log_in, look_around, change] = traffic.flows()[1].steps.as_slice() else {
        panic!("three steps");
    };
    assert_eq!((log_in.name(), log_in.needs_body()), ("log in", true));
    assert_eq!(look_around.pause(), Some(Duration::from_millis(20)));
    assert_eq!((change.name(), change.needs_body()), ("change something", false));
}

#[test]
fn requests_are_sent_as_they_are_written() {
    sends("request: {path: /a?b=c}", "GET /a?b=c HTTP/1.1\nHost: host:1\n\n");
    let step = "request:\n  method: POST\n  path: /\n  headers: {B: 1.50, A: true, C: no, Host: other}\n  body: a {{seq}} b";
    let request = "POST / HTTP/1.1\nHost: other\nB: 1.50\nA: true\nC: no\nContent-Length: 5\n\na 0 b";
    sends(step, request);
}

#[test]
fn json_is_sent_with_its_type() {
    let request = "PUT / HTTP/1.1\nHost: host:1\nContent-Type: application/json\nContent-Length: 34\n\n\
                   {\"a\":[1,\"no\",null,0.5],\"b\":\"id-0\"}";
    sends(
        "request: {method: PUT, path: /, json: {b: 'id-{{seq}}', a: [1, no, null, 0.5]}}",
        request,
    );
    let request = "PUT / HTTP/1.1\nHost: host:1\ncontent-type: text/x\nContent-Length: 1\n\n1";
    sends(
        "request: {method: PUT, path: /, headers: {content-type: text/x}, json: 1}",
        request,
    );
}

#[test]
fn a_body_file_is_sent_as_it_is() {
    let text = of_step("request: {method: PUT, path: /, body_file: a/b.bin}");
    let mut asked = Vec::new();
    let scenario = load("s.yaml", &text, &mut |path| {
        asked.push(path.to_owned());
        Ok(b"{{seq}}".to_vec())
    });
    let expected = "PUT / HTTP/1.1\r\nHost: host:1\r\nContent-Length: 7\r\n\r\n{{seq}}";
    assert_eq!(written(&scenario.unwrap()), [expected]);
    assert_eq!(asked, ["a/b.bin"]);
    refused(
        &text,
        "4:52: body_file: expected a file that can be read, found `a/b.bin`: entity not found",
    );
    let long = load("s.yaml", &text, &mut |_| {
        Ok(vec![0; limits::REQUEST_BODY_BYTES + 1])
    })
    .unwrap_err();
    assert_eq!(
        (long.line, long.column, long.expected.as_str()),
        (4, 52, "a body of at most 67108864 bytes")
    );
}

#[test]
fn defaults_hold_where_a_step_says_nothing() {
    let text = "defaults:\n  headers: {A: 1, B: 2}\n  expect: {status: 201, body: {contains: x}}\n";
    let text = text.to_owned() + &of_step("request: {path: /, headers: {b: 3, C: 4}}\nexpect: {status: 2xx}");
    let scenario = loaded(&text);
    assert_eq!(
        written(&scenario),
        ["GET / HTTP/1.1\r\nHost: host:1\r\nA: 1\r\nb: 3\r\nC: 4\r\n\r\n"]
    );
    assert!(scenario.traffic("h").unwrap().flows()[0].steps[0].needs_body());
    let bad_default = text.replace("A: 1", "A b: 1");
    refused(
        &bad_default,
        "2:18: headers: expected a header name of letters, digits and hyphens, found `A b`",
    );
}

#[test]
fn one_check_or_a_list_of_them() {
    let step = "request: {path: /}\nexpect:\n  status: [200, 5xx]\n  header: [{name: A, equals: 1}, {name: B, contains: x}]\n  \
                json: {pointer: /a, equals: [1, {b: c}]}";
    assert!(loaded(&of_step(step)).traffic("h").unwrap().flows()[0].steps[0].needs_body());
    let both = step.replace("contains: x", "contains: x, equals: y");
    refused(
        &of_step(&both),
        "7:42: expect: expected either `equals` or `contains`, found both",
    );
    let neither = step.replace("{name: A, equals: 1}", "{name: A}");
    refused(
        &of_step(&neither),
        "7:20: expect: expected either `equals` or `contains`, found neither",
    );
    let pointer = step.replace("pointer: /a", "pointer: a");
    let expected = "8:17: expect: expected a JSON pointer (RFC 6901): empty, or `/name/0/name`, with `~0` for `~` and `~1` \
                    for `/`, found `a`";
    refused(&of_step(&pointer), expected);
}

#[test]
fn what_is_no_yaml_or_not_of_the_structure_has_a_place() {
    refused("", "1:1: expected the key `flows`, found the end of the file");
    refused(
        "flows: [\n",
        "1:8: expected valid YAML, found unclosed bracket '['",
    );
    refused("flows: 1\n", "1:8: expected a list, found `1`");
    refused(
        "flows:\n  - nam: a\n",
        "2:5: expected one of the keys `name`, `weight`, `steps`, found `nam`",
    );
    refused(
        "flows:\n  - name: a\n",
        "2:5: expected the key `steps` here, found none",
    );
    refused(
        "flows: []\nflows: []\n",
        "2:1: expected each key once, found `flows` a second time",
    );
    refused(
        "flows: []\n---\nflows: []\n",
        "3:1: expected one YAML document, found a second one",
    );
    refused(
        "flows: *x\n",
        "1:8: expected an alias of an anchor further up, found `*x`",
    );
    refused(
        "poisson: yes\nflows: []\n",
        "1:10: expected true or false, found `yes`",
    );
    let whole = "expected a whole number that is not negative and not too large";
    refused("seed: -1\nflows: []\n", &format!("1:7: {whole}, found `-1`"));
    refused(
        "connections: 1e3\nflows: []\n",
        &format!("1:14: {whole}, found `1e3`"),
    );
    refused(
        &of_step("request: {path: /, headers: {A: [1]}}"),
        "4:41: expected a text, found `[1]}}`",
    );
    refused(
        &of_step("request: {path: /, headers: {A: }}"),
        "4:39: expected a text, found nothing",
    );
    refused(
        &of_step("request: {path: /, json: {a: .inf}}"),
        "4:38: expected a finite number, found `.inf`",
    );
    let sources = "5:23: expected one of the keys `header`, `json`, `between`, found `cookie`";
    refused(&of_step("request: {path: /}\ncapture: {x: {cookie: 1}}"), sources);
}

#[test]
fn a_token_without_quotes_is_told() {
    let expected = "expected quotes around a text that begins with `{{`, found";
    let block = of_step("request:\n  path: /\n  headers:\n    A: {{seq}}");
    let error = load("s.yaml", &block, &mut no_files).unwrap_err().to_string();
    assert!(
        error.starts_with("s.yaml:7:") && error.contains(expected),
        "{error}"
    );
    let flow = of_step("request: {path: /, json: {a: {{seq}}}}");
    let error = load("s.yaml", &flow, &mut no_files).unwrap_err().to_string();
    assert!(
        error.starts_with("s.yaml:4:") && error.contains(expected),
        "{error}"
    );
}

#[test]
fn what_makes_no_sense_has_a_place() {
    refused("flows: []\n", "1:8: flows: expected 1 to 256 flows, found 0");
    refused(
        "flows:\n  - name: a\n    steps: []\n",
        "3:12: steps: expected 1 to 256 steps, found 0",
    );
    let two = "flows:\n  - name: a\n    steps: [{request: {path: /}}]\n  - name: a\n    weight: 0\n    steps: [{request: {path: /}}]\n";
    refused(
        two,
        "4:11: name: expected a name that no other flow has, found `a`",
    );
    let zero = two.replacen("name: a", "name: b", 1);
    let expected =
        "5:13: weight: expected a weight of at least 1 (leave the flow out if it is not to be used), found 0";
    refused(&zero, expected);
    refused(
        &of_step("request: {path: a}"),
        "4:25: path: expected a path that begins with `/`, found `a`",
    );
    let expected = "4:36: method: expected a method of letters, digits and hyphens, found `A B`";
    refused(&of_step("request: {path: /, method: A B}"), expected);
    let expected = "5:23: headers: expected a header that does not frame the message: Content-Length, Transfer-Encoding, \
                    Connection, Upgrade and Host are written for you, found `Connection`";
    let text = of_step("request: {path: /, headers: {A: 1,\n  Connection: close}}");
    refused(&text, expected);
    let expected = "4:43: request: expected one of `body`, `json` and `body_file`, found another one";
    refused(&of_step("request: {path: /, body: a, json: 1}"), expected);
    let token = "expected one of the tokens `{{seq}}`, `{{random:1..1000}}`, `{{random-hex:16}}`, `{{uuid}}`, \
                 `{{value:NAME}}` (`{{{{` is a literal `{{`), found `{{sek}}`";
    refused(
        &of_step("request:\n  path: /{{sek}}"),
        &format!("5:17: path: {token}"),
    );
    refused(
        &of_step("request:\n  path: /\n  body: '{{sek}}'"),
        &format!("6:17: body: {token}"),
    );
    let value =
        "expected a value that an earlier step of the flow captures; none captures any, found `{{value:a}}`";
    let early = of_step("request: {path: '/{{value:a}}'}\ncapture: {a: {header: A}}");
    refused(&early, &format!("4:25: path: {value}"));
    let name = "expected a name of 1 to 64 letters, digits, `-` and `_`, found `a b`";
    refused(
        &of_step("request: {path: /}\ncapture: {a b: {header: A}}"),
        &format!("5:24: capture: {name}"),
    );
    let time = "expected a time with its unit (us, ms, s, m, h), such as 500ms, 10s or 2m, found `5`";
    refused(
        &of_step("request: {path: /}\npause: 5"),
        &format!("5:16: pause: {time}"),
    );
    let status = "expected a status such as 200 or a class such as 2xx, without interim ones, found";
    refused(
        &of_step("request: {path: /}\nexpect: {status: 1xx}"),
        &format!("5:26: status: {status} `1xx`"),
    );
    refused(
        &of_step("request: {path: /}\nexpect: {status: [200, 99]}"),
        &format!("5:32: status: {status} `99`"),
    );
}

#[test]
fn settings_are_within_their_limits() {
    let check = |setting: &str, message: &str| refused(&format!("{setting}\nflows: []\n"), message);
    check(
        "connections: 0",
        "1:14: connections: expected a whole number from 1 to 1000000, found 0",
    );
    check(
        "pipeline: 2000",
        "1:11: pipeline: expected a whole number from 1 to 1024, found 2000",
    );
    check(
        "rate: 0",
        "1:7: rate: expected flows a second, above 0 and at most 1000000000, found 0",
    );
    check("rate: x", "1:7: expected a number, found `x`");
    check("duration: 0s", "1:11: duration: expected a time above 0, found 0");
    let time = "expected a time with its unit (us, ms, s, m, h), such as 500ms, 10s or 2m, found";
    check("timeout: 10", &format!("1:10: timeout: {time} `10`"));
    check("warmup: 9999999h", &format!("1:9: warmup: {time} `9999999h`"));
    let long = "#".repeat(limits::SCENARIO_BYTES + 1);
    refused(
        &long,
        "1:1: expected a file of at most 1048576 bytes, found 1048577",
    );
}

#[test]
fn an_alias_stands_for_what_it_names() {
    let text = of_step("request: &it {path: '/{{seq}}'}") + "  - name: g\n    steps: [{request: *it}]\n";
    assert_eq!(loaded(&text).traffic("h").unwrap().flows().len(), 2);
    // What is wrong with an alias is said where it is used.
    let bad = of_step("request: {path: &p a}") + "  - name: g\n    steps: []\n";
    refused(
        &bad,
        "4:28: path: expected a path that begins with `/`, found `a`",
    );
}

#[test]
fn a_wrong_setting_is_told_like_all_else() {
    let scenario = loaded(&("thresholds: [p99<1ms, p0]\n".to_owned() + &of_step("request: {path: /}")));
    let error = scenario.wrong(
        &scenario.settings.thresholds[1],
        "threshold",
        "p50 and so on",
        "`p0`",
    );
    assert_eq!(
        error.to_string(),
        "s.yaml:1:23: threshold: expected p50 and so on, found `p0`"
    );
}

#[test]
fn a_host_that_is_none_is_refused_later() {
    let error = loaded(&of_step("request: {path: /}")).traffic("a b").unwrap_err();
    assert_eq!(
        error.to_string(),
        "host: expected `host` or `host:port`, found `a b`"
    );
}

#[test]
fn the_schema_is_current() {
    let checked_in: serde_json::Value = serde_json::from_str(SCHEMA).unwrap();
    let advice = "write it anew: cargo test -p ringmain-load write_the_schema -- --ignored";
    assert!(checked_in == schema(), "{advice}");
}

#[test]
#[ignore = "writes docs/bench-scenario.schema.json"]
fn write_the_schema() {
    let text = serde_json::to_string_pretty(&schema()).unwrap() + "\n";
    std::fs::write(SCHEMA_PATH, text).unwrap();
}

#[test]
fn the_schema_takes_the_example_and_not_what_is_refused() {
    let schema = schema();
    let check = |text: &str| {
        let value: serde_json::Value = serde_saphyr::from_str(text).unwrap();
        structure::check(&schema, &schema, &value, "")
    };
    assert_eq!(check(EXAMPLE), Ok(()));
    let good = of_step("request: {path: /, json: {a: [1]}}\nexpect: {status: 200, body: [{equals: x}]}");
    assert_eq!(check(&good), Ok(()));
    for bad in [
        "{}".to_owned(),
        "flows: 1".to_owned(),
        good.replace("path:", "pat:"),
        good.replace("status: 200", "status: 1xx"),
        good.replace("status: 200", "status: 100"),
        good.replace("equals: x", "equal: x"),
        good.clone() + "duration: 10\n",
        good.clone() + "connections: x\n",
        of_step("request: {path: /}\ncapture: {a: {between: [x]}}"),
        of_step("request: {path: /}\ncapture: {a: {cookie: x}}"),
    ] {
        assert!(check(&bad).is_err(), "{bad}");
        assert!(load("s.yaml", &bad, &mut no_files).is_err(), "{bad}");
    }
}

/// One change of a text as a slip of the hand makes it.
fn mutated(text: &str, random: &mut fastrand::Rng) -> String {
    let mut characters: Vec<char> = text.chars().collect();
    let at = random.usize(..characters.len());
    match random.u32(..6) {
        0 => drop(characters.remove(at)),
        1 => characters.truncate(at),
        2 => {
            let odd = [
                '{', '}', '[', ']', ':', ',', '"', '\'', '|', '>', '-', '&', '*', '!', '%', '@', '#', '\t',
                '\n', '\0', 'é',
            ];
            characters.insert(at, odd[random.usize(..odd.len())]);
        }
        3 => {
            let more: Vec<char> = characters[at..]
                .iter()
                .copied()
                .take(random.usize(..40))
                .collect();
            let to = random.usize(..characters.len());
            characters.splice(to..to, more);
        }
        4 => {
            let pieces = [
                "{{value:token}}",
                "{{",
                "<<: *a",
                "&a ",
                "99999999999999999999",
                "~",
                "!!binary x",
                "-1",
                "? ",
            ];
            characters.splice(at..at, pieces[random.usize(..pieces.len())].chars());
        }
        _ => {
            let end = (at + random.usize(..200)).min(characters.len());
            characters.drain(at..end);
        }
    }
    characters.into_iter().collect()
}

#[test]
fn no_slip_of_the_hand_panics_and_every_error_has_a_place() {
    for seed in 0..1_500 {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut text = EXAMPLE.to_owned();
        for _ in 0..random.u32(1..4) {
            text = mutated(&text, &mut random);
            if text.is_empty() {
                break;
            }
        }
        println!("seed {seed}");
        match load("s.yaml", &text, &mut no_files) {
            Ok(scenario) => {
                let traffic = scenario.traffic("host").unwrap();
                assert!(!traffic.flows().is_empty());
            }
            Err(error) => {
                let lines = text.lines().count().max(1) as u64 + 1;
                assert!((1..=lines).contains(&error.line) && error.column >= 1, "{error}");
                assert!(!error.to_string().contains('\n'), "{error}");
                assert!(!error.expected.is_empty() && !error.found.is_empty(), "{error}");
            }
        }
    }
}
