//! libFuzzer's entry to NFSv4's wire types.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| samehost_fuzz::xdr_nfs4::run(data));
