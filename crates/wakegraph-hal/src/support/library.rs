//! Loads a vendor's library.
#![expect(unsafe_code, reason = "loads libraries")]

use std::error::Error as _;
use std::ffi::OsStr;
use std::sync::OnceLock;

use libloading::Library;
use parking_lot::Mutex;

/// The functions of a library that has to be started, as drivers are. Where that fails, the next call tries
/// again: machines start their drivers late, and devices come and go.
#[derive(Debug)]
pub struct StartedLibrary<T> {
    functions: OnceLock<T>,
    starting: Mutex<()>,
}

impl<T> StartedLibrary<T> {
    /// A library that nobody has asked for.
    #[expect(clippy::new_without_default, reason = "made in statics only")]
    pub const fn new() -> Self {
        Self { functions: OnceLock::new(), starting: Mutex::new(()) }
    }

    /// The functions, if the library has been started.
    pub fn get(&self) -> Option<&T> {
        self.functions.get()
    }

    /// The functions. Unless the library has been started, `start` loads and starts it.
    ///
    /// # Errors
    /// Those of `start`.
    pub fn get_or_start<E>(&self, start: impl FnOnce() -> Result<T, E>) -> Result<&T, E> {
        if let Some(functions) = self.functions.get() {
            return Ok(functions);
        }
        let _starting = self.starting.lock();
        if let Some(functions) = self.functions.get() {
            return Ok(functions);
        }
        let functions = start()?;
        Ok(self.functions.get_or_init(|| functions))
    }
}

use super::signal_handlers::keep_handlers;

/// The first of the libraries that can be loaded.
///
/// # Errors
/// Why none could be, with their names.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_that_does_not_start_is_tried_again() {
        let library = StartedLibrary::new();
        assert_eq!(library.get_or_start(|| Err("not ready")), Err("not ready"));
        assert_eq!(library.get(), None);
        assert_eq!(library.get_or_start(|| Ok::<_, &str>(7)), Ok(&7));
        assert_eq!(library.get_or_start(|| Err("it is started once")), Ok(&7));
    }

    #[test]
    fn a_missing_library_is_an_error_that_names_it() {
        let error = open(&["libwakegraph-none.so.1", "libwakegraph-none.so"]).err().unwrap();
        assert!(error.contains("libwakegraph-none.so.1") && error.contains("; "), "{error}");
    }
}
