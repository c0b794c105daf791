//! Types that a lower layer keeps and a higher layer defines.

/// The name of a type that a higher layer defines, so that a lower layer can have a field of it.
///
/// The lower layer declares a type without values and names its field [`Attached`] to it. The higher layer
/// implements this trait for that type, once. So the compiler knows the field's type, and the lower layer's
/// source names nothing above it.
pub(crate) trait Attachment {
    type Value;
}

/// The type that a higher layer has given to the attachment `A`.
pub(crate) type Attached<A> = <A as Attachment>::Value;
