//! What a kernel is declared as, and the arguments of its launches as a driver takes them: one by one,
//! in the order of the source.

use std::ffi::{CString, c_void};
use std::ptr;

use smallvec::SmallVec;

use crate::{Error, ErrorKind, KernelArg, KernelDesc, Param, ParamKind, Range, Result, dialect};

/// A kernel as the program declares it.
#[derive(Debug)]
pub struct KernelDeclaration {
    /// The kernel's name in its source.
    pub name: String,
    /// Its parameters, in the order of the source.
    pub params: Vec<Param>,
    /// Whether the source is in the portable dialect, where each slice is followed by its length.
    portable: bool,
    /// The work-group size that the source requires, if it does.
    required_work_group: Option<[usize; 3]>,
}

/// An argument in the order of the source. `M` is memory as the driver takes it.
#[derive(PartialEq, Eq, Debug)]
pub enum SourceArgument<'a, M> {
    /// The bytes of a value.
    Value(&'a [u8]),
    /// Memory of the device.
    Memory(M),
    /// Local memory of this many bytes.
    Local(usize),
    /// The length of the slice before it, in elements.
    Length(u64),
}

/// Memory as a driver takes it.
pub trait MemoryArgument {
    /// Its size, and the address of its value.
    fn value(&self) -> (usize, *const c_void);
}

/// All arguments of a launch, each with its parameter.
pub type SourceArguments<'a, M> = SmallVec<[(&'a Param, SourceArgument<'a, M>); 8]>;

impl<M: MemoryArgument> SourceArgument<'_, M> {
    /// Its size and the address of its value, which is null for local memory.
    pub fn value(&self) -> (usize, *const c_void) {
        match self {
            Self::Value(bytes) => (bytes.len(), bytes.as_ptr().cast()),
            Self::Memory(memory) => memory.value(),
            Self::Local(bytes) => (*bytes, ptr::null()),
            Self::Length(len) => (size_of::<u64>(), ptr::from_ref(len).cast()),
        }
    }
}

impl KernelDeclaration {
    /// The declaration of a kernel; `portable` for source in the dialect.
    pub fn new(desc: &KernelDesc<'_>, portable: bool, required_work_group: Option<[usize; 3]>) -> Self {
        Self { name: desc.name.to_owned(), params: desc.params.into(), portable, required_work_group }
    }

    /// The arguments in the order of the source. `memory` gives those that are memory or an address.
    ///
    /// # Errors
    /// Those of `memory`, with the parameter's name.
    pub fn arguments<'a, M>(
        &'a self,
        args: &'a [KernelArg],
        mut memory: impl FnMut(&'a KernelArg) -> Result<M>,
    ) -> Result<SourceArguments<'a, M>> {
        let mut all = SmallVec::new();
        for (param, arg) in self.params.iter().zip(args) {
            let (own, len) = self.argument(param, arg, &mut memory)?;
            all.push((param, own));
            if let Some(len) = len {
                all.push((param, len));
            }
        }
        Ok(all)
    }

    /// The argument of one parameter, and the length that follows it if it is a slice of the dialect.
    ///
    /// # Errors
    /// Those of `memory`, with the parameter's name.
    pub fn argument<'a, M>(
        &self,
        param: &Param,
        arg: &'a KernelArg,
        memory: impl FnOnce(&'a KernelArg) -> Result<M>,
    ) -> Result<(SourceArgument<'a, M>, Option<SourceArgument<'a, M>>)> {
        let own = match arg {
            KernelArg::Value(bytes) => SourceArgument::Value(bytes),
            KernelArg::Local(bytes) => SourceArgument::Local(*bytes),
            KernelArg::Usm(_) | KernelArg::Memory(_) => {
                SourceArgument::Memory(memory(arg).map_err(|error| self.not_accepted(param, error))?)
            }
        };
        let len = dialect::slice_len(param, arg).filter(|_| self.portable);
        Ok((own, len.map(SourceArgument::Length)))
    }

    /// The place of a parameter's argument in the order of the source.
    pub fn place(&self, index: usize) -> usize {
        let is_slice = |param: &&Param| !matches!(param.kind, ParamKind::Value { .. });
        index + if self.portable { self.params[..index].iter().filter(is_slice).count() } else { 0 }
    }

    /// The error for an argument that the driver or the backend refuses.
    pub fn not_accepted(&self, param: &Param, error: Error) -> Error {
        let why = format!("kernel '{}': argument '{}' is not accepted", self.name, param.name);
        Error::new(error.kind(), why).caused_by(error)
    }

    /// The work-group size for a launch: the range's or else the source's; `None` leaves it to the
    /// device.
    ///
    /// # Errors
    /// [`InvalidSize`](ErrorKind::InvalidSize) for another size than the source requires, and for one
    /// that does not divide the global size.
    pub fn local_size(&self, range: &Range) -> Result<Option<[usize; 3]>> {
        let Some(required) = self.required_work_group else { return Ok(range.local_size()) };
        let local = range.local_size().unwrap_or(required);
        if local != required || !divides(local, range.global_size()) {
            let why =
                format!("the kernel's source demands work-groups of {required:?}, not those of {range}");
            return Err(Error::new(ErrorKind::InvalidSize, why)
                .help("leave the work-group size to the device, and make the global size a multiple of it"));
        }
        Ok(Some(local))
    }
}

/// The name of a kernel in its program, for a driver.
///
/// # Errors
/// [`InvalidArgument`](ErrorKind::InvalidArgument) for a NUL in the name.
pub fn kernel_symbol(name: &str) -> Result<CString> {
    CString::new(name)
        .map_err(|_| Error::new(ErrorKind::InvalidArgument, format!("kernel {name:?}: a NUL in the name")))
}

/// The error for a kernel without a variant that the device takes. The backend adds what it takes.
pub fn no_variant(desc: &KernelDesc<'_>) -> Error {
    let (name, found) = (desc.name, desc.sources.names());
    let why = format!("kernel '{name}' has no variant for this device, only {found:?}");
    Error::new(ErrorKind::FeatureNotSupported, why)
}

/// Whether work-groups of this size cover the global size.
pub fn divides(local: [usize; 3], global: [usize; 3]) -> bool {
    global.iter().zip(local).all(|(global, local)| local > 0 && global % local == 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::KernelSources;

    struct FakeAddress;

    impl MemoryArgument for FakeAddress {
        fn value(&self) -> (usize, *const c_void) {
            (8, ptr::null())
        }
    }

    fn declared(portable: bool, required: Option<[usize; 3]>) -> KernelDeclaration {
        let param = |name: &'static str, kind| Param { name: name.into(), kind };
        let params =
            [param("a", ParamKind::Value { size: 4 }), param("tile", ParamKind::Local { element_size: 4 })];
        let sources = KernelSources::new();
        let desc = KernelDesc { name: "k", params: &params, sources: &sources };
        KernelDeclaration::new(&desc, portable, required)
    }

    #[test]
    fn lengths_follow_slices_in_the_dialect_only() {
        let args = [KernelArg::Value([1, 2, 3, 4].as_slice().into()), KernelArg::Local(64)];
        let sizes = |portable| {
            let kernel = declared(portable, None);
            let all = kernel.arguments(&args, |_| Ok(FakeAddress)).unwrap();
            all.iter().map(|(param, arg)| (param.name.to_string(), arg.value().0)).collect::<Vec<_>>()
        };
        assert_eq!(sizes(false), [("a".into(), 4), ("tile".into(), 64)]);
        assert_eq!(sizes(true), [("a".into(), 4), ("tile".into(), 64), ("tile".into(), 8)]);
        assert_eq!([true, false].map(|portable| declared(portable, None).place(1)), [1, 1]);
        let local = SourceArgument::<FakeAddress>::Local(64);
        assert!(local.value().1.is_null());
    }

    #[test]
    fn work_groups_are_those_that_the_source_requires() {
        let free = declared(false, None);
        assert_eq!(free.local_size(&Range::linear(10)).unwrap(), None);
        assert_eq!(free.local_size(&Range::linear(10).local([5, 1, 1])).unwrap(), Some([5, 1, 1]));
        let bound = declared(false, Some([4, 1, 1]));
        assert_eq!(bound.local_size(&Range::linear(8)).unwrap(), Some([4, 1, 1]));
        for range in [Range::linear(8).local([2, 1, 1]), Range::linear(10)] {
            assert_eq!(bound.local_size(&range).unwrap_err().kind(), ErrorKind::InvalidSize);
        }
    }
}
