//! The target `timer_wheel` driven by libFuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| ringmain_fuzz::timer_wheel::run(input));
