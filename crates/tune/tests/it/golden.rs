//! Recorded hosts, and what is said about them: the report, the plan and JSON are compared with files.
//!
//! After a change that is meant, `UPDATE_GOLDEN=1 cargo test -p ringmain-tune --test it golden` writes the files anew; the
//! difference is for the review.

use std::fs;

use ringmain_tune::audit::{Status, Wish, audit};
use ringmain_tune::catalogue::{Accept, Id, Profile};
use ringmain_tune::host::{Asked, Host, HostError};
use ringmain_tune::report::{self, Style, json};
use ringmain_tune::{export, limits, locality, plan};

use crate::support::{fixtures, host};

fn wish(profile: Profile) -> Wish {
    Wish {
        profile,
        accept: [].into(),
        steps: [].into(),
    }
}

fn asked(port: Option<u16>) -> Asked {
    Asked {
        port,
        ..Asked::default()
    }
}

/// Compares with `NAME.KIND` beside the fixture.
fn check(name: &str, kind: &str, found: &str) {
    let path = fixtures().join(format!("{name}.{kind}"));
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        fs::write(&path, found).unwrap();
    }
    let expected = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        expected == found,
        "{}: expected\n{expected}\nfound\n{found}",
        path.display()
    );
    for line in found.lines().filter(|_| kind == "report") {
        assert!(
            line.chars().count() <= limits::COLUMNS + 6,
            "{} columns: {line}",
            line.chars().count()
        );
    }
}

fn all(name: &str, profile: Profile, port: Option<u16>) {
    let (_directory, root) = host(name);
    let host = Host::look(&root, &asked(port)).unwrap();
    let wish = wish(profile);
    let findings = audit(&root, &host, &wish);
    check(
        name,
        "report",
        &report::audit(&host, &wish, &findings, Style::Plain),
    );
    check(name, "plan", &plan::text(&host, &wish, &findings, Style::Plain));
    check(name, "json", &json::text(&json::audit(&host, &wish, &findings)));
}

#[test]
fn an_instance_with_sixteen_queues_for_throughput() {
    all("ena16", Profile::Throughput, Some(8080));
}

#[test]
fn a_small_virtual_machine_as_an_ordinary_user_for_efficiency() {
    all("virtio", Profile::Efficiency, None);
}

#[test]
fn a_container_says_what_it_cannot_reach() {
    all("container", Profile::Throughput, Some(8080));
}

#[test]
fn bare_metal_for_latency() {
    all("metal", Profile::Latency, None);
}

#[test]
fn unknown_hardware_is_unknown_and_nothing_is_planned_for_it() {
    all("unknown", Profile::Throughput, None);
    for profile in [Profile::Throughput, Profile::Latency, Profile::Efficiency] {
        let (_directory, root) = host("unknown");
        let host = Host::look(&root, &asked(None)).unwrap();
        let mut wish = wish(profile);
        wish.accept = Accept::ALL.into();
        wish.steps = Id::ALL.iter().copied().collect();
        assert_eq!(plan::plan(&audit(&root, &host, &wish)), []);
    }
}

#[test]
fn the_profile_for_nodes_is_the_exported_one() {
    check(
        "../../../deploy/seccomp/ringmain",
        "json",
        &json::text(&export::seccomp()),
    );
}

#[test]
fn nothing_that_weakens_or_drops_is_planned_unless_it_is_accepted_by_name() {
    for name in ["ena16", "virtio", "container", "metal", "unknown"] {
        for profile in [Profile::Throughput, Profile::Latency, Profile::Efficiency] {
            let (_directory, root) = host(name);
            let host = Host::look(&root, &asked(None)).unwrap();
            let mut wish = wish(profile);
            wish.steps = Id::ALL.iter().copied().collect();
            for planned in plan::plan(&audit(&root, &host, &wish)) {
                assert_eq!(planned.step.step().accept, None, "{name}: {}", planned.step);
            }
        }
    }
}

#[test]
fn an_accepted_step_is_planned_and_the_others_stay_held() {
    let (_directory, root) = host("ena16");
    let host = Host::look(&root, &asked(None)).unwrap();
    let mut wish = wish(Profile::Throughput);
    wish.accept = [Accept::AuditOff].into();
    let findings = audit(&root, &host, &wish);
    let status = |id: Id| findings.iter().find(|finding| finding.id == id).unwrap().status;
    assert_eq!(status(Id::Audit), Status::Change);
    assert_eq!(status(Id::Mitigations), Status::Held);
    assert_eq!(status(Id::Qdisc), Status::Optional);
}

#[test]
fn what_is_asked_for_must_be_there() {
    let (_directory, root) = host("ena16");
    let error = Host::look(&root, &asked(Some(9))).unwrap_err();
    assert_eq!(error, HostError::NoListener(9));
    let mut wrong = asked(None);
    wrong.interface = Some("eth1".into());
    let error = Host::look(&root, &wrong).unwrap_err().to_string();
    assert!(error.contains("`eth1`") && error.contains("eth0, lo"), "{error}");
    let mut wrong = asked(None);
    wrong.pid = Some(77);
    assert_eq!(Host::look(&root, &wrong).unwrap_err(), HostError::NoProcess(77));
}

#[test]
fn the_way_of_packets_is_drawn_and_straightened() {
    let (_directory, root) = host("ena16");
    let host = Host::look(&root, &asked(Some(8080))).unwrap();
    let card = host.cards().next().unwrap();
    let accepted: Vec<u64> = (0..16).map(|worker| if worker < 4 { 4000 } else { 3 }).collect();
    let found = locality::look(&root, &host, card, &accepted);
    check("ena16", "locality", &locality::text(&found, Style::Plain));
    // As few interrupts as possible move, and none is left sharing a CPU.
    let moved: Vec<usize> = found.rows.iter().filter_map(|row| row.proposed).collect();
    assert_eq!(moved, (4..16).collect::<Vec<_>>());
}

#[test]
fn a_plan_is_exported_in_every_form() {
    let (_directory, root) = host("ena16");
    let asked = asked(Some(8080));
    let host = Host::look(&root, &asked).unwrap();
    let wish = wish(Profile::Throughput);
    let plan = plan::plan(&audit(&root, &host, &wish));
    let command = export::Command {
        wish: &wish,
        asked: &asked,
        plan: &plan,
    };
    check("ena16", "sysctl.conf", &export::sysctl(&plan));
    check(
        "ena16",
        "service",
        &export::systemd(&command, "/usr/local/bin/ringmain"),
    );
    check(
        "ena16",
        "daemonset.yaml",
        &export::kubernetes(&command, "example/ringmain:1"),
    );
}

#[test]
fn every_step_is_explained() {
    let (_directory, root) = host("ena16");
    let host = Host::look(&root, &asked(Some(8080))).unwrap();
    let findings = audit(&root, &host, &wish(Profile::Throughput));
    let texts = Id::ALL
        .iter()
        .map(|id| report::explain(id.step(), &findings, Style::Plain));
    check("steps", "explained", &texts.collect::<Vec<_>>().join("\n"));
}
