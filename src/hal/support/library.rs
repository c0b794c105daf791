//! Loads a vendor's library.
#![expect(unsafe_code, reason = "loads libraries")]

use std::error::Error as _;
use std::ffi::OsStr;

use libloading::Library;

/// The first of the libraries that can be loaded.
///
/// # Errors
/// Why none could be, with their names.
pub(crate) fn open(names: &[impl AsRef<OsStr>]) -> Result<Library, String> {
    let mut reasons = Vec::new();
    for name in names {
        // SAFETY: a vendor's library, whose initialisers may run on any thread.
        match unsafe { Library::new(name.as_ref()) } {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_library_is_an_error_that_names_it() {
        let error = open(&["libwakegraph-none.so.1", "libwakegraph-none.so"]).err().unwrap();
        assert!(error.contains("libwakegraph-none.so.1") && error.contains("; "), "{error}");
    }
}
