//! The kernel's lines, and real processes.

use std::process::Stdio;

use super::*;

const LINE: &str = "4194 (a) b (c)) S 1 4194 4194 0 -1 4194560 1 2 3 4 150 50 1000 7 20 0 1 0 8801 2 3";

#[test]
fn a_line_is_read_whatever_the_name() {
    let found = parse(LINE, 100).unwrap();
    let expect = Stat {
        pid: 4194,
        parent: 1,
        group: 4194,
        start: 8801,
        ended: false,
        own: Duration::from_secs(2),
        reaped: Duration::from_millis(10_070),
    };
    assert_eq!(found, expect);
    assert!(parse(&LINE.replace(") S ", ") Z "), 100).unwrap().ended);
    for end in 0..LINE.len() {
        // A line that ends early is no process, or the same one: all that counts stood before.
        if let Some(early) = parse(&LINE[..end], 100) {
            assert_eq!(
                (early.pid, early.own, early.reaped),
                (expect.pid, expect.own, expect.reaped)
            );
        }
    }
    assert_eq!(parse("", 100), None);
    assert_eq!(parse("1 (x) S -1 1", 100), None);
}

#[test]
fn the_proportional_share_is_read() {
    let rollup = "55d0-7ffc ---p 00 00:00 0 [rollup]\nRss:  9000 kB\nPss:   1234 kB\nPss_Dirty: 5 kB\n";
    assert_eq!(proportional(rollup), Some(1234 * 1024));
    assert_eq!(proportional("Rss: 1 kB\n"), None);
}

#[test]
fn this_process_is_among_all_and_has_memory() {
    let me = std::process::id();
    let all = all().unwrap();
    assert!(all.iter().any(|stat| stat.pid == me && !stat.ended));
    assert!(memory(me) > 100_000);
    assert_eq!(stat(u32::MAX), None);
    assert_eq!(memory(u32::MAX), 0);
}

#[test]
fn a_program_leads_its_group_on_its_cpu_and_ends_when_told() {
    let cpu = crate::cpu::allowed()[0];
    let mut command = Command::new("sleep");
    command.arg("1000").stdin(Stdio::null());
    let mut child = spawn_group(&mut command, &[cpu]).unwrap();
    let process = stat(child.id()).unwrap();
    assert_eq!((process.group, process.ended), (child.id(), false));
    let status = fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
    assert!(
        status.contains(&format!("Cpus_allowed_list:\t{cpu}\n")),
        "{status}"
    );
    assert!(status.contains("SigBlk:\t0000000000000000\n"), "{status}");

    let another = Stat {
        start: process.start + 1,
        ..process
    };
    end(&another, Ending::Force).unwrap();
    assert!(
        child.try_wait().unwrap().is_none(),
        "one of the same number was ended"
    );
    end(&process, Ending::Ask).unwrap();
    let status = child.wait().unwrap();
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(15));
    end(&process, Ending::Force).unwrap();
}

#[test]
fn a_cpu_that_is_not_there_is_refused() {
    let error = spawn_group(&mut Command::new("true"), &[1 << 20]).unwrap_err();
    assert!(error.to_string().contains("CPU 1048576"), "{error}");
}
