//! `ringmain tune` as its users run it, on a recorded host; and the server under the system calls that are exported.
#![allow(
    clippy::disallowed_methods,
    reason = "tests of the real program have real processes and real time"
)]

mod common;

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use common::{Directory, program};
use serde_json::Value;

fn tune(args: &[&str]) -> Output {
    Command::new(program()).arg("tune").args(args).output().unwrap()
}

/// What it printed, where it ended well.
fn said(args: &[&str]) -> String {
    let output = tune(args);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

fn complaint(args: &[&str], code: i32) -> String {
    let output = tune(args);
    assert_eq!(output.status.code(), Some(code), "{output:?}");
    String::from_utf8(output.stderr).unwrap()
}

/// A host with two CPUs and a card of two queues, both served by CPU 0.
fn host(directory: &Directory) -> String {
    let root = directory.join("host");
    let write = |path: &str, text: &str| {
        let path = root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, format!("{text}\n")).unwrap();
    };
    write("proc/sys/kernel/osrelease", "6.1.0");
    write("proc/sys/kernel/random/boot_id", "a-b");
    write("proc/sys/net/core/somaxconn", "128");
    write("proc/sys/net/core/netdev_max_backlog", "1000");
    write("proc/sys/net/ipv4/tcp_max_syn_backlog", "128");
    write(
        "proc/self/status",
        "Name:\tr\nUid:\t0\t0\t0\t0\nCapEff:\t000001ffffffffff\nCpus_allowed_list:\t0-1",
    );
    write("sys/devices/system/cpu/online", "0-1");
    for file in ["type", "operstate"] {
        write(
            &format!("sys/class/net/eth0/{file}"),
            if file == "type" { "1" } else { "up" },
        );
    }
    let mut table = String::from("  CPU0 CPU1\n");
    for queue in 0..2 {
        write(&format!("sys/class/net/eth0/queues/rx-{queue}/rps_cpus"), "0");
        write(&format!("sys/class/net/eth0/queues/tx-{queue}/xps_cpus"), "0");
        write(
            &format!("sys/class/net/eth0/device/msi_irqs/{}", 40 + queue),
            "msix",
        );
        write(&format!("proc/irq/{}/smp_affinity_list", 40 + queue), "0");
        table.push_str(&format!(" {}: 1 0 PCI-MSI eth0-TxRx-{queue}\n", 40 + queue));
    }
    write("proc/interrupts", &table);
    write(
        "calls",
        "ethtool:eth0/driver = igb\nrefuses /proc/irq/9/smp_affinity_list = x",
    );
    root.display().to_string()
}

fn value(root: &str, path: &str) -> String {
    fs::read_to_string(Path::new(root).join(path))
        .unwrap()
        .trim()
        .to_owned()
}

#[test]
fn the_report_is_for_people_and_for_programs() {
    let directory = Directory::new();
    let root = host(&directory);
    let text = said(&["--root", &root]);
    assert!(
        text.contains("change    irq-affinity") && text.contains("eth0 (igb, 2 rx and 2 tx)"),
        "{text}"
    );
    assert!(!text.contains('\x1b'), "a pipe has no colours");
    let json: Value = serde_json::from_str(&said(&["--root", &root, "--json"])).unwrap();
    let steps = json["steps"].as_array().unwrap();
    let step = steps.iter().find(|step| step["step"] == "irq-affinity").unwrap();
    assert_eq!(step["status"], "change");
    assert_eq!(step["changes"][0]["key"], "/proc/irq/41/smp_affinity_list");
    assert!(step["gain"]["source"].as_str().unwrap().contains("2021"));
    let text = said(&["--root", &root, "--explain", "qdisc"]);
    assert!(
        text.contains("not when") && text.contains("--accept noqueue"),
        "{text}"
    );
}

#[test]
fn this_host_is_audited_by_whoever_asks() {
    let text = said(&[]);
    assert!(text.contains("STEP") && text.contains("irq-affinity"), "{text}");
}

#[test]
fn what_is_planned_is_applied_shown_and_taken_back() {
    let directory = Directory::new();
    let root = host(&directory);
    let state = directory.join("state").display().to_string();
    let here: [&str; 4] = ["--root", &root, "--state", &state];
    let plan = said(&[
        "plan",
        "--root",
        &root,
        "--step",
        "irq-affinity",
        "--step",
        "backlogs",
    ]);
    assert!(
        plan.contains("/proc/irq/41/smp_affinity_list\n      0 -> 1"),
        "{plan}"
    );
    assert_eq!(value(&root, "proc/irq/41/smp_affinity_list"), "0");

    let snapshot = directory.join("before.json").display().to_string();
    fs::write(&snapshot, said(&["snapshot", "--root", &root])).unwrap();
    said(
        &[
            &["apply", "--step", "irq-affinity", "--step", "backlogs"],
            &here[..],
        ]
        .concat(),
    );
    assert_eq!(value(&root, "proc/irq/41/smp_affinity_list"), "1");
    assert_eq!(value(&root, "sys/class/net/eth0/queues/tx-0/xps_cpus"), "0");
    let status = said(&[&["status"], &here[..]].concat());
    assert!(status.contains("0 -> 1 (irq-affinity): holds"), "{status}");
    let after = directory.join("after.json").display().to_string();
    fs::write(&after, said(&["snapshot", "--root", &root])).unwrap();
    let diff = said(&["diff", &snapshot, &after]);
    assert!(
        diff.contains("/proc/irq/41/smp_affinity_list\n    - 0\n    + 1"),
        "{diff}"
    );

    fs::write(Path::new(&root).join("proc/sys/net/core/somaxconn"), "77\n").unwrap();
    let complaint = complaint(&[&["revert"], &here[..]].concat(), 1);
    assert!(
        complaint.contains("somebody has changed it since, from 65535 to 77"),
        "{complaint}"
    );
    assert_eq!(value(&root, "proc/irq/41/smp_affinity_list"), "0");
    said(&[&["revert", "--force"], &here[..]].concat());
    assert_eq!(value(&root, "proc/sys/net/core/somaxconn"), "128");
    assert_eq!(said(&[&["status"], &here[..]].concat()), "Nothing is applied.\n");
}

#[test]
fn what_is_held_is_taken_back_at_the_end() {
    let directory = Directory::new();
    let root = host(&directory);
    let state = directory.join("state").display().to_string();
    let mut child = Command::new(program())
        .args([
            "tune", "apply", "--hold", "--step", "xps", "--root", &root, "--state", &state,
        ])
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = std::io::BufRead::lines(std::io::BufReader::new(child.stderr.take().unwrap()));
    assert!(lines.any(|line| line.unwrap().starts_with("held until")));
    assert_eq!(value(&root, "sys/class/net/eth0/queues/tx-1/xps_cpus"), "2");
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    assert!(lines.any(|line| line.unwrap().starts_with("2 restored")));
    assert!(child.wait().unwrap().success());
    assert_eq!(value(&root, "sys/class/net/eth0/queues/tx-1/xps_cpus"), "0");
}

#[test]
fn what_is_wrong_is_said_with_what_is_right() {
    for (args, expected) in [
        (&["--step", "turbo"][..], "irq-affinity"),
        (&["--accept", "all"], "mitigations-off"),
        (&["--root", "/nowhere"], "--root /nowhere"),
        (&["diff", "/nowhere"], "expected a file of ringmain tune snapshot"),
        (&["export"], "--as"),
        (
            &["apply", "--root", "/"],
            "needs a journal of its own: add --state",
        ),
        (
            &["revert", "--root", "/"],
            "needs a journal of its own: add --state",
        ),
    ] {
        let complaint = complaint(args, 2);
        assert!(
            complaint.contains(expected) && complaint.starts_with("error: "),
            "{complaint}"
        );
    }
    let complaint = complaint(&["--interface", "nosuch0"], 1);
    assert!(complaint.contains("`nosuch0`"), "{complaint}");
}
