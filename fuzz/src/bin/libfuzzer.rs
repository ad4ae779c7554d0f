//! Every target driven by libFuzzer; the variable `FUZZ_TARGET` selects one.
//!
//! Built by cargo-fuzz or fuzz/build.sh, which set `--cfg fuzzing`. Without it this is a program that describes that.
#![forbid(unsafe_code)]
#![cfg_attr(fuzzing, no_main)]

#[cfg(fuzzing)]
mod driven {
    use std::env;
    use std::process;
    use std::sync::LazyLock;

    use ringmain_fuzz::{TARGETS, Target};

    /// The target that `FUZZ_TARGET` names.
    static TARGET: LazyLock<&Target> = LazyLock::new(|| {
        let name = env::var("FUZZ_TARGET").unwrap_or_default();
        TARGETS
            .iter()
            .find(|target| target.name == name)
            .unwrap_or_else(|| {
                let names: Vec<&str> = TARGETS.iter().map(|target| target.name).collect();
                eprintln!(
                    "expected a target in FUZZ_TARGET, found `{name}`; there are {}",
                    names.join(", ")
                );
                process::exit(2)
            })
    });

    libfuzzer_sys::fuzz_target!(|input: &[u8]| (TARGET.run)(input));
}

#[cfg(not(fuzzing))]
fn main() -> std::process::ExitCode {
    eprintln!(
        "built without `--cfg fuzzing`: see fuzz/build.sh, or `cargo run -p ringmain-fuzz` for the runner without libFuzzer"
    );
    std::process::ExitCode::from(2)
}
