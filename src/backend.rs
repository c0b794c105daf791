//! The backends: devices with options of their own.
//!
//! [`Device::open`](crate::Device::open) is enough for most programs. The module of a backend has what no
//! other backend can do, such as a device in a context of the application, and the options of its devices.
//! The functions here find devices by their names, and open them as `hal` knows them;
//! [`Device::from_hal`](crate::Device::from_hal) makes such a device usable.
//!
//! ```
//! use wakegraph::Device;
//! use wakegraph::backend::host::{self, HostOptions};
//!
//! # fn main() -> wakegraph::Result<()> {
//! let small = Device::from_hal(host::open(HostOptions::new().threads(2))?);
//! assert_eq!(small.info().compute_units, 2);
//! # Ok(())
//! # }
//! ```

// No other file lists the backends. Every backend is a crate, with the same file names for the
// same things, so that two can be read side by side; the template of a new one is an example of
// `wakegraph-hal`. A backend knows that crate only, never the graph, the plan, the runtime or another
// backend.

use std::sync::Arc;

#[cfg(feature = "cuda")]
pub use wakegraph_cuda as cuda;
use wakegraph_hal::{Backend, Device, Error, ErrorKind, Result};
#[cfg(feature = "hip")]
pub use wakegraph_hip as hip;
pub use wakegraph_host as host;
#[cfg(feature = "level-zero")]
pub use wakegraph_level_zero as level_zero;
#[cfg(feature = "opencl")]
pub use wakegraph_opencl as opencl;

/// Backends whose names are known and which this version does not contain.
const NOT_BUILT: &[&str] = &[
    #[cfg(not(feature = "cuda"))]
    "cuda",
    #[cfg(not(feature = "hip"))]
    "hip",
    #[cfg(not(feature = "level-zero"))]
    "level_zero",
    #[cfg(not(feature = "opencl"))]
    "opencl",
];

/// All backends, the preferred first: those that GPUs have run come before those that none has run.
///
/// The host backend has no GPU, so its place matters only where no backend has one: then it comes before the
/// CPUs of OpenCL.
pub fn backends() -> &'static [&'static dyn Backend] {
    &[
        #[cfg(feature = "cuda")]
        &cuda::CudaBackend,
        &host::HostBackend,
        #[cfg(feature = "opencl")]
        &opencl::OpenclBackend,
        #[cfg(feature = "level-zero")]
        &level_zero::LevelZeroBackend,
        #[cfg(feature = "hip")]
        &hip::HipBackend,
    ]
}

/// The backend with this name, such as `"host"`; a hyphen is as good as an underscore.
///
/// # Errors
/// [`Unavailable`](ErrorKind::Unavailable) when this version has no such backend.
pub fn by_name(name: &str) -> Result<&'static dyn Backend> {
    let name = &*name.replace('-', "_");
    if let Some(backend) = backends().iter().find(|backend| backend.name() == name) {
        return Ok(*backend);
    }
    let names: Vec<_> = backends().iter().map(|backend| backend.name()).collect();
    let why = if NOT_BUILT.contains(&name) {
        format!("backend '{name}' is not part of this version of wakegraph")
    } else {
        format!("there is no backend '{name}'")
    };
    Err(Error::new(ErrorKind::Unavailable, why).help(format!("open one of: {}", names.join(", "))))
}

/// The backend and the index that a selector means: `"host:1"` by index, `"cuda:H200"` by name,
/// `"host"` the first device.
///
/// A name selects the first device, in the order of the indices, whose
/// [names](Backend::device_names) contain it, whatever the case of the letters. Digits alone are an
/// index.
///
/// # Errors
/// [`Unavailable`](ErrorKind::Unavailable) for a backend that is not there, and for a name that no
/// device has: then with all that there are. [`InvalidArgument`](ErrorKind::InvalidArgument) when
/// nothing follows the colon. An index is not checked.
pub fn resolve(selector: &str) -> Result<(&'static dyn Backend, usize)> {
    let (name, device) = selector.split_once(':').unwrap_or((selector, "0"));
    let backend = by_name(name)?;
    if device.trim().is_empty() {
        let why = format!("'{selector}' does not select a device");
        return Err(Error::new(ErrorKind::InvalidArgument, why)
            .help("after the colon write an index or a part of a name, as in 'host:0' or 'cuda:H200'"));
    }
    if let Ok(index) = device.parse() {
        return Ok((backend, index));
    }
    let names = backend.device_names()?;
    let wanted = device.trim().to_lowercase();
    match names.iter().position(|name| name.to_lowercase().contains(&wanted)) {
        Some(index) => Ok((backend, index)),
        None => Err(no_such_device(name, device, &names)),
    }
}

#[cold]
fn no_such_device(backend: &str, wanted: &str, names: &[String]) -> Error {
    let there: Vec<_> =
        names.iter().enumerate().map(|(index, name)| format!("'{backend}:{index}' is {name}")).collect();
    let there = if there.is_empty() { "there is none with a name".into() } else { there.join(", ") };
    let why = format!("no device of backend '{backend}' has '{wanted}' in its name: {there}");
    Error::new(ErrorKind::Unavailable, why).help("select a device by its index or by a part of its name")
}

/// Opens the device that a selector means, as [`resolve`] finds it.
///
/// # Errors
/// Those of [`resolve`]; [`Unavailable`](ErrorKind::Unavailable) for an index that no device has.
pub fn open(selector: &str) -> Result<Arc<dyn Device>> {
    let (backend, index) = resolve(selector)?;
    backend.open(index)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn opens_what_is_there_and_says_what_is_not() {
        assert_eq!(open("host:3").unwrap().info().selector, "host:3");
        assert_eq!(open("host").unwrap().info().selector, "host:0");
        for name in NOT_BUILT {
            let error = open(&format!("{name}:0")).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Unavailable);
            let expected = format!("backend '{name}' is not part of this version");
            assert!(error.message().starts_with(&expected), "{error}");
        }
        #[cfg(feature = "level-zero")]
        assert_eq!(by_name("level-zero").unwrap().name(), "level_zero");
        assert_eq!(open("abacus:0").unwrap_err().kind(), ErrorKind::Unavailable);
        assert_eq!(open("host:").unwrap_err().kind(), ErrorKind::InvalidArgument);
        for selector in ["host:x", "host:-1", "host:0:1"] {
            assert_eq!(open(selector).unwrap_err().kind(), ErrorKind::Unavailable, "{selector}");
        }
    }

    #[test]
    fn backends_that_gpus_have_run_come_first() {
        let order = ["cuda", "host", "opencl", "level_zero", "hip"];
        let names: Vec<_> = backends().iter().map(|backend| backend.name()).collect();
        let built: Vec<_> = order.into_iter().filter(|name| !NOT_BUILT.contains(name)).collect();
        assert_eq!(names, built);
    }

    #[test]
    fn a_name_selects_the_first_device_that_has_it() {
        for backend in backends() {
            // A driver that is not installed has nothing to select.
            let Ok(names) = backend.device_names() else { continue };
            for name in &names {
                let first = names.iter().position(|other| other == name);
                for name in [name.to_uppercase(), name.to_lowercase()] {
                    let (found, index) = resolve(&format!("{}:{name}", backend.name())).unwrap();
                    assert_eq!((found.name(), Some(index)), (backend.name(), first));
                }
            }
        }
        assert_eq!(resolve("host:closures").unwrap().1, 0);
    }

    #[test]
    fn a_name_that_no_device_has_is_refused_with_all_there_are() {
        let error = resolve("host:abacus").map(|_| ()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        assert!(error.message().contains("'abacus'"), "{error}");
        assert!(error.message().contains("'host:0' is Rust closures"), "{error}");
    }
}
