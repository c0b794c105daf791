//! A vendor's library and its objects: loaded at run time, opened once for each device index, destroyed
//! when dropped.
//!
//! The process's signal handlers are kept while a driver is loaded or compiles. Compilers in drivers take
//! signals over. LLVM's handler for `SIGTERM` and `SIGINT` ends the process, also if the application, or
//! tokio, puts in a handler of its own later, because that calls the one before it. The handler for
//! `SIGSEGV` that Intel's offline compiler leaves behind jumps to a frame that is gone.
#![expect(unsafe_code, reason = "loads libraries, and destroys objects of drivers")]

use std::collections::BTreeMap;
use std::error::Error as _;
use std::ffi::{OsStr, c_void};
use std::fmt::Debug;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::time::UNIX_EPOCH;

use libloading::Library;
use parking_lot::Mutex;

use crate::Result;

/// The first of the libraries that can be loaded.
///
/// # Errors
/// The reasons why none could be, with their names.
pub fn open(names: &[impl AsRef<OsStr>]) -> Result<Library, String> {
    let mut reasons = Vec::new();
    for name in names {
        // SAFETY: a vendor's library, whose initialisers may run on any thread.
        match keep_handlers(|| unsafe { Library::new(name.as_ref()) }) {
            Ok(library) => return Ok(library),
            // The source is the loader's own words, which name the library.
            Err(error) => reasons.push(
                error
                    .source()
                    .map_or_else(|| format!("{}: {error}", name.as_ref().display()), ToString::to_string),
            ),
        }
    }
    Err(reasons.join("; "))
}

/// The library that a variable of the environment names or, where it is not set, the first of these that can
/// be loaded.
///
/// # Errors
/// As for [`open`].
pub fn open_named(variable: &str, names: &[&str]) -> Result<Library, String> {
    match std::env::var_os(variable) {
        Some(path) => open(&[path]),
        None => open(names),
    }
}

/// Everything that decides which file [`open`] loads under these names, as far as can be seen without loading
/// it: the program's path, the folders of `LD_LIBRARY_PATH`, the candidates there, and the loader's list of
/// installed libraries. None on systems without such a list.
pub fn search_key(names: &[&str]) -> Option<Vec<u8>> {
    if !cfg!(unix) {
        return None;
    }
    let folders = std::env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
    let candidates =
        std::env::split_paths(&folders).flat_map(|folder| names.iter().map(move |name| folder.join(name)));
    let installed = names.iter().map(PathBuf::from).filter(|name| name.is_absolute());
    let files = candidates.chain(installed).chain(["/etc/ld.so.cache".into()]);
    let mut key = std::env::current_exe().ok()?.into_os_string().into_encoded_bytes();
    // No path has a NUL.
    key.push(0);
    key.extend_from_slice(folders.as_encoded_bytes());
    for path in files {
        key.push(0);
        key.extend_from_slice(path.as_os_str().as_encoded_bytes());
        key.push(0);
        key.extend(file_key(&path).unwrap_or_default());
    }
    Some(key)
}

/// The identity of a file's contents: its size and the time of its last change. None if there is no file.
pub fn file_key(path: &Path) -> Option<Vec<u8>> {
    let metadata = std::fs::metadata(path).ok()?;
    // Images of containers keep whole seconds.
    let modified = metadata.modified().ok()?.duration_since(UNIX_EPOCH).ok()?.as_secs();
    Some(format!("{} {modified}", metadata.len()).into_bytes())
}

/// The open devices of a backend by index. It does not keep them open.
#[derive(Debug)]
pub struct OpenDevices<D>(Mutex<BTreeMap<usize, Weak<D>>>);

impl<D> OpenDevices<D> {
    /// No device is open.
    #[expect(clippy::new_without_default, reason = "made in statics only")]
    pub const fn new() -> Self {
        Self(Mutex::new(BTreeMap::new()))
    }

    /// The device of this index that is open and still works, else a new one, which `open` makes.
    ///
    /// # Errors
    /// The errors of `open`.
    pub fn get_or_open(
        &self,
        index: usize,
        works: impl Fn(&D) -> bool,
        open: impl FnOnce() -> Result<D>,
    ) -> Result<Arc<D>> {
        let mut devices = self.0.lock();
        let known = devices.get(&index).and_then(Weak::upgrade);
        if let Some(device) = known.filter(|device| works(device)) {
            return Ok(device);
        }
        let device = Arc::new(open()?);
        devices.insert(index, Arc::downgrade(&device));
        Ok(device)
    }
}

/// A kind of object.
///
/// # Safety
/// Objects of this kind may be used and destroyed on any thread. Where the driver takes one call at a
/// time for an object, its owners see to it.
pub unsafe trait ObjectKind: Debug + 'static {
    /// The driver's handle of an object.
    type Handle: Copy + Debug;
    /// The owner that objects need for as long as they live: the driver's functions, or a context that has
    /// them.
    type Owner: Debug + Send + Sync + 'static;

    /// Destroys an object, or gives up a reference to it. A failure goes to tracing.
    ///
    /// # Safety
    /// The object, or the reference, is the caller's, who does not use it any more.
    unsafe fn destroy(owner: &Self::Owner, handle: Self::Handle);
}

/// An object of the driver, or a reference to one. When it is dropped, nothing uses it any more, and
/// what it belongs to is still there.
#[derive(Debug)]
pub struct Owned<K: ObjectKind> {
    handle: K::Handle,
    owner: K::Owner,
}

// SAFETY: the kind promises it.
unsafe impl<K: ObjectKind> Send for Owned<K> {}
// SAFETY: as for `Send`.
unsafe impl<K: ObjectKind> Sync for Owned<K> {}

impl<K: ObjectKind> Owned<K> {
    /// Takes over an object, or a reference to one.
    ///
    /// # Safety
    /// `handle` is that of a live object of this kind, and nothing else gives up the same reference.
    pub unsafe fn new(owner: K::Owner, handle: K::Handle) -> Self {
        Self { handle, owner }
    }

    /// The object, for calls. It is valid while `self` lives.
    pub fn raw(&self) -> K::Handle {
        self.handle
    }

    /// The owner that the object needs while it lives.
    pub fn owner(&self) -> &K::Owner {
        &self.owner
    }
}

impl<K: ObjectKind> Drop for Owned<K> {
    fn drop(&mut self) {
        // SAFETY: the object, or the reference, is this object's own, and given up once.
        unsafe { K::destroy(&self.owner, self.handle) }
    }
}

/// The file of the library in which a function lies, as the loader names it. None where it does not tell.
pub fn file_of(function: *const c_void) -> Option<PathBuf> {
    platform::file_of(function)
}

/// Calls a driver, and puts back the handlers that it has replaced. Calls may overlap, and be
/// nested.
///
/// A handler that the application puts in meanwhile stays, unless the driver replaces it.
pub fn keep_handlers<T>(call: impl FnOnce() -> T) -> T {
    let _kept = platform::KeptHandlers::keep();
    call()
}

#[cfg(unix)]
#[expect(unsafe_code, reason = "calls the C library")]
mod platform {
    use std::ffi::{CStr, OsStr, c_int, c_void};
    use std::mem::MaybeUninit;
    use std::os::unix::ffi::OsStrExt as _;
    use std::path::PathBuf;
    use std::ptr;

    use libc::{
        SIGABRT, SIGBUS, SIGHUP, SIGILL, SIGINT, SIGQUIT, SIGSEGV, SIGSYS, SIGTERM, SIGTRAP, SIGUSR1,
        SIGUSR2, SIGXCPU, SIGXFSZ,
    };
    use parking_lot::Mutex;

    /// Signals that compilers take over. `SIGFPE` is not among them: PoCL's own handler makes a kernel that
    /// divides by zero go on.
    const SIGNALS: [c_int; 14] = [
        SIGHUP, SIGINT, SIGQUIT, SIGILL, SIGTRAP, SIGABRT, SIGBUS, SIGSEGV, SIGSYS, SIGUSR1, SIGUSR2,
        SIGTERM, SIGXCPU, SIGXFSZ,
    ];

    /// The handlers from before the oldest of the calls that have not returned.
    static HANDLERS: Mutex<Handlers> = Mutex::new(Handlers { calls: 0, before: [None; SIGNALS.len()] });

    struct Handlers {
        calls: usize,
        before: [Option<libc::sigaction>; SIGNALS.len()],
    }

    /// Puts the handlers back when dropped.
    pub(super) struct KeptHandlers;

    impl KeptHandlers {
        pub(super) fn keep() -> Self {
            let mut handlers = HANDLERS.lock();
            if handlers.calls == 0 {
                handlers.before = SIGNALS.map(handler);
            }
            handlers.calls += 1;
            Self
        }
    }

    impl Drop for KeptHandlers {
        fn drop(&mut self) {
            let mut handlers = HANDLERS.lock();
            handlers.calls -= 1;
            for (signal, before) in SIGNALS.into_iter().zip(&mut handlers.before) {
                let now = handler(signal);
                match (&now, &*before) {
                    (Some(now), Some(before)) if is_the_drivers(now, before) => put_back(signal, before),
                    _ => *before = now,
                }
            }
        }
    }

    /// Whether a driver has replaced the handler `before`: the application's lies in the same
    /// object as this crate.
    fn is_the_drivers(now: &libc::sigaction, before: &libc::sigaction) -> bool {
        let is_function = ![libc::SIG_DFL, libc::SIG_IGN].contains(&now.sa_sigaction);
        let own = handler as fn(c_int) -> Option<libc::sigaction> as usize;
        is_function && now.sa_sigaction != before.sa_sigaction && object(now.sa_sigaction) != object(own)
    }

    /// Start of the library or program in which a function lies.
    fn object(function: usize) -> Option<usize> {
        object_info(ptr::with_exposed_provenance(function)).map(|found| found.dli_fbase.addr())
    }

    pub(super) fn file_of(function: *const c_void) -> Option<PathBuf> {
        let name = object_info(function)?.dli_fname;
        if name.is_null() {
            return None;
        }
        // SAFETY: the loader's text, which ends in NUL and stays as long as the library does.
        let name = unsafe { CStr::from_ptr(name) };
        Some(OsStr::from_bytes(name.to_bytes()).into())
    }

    /// The loader's record of the library or program in which a function lies.
    fn object_info(function: *const c_void) -> Option<libc::Dl_info> {
        let mut found = MaybeUninit::<libc::Dl_info>::zeroed();
        // SAFETY: the place has room; any address will do.
        let is_found = unsafe { libc::dladdr(function, found.as_mut_ptr()) } != 0;
        // SAFETY: zeros, or what the function has written.
        let found = unsafe { found.assume_init() };
        is_found.then_some(found)
    }

    fn handler(signal: c_int) -> Option<libc::sigaction> {
        let mut now = MaybeUninit::<libc::sigaction>::zeroed();
        // SAFETY: changes nothing; the place has room.
        let code = unsafe { libc::sigaction(signal, ptr::null(), now.as_mut_ptr()) };
        // SAFETY: zeros, or what the function has written.
        let now = unsafe { now.assume_init() };
        (code == 0).then_some(now)
    }

    fn put_back(signal: c_int, before: &libc::sigaction) {
        // SAFETY: the process had this handler before, so it can have it again.
        let code = unsafe { libc::sigaction(signal, before, ptr::null_mut()) };
        if code != 0 {
            tracing::warn!(target: "wakegraph", signal, "a signal's handler could not be put back");
        }
    }
}

#[cfg(not(unix))]
mod platform {
    use std::ffi::c_void;
    use std::path::PathBuf;

    pub(super) struct KeptHandlers;

    impl KeptHandlers {
        pub(super) fn keep() -> Self {
            Self
        }
    }

    pub(super) fn file_of(_: *const c_void) -> Option<PathBuf> {
        None
    }
}

#[cfg(all(test, unix))]
#[expect(unsafe_code, reason = "calls the C library")]
mod handler_tests {
    use std::ffi::c_int;

    use super::*;

    extern "C" fn own(_: c_int) {}

    /// Puts a handler in, and gives the one before.
    fn replace(signal: c_int, handler: usize) -> usize {
        // SAFETY: the handlers are functions or the default, and nobody sends the signal.
        unsafe { libc::signal(signal, handler) }
    }

    /// The C library stands in for a driver: another object than this program.
    #[test]
    #[cfg_attr(miri, ignore = "Miri has no handlers of signals")]
    fn what_a_driver_takes_over_is_put_back() {
        // SAFETY: looks a function up.
        let drivers = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"abs".as_ptr()) }.expose_provenance();
        let before = replace(libc::SIGUSR2, libc::SIG_DFL);
        keep_handlers(|| {
            keep_handlers(|| replace(libc::SIGUSR2, drivers));
            assert_eq!(replace(libc::SIGUSR2, drivers), libc::SIG_DFL);
        });
        assert_eq!(replace(libc::SIGUSR2, before), libc::SIG_DFL);
    }

    #[test]
    #[cfg_attr(miri, ignore = "Miri has no handlers of signals")]
    fn what_the_application_puts_in_stays() {
        let own = own as extern "C" fn(c_int);
        let before = keep_handlers(|| {
            let before = replace(libc::SIGXFSZ, own as usize);
            keep_handlers(|| ());
            before
        });
        assert_eq!(replace(libc::SIGXFSZ, before), own as usize);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg_attr(miri, ignore = "Miri has no handlers of signals")]
    fn a_missing_library_is_an_error_that_names_it() {
        let error = open(&["libwakegraph-none.so.1", "libwakegraph-none.so"]).err().unwrap();
        assert!(error.contains("libwakegraph-none.so.1") && error.contains("; "), "{error}");
    }

    #[test]
    fn an_open_device_is_given_again_while_it_works() {
        let devices = OpenDevices::new();
        let open = |index, works, number| devices.get_or_open(index, |_| works, || Ok(number)).unwrap();
        let first = open(0, true, 1);
        assert!(Arc::ptr_eq(&first, &open(0, true, 2)));
        assert_eq!(*open(1, true, 3), 3);
        let renewed = open(0, false, 4);
        assert_eq!(*renewed, 4);
        assert!(Arc::ptr_eq(&renewed, &open(0, true, 5)));
        drop(renewed);
        assert_eq!(*open(0, true, 6), 6, "nobody had it open");
    }
}
