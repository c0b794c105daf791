//! Random programs from bytes, which shrink; `fuzz/` runs the same programs.

use proptest::prelude::*;
use wakegraph_conformance::programs::run_bytes;

/// How long a program may be. Under Miri programs are small.
const BYTES: usize = if cfg!(miri) { 100 } else { 600 };

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_programs_do_what_the_model_does(bytes in prop::collection::vec(any::<u8>(), 0..BYTES)) {
        run_bytes(&bytes);
    }
}
