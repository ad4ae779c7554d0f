//! The target `config` driven by libFuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| ringmain_fuzz::config::run(input));
