//! The target `tls_peek` driven by libFuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| ringmain_fuzz::tls_peek::run(input));
