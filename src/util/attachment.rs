//! Values that a lower layer keeps and a higher layer defines.

use std::sync::OnceLock;

/// The name of a type that a higher layer defines, so that a lower layer can keep a value of it.
///
/// The lower layer declares a type without values and keeps an [`Attached`] to it. The higher layer
/// implements this trait for that type, once. So the compiler knows the value's type, and the lower layer's
/// source names nothing above it.
pub(crate) trait Attachment {
    type Value;
}

/// A place for one value of the type that a higher layer has given to `A`.
///
/// The value is behind a trait object: whether the lower layer's types are `Send` would otherwise depend on
/// the higher layer's, which hold the lower ones. The compiler resolves such circles, but its incremental
/// builds crash on them.
pub(crate) struct Attached<A: Attachment>(OnceLock<Box<dyn Holds<A>>>);

trait Holds<A: Attachment>: Send + Sync {
    fn value(&self) -> &A::Value;
}

struct Holder<V>(V);

impl<A: Attachment> Holds<A> for Holder<A::Value>
where
    A::Value: Send + Sync,
{
    fn value(&self) -> &A::Value {
        &self.0
    }
}

impl<A: Attachment> Default for Attached<A> {
    fn default() -> Self {
        Self(OnceLock::new())
    }
}

impl<A: Attachment> Attached<A>
where
    A::Value: Send + Sync + 'static,
{
    pub(crate) fn new(value: A::Value) -> Self {
        Self(OnceLock::from(Box::new(Holder(value)) as Box<dyn Holds<A>>))
    }

    /// The value, if there is one.
    pub(crate) fn get(&self) -> Option<&A::Value> {
        self.0.get().map(|holder| holder.value())
    }

    /// The value, which the first call makes.
    pub(crate) fn get_or_default(&self) -> &A::Value
    where
        A::Value: Default,
    {
        self.0.get_or_init(|| Box::new(Holder(A::Value::default()))).value()
    }
}
