//! The parameters that a kernel's source must have, and programs, each of which is compiled once: a kernel
//! that is loaded again, or on another device of the same kind, uses the program that is there.

use std::collections::VecDeque;
use std::fmt::{self, Debug};
use std::sync::Arc;
use std::time::Instant;

use parking_lot::Mutex;

use crate::util::TryOnce;
use crate::{CodeOrigin, Compilation, Error, ErrorKind, KernelDesc, Param, ParamKind, Result, dialect};

/// The parameters in the source's order, each with a description and its kind. In the portable
/// dialect the length of each slice follows it: 8 bytes, which have no kind.
pub fn source_params(params: &[Param], portable: bool) -> impl Iterator<Item = (String, Option<&ParamKind>)> {
    params.iter().flat_map(move |Param { name, kind }| {
        let has_length = portable && !matches!(kind, ParamKind::Value { .. });
        let length = has_length.then(|| (format!("the length of '{name}'"), None));
        [(format!("'{name}'"), Some(kind))].into_iter().chain(length)
    })
}

/// A parameter as it is in the compiled source, as far as that is known.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum FoundParam {
    /// A value, and its type where that is known.
    Value(Option<FoundType>),
    /// Global memory with elements of this type.
    Buffer {
        /// Type of an element, where that is known.
        elements: Option<FoundType>,
        /// Whether the kernel declares the memory `const`.
        is_const: bool,
    },
    /// Local memory with elements of this type.
    Local(Option<FoundType>),
}

/// A type in a source: its name, and its bytes where these are known.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FoundType {
    /// The type's name in the source.
    pub name: String,
    /// Size in bytes, where the name tells it.
    pub size: Option<usize>,
}

impl FoundParam {
    fn place(&self) -> &'static str {
        match self {
            Self::Value(_) => "a value",
            Self::Buffer { .. } => "a buffer",
            Self::Local(_) => "local memory",
        }
    }

    /// The type of the value or of the elements.
    fn of_type(&self) -> Option<&FoundType> {
        match self {
            Self::Value(of_type) | Self::Local(of_type) | Self::Buffer { elements: of_type, .. } => {
                of_type.as_ref()
            }
        }
    }
}

impl FoundType {
    /// The type of this name in OpenCL C or in the portable dialect.
    pub fn named(name: &str) -> Self {
        Self { name: name.to_owned(), size: size_of_type(name) }
    }

    /// The type that a pointer of this name points to.
    pub fn behind(pointer: &str) -> Self {
        Self::named(pointer.strip_suffix('*').unwrap_or(pointer).trim())
    }
}

/// The bytes of a number, or of a vector of numbers.
fn size_of_type(name: &str) -> Option<usize> {
    let scalar = |name: &str| {
        Some(match name {
            "char" | "uchar" | "i8" | "u8" => 1,
            "short" | "ushort" | "half" | "i16" | "u16" | "f16" | "bf16" => 2,
            "int" | "uint" | "float" | "i32" | "u32" => 4,
            "long" | "ulong" | "double" | "i64" | "u64" => 8,
            _ => return None,
        })
    };
    scalar(name).or_else(|| {
        // The dialect's own names have no vectors.
        let (name, count) = name.split_at(name.find(|letter: char| letter.is_ascii_digit())?);
        let count = match count {
            "2" => 2,
            "3" | "4" => 4,
            "8" => 8,
            "16" => 16,
            _ => return None,
        };
        scalar(name).filter(|_| name.len() > 1).map(|size| size * count)
    })
}

/// Compares the parameters in the source with the declaration: their number, and what `found` tells
/// about each. In the portable dialect it has to tell all. `compiles` is called for types whose size is
/// not known: whether the source compiles with these assertions behind it.
///
/// # Errors
/// [`InvalidArgument`](ErrorKind::InvalidArgument) where they differ;
/// [`FeatureNotSupported`](ErrorKind::FeatureNotSupported) for parameters of the portable dialect of
/// which nothing is known.
pub fn check(
    desc: &KernelDesc<'_>,
    portable: bool,
    in_source: usize,
    found: impl Fn(usize) -> Option<FoundParam>,
    compiles: impl Fn(&str) -> Result<()>,
) -> Result<()> {
    let expected: Vec<_> = source_params(desc.params, portable).collect();
    let (comparison, declared) = (Comparison { kernel: desc.name, portable }, expected.len());
    if in_source != declared {
        let why = format!(" is declared with {declared} parameters, its source has {in_source}");
        return Err(comparison.refused(why));
    }
    let mut unknown = Vec::new();
    for (index, (param, declared)) in expected.into_iter().enumerate() {
        let found = found(index);
        if portable && found.as_ref().and_then(FoundParam::of_type).is_none() {
            return Err(comparison.not_told(index, &param));
        }
        let Some(found) = found else { continue };
        let (_, declared_size) = expected_of(declared);
        if let Some(of_type) = comparison.compare(index, &param, declared, &found)? {
            let size = UnknownSize { index, param, declared: declared_size, of_type };
            if !unknown.iter().any(|other| size.is_like(other)) {
                unknown.push(size);
            }
        }
    }
    comparison.check_unknown(&unknown, compiles)
}

/// How a parameter has to be in the source: where it is, and the bytes of the value or of an element.
fn expected_of(declared: Option<&ParamKind>) -> (FoundParam, usize) {
    match declared {
        Some(ParamKind::Value { size }) => (FoundParam::Value(None), *size),
        Some(ParamKind::Buffer { element_size, access, .. }) => {
            (FoundParam::Buffer { elements: None, is_const: !access.writes() }, *element_size)
        }
        Some(ParamKind::Local { element_size }) => (FoundParam::Local(None), *element_size),
        None => (FoundParam::Value(None), size_of::<u64>()),
    }
}

/// A parameter whose type in the source has a size that only the compiler knows.
struct UnknownSize {
    index: usize,
    param: String,
    declared: usize,
    of_type: FoundType,
}

impl UnknownSize {
    fn is_like(&self, other: &Self) -> bool {
        (&self.of_type, self.declared) == (&other.of_type, other.declared)
    }

    /// An assertion that any compiler of C knows, for the end of a source.
    fn assertion(&self) -> String {
        let Self { index, declared, of_type: FoundType { name, .. }, .. } = self;
        format!("typedef char wg_size_{index}[sizeof({name}) == {declared} ? 1 : -1];\n")
    }
}

/// A comparison of a kernel's declaration with its source.
struct Comparison<'a> {
    kernel: &'a str,
    portable: bool,
}

impl Comparison<'_> {
    /// Compares one parameter; gives its type if the size is not known.
    fn compare(
        &self,
        index: usize,
        param: &str,
        declared: Option<&ParamKind>,
        found: &FoundParam,
    ) -> Result<Option<FoundType>> {
        let (expected, size) = expected_of(declared);
        let of = format!(": parameter {index}, {param}, is declared");
        if found.place() != expected.place() {
            let (declared, found) = (expected.place(), found.place());
            return Err(self.refused(format!("{of} as {declared}, in the source it is {found}")));
        }
        // A vendor's variant may see the memory as it likes.
        let is_checked = self.portable || matches!(found, FoundParam::Value(_));
        let Some(of_type) = found.of_type().filter(|_| is_checked) else { return Ok(None) };
        if of_type.size.is_some_and(|found| found != size) {
            return Err(self.other_size(&of, &expected, size, of_type));
        }
        if let (FoundParam::Buffer { is_const: true, .. }, FoundParam::Buffer { is_const: false, .. }) =
            (&expected, found)
            && self.portable
        {
            let name = &of_type.name;
            return Err(self.refused(format!(
                "{of} read only, in the source it can be written: it is SLICE({name}, ..) without `const`"
            )));
        }
        // Other compilers may not know what a source of a vendor's dialect calls its types.
        Ok(Some(of_type).filter(|of_type| self.portable && of_type.size.is_none()).cloned())
    }

    /// Has the compiler compare the sizes that only it knows.
    fn check_unknown(&self, unknown: &[UnknownSize], compiles: impl Fn(&str) -> Result<()>) -> Result<()> {
        let with_all = |sizes: &[UnknownSize]| {
            let assertions: String = sizes.iter().map(UnknownSize::assertion).collect();
            // The first line break may be escaped by the end of the source.
            compiles(&format!("\n\n{assertions}"))
        };
        if unknown.is_empty() || with_all(unknown).is_ok() {
            return Ok(());
        }
        for size in unknown {
            let Err(log) = with_all(std::slice::from_ref(size)) else { continue };
            let UnknownSize { index, param, declared, of_type: FoundType { name, .. } } = size;
            let why = format!(
                ": parameter {index}, {param}, is declared with {declared} bytes for each value, in the \
                 source these are {name}, which have another size, or which the end of the source cannot name"
            );
            return Err(self.refused(why).caused_by(log));
        }
        Ok(())
    }

    fn other_size(&self, of: &str, expected: &FoundParam, size: usize, found: &FoundType) -> Error {
        let (name, bytes) = (&found.name, found.size.unwrap_or_default());
        let refused = self.refused(match expected {
            FoundParam::Value(_) => {
                format!("{of} as a value of {size} bytes, in the source it is a {name} of {bytes}")
            }
            _ => format!("{of} with elements of {size} bytes, in the source they are {name} of {bytes}"),
        });
        match name.ends_with('3') {
            true => refused.help(dialect::VECTORS_OF_THREE),
            false => refused,
        }
    }

    fn not_told(&self, index: usize, param: &str) -> Error {
        let why = format!(
            "kernel '{}': the compiler does not tell the type of parameter {index}, {param}, so that it \
             cannot be compared with the declaration",
            self.kernel
        );
        Error::new(ErrorKind::FeatureNotSupported, why)
            .help("add a variant in OpenCL C (`opencl_c:`), whose author vouches for it")
    }

    fn refused(&self, why: String) -> Error {
        let help = match self.portable {
            true => {
                "declare the parameters of the source, in its order; in the source `&[T]` is SLICE(const T, \
                 x), `&mut [T]` is SLICE(T, x), and `Local<T>` is LOCAL_SLICE(T, x), which are two parameters each"
            }
            false => "declare the parameters of the source, in its order",
        };
        Error::new(ErrorKind::InvalidArgument, format!("kernel '{}'{why}", self.kernel)).help(help)
    }
}

/// Compiled programs by all that they were compiled from: source, options, target.
pub struct ProgramCache<K, P: ?Sized> {
    /// The oldest first.
    programs: Mutex<VecDeque<(K, Arc<Program<P>>)>>,
    capacity: usize,
}

/// A program that one thread compiles while the others that need it wait.
type Program<P> = TryOnce<Arc<P>>;

impl<K: PartialEq, P: ?Sized> ProgramCache<K, P> {
    /// An empty cache. Beyond `capacity` programs it forgets the oldest that is not in use.
    pub const fn new(capacity: usize) -> Self {
        Self { programs: Mutex::new(VecDeque::new()), capacity }
    }

    /// The program of this key, which `compile` gets the first time, and how it was got. Programs of several
    /// keys are compiled beside each other.
    ///
    /// # Errors
    /// The errors of `compile`, which is tried again the next time.
    pub fn get_or_compile(
        &self,
        key: K,
        compile: impl FnOnce() -> Result<(Arc<P>, CodeOrigin)>,
    ) -> Result<(Arc<P>, Compilation)> {
        let (program, start, mut origin) = (self.find_or_add(key), Instant::now(), CodeOrigin::Memory);
        let compile = || {
            let (program, from) = compile()?;
            origin = from;
            Ok(program)
        };
        match program.get_or_make(compile) {
            Ok(compiled) => Ok((Arc::clone(compiled), Compilation { origin, time: start.elapsed() })),
            Err(error) => {
                // Another thread may have succeeded since.
                let is_good =
                    |known: &Arc<Program<P>>| !Arc::ptr_eq(known, &program) || known.get().is_some();
                self.programs.lock().retain(|(_, known)| is_good(known));
                Err(error)
            }
        }
    }

    fn find_or_add(&self, key: K) -> Arc<Program<P>> {
        let mut programs = self.programs.lock();
        if let Some((_, known)) = programs.iter().find(|(known, _)| *known == key) {
            return Arc::clone(known);
        }
        if programs.len() >= self.capacity
            && let Some(unused) = programs.iter().position(|(_, program)| is_unused(program))
        {
            programs.remove(unused);
        }
        let program = Arc::<Program<P>>::default();
        programs.push_back((key, Arc::clone(&program)));
        program
    }

    /// Forgets a program, which is to be compiled again.
    pub fn forget(&self, program: &P)
    where
        P: PartialEq,
    {
        self.programs.lock().retain(|(_, known)| known.get().is_none_or(|known| **known != *program));
    }
}

/// Whether no kernel has the program, and no thread compiles it or waits for it.
fn is_unused<P: ?Sized>(program: &Arc<Program<P>>) -> bool {
    Arc::strong_count(program) == 1 && program.get().is_none_or(|compiled| Arc::strong_count(compiled) == 1)
}

impl<K, P: ?Sized> Debug for ProgramCache<K, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProgramCache").field("programs", &self.programs.lock().len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::sync::atomic::AtomicU32;
    use std::sync::atomic::Ordering::Relaxed;

    use super::*;
    use crate::AccessMode;

    #[test]
    fn lengths_follow_slices_in_the_dialect_only() {
        let param = |name: &'static str, kind| Param { name: name.into(), kind };
        let params = [
            param("a", ParamKind::Value { size: 4 }),
            param("x", ParamKind::Buffer { access: AccessMode::Read, element_size: 4, element_align: 4 }),
            param("tile", ParamKind::Local { element_size: 4 }),
        ];
        let names = |portable| source_params(&params, portable).map(|(name, _)| name).collect::<Vec<_>>();
        assert_eq!(names(false), ["'a'", "'x'", "'tile'"]);
        assert_eq!(names(true), ["'a'", "'x'", "the length of 'x'", "'tile'", "the length of 'tile'"]);
    }

    const READ: ParamKind = ParamKind::Buffer { access: AccessMode::Read, element_size: 4, element_align: 4 };

    fn buffer(type_name: &str, is_const: bool) -> FoundParam {
        FoundParam::Buffer { elements: Some(FoundType::behind(type_name)), is_const }
    }

    /// Compares the slice `x` of a kernel in the dialect with what is found, where the compiler takes
    /// sources with these assertions.
    fn compare(kind: ParamKind, found: FoundParam, takes: impl Fn(&str) -> bool) -> Result<()> {
        let (params, sources) = ([Param { name: "x".into(), kind }], crate::KernelSources::new());
        let desc = KernelDesc::new("k", &params, &sources);
        let found = |index| match index {
            0 => Some(found.clone()),
            _ => Some(FoundParam::Value(Some(FoundType::named("u64")))),
        };
        check(&desc, true, 2, found, |end| match takes(end) {
            true => Ok(()),
            false => Err(Error::new(ErrorKind::Driver, "a negative size")),
        })
    }

    #[track_caller]
    fn refused(kind: ParamKind, found: FoundParam, why: &str) {
        let error = compare(kind, found, |_| true).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        assert!(error.to_string().contains(why), "{error}");
    }

    #[test]
    fn slices_have_the_declared_elements() {
        for name in ["float*", "u32*", "uint *", "uchar4*", "half2*"] {
            compare(READ, buffer(name, true), |_| false).unwrap();
        }
        refused(
            READ,
            buffer("double*", true),
            "with elements of 4 bytes, in the source they are double of 8",
        );
        refused(READ, buffer("float*", false), "read only, in the source it can be written");
        refused(READ, buffer("float3*", true), "use a struct of three numbers");
        let local = ParamKind::Local { element_size: 2 };
        refused(local.clone(), FoundParam::Local(Some(FoundType::behind("int*"))), "elements of 2 bytes");
        compare(local, FoundParam::Local(Some(FoundType::behind("short*"))), |_| false).unwrap();
        let written = ParamKind::Buffer { access: AccessMode::ReadWrite, element_size: 4, element_align: 4 };
        compare(written.clone(), buffer("float*", false), |_| false).unwrap();
        compare(written, buffer("float*", true), |_| false).unwrap();
    }

    #[test]
    fn the_compiler_compares_sizes_that_only_it_knows() {
        let is_asserted = |end: &str| end == "\n\ntypedef char wg_size_0[sizeof(struct S) == 4 ? 1 : -1];\n";
        compare(READ, buffer("struct S*", true), is_asserted).unwrap();
        let error = compare(READ, buffer("struct S*", true), |_| false).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        for part in ["parameter 0, 'x'", "4 bytes", "struct S", "a negative size", "SLICE(const T, x)"] {
            assert!(error.to_string().contains(part), "{part} in {error}");
        }
        let value = ParamKind::Value { size: 12 };
        let found = FoundParam::Value(Some(FoundType::named("struct S")));
        let sources = crate::KernelSources::new();
        let params = [value.clone(), value].map(|kind| Param { name: "s".into(), kind });
        let desc = KernelDesc::new("k", &params, &sources);
        let once = |end: &str| match end.matches("sizeof(struct S) == 12").count() {
            1 => Ok(()),
            count => Err(Error::new(ErrorKind::Driver, format!("{count} assertions"))),
        };
        check(&desc, true, 2, |_| Some(found.clone()), once).unwrap();
    }

    #[test]
    fn untold_types_of_the_dialect_are_refused() {
        let untold = FoundParam::Buffer { elements: None, is_const: true };
        let error = compare(READ, untold, |_| true).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::FeatureNotSupported);
        assert!(error.to_string().contains("opencl_c"), "{error}");
    }

    /// The text of a key, which is compiled as `text` where there is none.
    fn get_text(cache: &ProgramCache<&'static str, str>, key: &'static str, text: &str) -> Arc<str> {
        cache.get_or_compile(key, || Ok((text.into(), CodeOrigin::Disk))).unwrap().0
    }

    #[test]
    fn each_key_is_compiled_once() {
        let cache = ProgramCache::new(8);
        let get = |key, text| get_text(&cache, key, text);
        let (first, again, other) = (get("a", "A"), get("a", "compiled again"), get("b", "B"));
        assert!(Arc::ptr_eq(&first, &again));
        assert_eq!((&*first, &*other), ("A", "B"));
    }

    #[test]
    fn a_program_can_be_forgotten() {
        let cache = ProgramCache::new(8);
        let get = |key, text| get_text(&cache, key, text);
        let (first, _) = (get("a", "A"), get("b", "B"));
        cache.forget(&first);
        assert_eq!([get("a", "again"), get("b", "compiled again")], ["again".into(), "B".into()]);
    }

    #[test]
    fn a_failure_is_not_remembered() {
        let cache = ProgramCache::<u32, u32>::new(8);
        let error = cache.get_or_compile(1, || Err(Error::new(ErrorKind::Driver, "no"))).unwrap_err();
        assert_eq!(error.message(), "no");
        assert_eq!(get(&cache, 1, 7), (7, CodeOrigin::Compiled));
    }

    #[test]
    fn a_failure_leaves_what_another_thread_has_compiled() {
        let (cache, step) = (&ProgramCache::<u32, u32>::new(8), &Barrier::new(2));
        std::thread::scope(|scope| {
            let fail = || {
                step.wait();
                step.wait();
                Err(Error::new(ErrorKind::Driver, "no"))
            };
            let failing = scope.spawn(move || cache.get_or_compile(1, fail));
            step.wait();
            let other = scope.spawn(|| get(cache, 1, 7));
            // Once the list and both threads refer to the program.
            let programs = loop {
                let programs = cache.programs.lock();
                if Arc::strong_count(&programs[0].1) == 3 {
                    break programs;
                }
                drop(programs);
                std::thread::yield_now();
            };
            step.wait();
            assert_eq!(other.join().unwrap(), (7, CodeOrigin::Compiled));
            drop(programs);
            failing.join().unwrap().unwrap_err();
        });
        assert_eq!(get(cache, 1, 8), (7, CodeOrigin::Memory));
    }

    /// The program of a key, which is compiled as `program` where there is none.
    fn get(cache: &ProgramCache<u32, u32>, key: u32, program: u32) -> (u32, CodeOrigin) {
        let compile = || Ok((Arc::new(program), CodeOrigin::Compiled));
        let (program, compilation) = cache.get_or_compile(key, compile).unwrap();
        (*program, compilation.origin)
    }

    #[test]
    fn the_oldest_unused_program_makes_room() {
        let cache = ProgramCache::<u32, u32>::new(2);
        let (used, _) = cache.get_or_compile(1, || Ok((Arc::new(1), CodeOrigin::Disk))).unwrap();
        assert_eq!(get(&cache, 2, 2), (2, CodeOrigin::Compiled));
        assert_eq!(get(&cache, 3, 3), (3, CodeOrigin::Compiled));
        assert_eq!(get(&cache, 1, 0), (1, CodeOrigin::Memory), "it is in use");
        assert_eq!(get(&cache, 3, 0), (3, CodeOrigin::Memory));
        assert_eq!(get(&cache, 2, 4), (4, CodeOrigin::Compiled), "it made room");
        drop(used);
    }

    #[test]
    fn threads_compile_each_program_once_and_beside_others() {
        let (cache, both) = (ProgramCache::<u32, u32>::new(2), Barrier::new(2));
        let (compiled, mut origins) = (AtomicU32::new(0), Vec::new());
        let get = |key| {
            cache.get_or_compile(key, || {
                compiled.fetch_add(1, Relaxed);
                // Ends only if the other program is being compiled, too.
                both.wait();
                Ok((Arc::new(key), CodeOrigin::Compiled))
            })
        };
        std::thread::scope(|scope| {
            let get = &get;
            let threads: Vec<_> = [1, 2, 1, 2].map(|key| (key, scope.spawn(move || get(key)))).into();
            for (key, thread) in threads {
                let (program, compilation) = thread.join().unwrap().unwrap();
                assert_eq!(*program, key);
                origins.push(compilation.origin);
            }
        });
        assert_eq!(compiled.load(Relaxed), 2);
        assert_eq!(origins.iter().filter(|origin| **origin == CodeOrigin::Memory).count(), 2);
    }
}
