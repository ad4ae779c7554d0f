//! The target `channel_pattern` driven by libFuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| ringmain_fuzz::channel_pattern::run(input));
