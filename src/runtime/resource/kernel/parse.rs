//! Parser of the declarations in [`kernel!`](crate::kernel!), and the errors for what it cannot read.

#[doc(hidden)]
#[macro_export]
macro_rules! __kernel_parse {
    // One parameter at a time: (name, kind, type of an element or of the value). Local memory is known by the
    // name of its type, so that type is compared with the one of this crate.
    (@params $head:tt $code:tt [$($done:tt)*] $arg:ident : &mut [$t:ty] $(, $($rest:tt)*)?) => {
        $crate::__kernel_parse! { @params $head $code [$($done)* ($arg, write, $t)] $($($rest)*)? }
    };
    (@params $head:tt $code:tt [$($done:tt)*] $arg:ident : &[$t:ty] $(, $($rest:tt)*)?) => {
        $crate::__kernel_parse! { @params $head $code [$($done)* ($arg, read, $t)] $($($rest)*)? }
    };
    (@params $head:tt $code:tt $done:tt $arg:ident : $type:ident<$t:ty> $(, $($rest:tt)*)?) => {
        $crate::__kernel_parse! { @generic $type $head $code $done ($arg, $type, $t) $($($rest)*)? }
    };
    (@params $head:tt $code:tt [$($done:tt)*] $arg:ident : $path:ident::Local<$t:ty> $(, $($rest:tt)*)?) => {
        const _: ::std::marker::PhantomData<$path::Local<$t>> =
            ::std::marker::PhantomData::<$crate::Local<$t>>;
        $crate::__kernel_parse! { @params $head $code [$($done)* ($arg, local, $t)] $($($rest)*)? }
    };
    (@params $head:tt $code:tt $done:tt $arg:ident : & $($rest:tt)*) => {
        $crate::__kernel_parse! { @no_parameter $head $arg }
    };
    (@params $head:tt $code:tt $done:tt $arg:ident : [$t:ty] $($rest:tt)*) => {
        $crate::__kernel_parse! { @no_parameter $head $arg }
    };
    (@params $head:tt $code:tt [$($done:tt)*] $arg:ident : $t:ty $(, $($rest:tt)*)?) => {
        $crate::__kernel_parse! { @params $head $code [$($done)* ($arg, value, $t)] $($($rest)*)? }
    };
    (@params $head:tt $code:tt $done:tt) => {
        $crate::__kernel! { @function $head $code $done }
    };
    (@params $head:tt $code:tt $done:tt $other:tt $($rest:tt)*) => {
        $crate::__kernel_parse! { @no_parameter $head $other }
    };
    (@generic Local $head:tt $code:tt [$($done:tt)*] ($arg:ident, $local:ident, $t:ty) $($rest:tt)*) => {
        const _: ::std::marker::PhantomData<$local<$t>> =
            ::std::marker::PhantomData::<$crate::Local<$t>>;
        $crate::__kernel_parse! { @params $head $code [$($done)* ($arg, local, $t)] $($rest)* }
    };
    (@generic $type:ident $head:tt $code:tt [$($done:tt)*] ($arg:ident, $name:ident, $t:ty) $($rest:tt)*) => {
        $crate::__kernel_parse! { @params $head $code [$($done)* ($arg, value, $name<$t>)] $($rest)* }
    };
    (@no_parameter [$(#[$meta:meta])* $vis:vis fn $name:ident] $arg:tt) => {
        ::std::compile_error!(::std::concat!(
            "kernel `", ::std::stringify!($name), "` cannot have the parameter `", ::std::stringify!($arg),
            "`: memory is declared as `x: &[T]` or `x: &mut [T]`, a value as `x: T`, local memory as \
             `x: Local<T>`"
        ));
    };

    // The code: one part at a time, in any order, into places for the bound, the code for the CPU and
    // device code.
    (@code $of:tt [] $cpu:tt $device:tt range: $range:expr $(, $($rest:tt)*)?) => {
        $crate::__kernel_parse!(@code $of [$range] $cpu $device $($($rest)*)?)
    };
    (@code $of:tt $range:tt $cpu:tt $device:tt range: $($rest:tt)*) => {
        $crate::__kernel_parse!(@wrong $of "has `range:` twice")
    };
    (@code [$declared:ident $name:ident [$(($param:ident, $kind:ident, $t:ty))*]] $range:tt [] $device:tt
     $form:ident: |$first:tt $(, $arg:pat_param)* $(,)?| $body:expr $(, $($rest:tt)*)?) => {
        $crate::__kernel_parse!(
            @pairs [$($param)*] [$($arg),*]
            {
                $crate::__kernel_parse!(
                    @code [$declared $name [$(($param, $kind, $t))*]] $range
                    [$form [$first] [$($arg),*] $body] $device $($($rest)*)?
                )
            }
            {
                "kernel `", ::std::stringify!($name), "` has other parameters than its closure: write `",
                ::std::stringify!($form), ": |", ::std::stringify!($first)
                $(, ", ", ::std::stringify!($param))*, "| ..`"
            }
        )
    };
    (@code $of:tt $range:tt [] $device:tt host: $host:expr $(, $($rest:tt)*)?) => {
        $crate::__kernel_parse!(@code $of $range [host $host] $device $($($rest)*)?)
    };

    // A closure that is none of these.
    (@code $of:tt $range:tt [$($cpu:tt)+] $device:tt $form:ident: | $($rest:tt)*) => {
        $crate::__kernel_parse!(
            @wrong $of "has several closures for the CPU: one of `each:`, `group:`, `item:` and `host:` is \
            enough"
        )
    };
    (@code $of:tt $range:tt $cpu:tt $device:tt each: $($rest:tt)*) => {
        $crate::__kernel_parse!(@no_closure $of each)
    };
    (@code $of:tt $range:tt $cpu:tt $device:tt group: $($rest:tt)*) => {
        $crate::__kernel_parse!(@no_closure $of group)
    };
    (@code $of:tt $range:tt $cpu:tt $device:tt item: $($rest:tt)*) => {
        $crate::__kernel_parse!(@no_closure $of item)
    };
    (@code $of:tt $range:tt $cpu:tt $device:tt $form:ident: | $($rest:tt)*) => {
        $crate::__kernel_parse!(@no_closure $of $form)
    };

    // Device code. The user's own block is passed on, for the lints on `unsafe`.
    (@code $of:tt $range:tt $cpu:tt $device:tt $variant:ident: $unsafe:tt $source:tt $($rest:tt)*) => {
        $crate::__kernel_parse!(
            @device $of $range $cpu $device ($variant $unsafe $source) $source $($rest)*
        )
    };
    (@device $of:tt $range:tt $cpu:tt [$($device:tt)*] $part:tt {$($source:tt)*} $(, $($rest:tt)*)?) => {
        $crate::__kernel_parse!(@code $of $range $cpu [$($device)* $part] $($($rest)*)?)
    };
    (@device $of:tt $range:tt $cpu:tt $device:tt ($variant:ident $($part:tt)*) {$($source:tt)*}
     $($rest:tt)*) => {
        $crate::__kernel_parse!(
            @wrong $of "needs a comma behind `", ::std::stringify!($variant), ": unsafe { .. }`"
        )
    };
    (@device $of:tt $range:tt $cpu:tt $device:tt ($variant:ident $($part:tt)*) $($rest:tt)*) => {
        $crate::__kernel_parse!(@not_unsafe $of $variant)
    };
    (@code $of:tt $range:tt $cpu:tt $device:tt $variant:ident: $($rest:tt)*) => {
        $crate::__kernel_parse!(@not_unsafe $of $variant)
    };

    // All of it.
    (@code [$declared:ident $name:ident $params:tt] $range:tt [] []) => {
        ::std::compile_error!(::std::concat!(
            "kernel `", ::std::stringify!($name), "` has no code: give it a closure for the CPU (`each:`, \
             `group:`, `item:` or `host:`), or device code as in `c: unsafe { SOURCE }`"
        ))
    };
    (@code [$declared:ident $name:ident $params:tt] [$($range:expr)?] [$($cpu:tt)*]
     [$(($variant:ident $unsafe:tt $source:tt))*]) => {{
        $(let $declared = $crate::__kernel!(@range $declared $params $range);)?
        let $declared = $crate::__kernel!(@cpu $declared $params $($cpu)*);
        $(let $declared = $crate::__kernel!(@device $declared $variant $unsafe $source);)*
        $declared
    }};
    // What the user has written is none of these.
    (@code $of:tt $range:tt $cpu:tt $device:tt $($rest:tt)*) => {
        $crate::__kernel_parse!(
            @wrong $of "has code that is not a list of `each: closure` and the like, and of device code as in \
            `c: unsafe { SOURCE }`"
        )
    };
    (@not_unsafe $of:tt $variant:ident) => {
        $crate::__kernel_parse!(
            @wrong $of "needs `unsafe` around its device code, which the compiler cannot check: write `",
            ::std::stringify!($variant), ": unsafe { SOURCE }`"
        )
    };
    (@no_closure [$declared:ident $name:ident [$(($param:ident, $kind:ident, $t:ty))*]] $form:ident) => {
        ::std::compile_error!(::std::concat!(
            "kernel `", ::std::stringify!($name), "` needs a closure in place, of names without types and \
             with a comma behind it: write `", ::std::stringify!($form), ": |i"
            $(, ", ", ::std::stringify!($param))*, "| expression,`"
        ))
    };
    (@wrong [$declared:ident $name:ident $params:tt] $($why:tt)*) => {
        ::std::compile_error!(::std::concat!("kernel `", ::std::stringify!($name), "` ", $($why)*))
    };

    // Goes on if there are as many parameters as names for them.
    (@pairs [] [] {$($go_on:tt)*} $error:tt) => { $($go_on)* };
    (@pairs [$param:tt $($params:tt)*] [$name:pat_param $(, $names:pat_param)*] $go_on:tt $error:tt) => {
        $crate::__kernel_parse!(@pairs [$($params)*] [$($names),*] $go_on $error)
    };
    (@pairs $params:tt $names:tt $go_on:tt {$($error:tt)*}) => {
        ::std::compile_error!(::std::concat!($($error)*))
    };

    // Functions, of which one is not as it should be.
    (@functions $(#[$meta:meta])* $vis:vis fn $name:ident ($($params:tt)*) {$($code:tt)*} $($rest:tt)+) => {
        $crate::kernel! { $(#[$meta])* $vis fn $name ($($params)*) {$($code)*} }
        $crate::__kernel_parse! { @functions $($rest)* }
    };
    (@functions $(#[$meta:meta])* $vis:vis fn $name:ident < $($rest:tt)*) => {
        ::std::compile_error!(::std::concat!(
            "kernel `", ::std::stringify!($name), "` cannot be generic, as device code has fixed types: \
             declare a kernel for each type"
        ));
    };
    (@functions $(#[$meta:meta])* $vis:vis fn $name:ident ($($params:tt)*) -> $($rest:tt)*) => {
        ::std::compile_error!(::std::concat!(
            "kernel `", ::std::stringify!($name), "` cannot return a value: give it memory to write, \
             as in `out: &mut [T]`"
        ));
    };
    (@functions $($other:tt)*) => {
        ::std::compile_error!(
            "`kernel!` takes functions without generics and return types, as in \
             `fn scale(factor: f32, x: &mut [f32]) { each: |_, factor, x| *x *= factor }`"
        );
    };
}
