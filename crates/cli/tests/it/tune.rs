//! `ringmain tune` as its users run it, on a recorded host; and the server under the system calls that are exported.
#![allow(
    clippy::disallowed_methods,
    reason = "tests of the real program have real processes and real time"
)]

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

use crate::common::{Directory, Server, connect, program};
use ringmain_testkit::wait::{self, pause};
use ringmain_tune::profile::suspects::SUSPECTS;
use rustix::process::Signal;
use serde_json::Value;

fn tune(args: &[&str]) -> Output {
    Command::new(program()).arg("tune").args(args).output().unwrap()
}

/// Returns the output of a successful run.
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
fn this_host_is_audited_by_any_user() {
    let text = said(&[]);
    assert!(text.contains("STEP") && text.contains("irq-affinity"), "{text}");
}

#[test]
fn a_plan_is_applied_shown_and_reverted() {
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
    assert!(status.contains("0 -> 1 (irq-affinity): applied"), "{status}");
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
        complaint.contains("changed by another program since, from 65535 to 77"),
        "{complaint}"
    );
    assert_eq!(value(&root, "proc/irq/41/smp_affinity_list"), "0");
    said(&[&["revert", "--force"], &here[..]].concat());
    assert_eq!(value(&root, "proc/sys/net/core/somaxconn"), "128");
    assert_eq!(
        said(&[&["status"], &here[..]].concat()),
        "No changes are applied.\n"
    );
}

/// As after `tune measure`: a host that has it plans it no more.
#[test]
fn applied_changes_are_exported_too() {
    let directory = Directory::new();
    let root = host(&directory);
    let state = directory.join("state").display().to_string();
    let export = |form, steps: &[&str]| {
        let args = ["export", "--as", form, "--root", &root, "--state", &state];
        said(&[&args[..], steps].concat())
    };
    let here = ["--root", &root, "--state", &state];
    said(&[&["apply", "--step", "backlogs"], &here[..]].concat());
    let sysctl = export("sysctl", &["--step", "backlogs"]);
    assert!(
        sysctl.contains("# previous value: 128\nnet.core.somaxconn = 65535\n"),
        "{sysctl}"
    );
    let unit = export("systemd", &["--step", "irq-affinity"]);
    assert!(
        unit.contains(" --step irq-affinity --step backlogs --state "),
        "{unit}"
    );
    // `ringmain tune status` without options finds the changes of the unit.
    let journal = unit
        .split(" --state ")
        .nth(1)
        .and_then(|rest| rest.lines().next());
    let default = format!("[default: {}]", journal.expect("the journal of the unit"));
    let help = said(&["status", "--help"]);
    assert!(help.contains(&default), "{default}: {help}");
    said(&[&["revert"], &here[..]].concat());
    let nothing = complaint(
        &[&["export", "--as", "sysctl", "--step", "memory"], &here[..]].concat(),
        1,
    );
    assert!(nothing.contains("none applied"), "{nothing}");
}

#[test]
fn a_named_step_that_is_not_applied_is_reported() {
    let directory = Directory::new();
    let root = host(&directory);
    let state = directory.join("state").display().to_string();
    let output = tune(&["apply", "--step", "qdisc", "--root", &root, "--state", &state]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(
        text.contains("qdisc: not applied: ") && text.contains("no setting changed"),
        "{text}"
    );
    assert!(!text.contains("as requested"), "{text}");
}

/// There is nothing to be written, so no right to write is asked for.
#[test]
fn where_nothing_was_applied_revert_needs_no_journal() {
    let said = complaint(&["revert", "--state", "/proc/nowhere"], 0);
    assert!(said.contains("no applied changes in /proc/nowhere"), "{said}");
}

/// `ringmain tune apply --hold` of xps, once it holds.
fn holder(root: &str, state: &str) -> Server {
    let mut command = Command::new(program());
    command.args([
        "tune", "apply", "--hold", "--step", "xps", "--root", root, "--state", state,
    ]);
    let mut holder = Server::spawn(&mut command);
    holder.wait_for("held until");
    holder
}

#[test]
fn held_changes_are_reverted_on_exit() {
    const FILE: &str = "sys/class/net/eth0/queues/tx-1/xps_cpus";
    let directory = Directory::new();
    let root = host(&directory);
    let state = directory.join("state").display().to_string();
    let holder = holder(&root, &state);
    assert_eq!(value(&root, FILE), "2");
    let said = holder.terminate();
    assert!(said.iter().any(|line| line.starts_with("2 restored")), "{said:?}");
    assert_eq!(value(&root, FILE), "0");
}

/// Starts over a journal as Kubernetes restarts a pod: applied values are not recorded as the previous ones.
#[test]
fn holding_after_a_killed_run_takes_over_and_restores_the_first_values() {
    const FILES: [&str; 2] = [
        "sys/class/net/eth0/queues/tx-0/xps_cpus",
        "sys/class/net/eth0/queues/tx-1/xps_cpus",
    ];
    let directory = Directory::new();
    let root = host(&directory);
    let state = directory.join("state").display().to_string();
    let killed = holder(&root, &state);
    killed.signal(Signal::KILL);
    killed.finish();
    assert_eq!(FILES.map(|file| value(&root, file)), ["1", "2"]);
    // One value was lost meanwhile, so that a change is needed.
    fs::write(Path::new(&root).join(FILES[1]), "0\n").unwrap();
    let holder = holder(&root, &state);
    for told in ["1 setting changed", "2 changes of an earlier run are taken over"] {
        let said = &holder.said;
        assert!(said.iter().any(|line| line.starts_with(told)), "{told}: {said:?}");
    }
    assert_eq!(FILES.map(|file| value(&root, file)), ["1", "2"]);
    let complaint = complaint(&["revert", "--root", &root, "--state", &state], 1);
    assert!(complaint.contains("another ringmain tune"), "{complaint}");
    holder.terminate();
    assert_eq!(FILES.map(|file| value(&root, file)), ["0", "0"]);
}

/// The guide that a profile's summary refers to.
#[test]
fn the_steps_that_suspects_name_are_explained() {
    let directory = Directory::new();
    let root = host(&directory);
    let steps = SUSPECTS.iter().flat_map(|suspect| suspect.steps);
    let steps: BTreeSet<&str> = steps.map(|step| step.name()).collect();
    assert!(steps.len() > 6, "{steps:?}");
    for step in steps {
        let text = said(&["--root", &root, "--explain", step]);
        assert!(text.starts_with(&format!("{step}: ")), "{text}");
    }
}

/// Connections of a running Ringmain, whose administration has an engine of its own that is no worker.
#[test]
fn locality_shows_accepted_connections_per_worker() {
    const CONNECTIONS: u64 = 5;
    let directory = Directory::new();
    let file = directory.join("r.yaml");
    fs::write(
        &file,
        "listen: 127.0.0.1:0\nadmin: {address: 127.0.0.1:0}\n\
         routes: {all: {rules: [{match: /, respond: {status: 200}}]}}\n",
    )
    .unwrap();
    let mut server = Server::spawn(Command::new(program()).args(["run", "--workers", "2"]).arg(&file));
    let admin = server.wait_for("administration at ");
    let admin = admin.split_once("administration at ").unwrap().1;
    let addr = server.listening();
    let connections: Vec<_> = (0..CONNECTIONS).map(|_| connect(&addr)).collect();
    let pid = server.pid().as_raw_nonzero().to_string();
    let asked = [
        "locality",
        "--pid",
        &pid,
        "--interface",
        "lo",
        "--admin",
        admin,
        "--json",
    ];
    // Counters of the engine are shown with a delay.
    let workers = wait::until_ok("all connections accepted", || {
        let found: Value = serde_json::from_str(&said(&asked)).unwrap();
        let workers = found[0]["workers"].as_array().unwrap().clone();
        let accepted: u64 = workers
            .iter()
            .filter_map(|worker| worker["accepted"].as_u64())
            .sum();
        assert!(accepted <= CONNECTIONS, "{found}");
        if accepted == CONNECTIONS {
            Ok(workers)
        } else {
            Err(found)
        }
    });
    let names: Vec<&str> = workers
        .iter()
        .filter_map(|worker| worker["name"].as_str())
        .collect();
    assert_eq!(names, ["ringmain-0", "ringmain-1"]);
    assert!(
        workers.iter().all(|worker| worker["accepted"].is_u64()),
        "{workers:?}"
    );
    let text = said(&asked[..7]);
    assert!(
        text.contains("ringmain-0, ") && text.contains(" accepted"),
        "{text}"
    );
    drop(connections);
    // An address that is no admin server.
    let complaint = complaint(
        &["locality", "--pid", &pid, "--interface", "lo", "--admin", &addr],
        1,
    );
    assert!(complaint.contains("this is the `admin` address"), "{complaint}");
    server.terminate();
}

/// A server that is fast or slow depending on a setting of the recorded host.
fn server_by(setting: PathBuf, slow: &'static str) -> String {
    // The other one is faster also while it gets a tenth of a CPU.
    const SLOW: Duration = Duration::from_millis(50);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap().to_string();
    let serve = move |stream: TcpStream, setting: &Path| -> std::io::Result<()> {
        let mut reader = BufReader::new(stream.try_clone()?);
        let (mut stream, mut line) = (stream, String::new());
        while reader.read_line(&mut line)? > 0 {
            if line == "\r\n" {
                if fs::read_to_string(setting)?.trim() == slow {
                    pause(SLOW);
                }
                stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")?;
            }
            line.clear();
        }
        Ok(())
    };
    // It ends with its connections, at the latest with the test.
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let (serve, setting) = (serve, setting.clone());
            std::thread::spawn(move || drop(serve(stream, &setting)));
        }
    });
    format!("http://{addr}/")
}

#[test]
fn a_step_that_helps_is_kept_and_one_that_harms_is_reverted() {
    const FILE: &str = "sys/class/net/eth0/queues/tx-1/xps_cpus";
    for (slow, verdict, pairs, after) in [("0", "kept", 10, "2"), ("2", "worse", 5, "0")] {
        let directory = Directory::new();
        let root = host(&directory);
        let state = directory.join("state").display().to_string();
        let page = directory.join("ladder.html").display().to_string();
        let url = server_by(Path::new(&root).join(FILE), slow);
        let args = [
            "measure", &url, "--step", "xps", "--root", &root, "--state", &state,
        ];
        let load = [
            "-c", "1", "-d", "300ms", "-w", "10ms", "--rounds", "5", "--json", "--html", &page,
        ];
        let ladder: Value = serde_json::from_str(&said(&[&args[..], &load].concat())).unwrap();
        let rung = &ladder["rungs"][0];
        assert_eq!(
            (&rung["step"], &rung["verdict"]),
            (&"xps".into(), &verdict.into()),
            "{ladder}"
        );
        assert_eq!(rung["pairs"], pairs, "{ladder}");
        assert_eq!(value(&root, FILE), after);
        let page = fs::read_to_string(&page).unwrap();
        assert!(page.contains(&format!("<rect class='{verdict}'")), "{page}");
        said(&["revert", "--root", &root, "--state", &state]);
        assert_eq!(value(&root, FILE), "0");
    }
}

#[test]
fn errors_name_the_expected_value() {
    for (args, expected) in [
        (&["--step", "turbo"][..], "irq-affinity"),
        (&["--accept", "all"], "mitigations-off"),
        (&["--root", "/nowhere"], "--root /nowhere"),
        (
            &["diff", "/nowhere"],
            "expected a file written by ringmain tune snapshot",
        ),
        (&["export"], "--as"),
        (&["apply", "--root", "/"], "needs its own journal: add --state"),
        (&["revert", "--root", "/"], "needs its own journal: add --state"),
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
