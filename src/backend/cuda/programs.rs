//! Programs that have been compiled: what is loaded again, or for another device of the same kind,
//! is not compiled again.

use std::collections::VecDeque;
use std::sync::{Arc, LazyLock};

use parking_lot::Mutex;

use super::compile::compile;
use crate::types::Result;

/// More than these are compiled again when they are needed; the oldest go first.
const MOST: usize = 128;

/// One compiled program.
struct Compiled {
    source: Box<str>,
    options: &'static [&'static str],
    capability: u32,
    code: Arc<[u8]>,
}

/// As [`compile`], but each source once.
///
/// # Errors
/// As [`compile`].
pub(super) fn compiled(
    name: &str,
    source: &str,
    options: &'static [&'static str],
    capability: u32,
) -> Result<Arc<[u8]>> {
    static COMPILED: LazyLock<Mutex<VecDeque<Compiled>>> = LazyLock::new(Mutex::default);
    let is_it = |known: &&Compiled| {
        (&*known.source, known.options, known.capability) == (source, options, capability)
    };
    if let Some(known) = COMPILED.lock().iter().find(is_it) {
        return Ok(Arc::clone(&known.code));
    }
    // Without the lock, as it takes long: now and then two threads do the same.
    let code: Arc<[u8]> = compile(name, source, options, capability)?.into();
    let mut all = COMPILED.lock();
    if all.len() >= MOST {
        all.pop_front();
    }
    all.push_back(Compiled { source: source.into(), options, capability, code: Arc::clone(&code) });
    Ok(code)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hal::dialect;

    /// Where the compiler is installed; it needs no device.
    #[test]
    fn the_same_source_is_compiled_once_for_a_kind_of_device() {
        let source = |number: u32| format!("extern \"C\" __global__ void k(int *x) {{ *x = {number}; }}");
        let load = |number, capability| compiled("k", &source(number), dialect::CUDA_OPTIONS, capability);
        let Ok(first) = load(1, 90) else { return };
        assert!(Arc::ptr_eq(&first, &load(1, 90).unwrap()));
        assert!(!Arc::ptr_eq(&first, &load(2, 90).unwrap()));
        assert!(!Arc::ptr_eq(&first, &load(1, 80).unwrap()));
    }
}
