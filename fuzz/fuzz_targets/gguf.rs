//! Bytes as a GGUF file: reading its structure returns, and what it accepts lies inside the file.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| plancher_model::testing::check_gguf(bytes));
