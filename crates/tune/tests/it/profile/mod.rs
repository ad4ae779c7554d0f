//! Profiles of real programs, where the kernel gives samples: a small one in C that spins in functions that are known.
#![allow(
    clippy::disallowed_methods,
    reason = "tests of real processes have real threads"
)]

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use ringmain_sys::perf::{Clock, Counter, Sampling, UserStack};
use ringmain_sys::seccomp;
use ringmain_testkit::wait::Patience;
use ringmain_tune::profile::folded::Folded;
use ringmain_tune::profile::{Options, Profile, ProfileError, StackKind, Stacks, Target, take};

/// CPU time that the program spins for, milliseconds: some hundred samples.
const SPUN: &str = "300";

/// Says past the test harness, which shows output of failures alone, that a test did nothing.
fn skipped(why: &str) {
    let line = format!("SKIPPED: {why}\n");
    std::io::stderr().write_all(line.as_bytes()).unwrap();
}

/// The program, compiled with or without frame pointers; removed with this value.
struct Spin(PathBuf);

impl Spin {
    /// `None`, and it is said, where the kernel gives no samples or there is no compiler.
    fn build(frame_pointers: bool) -> Option<Spin> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let sampling = Sampling {
            clock: Clock::Timer,
            frequency: 99,
            kernel: false,
            user: UserStack::FramePointers,
            on_exec: false,
            wake_bytes: 4096,
        };
        if let Err(error) = Counter::open(&sampling, None, ringmain_sys::cpu::current() as u32) {
            skipped(&format!("the kernel gives no samples here: {error}"));
            return None;
        }
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("ringmain-spin-{}-{number}", std::process::id()));
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/profile/spin.c");
        let flag = if frame_pointers {
            "-fno-omit-frame-pointer"
        } else {
            "-fomit-frame-pointer"
        };
        let built = Command::new("cc")
            .args(["-O1", "-fno-optimize-sibling-calls", flag, "-pthread", "-o"])
            .args([&path, &source])
            .status();
        match built {
            Ok(status) => assert!(status.success()),
            Err(error) => {
                skipped(&format!("no C compiler: {error}"));
                return None;
            }
        }
        Some(Spin(path))
    }

    fn options(&self, mode: &str) -> Options {
        let words = [self.0.as_os_str().to_owned(), mode.into(), SPUN.into()];
        Options {
            target: Target::Command(words.into()),
            duration: None,
            frequency: 997,
            stacks: Stacks::Auto,
            stack_bytes: None,
        }
    }
}

impl Drop for Spin {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn profile(options: &Options) -> Profile {
    take(options, &AtomicBool::new(false)).unwrap()
}

/// The share of samples whose stack has these frames one after the other, in percent.
fn share(folded: &Folded, frames: &str) -> u64 {
    let with = folded
        .iter()
        .filter(|(stack, _)| format!(";{stack};").contains(&format!(";{frames};")));
    with.map(|(_, count)| count).sum::<u64>() * 100 / folded.total().max(1)
}

fn check(profile: &Profile, frames: &str) {
    let share = share(&profile.folded, frames);
    assert!(
        share >= 80,
        "{share} % in {frames}:\n{}{:#?}",
        profile.folded.write(),
        profile.facts
    );
}

#[test]
fn a_deep_function_has_its_callers_with_frame_pointers_and_without() {
    for frame_pointers in [true, false] {
        let Some(spin) = Spin::build(frame_pointers) else {
            return;
        };
        // What is chosen if nobody says follows from the program.
        let by_itself = profile(&spin.options("deep"));
        assert_eq!(by_itself.facts.stacks == StackKind::FramePointers, frame_pointers);
        check(&by_itself, "main;until;spin_outer;spin_middle;spin_inner");
        let mut options = spin.options("deep");
        options.stacks = Stacks::Copied;
        let copied = profile(&options);
        assert_eq!(copied.facts.stacks, StackKind::Copied(16 << 10));
        check(&copied, "main;until;spin_outer;spin_middle;spin_inner");
        assert!(copied.facts.samples >= 100, "{:?}", copied.facts);
    }
}

#[test]
fn without_frame_pointers_following_them_is_said_to_lead_nowhere() {
    let Some(spin) = Spin::build(false) else { return };
    let mut options = spin.options("deep");
    options.stacks = Stacks::FramePointers;
    let found = profile(&options);
    check(&found, "spin_inner");
    assert!(share(&found.folded, "main;until;spin_outer;spin_middle;spin_inner") < 20);
    assert!(
        found
            .facts
            .remarks
            .iter()
            .any(|remark| remark.contains("--stacks copy")),
        "{:?}",
        found.facts
    );
}

#[test]
fn threads_have_their_names_and_children_their_programs() {
    let Some(spin) = Spin::build(false) else { return };
    let threads = profile(&spin.options("threads"));
    check(&threads, "in_thread;until;spin_outer;spin_middle;spin_inner");
    // A pool is one in the graph, and its threads are told apart beside it.
    check(&threads, "spinner-*");
    let names: Vec<&str> = threads
        .facts
        .threads
        .iter()
        .map(|(name, _)| name.as_str())
        .collect();
    assert!(
        names.contains(&"spinner-0") && names.contains(&"spinner-1"),
        "{names:?}"
    );
    check(
        &profile(&spin.options("child")),
        "main;until;spin_outer;spin_middle;spin_inner",
    );
}

#[test]
fn a_stack_deeper_than_its_copy_is_marked() {
    let Some(spin) = Spin::build(false) else { return };
    let mut options = spin.options("wide");
    options.stacks = Stacks::Copied;
    options.stack_bytes = Some(8 << 10);
    let found = profile(&options);
    check(&found, "spin_wide;spin_inner");
    check(&found, "[truncated]");
    assert!(
        found
            .facts
            .remarks
            .iter()
            .any(|remark| remark.contains("--stack-bytes"))
    );
    options.stack_bytes = Some(60 << 10);
    check(&profile(&options), "main;until;spin_wide;spin_wide");
}

/// A process that is ended with this value.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_process_that_runs_is_attached_to_with_all_its_threads() {
    let Some(spin) = Spin::build(false) else { return };
    let child = Command::new(&spin.0).args(["threads", "60000"]).spawn().unwrap();
    let child = Running(child);
    let mut options = spin.options("");
    options.target = Target::Process(child.0.id());
    // A thread that is only beginning to run has not its name yet.
    let patience = Patience::new();
    loop {
        options.duration = Some(Duration::from_millis(300));
        let found = profile(&options);
        let names: Vec<&str> = found
            .facts
            .threads
            .iter()
            .map(|(name, _)| name.as_str())
            .collect();
        if names.contains(&"spinner-0") && names.contains(&"spinner-1") {
            check(&found, "in_thread;until;spin_outer;spin_middle;spin_inner");
            assert!(
                found
                    .facts
                    .who
                    .starts_with(&format!("process {} (", child.0.id()))
            );
            return;
        }
        assert!(!patience.is_over(), "{names:?}");
    }
}

#[test]
fn it_ends_when_it_is_told_to_and_ends_what_it_started() {
    let Some(spin) = Spin::build(true) else { return };
    let mut options = spin.options("deep");
    options.target = Target::Command(vec![
        spin.0.as_os_str().to_owned(),
        "deep".into(),
        "600000".into(),
    ]);
    options.duration = Some(Duration::from_millis(200));
    check(&profile(&options), "spin_inner");
    // Told to at once there may be nothing to show.
    options.duration = None;
    match take(&options, &AtomicBool::new(true)) {
        Ok(_) | Err(ProfileError::Idle { .. }) => {}
        Err(other) => panic!("{other}"),
    }
}

#[test]
fn what_goes_wrong_is_said() {
    let Some(spin) = Spin::build(true) else { return };
    let failed = profile(&spin.options("fail"));
    assert!(
        failed
            .facts
            .remarks
            .iter()
            .any(|remark| remark.contains("exit status: 3")),
        "{:?}",
        failed.facts
    );
    let mut options = spin.options("");
    let mut fails = |target, expected: &str| {
        options.target = target;
        let error = take(&options, &AtomicBool::new(false)).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    };
    fails(Target::Process(i32::MAX as u32), "found no process");
    fails(
        Target::Command(vec!["/no/such/program".into()]),
        "cannot start `/no/such/program`",
    );
    // A command that does nothing, not even for a moment: a profile with few samples, or none.
    options.target = Target::Command(vec!["true".into()]);
    match take(&options, &AtomicBool::new(false)) {
        Ok(found) => assert!(
            found
                .facts
                .remarks
                .iter()
                .any(|remark| remark.contains("shares are rough"))
        ),
        Err(error) => assert!(matches!(error, ProfileError::Idle { .. }), "{error}"),
    }
}

#[test]
fn a_filter_that_refuses_is_named() {
    let refused = std::thread::spawn(|| {
        seccomp::deny(&seccomp::perf_syscalls(), 1).unwrap();
        let options = Options {
            target: Target::Process(std::process::id()),
            duration: None,
            frequency: 99,
            stacks: Stacks::FramePointers,
            stack_bytes: None,
        };
        take(&options, &AtomicBool::new(false)).unwrap_err()
    });
    let error = refused.join().unwrap();
    assert!(matches!(error, ProfileError::Refused { .. }));
    let text = error.to_string();
    assert!(
        text.contains("Operation not permitted") && text.contains("seccomp") || text.contains("sysctl"),
        "{text}"
    );
}
