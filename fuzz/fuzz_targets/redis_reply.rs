//! The target `redis_reply` driven by libFuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| ringmain_fuzz::redis_reply::run(input));
