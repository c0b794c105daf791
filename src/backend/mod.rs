//! Layer 2: the backends. This file is the only place that lists them.
//!
//! Every backend is a folder with the same file names, so that two can be read side by side; [`null`] is the one to
//! clone for a new one. A backend imports `types` and `hal`, never the graph, the plan, the runtime or another backend.

#[cfg(feature = "cuda")]
pub mod cuda;
pub mod host;
pub mod null;
#[cfg(feature = "opencl")]
pub mod opencl;

use std::sync::Arc;

use crate::hal::{Backend, Device};
use crate::types::{Error, ErrorKind, Result};

/// Backends whose names are known and which this version does not contain.
const NOT_BUILT: &[&str] = &[
    #[cfg(not(feature = "cuda"))]
    "cuda",
    #[cfg(not(feature = "opencl"))]
    "opencl",
    "level_zero",
    "level-zero",
    "hip",
];

/// All backends, the preferred first.
pub fn backends() -> &'static [&'static dyn Backend] {
    &[
        #[cfg(feature = "cuda")]
        &cuda::CudaBackend,
        &host::HostBackend,
        #[cfg(feature = "opencl")]
        &opencl::OpenclBackend,
        &null::NullBackend,
    ]
}

/// The backend with this name, such as `"host"`.
///
/// # Errors
/// [`Unavailable`](ErrorKind::Unavailable) when this version has no such backend.
pub fn by_name(name: &str) -> Result<&'static dyn Backend> {
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

/// Opens the device that a selector such as `"host:0"` names; a name alone means its device 0.
///
/// # Errors
/// [`Unavailable`](ErrorKind::Unavailable) for a backend or device that is not there,
/// [`InvalidArgument`](ErrorKind::InvalidArgument) for a selector that is not `name` or `name:index`.
pub fn open(selector: &str) -> Result<Arc<dyn Device>> {
    let (name, index) = selector.split_once(':').unwrap_or((selector, "0"));
    let backend = by_name(name)?;
    let index = index.parse().map_err(|_| {
        Error::new(ErrorKind::InvalidArgument, format!("'{selector}' does not select a device"))
            .help("write the backend's name, a colon and the device's index, as in 'host:0'")
    })?;
    backend.open(index)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn opens_what_is_there_and_says_what_is_not() {
        assert_eq!(open("host:3").unwrap().info().selector, "host:3");
        assert_eq!(open("host").unwrap().info().selector, "host:0");
        assert_eq!(open("null:0").unwrap().info().backend, "null");
        for name in NOT_BUILT {
            let error = open(&format!("{name}:0")).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Unavailable);
            let expected = format!("backend '{name}' is not part of this version");
            assert!(error.message().starts_with(&expected), "{error}");
        }
        assert_eq!(open("abacus:0").unwrap_err().kind(), ErrorKind::Unavailable);
        for selector in ["host:", "host:x", "host:-1", "host:0:1"] {
            assert_eq!(open(selector).unwrap_err().kind(), ErrorKind::InvalidArgument, "{selector}");
        }
    }
}
