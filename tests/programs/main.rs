//! Random programs over the public interface, compared with a model; `fuzz/` runs the same programs.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod interpreter;

use proptest::prelude::*;

/// How long a program may be. Under Miri programs are small.
const BYTES: usize = if cfg!(miri) { 100 } else { 600 };

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_programs_do_what_the_model_does(bytes in prop::collection::vec(any::<u8>(), 0..BYTES)) {
        interpreter::run(&bytes);
    }
}
