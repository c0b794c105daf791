//! The `kernel!` macro.

/// Declares a kernel: its signature once, and its code in one or more variants.
///
/// The macro makes a function with the kernel's name that takes the arguments and returns a
/// [`KernelCall`](crate::kernel::KernelCall) for [`Graph::launch`](crate::Graph::launch). Parameters are
///
/// | written as | the call takes | the host closure gets |
/// |---|---|---|
/// | `x: &[T]` | `&Buffer<T>` or `&HostBuffer<T>`, read | `&[T]` |
/// | `x: &mut [T]` | the same, read and written | `&mut [T]` |
/// | `x: T` | a `Pod` value | `T` |
/// | `x: Local<T>` | [`Local::new(len)`](crate::kernel::Local) | the `Local<T>` |
///
/// `host:` is a closure without captures, or a function. It is called once a launch with the whole
/// [`Range`](crate::Range) and the arguments, on a worker thread of the device; it may use rayon inside.
///
/// Device code follows it, or stands alone: `c:` is source in the [portable C dialect](crate::hal::dialect), and the
/// other fields of [`KernelSources`](crate::hal::KernelSources) have their names. Each stands in `unsafe { .. }`, because
/// declaring it vouches that, over every range the kernel is launched with, it accesses no memory but its arguments, in
/// their lengths, only reads those declared as `&[T]`, and ends.
///
/// ```
/// wakegraph::kernel! {
///     /// y = a * x + y
///     pub fn saxpy(a: f32, x: &[f32], y: &mut [f32]) {
///         host: |_range, a, x, y| y.iter_mut().zip(x).for_each(|(y, x)| *y += a * x),
///     }
/// }
/// wakegraph::kernel! {
///     fn square(x: &mut [f32]) {
///         // SAFETY: a work-item uses the element with its index, and is launched for those there are.
///         c: unsafe { "KERNEL(square, (SLICE(float, x))) { x[GLOBAL_ID(0)] *= x[GLOBAL_ID(0)]; }" },
///     }
/// }
/// ```
///
/// Device code without `unsafe` is refused, and so is `unsafe` where lints forbid it:
///
/// ```compile_fail
/// wakegraph::kernel! { fn zero(x: &mut [f32]) { c: "KERNEL(zero, (SLICE(float, x))) { x[GLOBAL_ID(0)] = 0; }" } }
/// ```
///
/// ```compile_fail,E0133
/// wakegraph::kernel! { fn zero(x: &mut [f32]) { c: const { "KERNEL(zero, (SLICE(float, x))) { *x = 0; }" } } }
/// ```
///
/// ```compile_fail
/// #![deny(unsafe_code)]
/// wakegraph::kernel! { fn zero(x: &mut [f32]) { c: unsafe { "KERNEL(zero, (SLICE(float, x))) { *x = 0; }" } } }
/// ```
///
/// The compiler refuses arguments of another element type, on the device and on the host:
///
/// ```compile_fail,E0277
/// # use wakegraph::{Device, Graph, Range};
/// wakegraph::kernel! { fn double(x: &mut [f32]) { host: |_range, x| x.iter_mut().for_each(|x| *x *= 2.0) } }
/// # let device = Device::open("host").unwrap();
/// let numbers = device.buffer_from(&[1u32, 2, 3]).unwrap();
/// Graph::new(&device).launch(double(&numbers), Range::linear(3)); // u32 for f32
/// ```
///
/// ```compile_fail,E0277
/// # use wakegraph::{Device, Graph, Range};
/// wakegraph::kernel! { fn double(x: &mut [f32]) { host: |_range, x| x.iter_mut().for_each(|x| *x *= 2.0) } }
/// # let device = Device::open("host").unwrap();
/// let numbers = device.host_buffer_from(&[1.0f64, 2.0]).unwrap();
/// Graph::new(&device).launch(double(&numbers), Range::linear(2)); // f64 for f32
/// ```
#[macro_export]
macro_rules! kernel {
    ($($(#[$meta:meta])* $vis:vis fn $name:ident ($($params:tt)*) { $($code:tt)* })+) => {
        $($crate::__kernel! { @parse [$(#[$meta])* $vis fn $name] {$($code)*} [] $($params)* })+
    };
}

// What the user wrote must not meet a name of the expansion's: locals are hygienic, items are not. The one item that the
// user's code sees has an odd name. Paths are absolute, and nothing relies on a prelude.
#[doc(hidden)]
#[macro_export]
macro_rules! __kernel {
    // One parameter at a time: (name, kind, element or value type).
    (@parse $head:tt $code:tt [$($done:tt)*] $arg:ident : &mut [$t:ty] $(, $($rest:tt)*)?) => {
        $crate::__kernel! { @parse $head $code [$($done)* ($arg, write, $t)] $($($rest)*)? }
    };
    (@parse $head:tt $code:tt [$($done:tt)*] $arg:ident : &[$t:ty] $(, $($rest:tt)*)?) => {
        $crate::__kernel! { @parse $head $code [$($done)* ($arg, read, $t)] $($($rest)*)? }
    };
    (@parse $head:tt $code:tt [$($done:tt)*] $arg:ident : $t:ty $(, $($rest:tt)*)?) => {
        $crate::__kernel! { @parse $head $code [$($done)* ($arg, value, $t)] $($($rest)*)? }
    };
    (@parse [$(#[$meta:meta])* $vis:vis fn $name:ident] {$($code:tt)*}
     [$(($arg:ident, $kind:ident, $t:ty))*]) => {
        $(#[$meta])*
        #[allow(clippy::too_many_arguments)]
        $vis fn $name($($arg: $crate::__kernel!(@takes $kind $t)),*) -> $crate::kernel::KernelCall {
            static __WAKEGRAPH_KERNEL: ::std::sync::LazyLock<$crate::kernel::KernelDef> =
                ::std::sync::LazyLock::new(|| {
                    let declared = $crate::kernel::KernelDef::new(
                        ::std::stringify!($name),
                        ::std::boxed::Box::new([$($crate::kernel::Param {
                            name: ::std::borrow::Cow::Borrowed(::std::stringify!($arg)),
                            kind: $crate::__kernel!(@kind $kind $t),
                        }),*]),
                    );
                    $crate::__kernel!(@code declared [$(($arg, $kind, $t))*] $($code)*)
                });
            $crate::kernel::KernelCall::new(
                &__WAKEGRAPH_KERNEL,
                ::std::boxed::Box::new([$($crate::__kernel!(@give $kind $arg)),*]),
            )
        }
    };

    // The variants. What stands for `unsafe` is passed on: if it is anything else, the compiler refuses the call.
    (@code $declared:ident [$(($arg:ident, $kind:ident, $t:ty))*]
     host: $host:expr $(, $variant:ident : $unsafe:tt $source:tt)* $(,)?) => {{
        let kernel: fn(&$crate::Range, $($crate::__kernel!(@gets $kind $t)),*) = $host;
        let $declared = $declared.host(move |range, args| {
            $(let $arg = $crate::__kernel!(@get $kind $t, args);)*
            kernel(range, $($arg),*);
            ::std::result::Result::Ok(())
        });
        $crate::__kernel!(@device $declared $($variant $unsafe $source),*)
    }};
    (@code $declared:ident $params:tt $($variant:ident : $unsafe:tt $source:tt),+ $(,)?) => {
        $crate::__kernel!(@device $declared $($variant $unsafe $source),+)
    };
    (@code $declared:ident $params:tt $($code:tt)*) => {
        ::std::compile_error!(
            "a kernel's code is `host: closure`, or device code as in `c: unsafe { SOURCE }`, or the first and then \
             the others"
        )
    };
    (@device $declared:ident $($variant:ident $unsafe:tt $source:tt),*) => {{
        $(
            // The user's own block, for the lints that look for it; the call is what is unsafe.
            #[allow(unused_unsafe)]
            let source = $unsafe $source;
            let $declared = $unsafe { $declared.device(|sources| sources.$variant(source)) };
        )*
        $declared
    }};

    (@takes value $t:ty) => { $t };
    (@takes $memory:ident $t:ty) => { impl $crate::MemoryArg<$t> };

    (@gets value $t:ty) => { $t };
    (@gets read $t:ty) => { &[$t] };
    (@gets write $t:ty) => { &mut [$t] };

    (@get value $t:ty, $args:ident) => { <$t as $crate::kernel::ByValue>::from_args($args)? };
    (@get read $t:ty, $args:ident) => { $args.read::<$t>()? };
    (@get write $t:ty, $args:ident) => { $args.write::<$t>()? };

    (@kind value $t:ty) => { <$t as $crate::kernel::ByValue>::KIND };
    (@kind read $t:ty) => { $crate::__kernel!(@memory $t, Read) };
    (@kind write $t:ty) => { $crate::__kernel!(@memory $t, ReadWrite) };
    (@memory $t:ty, $access:ident) => {
        $crate::kernel::ParamKind::Buffer {
            access: $crate::AccessMode::$access,
            element_size: ::std::mem::size_of::<$t>(),
            element_align: ::std::mem::align_of::<$t>(),
        }
    };

    (@give value $arg:ident) => {
        $crate::kernel::CallArg::Value($crate::kernel::ByValue::to_arg(&$arg))
    };
    (@give $memory:ident $arg:ident) => {
        $crate::kernel::CallArg::Memory($crate::MemoryArg::operand(&$arg))
    };
}
