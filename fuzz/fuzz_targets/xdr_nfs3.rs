//! libFuzzer's entry to every wire type but NFSv4's.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| samehost_fuzz::xdr_nfs3::run(data));
