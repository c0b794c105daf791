//! Expansion of [`kernel!`](crate::kernel!).

// What the user wrote must not meet a name of the expansion's: locals are hygienic, items are not.
// The one item that the user's code sees has an odd name. Paths are absolute, and nothing relies on
// a prelude.
#[doc(hidden)]
#[macro_export]
macro_rules! __kernel {
    // The function that the user calls.
    (@function [$(#[$meta:meta])* $vis:vis fn $name:ident] {$($code:tt)*}
     [$(($arg:ident, $kind:ident, $t:ty))*]) => {
        $(#[$meta])*
        $(#[doc = $crate::__kernel!(@doc $kind $arg $t)])*
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
                        ::std::boxed::Box::new([$($crate::__kernel!(@type $kind $t)),*]),
                    );
                    $crate::__kernel_parse!(
                        @code [declared $name [$(($arg, $kind, $t))*]] [] [] [] $($code)*
                    )
                });
            $crate::kernel::KernelCall::new(
                &__WAKEGRAPH_KERNEL,
                [$($crate::__kernel!(@give $kind $t, $arg)),*],
            )
        }
    };

    // A line of the function's documentation: the parameter as it was declared, as the signature does not say
    // what the kernel writes.
    (@doc read $arg:ident $t:ty) => {
        ::std::concat!("\n- `", ::std::stringify!($arg), ": &[", ::std::stringify!($t), "]`, which it reads")
    };
    (@doc write $arg:ident $t:ty) => {
        ::std::concat!(
            "\n- `", ::std::stringify!($arg), ": &mut [", ::std::stringify!($t),
            "]`, which it reads and writes"
        )
    };
    (@doc local $arg:ident $t:ty) => {
        ::std::concat!("\n- `", ::std::stringify!($arg), ": Local<", ::std::stringify!($t), ">`")
    };
    (@doc value $arg:ident $t:ty) => {
        ::std::concat!("\n- `", ::std::stringify!($arg), ": ", ::std::stringify!($t), "`")
    };

    (@range $declared:ident [$(($arg:ident, $kind:ident, $t:ty))*] $range:expr) => {{
        let bound: fn($($crate::__kernel!(@measures $kind $t)),*) -> _ = $range;
        $declared.range_bound(move |args| {
            $(let $arg = $crate::__kernel!(@measure $kind $t, args);)*
            let bound: $crate::kernel::RangeBound = ::std::convert::Into::into(bound($($arg),*));
            ::std::result::Result::Ok(bound)
        })
    }};

    // The code for the CPU, in one of its forms.
    (@cpu $declared:ident $params:tt) => { $declared };
    (@cpu $declared:ident $params:tt host [$range:tt] [$($param:pat_param),*] $body:expr) => {
        $crate::__kernel!(@cpu $declared $params host |$range $(, $param)*| $body)
    };
    (@cpu $declared:ident [$(($arg:ident, $kind:ident, $t:ty))*] host $host:expr) => {{
        let kernel: fn(&$crate::Range, $($crate::__kernel!(@gets $kind $t)),*) = $host;
        $declared.host(move |range, args| {
            $(let $arg = $crate::__kernel!(@get $kind $t, args);)*
            kernel(range, $($arg),*);
            ::std::result::Result::Ok(())
        })
    }};
    (@cpu $declared:ident $params:tt each [$index:tt] $names:tt $item:expr) => {{
        $crate::__kernel_versions! { @each $params [$index] $names $item }
        let (unit, dimensions) = ($crate::kernel::BlockUnit::WorkItem, $crate::__kernel!(@dimensions $index));
        // SAFETY: `__kernel_versions` has compiled each version for its level.
        let code = unsafe {
            $crate::kernel::BlockCode::new(unit, dimensions, __wakegraph_baseline, __WAKEGRAPH_VERSIONS)
        };
        $declared.blocks(code)
    }};
    (@cpu $declared:ident $params:tt group [$group:tt] $names:tt $body:expr) => {{
        $crate::__kernel_versions! { @group $params [$group] $names $body }
        let unit = $crate::kernel::BlockUnit::WorkGroup;
        // SAFETY: `__kernel_versions` has compiled each version for its level.
        let code = unsafe {
            $crate::kernel::BlockCode::new(unit, 0, __wakegraph_baseline, __WAKEGRAPH_VERSIONS)
        };
        $declared.blocks(code)
    }};
    (@cpu $declared:ident [$(($arg:ident, $kind:ident, $t:ty))*] item [$index:tt] $names:tt $item:expr) => {{
        let $declared = $declared.host(move |range, args| {
            $(let $arg = $crate::__kernel!(@get $kind $t, args);)*
            let whole = $crate::kernel::Block::whole(*range);
            $crate::__kernel!(@rows item whole [$(($arg, $kind, $t))*] [$index] $names $item);
            ::std::result::Result::Ok(())
        });
        $declared.item_dimensions($crate::__kernel!(@dimensions $index))
    }};
    (@cpu $declared:ident $params:tt $form:ident $($code:tt)*) => {
        ::std::compile_error!(::std::concat!(
            "kernels have no closure `", ::std::stringify!($form), ":`: write `each:`, `group:`, `item:` or \
             `host:`"
        ))
    };

    // Device code. What stands for `unsafe` is passed on: if it is anything else, the compiler refuses the
    // call.
    (@device $declared:ident $variant:ident $unsafe:tt $source:tt) => {{
        // The user's own block, for the lints that expect it; the call is what is unsafe.
        #[allow(unused_unsafe)]
        let source = $unsafe $source;
        $unsafe { $declared.device(|sources| sources.$variant(source)) }
    }};

    // The function that runs a block, as often as there are versions.
    (@block [$(#[$attribute:meta])*] $name:ident
     @each [$(($arg:ident, $kind:ident, $t:ty))*] [$index:tt] [$($param:pat_param),*] $item:expr) => {
        $(#[$attribute])*
        #[allow(unused_variables)]
        fn $name(
            block: $crate::kernel::Block,
            args: &mut $crate::kernel::HostArgs<'_>,
        ) -> $crate::Result<()> {
            $(let $arg = $crate::__kernel!(@take_items $kind $t, args);)*
            $crate::__kernel!(@rows each block [$(($arg, $kind, $t))*] [$index] [$($param),*] $item);
            ::std::result::Result::Ok(())
        }
    };
    (@block [$(#[$attribute:meta])*] $name:ident
     @group [$(($arg:ident, $kind:ident, $t:ty))*] [$group:tt] [$($param:pat_param),*] $body:expr) => {
        $(#[$attribute])*
        #[allow(unused_mut, unused_variables)]
        fn $name(
            block: $crate::kernel::Block,
            args: &mut $crate::kernel::HostArgs<'_>,
        ) -> $crate::Result<()> {
            fn typed<F>(body: F) -> F
            where
                F: ::std::ops::Fn(&$crate::Range, $($crate::__kernel!(@gets_group $kind $t)),*),
            {
                body
            }
            $(let mut $arg = $crate::__kernel!(@take_groups $kind $t, args);)*
            let body = typed(|$group $(, $param)*| $body);
            for group in block.groups() {
                body(&group, $($crate::__kernel!(@lend_group $kind $t, $arg)),*);
            }
            ::std::result::Result::Ok(())
        }
    };

    // The loops over a block's work-items, of `each:` and `item:`.
    (@rows $form:ident $block:ident
     [$(($arg:ident, $kind:ident, $t:ty))*] [$index:tt] [$($param:pat_param),*] $item:expr) => {{
        fn typed<F>(item: F) -> F
        where
            F: ::std::ops::Fn(
                $crate::__kernel!(@item_index $index),
                $($crate::__kernel!(@gets_item $form $kind $t)),*
            ),
        {
            item
        }
        let item = typed(|$index $(, $param)*| $item);
        // A call, because the compiler knows of parameters that what is written is not what is read.
        let run = |row: $crate::kernel::Row, $($arg: $crate::__kernel!(@gets $kind $t)),*| {
            for at in 0..row.len() {
                let x = row.first() + at;
                item(
                    $crate::__kernel!(@index_of $index row x),
                    $($crate::__kernel!(@lend_item $form $kind $arg, at)),*
                );
            }
        };
        for row in $block.rows() {
            run(row, $($crate::__kernel!(@row $form $kind $arg, row)),*);
        }
    }};

    // One index, or an array of them, as a type that items can name.
    (@item_index [$($index:tt)*]) => { [usize; $crate::__kernel!(@dimensions [$($index)*])] };
    (@item_index $index:tt) => { usize };
    (@index_of [$($index:tt)*] $row:ident $x:ident) => { $row.index($x) };
    (@index_of $index:tt $row:ident $x:ident) => { $x };

    (@gets_item each write $t:ty) => { &mut $t };
    (@gets_item $form:ident $kind:ident $t:ty) => { $crate::__kernel!(@gets $kind $t) };
    (@take_items write $t:ty, $args:ident) => { <$t as $crate::kernel::Element>::items($args)? };
    (@take_items $kind:ident $t:ty, $args:ident) => { $crate::__kernel!(@get $kind $t, $args) };
    (@row each write $arg:ident, $row:ident) => { $row.elements(&mut *$arg) };
    (@row $form:ident $kind:ident $arg:ident, $row:ident) => { $crate::__kernel!(@lend $kind $arg) };
    (@lend_item each write $arg:ident, $at:ident) => { &mut $arg[$at] };
    (@lend_item $form:ident $kind:ident $arg:ident, $at:ident) => { $crate::__kernel!(@lend $kind $arg) };

    (@gets_group write $t:ty) => { &mut $crate::kernel::Part<'_, $t> };
    (@gets_group local $t:ty) => { &mut [$t] };
    (@gets_group $kind:ident $t:ty) => { $crate::__kernel!(@gets $kind $t) };
    (@take_groups write $t:ty, $args:ident) => { <$t as $crate::kernel::Element>::groups($args)? };
    (@take_groups local $t:ty, $args:ident) => { <$t as $crate::kernel::Element>::group_memory($args)? };
    (@take_groups $kind:ident $t:ty, $args:ident) => { $crate::__kernel!(@get $kind $t, $args) };
    (@lend_group write $t:ty, $arg:ident) => { &mut $arg.next_part() };
    (@lend_group local $t:ty, $arg:ident) => { <$t as $crate::kernel::Element>::zeroed(&mut $arg) };
    (@lend_group $kind:ident $t:ty, $arg:ident) => { $arg };

    (@dimensions [$($index:pat_param),+ $(,)?]) => { [$(::std::stringify!($index)),+].len() };
    (@dimensions $index:tt) => { 1 };

    (@lend write $arg:ident) => { &mut *$arg };
    (@lend $kind:ident $arg:ident) => { $arg };

    (@measures value $t:ty) => { $t };
    (@measures $memory:ident $t:ty) => { $crate::kernel::SliceLen };
    (@measure value $t:ty, $args:ident) => { $args.value::<$t>()? };
    (@measure $memory:ident $t:ty, $args:ident) => { $args.slice()? };

    (@takes value $t:ty) => { $t };
    (@takes local $t:ty) => { $crate::Local<$t> };
    (@takes $memory:ident $t:ty) => { impl $crate::memory::MemoryArg<$t> };

    (@gets value $t:ty) => { $t };
    (@gets local $t:ty) => { $crate::Local<$t> };
    (@gets read $t:ty) => { &[$t] };
    (@gets write $t:ty) => { &mut [$t] };

    // Traits are asked of the user's own type, so that the compiler says once, and there, what the type
    // lacks.
    (@get value $t:ty, $args:ident) => { <$t as $crate::kernel::ByValue>::from_args($args)? };
    (@get local $t:ty, $args:ident) => { <$t as $crate::kernel::Element>::local($args)? };
    (@get read $t:ty, $args:ident) => { <$t as $crate::kernel::Element>::read($args)? };
    (@get write $t:ty, $args:ident) => { <$t as $crate::kernel::Element>::write($args)? };

    (@type value $t:ty) => { $crate::kernel::ParamType::of::<$t>() };
    (@type local $t:ty) => { $crate::kernel::ParamType::of::<$crate::Local<$t>>() };
    (@type $memory:ident $t:ty) => { $crate::kernel::ParamType::of::<[$t]>() };

    (@kind value $t:ty) => { <$t as $crate::kernel::ByValue>::KIND };
    (@kind local $t:ty) => { <$t as $crate::kernel::Element>::LOCAL };
    (@kind read $t:ty) => { <$t as $crate::kernel::Element>::READ };
    (@kind write $t:ty) => { <$t as $crate::kernel::Element>::WRITTEN };

    (@give value $t:ty, $arg:ident) => {
        $crate::kernel::CallArg::Value(<$t as $crate::kernel::ByValue>::to_arg(&$arg))
    };
    (@give local $t:ty, $arg:ident) => {
        $crate::kernel::CallArg::Value(<$t as $crate::kernel::Element>::local_arg($arg))
    };
    (@give $memory:ident $t:ty, $arg:ident) => {
        $crate::kernel::CallArg::Memory($crate::memory::CopySource::operand(&$arg))
    };
}

// The function that runs a block: for the oldest processors, and for each newer level.
#[cfg(feature = "cpu-levels")]
#[doc(hidden)]
#[macro_export]
macro_rules! __kernel_versions {
    ($($block:tt)*) => {
        $crate::__kernel! { @block [] __wakegraph_baseline $($block)* }
        #[cfg(target_arch = "x86_64")]
        $crate::__kernel! {
            @block [#[target_feature(enable = "avx2,bmi1,bmi2,f16c,fma,lzcnt,movbe,popcnt")]]
            __wakegraph_x86_64_v3 $($block)*
        }
        #[cfg(target_arch = "x86_64")]
        $crate::__kernel! {
            @block [#[target_feature(
                enable = "avx2,bmi1,bmi2,f16c,fma,lzcnt,movbe,popcnt",
                enable = "avx512f,avx512bw,avx512cd,avx512dq,avx512vl"
            )]]
            __wakegraph_x86_64_v4 $($block)*
        }
        #[cfg(target_arch = "x86_64")]
        const __WAKEGRAPH_VERSIONS: &[($crate::kernel::CpuLevel, $crate::kernel::BlockFn)] = &[
            ($crate::kernel::CpuLevel::X86_64V3, __wakegraph_x86_64_v3),
            ($crate::kernel::CpuLevel::X86_64V4, __wakegraph_x86_64_v4),
        ];
        #[cfg(not(target_arch = "x86_64"))]
        const __WAKEGRAPH_VERSIONS: &[($crate::kernel::CpuLevel, $crate::kernel::BlockFn)] = &[];
    };
}

#[cfg(not(feature = "cpu-levels"))]
#[doc(hidden)]
#[macro_export]
macro_rules! __kernel_versions {
    ($($block:tt)*) => {
        $crate::__kernel! { @block [] __wakegraph_baseline $($block)* }
        const __WAKEGRAPH_VERSIONS: &[($crate::kernel::CpuLevel, $crate::kernel::BlockFn)] = &[];
    };
}
