//! Programs over the public interface, read from bytes and compared with a model. `tests/programs`
//! runs the same.
#![no_main]

#[path = "../../tests/programs/interpreter.rs"]
mod interpreter;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| interpreter::run(bytes));
