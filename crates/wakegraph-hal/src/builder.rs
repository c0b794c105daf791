//! Builder methods of descriptors, which are open to more fields and so have no public literals.

/// Generates a builder method for each field: a `const fn` where the type is preceded by `const`.
macro_rules! setters {
    (const $type:ident { $($field:ident: $value:ty),+ $(,)? }) => {
        impl $type {
            $(setters! { @method [const fn] $field: $value })+
        }
    };
    ($type:ident { $($field:ident: $value:ty),+ $(,)? }) => {
        impl $type {
            $(setters! { @method [fn] $field: $value })+
        }
    };
    (@method [$($function:tt)+] $field:ident: $value:ty) => {
        #[doc = concat!("Sets [`", stringify!($field), "`](Self#structfield.", stringify!($field), ").")]
        #[must_use]
        pub $($function)+ $field(mut self, $field: $value) -> Self {
            self.$field = $field;
            self
        }
    };
}

pub(super) use setters;
