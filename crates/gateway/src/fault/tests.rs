//! The table of faults and its pages agree.

use super::Fault;

/// The faults of clients, then those of the gateway and of upstreams.
const PAGES: [&str; 2] = [
    include_str!("../../../../docs/faults.md"),
    include_str!("../../../../docs/faults-upstream.md"),
];

#[test]
fn the_pages_have_each_fault() {
    let rows: Vec<Vec<&str>> = PAGES
        .iter()
        .flat_map(|page| page.lines())
        .filter(|line| line.starts_with("| `"))
        .map(|line| line.trim_matches('|').split('|').map(str::trim).collect())
        .collect();
    assert_eq!(
        rows.len(),
        Fault::ALL.len(),
        "a row for each fault in docs/faults.md or docs/faults-upstream.md"
    );
    for (row, fault) in rows.iter().zip(Fault::ALL) {
        let retryable = format!("{:?}", fault.retryable());
        let status = fault.status().to_string();
        let label = format!("`{}`", fault.label());
        let expected = [label.as_str(), fault.side().label(), &status, &retryable];
        assert_eq!(row[..4], expected, "the row of {fault:?} in the pages of faults");
        assert!(row[4].len() > 20, "what to do about {fault:?}");
    }
}

#[test]
fn labels_are_labels() {
    for fault in Fault::ALL {
        let label = fault.label();
        assert!(
            label
                .bytes()
                .all(|byte| byte.is_ascii_lowercase() || byte == b'_'),
            "{label}"
        );
        assert!((400..=599).contains(&fault.status()));
        assert_eq!(
            Fault::ALL.iter().filter(|other| other.label() == label).count(),
            1,
            "{label}"
        );
    }
}
