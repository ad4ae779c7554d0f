//! The target `h1_encode` driven by libFuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| ringmain_fuzz::h1_encode::run(input));
