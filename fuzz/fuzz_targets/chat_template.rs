//! Bytes as a chat template: rendering returns.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| plancher_model::testing::check_chat_template(bytes));
