//! The zone of the process, and upstreams that prefer its endpoints.

use ringmain_gateway::model::{Distance, ZonePreference};

use super::{all_errors_of, load, test_environment};

const UPSTREAM: &str = "\
listen: ':80'
to: app
upstreams:
  app:
    zones: balance
    endpoints:
      - {at: '127.0.0.1:1', zone: eu-1}
      - {at: '127.0.0.1:2', zone: eu-2}
      - '127.0.0.1:3'
";

#[test]
fn endpoints_of_the_own_zone_are_near() {
    let loaded = load(
        "edge.yaml",
        &format!("zone: eu-1\n{UPSTREAM}"),
        &test_environment(),
    );
    assert_eq!(loaded.errors, []);
    let upstream = &loaded.config.unwrap().upstreams[0];
    assert_eq!(upstream.zones, Some(ZonePreference::Balance));
    let distances: Vec<Distance> = upstream.endpoints.iter().map(|found| found.distance).collect();
    assert_eq!(
        distances,
        [Distance::Zone, Distance::Elsewhere, Distance::Elsewhere]
    );
}

#[test]
fn a_preference_needs_the_own_zone() {
    let loaded = load("edge.yaml", UPSTREAM, &test_environment());
    let errors: Vec<String> = loaded.errors.iter().map(ToString::to_string).collect();
    assert!(
        errors.join("\n").contains("the top-level key `zone`"),
        "{errors:?}"
    );
}

#[test]
fn an_empty_zone_is_refused_with_its_position() {
    let expected = "expected the name of a zone, without spaces at its ends, found";
    for (zone, found) in [("''", "``"), ("' '", "` `"), ("'eu-1 '", "`eu-1 `")] {
        // The zone of the process: the upstream that needs it has no further error.
        let errors = all_errors_of(&format!("zone: {zone}\n{UPSTREAM}"));
        assert_eq!(errors, [format!("c.yaml:1:7: {expected} {found}")]);
        // The zone of an endpoint.
        let upstream = UPSTREAM.replace("zone: eu-2", &format!("zone: {zone}"));
        let errors = all_errors_of(&format!("zone: eu-1\n{upstream}"));
        assert_eq!(errors.len(), 1, "{errors:?}");
        assert!(errors[0].starts_with("c.yaml:9:"), "{errors:?}");
        assert!(errors[0].ends_with(&format!("{expected} {found}")), "{errors:?}");
    }
}

#[cfg(feature = "kubernetes")]
#[test]
fn a_cluster_has_the_zone_of_the_file() {
    let text = "zone: eu-1\nkubernetes: {addresses: {pool: 10.97.0.0/16}}\n";
    let loaded = load("edge.yaml", text, &test_environment());
    assert_eq!(loaded.errors, []);
    assert_eq!(loaded.kubernetes.unwrap().zone.as_deref(), Some("eu-1"));
}
