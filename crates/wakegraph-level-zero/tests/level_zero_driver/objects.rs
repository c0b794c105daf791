//! Handles. A handle is an address that is readable and zero, and is never used for a second object: what is
//! used after its end is recognised for certain.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use crate::misuse::misuse;

/// An object's name within this driver: its handle as a number.
pub(crate) type Handle = usize;

/// As many objects as a process can make. The pages are never written, and so take no memory.
const LIMIT: usize = 1 << 22;
static PLACES: [AtomicU64; LIMIT] = [const { AtomicU64::new(0) }; LIMIT];
/// The handles that a call uses which no other thread may use at the same time.
static IN_CALL: [AtomicBool; LIMIT] = [const { AtomicBool::new(false) }; LIMIT];
static NEXT: AtomicUsize = AtomicUsize::new(0);

/// A handle that nothing has had.
fn fresh() -> Handle {
    let index = NEXT.fetch_add(1, Ordering::Relaxed);
    let Some(place) = PLACES.get(index) else { misuse!("the driver has run out of handles") };
    std::ptr::from_ref(place) as Handle
}

/// The number of a handle. That of what is no handle is too large.
fn index(handle: Handle) -> usize {
    handle.wrapping_sub(PLACES.as_ptr() as usize) / size_of::<AtomicU64>()
}

/// Flags by handle, which are read without the lock.
#[derive(Debug)]
pub(crate) struct Flags([AtomicBool; LIMIT]);

impl Flags {
    pub(crate) const fn new() -> Self {
        Self([const { AtomicBool::new(false) }; LIMIT])
    }

    pub(crate) fn get(&self, handle: Handle) -> bool {
        self.0.get(index(handle)).is_some_and(|flag| flag.load(Ordering::Acquire))
    }

    /// Under the lock.
    pub(crate) fn set(&self, handle: Handle, value: bool) {
        self.0[index(handle)].store(value, Ordering::Release);
    }
}

/// The objects of a kind that exist.
#[derive(Debug)]
pub(crate) struct Objects<T> {
    kind: &'static str,
    all: HashMap<Handle, T>,
}

impl<T> Objects<T> {
    pub(crate) fn new(kind: &'static str) -> Self {
        Self { kind, all: HashMap::new() }
    }

    pub(crate) fn add(&mut self, object: T) -> Handle {
        let handle = fresh();
        self.all.insert(handle, object);
        handle
    }

    pub(crate) fn get(&mut self, handle: Handle) -> &mut T {
        let kind = self.kind;
        match self.all.get_mut(&handle) {
            Some(object) => object,
            None => misuse!("{handle:#x} is no {kind}, or one that has been destroyed"),
        }
    }

    pub(crate) fn remove(&mut self, handle: Handle) -> T {
        self.get(handle);
        self.all.remove(&handle).unwrap()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&Handle, &T)> {
        self.all.iter()
    }

    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }
}

/// Marks a handle as used by this thread while it lives.
#[derive(Debug)]
pub(crate) struct Exclusive(usize);

impl Exclusive {
    /// Ends the process if another thread is in a call with the handle.
    pub(crate) fn use_of(handle: Handle, kind: &str) -> Self {
        let index = index(handle);
        let Some(flag) = IN_CALL.get(index) else { misuse!("{handle:#x} is no {kind}") };
        if flag.swap(true, Ordering::AcqRel) {
            misuse!("another thread is in a call with the same {kind}");
        }
        if crate::state::chance(16) {
            std::thread::yield_now();
        }
        Self(index)
    }
}

impl Drop for Exclusive {
    fn drop(&mut self) {
        IN_CALL[self.0].store(false, Ordering::Release);
    }
}
