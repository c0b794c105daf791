//! Helpers that the runtime and the backends share: panics and values of users' code, resources as
//! tokio-console shows them, spins that learn whether they pay, values that are made on demand.
//!
//! They know `tracing`, the error type and the standard library only.

pub mod console;
pub mod deferred_drop;
mod mutex;
pub mod panics;
mod try_once;

pub use mutex::Mutex;
pub use try_once::TryOnce;

/// Each failed spin quadruples the number of later opportunities that are skipped; each success
/// halves it.
///
/// A spin saves a task switch where another core is about to deliver. On a busy machine the other
/// thread may be waiting for this very core, and no estimate of durations tells the two cases
/// apart; trying does. A failed spin costs more than a successful one saves, so it weighs more:
/// spinning continues where about two in three spins succeed.
#[derive(Debug, Default)]
pub struct AdaptiveSpin {
    /// Opportunities that the last failure made it skip.
    penalty: u8,
    /// Opportunities still to be skipped.
    skips: u8,
}

impl AdaptiveSpin {
    /// Uses an opportunity; returns whether to spin.
    pub fn try_spin(&mut self) -> bool {
        let spin = self.skips == 0;
        self.skips = self.skips.saturating_sub(1);
        spin
    }

    /// Whether more than one opportunity will be skipped, so that no spin time has to be measured
    /// for the next one.
    pub fn is_backing_off(&self) -> bool {
        self.skips > 1
    }

    /// Records whether a spin found what it waited for.
    pub fn record(&mut self, found: bool) {
        self.penalty =
            if found { self.penalty / 2 } else { self.penalty.saturating_mul(4).saturating_add(3) };
        self.skips = self.penalty;
    }
}

/// A value that is made when it is first needed, and kept. Until then it takes no more than a pointer.
#[derive(Debug)]
pub struct OnDemand<T>(Option<Box<T>>);

impl<T> Default for OnDemand<T> {
    fn default() -> Self {
        Self(None)
    }
}

impl<T: Default> OnDemand<T> {
    /// The value, which the first call makes.
    pub fn get_or_make(&mut self) -> &mut T {
        self.0.get_or_insert_default()
    }

    /// The value, if it has been made.
    pub fn get(&self) -> Option<&T> {
        self.0.as_deref()
    }

    /// Reads from the value; returns the default where there is none.
    pub fn read<R: Default>(&self, read: impl FnOnce(&T) -> R) -> R {
        self.get().map(read).unwrap_or_default()
    }

    /// Changes the value if there is one; otherwise returns the default.
    pub fn if_made<R: Default>(&mut self, change: impl FnOnce(&mut T) -> R) -> R {
        self.0.as_deref_mut().map(change).unwrap_or_default()
    }
}

/// Generates the method by which a backend recognises its own objects behind a trait of the contract.
macro_rules! downcast {
    ($object:ident) => {
        impl dyn $object {
            /// Returns the object as the type that a backend has for it; `None` for an object of others.
            pub fn downcast_ref<T: Any>(&self) -> Option<&T> {
                let object: &dyn Any = self;
                object.downcast_ref()
            }
        }
    };
}

/// Generates a builder method for each field, with the comment above it, or else a link to the field.
/// After `const`, the methods are `const fn`s; otherwise the argument is converted to the type of the
/// field.
#[doc(hidden)]
#[macro_export]
macro_rules! setters {
    (const $type:ident { $($(#[$doc:meta])* $field:ident: $value:ty),+ $(,)? }) => {
        impl $type {
            $($crate::setters! { @method [$(#[$doc])*] [const fn] $field: $value = $field })+
        }
    };
    ($type:ident $(<$($of:tt),+>)? { $($(#[$doc:meta])* $field:ident: $value:ty),+ $(,)? }) => {
        impl $(<$($of),+>)? $type $(<$($of),+>)? {
            $($crate::setters! { @method [$(#[$doc])*] [fn] $field: $value = $field.into() })+
        }
    };
    (@method [] $function:tt $field:ident: $value:ty = $set:expr) => {
        $crate::setters! {
            @method [#[doc = concat!("Sets [`", stringify!($field), "`](Self#structfield.", stringify!($field), ").")]]
            $function $field: $value = $set
        }
    };
    (@method [$(#[$doc:meta])+] [$($function:tt)+] $field:ident: $value:ty = $set:expr) => {
        $(#[$doc])+
        #[must_use]
        pub $($function)+ $field(mut self, $field: $value) -> Self {
            self.$field = $set;
            self
        }
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    fn skips_until_spin(spin: &mut AdaptiveSpin) -> u32 {
        (0..).take_while(|_| !spin.try_spin()).count() as u32
    }

    #[test]
    fn backs_off_up_to_a_bound_and_forgives_step_by_step() {
        let mut spin = AdaptiveSpin::default();
        for expected in [0, 3, 15, 63, 255, 255] {
            assert_eq!(skips_until_spin(&mut spin), expected);
            spin.record(false);
        }
        for expected in [255, 127, 63, 31, 15, 7, 3, 1, 0, 0] {
            assert_eq!(skips_until_spin(&mut spin), expected);
            spin.record(true);
        }
    }

    #[test]
    fn goes_on_where_three_in_four_pay_and_rests_where_one_in_two_does() {
        let spins = |outcomes: &[bool]| {
            let mut spin = AdaptiveSpin::default();
            let mut outcomes = outcomes.iter().cycle();
            let mut spins = 0;
            for _ in 0..10_000 {
                if spin.try_spin() {
                    spins += 1;
                    spin.record(*outcomes.next().unwrap());
                }
            }
            spins
        };
        assert_eq!(spins(&[true]), 10_000);
        assert!(spins(&[true, true, true, false]) > 3_000);
        assert!(spins(&[true, false]) < 300);
    }
}
