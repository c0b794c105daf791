//! Arguments that are not memory, and the Rust types of parameters, which device code knows by their
//! sizes only.

use std::any::TypeId;
use std::fmt;
use std::marker::PhantomData;

use bytemuck::Pod;
use wakegraph_hal::{AccessMode, GroupParts, HostArgs, KernelArg, ParamKind, Result, ValueBytes};

/// An argument passed by value: any `Pod` value, or [`Local`] memory.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be passed to a kernel by value",
    label = "neither plain data nor `Local<T>`",
    note = "numbers can be, and structs of them: with `#[repr(C)]`, without padding, deriving `bytemuck::Pod` \
            and `bytemuck::Zeroable`; in place of a `bool`, declare a `u32` that is 0 or 1",
    note = "memory is declared as `&[T]` or `&mut [T]`"
)]
pub trait ByValue: Sized + 'static {
    /// The parameter it is passed to.
    #[doc(hidden)]
    const KIND: ParamKind;
    #[doc(hidden)]
    fn to_arg(&self) -> KernelArg;
    /// Reads it back; `None` from another kind of argument.
    #[doc(hidden)]
    fn from_arg(arg: &KernelArg) -> Option<Self>;
    /// Reads it back on the host.
    #[doc(hidden)]
    fn from_args(args: &mut HostArgs<'_>) -> Result<Self>;
}

#[diagnostic::do_not_recommend]
impl<T: Pod> ByValue for T {
    const KIND: ParamKind = ParamKind::Value { size: size_of::<T>() };

    fn to_arg(&self) -> KernelArg {
        KernelArg::Value(ValueBytes::from_slice(bytemuck::bytes_of(self)))
    }

    fn from_arg(arg: &KernelArg) -> Option<Self> {
        match arg {
            KernelArg::Value(bytes) => bytemuck::try_pod_read_unaligned(bytes).ok(),
            _ => None,
        }
    }

    fn from_args(args: &mut HostArgs<'_>) -> Result<Self> {
        args.value()
    }
}

/// Local memory of a work-group for `len` elements of `T`, as a kernel argument.
///
/// Device code gets the memory and its length. So does a Rust closure in the form `group:`, as a `&mut [T]`
/// that is zeroed for each work-group:
///
/// ```
/// # use wakegraph::Local;
/// wakegraph::kernel! {
///     /// Reverses each work-group's part of `x`.
///     fn reverse(tile: Local<u32>, x: &mut [u32]) {
///         group: |group, tile, x| {
///             let (x, tile) = (x.row(0, 0), &mut tile[..group.count()]);
///             tile.copy_from_slice(x);
///             for (x, tile) in x.iter_mut().zip(tile.iter().rev()) {
///                 *x = *tile;
///             }
///         },
///     }
/// }
/// ```
///
/// A closure in another form gets the length only, as it sees a single work-item or the whole launch. For
/// `group:`, declare the parameter as `Local<T>`, not by an alias. A worked example for CPU and devices is in
/// `docs/kernels.md`, and in `examples/local_memory.rs`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Local<T> {
    len: usize,
    elements: PhantomData<fn() -> T>,
}

impl<T: Pod> Local<T> {
    /// Room for `len` elements.
    pub fn new(len: usize) -> Self {
        Self { len, elements: PhantomData }
    }

    /// Elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is room for none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

impl<T: Pod> ByValue for Local<T> {
    const KIND: ParamKind = ParamKind::Local { element_size: size_of::<T>() };

    fn to_arg(&self) -> KernelArg {
        KernelArg::Local(self.len.saturating_mul(size_of::<T>()))
    }

    fn from_arg(arg: &KernelArg) -> Option<Self> {
        match arg {
            KernelArg::Local(bytes) => Some(Self::new(bytes / size_of::<T>().max(1))),
            _ => None,
        }
    }

    fn from_args(args: &mut HostArgs<'_>) -> Result<Self> {
        Ok(Self::new(args.local()? / size_of::<T>().max(1)))
    }
}

/// An element of memory that a kernel uses: plain data.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be an element of a kernel's memory",
    label = "not plain data",
    note = "numbers can be, and structs of them: with `#[repr(C)]`, without padding, deriving `bytemuck::Pod` \
            and `bytemuck::Zeroable`; in place of a `bool`, declare a `u8` that is 0 or 1"
)]
pub trait Element: Sized {
    /// The parameter for memory that the kernel reads.
    #[doc(hidden)]
    const READ: ParamKind = memory_of::<Self>(AccessMode::Read);
    /// The parameter for memory that the kernel writes.
    #[doc(hidden)]
    const WRITTEN: ParamKind = memory_of::<Self>(AccessMode::ReadWrite);
    /// The parameter for local memory.
    #[doc(hidden)]
    const LOCAL: ParamKind = ParamKind::Local { element_size: size_of::<Self>() };

    /// The next argument, which the kernel reads.
    #[doc(hidden)]
    fn read<'a>(args: &mut HostArgs<'a>) -> Result<&'a [Self]>;
    /// The next argument, which the kernel writes.
    #[doc(hidden)]
    fn write<'a>(args: &mut HostArgs<'a>) -> Result<&'a mut [Self]>;
    /// Of the next argument, the elements of a block's work-items.
    #[doc(hidden)]
    fn items<'a>(args: &mut HostArgs<'a>) -> Result<&'a mut [Self]>;
    /// Of the next argument, the parts of a block's work-groups.
    #[doc(hidden)]
    fn groups<'a>(args: &mut HostArgs<'a>) -> Result<GroupParts<'a, Self>>;

    #[doc(hidden)]
    fn local_arg(local: Local<Self>) -> KernelArg;
    /// The next argument, local memory.
    #[doc(hidden)]
    fn local(args: &mut HostArgs<'_>) -> Result<Local<Self>>;
    /// The next argument, as memory for the work-groups that a thread runs one after the other.
    #[doc(hidden)]
    fn group_memory(args: &mut HostArgs<'_>) -> Result<Vec<Self>>;
    /// The memory for the next group, which sees nothing of what the last one has left.
    #[doc(hidden)]
    fn zeroed(memory: &mut [Self]) -> &mut [Self];
}

const fn memory_of<T>(access: AccessMode) -> ParamKind {
    ParamKind::Buffer { access, element_size: size_of::<T>(), element_align: align_of::<T>() }
}

#[diagnostic::do_not_recommend]
impl<T: Pod + Send + Sync> Element for T {
    #[inline]
    fn read<'a>(args: &mut HostArgs<'a>) -> Result<&'a [Self]> {
        args.read()
    }

    #[inline]
    fn write<'a>(args: &mut HostArgs<'a>) -> Result<&'a mut [Self]> {
        args.write()
    }

    #[inline]
    fn items<'a>(args: &mut HostArgs<'a>) -> Result<&'a mut [Self]> {
        args.items()
    }

    #[inline]
    fn groups<'a>(args: &mut HostArgs<'a>) -> Result<GroupParts<'a, Self>> {
        args.groups()
    }

    fn local_arg(local: Local<Self>) -> KernelArg {
        local.to_arg()
    }

    fn local(args: &mut HostArgs<'_>) -> Result<Local<Self>> {
        Local::from_args(args)
    }

    fn group_memory(args: &mut HostArgs<'_>) -> Result<Vec<Self>> {
        Ok(vec![T::zeroed(); Self::local(args)?.len()])
    }

    fn zeroed(memory: &mut [Self]) -> &mut [Self] {
        memory.fill(T::zeroed());
        memory
    }
}

/// The Rust type that a kernel's parameter is declared with: `T` for a value, `[T]` for memory.
#[derive(Clone, Copy, Debug)]
pub struct ParamType {
    id: TypeId,
    name: &'static str,
}

impl ParamType {
    /// The type itself.
    pub fn of<T: ?Sized + 'static>() -> Self {
        Self { id: TypeId::of::<T>(), name: std::any::type_name::<T>() }
    }
}

impl ParamType {
    /// These bytes as a value of the type, if it is one of Rust's numbers; else as they are.
    pub(super) fn display(&self, bytes: &[u8]) -> String {
        macro_rules! number {
            ($($number:ty)*) => {
                $(if self.id == TypeId::of::<$number>()
                    && let Ok(number) = bytemuck::try_pod_read_unaligned::<$number>(bytes)
                {
                    return number.to_string();
                })*
            };
        }
        number!(f32 f64 u8 i8 u16 i16 u32 i32 u64 i64 u128 i128 usize isize);
        bytes.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(" ")
    }
}

impl PartialEq for ParamType {
    fn eq(&self, other: &Self) -> bool {
        self.id == other.id
    }
}

impl fmt::Display for ParamType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}
