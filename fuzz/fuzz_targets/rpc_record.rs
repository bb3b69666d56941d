//! libFuzzer's entry to the record reader and the headers of RPC.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| samehost_fuzz::rpc_record::run(data));
