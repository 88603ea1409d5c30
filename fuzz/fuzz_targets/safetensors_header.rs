//! Bytes as a safetensors file: reading its header returns, and what it accepts lies inside the file.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| plancher_model::testing::check_safetensors_header(bytes));
