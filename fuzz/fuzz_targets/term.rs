//! Any bytes at all through the checks of `settee_engine::codec::fuzz::term`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| settee_engine::codec::fuzz::term(data));
