//! libFuzzer's entry to the messages of the lane.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| samehost_fuzz::lane_message::run(data));
