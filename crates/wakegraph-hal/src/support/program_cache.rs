//! Compiles each source once: a kernel that is loaded again, or on another device of the same kind,
//! uses the program that is there.

use std::collections::VecDeque;
use std::fmt::{self, Debug};
use std::sync::Arc;

use parking_lot::Mutex;

use super::signal_handlers::keep_handlers;
use crate::Result;

/// Compiled programs by all that they were compiled from: source, options, target.
pub struct ProgramCache<K, P: ?Sized> {
    /// The oldest first.
    programs: Mutex<VecDeque<(K, Arc<P>)>>,
    capacity: usize,
}

impl<K: PartialEq, P: ?Sized> ProgramCache<K, P> {
    /// An empty cache. Beyond `capacity` programs it forgets the oldest that is not in use.
    pub const fn new(capacity: usize) -> Self {
        Self { programs: Mutex::new(VecDeque::new()), capacity }
    }

    /// The program of this key, compiled by `compile` the first time.
    ///
    /// # Errors
    /// Those of `compile`, which is tried again the next time.
    pub fn get_or_compile(&self, key: K, compile: impl FnOnce() -> Result<Arc<P>>) -> Result<Arc<P>> {
        if let Some(known) = find(&self.programs.lock(), &key) {
            return Ok(known);
        }
        // Without the lock, as it takes long. Two threads that compile the same use one of the two.
        let program = keep_handlers(compile)?;
        let mut programs = self.programs.lock();
        if let Some(known) = find(&programs, &key) {
            return Ok(known);
        }
        if programs.len() >= self.capacity
            && let Some(unused) = programs.iter().position(|(_, program)| Arc::strong_count(program) == 1)
        {
            programs.remove(unused);
        }
        programs.push_back((key, Arc::clone(&program)));
        Ok(program)
    }
}

fn find<K: PartialEq, P: ?Sized>(programs: &VecDeque<(K, Arc<P>)>, key: &K) -> Option<Arc<P>> {
    programs.iter().find(|(known, _)| known == key).map(|(_, program)| Arc::clone(program))
}

impl<K, P: ?Sized> Debug for ProgramCache<K, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProgramCache").field("programs", &self.programs.lock().len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Error, ErrorKind};

    #[test]
    fn each_key_is_compiled_once() {
        let cache = ProgramCache::<&str, str>::new(8);
        let first = cache.get_or_compile("a", || Ok("A".into())).unwrap();
        let again = cache.get_or_compile("a", || panic!("compiled again")).unwrap();
        let other = cache.get_or_compile("b", || Ok("B".into())).unwrap();
        assert!(Arc::ptr_eq(&first, &again));
        assert_eq!((&*first, &*other), ("A", "B"));
    }

    #[test]
    fn a_failure_is_not_remembered() {
        let cache = ProgramCache::<u32, u32>::new(8);
        let error = cache.get_or_compile(1, || Err(Error::new(ErrorKind::Driver, "no"))).unwrap_err();
        assert_eq!(error.message(), "no");
        assert_eq!(*cache.get_or_compile(1, || Ok(Arc::new(7))).unwrap(), 7);
    }

    #[test]
    fn the_oldest_unused_program_makes_room() {
        let cache = ProgramCache::<u32, u32>::new(2);
        let load = |key| cache.get_or_compile(key, || Ok(Arc::new(key))).unwrap();
        let used = load(1);
        load(2);
        load(3);
        assert!(Arc::ptr_eq(&used, &load(1)), "it is in use");
        let mut is_compiled = false;
        cache.get_or_compile(3, || Ok(Arc::new(0))).map(|program| assert_eq!(*program, 3)).unwrap();
        cache
            .get_or_compile(2, || {
                is_compiled = true;
                Ok(Arc::new(2))
            })
            .unwrap();
        assert!(is_compiled, "it made room");
    }

    #[test]
    fn one_thread_s_program_wins() {
        let cache = ProgramCache::<u32, u32>::new(2);
        let outer = cache.get_or_compile(1, || {
            let inner = cache.get_or_compile(1, || Ok(Arc::new(10))).unwrap();
            assert_eq!(*inner, 10);
            Ok(Arc::new(20))
        });
        assert_eq!(*outer.unwrap(), 10);
    }
}
