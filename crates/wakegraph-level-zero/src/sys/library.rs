//! Loads the loader, the library that knows all drivers of a machine.

use std::path::PathBuf;
use std::sync::OnceLock;

use wakegraph_hal::support::library::open;

use super::Api;

/// Names another library than the system's loader.
const LIBRARY_VARIABLE: &str = "WAKEGRAPH_LEVEL_ZERO_LIBRARY";

#[cfg(windows)]
const NAMES: &[&str] = &["ze_loader.dll"];
#[cfg(not(windows))]
const NAMES: &[&str] = &["libze_loader.so.1", "libze_loader.so"];

/// Why there is no table.
#[derive(Debug)]
pub(crate) enum NoLibrary {
    /// The library cannot be loaded, for these reasons.
    NotLoaded(String),
    /// The library has no function of this name.
    Lacks(&'static str),
}

/// The functions of the loader, which the first call loads. It is never unloaded: drivers leave
/// threads behind.
///
/// # Errors
/// Why they cannot be had.
pub(crate) fn api() -> Result<&'static Api, &'static NoLibrary> {
    static API: OnceLock<Result<Api, NoLibrary>> = OnceLock::new();
    API.get_or_init(load).as_ref()
}

fn load() -> Result<Api, NoLibrary> {
    let paths = match std::env::var_os(LIBRARY_VARIABLE) {
        Some(path) => vec![PathBuf::from(path)],
        None => NAMES.iter().map(PathBuf::from).collect(),
    };
    let library = open(&paths).map_err(NoLibrary::NotLoaded)?;
    Api::fill(library).map_err(NoLibrary::Lacks)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(target_os = "linux")]
    fn a_library_without_the_functions_is_an_error_that_names_one() {
        let library = open(&["libc.so.6"]).unwrap();
        assert_eq!(Api::fill(library).err(), Some("zeInit"));
    }
}
