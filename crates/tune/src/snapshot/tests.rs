//! Snapshots and what is different between two.

use super::*;

fn snapshot(values: &[(&str, &str)]) -> Snapshot {
    let pair = |(key, value): &(&str, &str)| (key.parse().unwrap(), (*value).to_owned());
    Snapshot {
        version: VERSION,
        kernel: Some("6.1".into()),
        boot: Some("b".into()),
        values: values.iter().map(pair).collect(),
    }
}

#[test]
fn only_what_means_something_else_differs() {
    const XPS: &str = "/sys/class/net/e/queues/tx-0/xps_cpus";
    let first = snapshot(&[
        (XPS, "00000000,00000001"),
        ("qdisc:e", "fq"),
        ("ethtool:e/gro", "on"),
    ]);
    let second = snapshot(&[
        (XPS, "1"),
        ("qdisc:e", "noqueue"),
        ("ethtool:e/rings", "rx=1 tx=1"),
    ]);
    let differences = diff(&first, &second);
    let told: Vec<String> = differences
        .iter()
        .map(|one| {
            format!(
                "{} {:?} {:?}",
                one.key,
                one.first.as_deref(),
                one.second.as_deref()
            )
        })
        .collect();
    let expected = [
        "ethtool:e/gro Some(\"on\") None",
        "ethtool:e/rings None Some(\"rx=1 tx=1\")",
        "qdisc:e Some(\"fq\") Some(\"noqueue\")",
    ];
    let mut told = told;
    told.sort();
    assert_eq!(told, expected);
    assert_eq!(diff(&first, &first), []);
    assert_eq!(text(&first, &first, &[], Style::Plain), "No difference.\n");
}

#[test]
fn a_file_comes_back_as_it_was() {
    let snapshot = snapshot(&[("audit:status", "enabled=0"), ("/proc/sys/vm/swappiness", "60")]);
    let file = serde_json::to_string(&snapshot).unwrap();
    assert_eq!(serde_json::from_str::<Snapshot>(&file).unwrap(), snapshot);
}
