//! libFuzzer's entry to exports(5).
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| samehost_fuzz::exports_parser::run(data));
