//! The target `ws_frames` driven by libFuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| ringmain_fuzz::ws_frames::run(input));
