//! The parameters that a kernel's source must have.

use std::fmt::Display;

use crate::hal::{KernelDesc, Param, ParamKind};
use crate::types::{Error, ErrorKind, Result};

/// The parameters in the source's order, each with a description and its kind. In the portable
/// dialect the length of each slice follows it: 8 bytes, which have no kind.
pub(crate) fn source_params(
    params: &[Param],
    portable: bool,
) -> impl Iterator<Item = (String, Option<&ParamKind>)> {
    params.iter().flat_map(move |Param { name, kind }| {
        let has_length = portable && !matches!(kind, ParamKind::Value { .. });
        let length = has_length.then(|| (format!("the length of '{name}'"), None));
        [(format!("'{name}'"), Some(kind))].into_iter().chain(length)
    })
}

/// A parameter as it is in the compiled source.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum FoundParam<T> {
    /// A value; of a scalar, the name of its type and its size in bytes.
    Value(Option<(T, usize)>),
    Buffer,
    Local,
}

impl<T> FoundParam<T> {
    fn name(&self) -> &'static str {
        match self {
            Self::Value(_) => "a value",
            Self::Buffer => "a buffer",
            Self::Local => "local memory",
        }
    }
}

/// Compares the parameters in the source with the declaration: their number, and what `found` tells
/// about each.
///
/// # Errors
/// [`InvalidArgument`](ErrorKind::InvalidArgument) where they differ.
pub(crate) fn check<T: Display>(
    desc: &KernelDesc<'_>,
    portable: bool,
    in_source: usize,
    found: impl Fn(usize) -> Option<FoundParam<T>>,
) -> Result<()> {
    let expected: Vec<_> = source_params(desc.params, portable).collect();
    let (name, declared) = (desc.name, expected.len());
    let help = match portable {
        true => {
            "declare the parameters of the source, in its order; in the source `&[T]` is SLICE(const T, x), \
             `&mut [T]` is SLICE(T, x), and `Local<T>` is LOCAL_SLICE(T, x), which are two parameters each"
        }
        false => "declare the parameters of the source, in its order",
    };
    let refused =
        |why: String| Err(Error::new(ErrorKind::InvalidArgument, format!("kernel '{name}'{why}")).help(help));
    if in_source != declared {
        return refused(format!(" is declared with {declared} parameters, its source has {in_source}"));
    }
    for (index, (param, declared)) in expected.into_iter().enumerate() {
        let declared = match declared {
            Some(ParamKind::Value { size }) => FoundParam::Value(Some(("", *size))),
            Some(ParamKind::Buffer { .. }) => FoundParam::Buffer,
            Some(ParamKind::Local { .. }) => FoundParam::Local,
            None => FoundParam::Value(Some(("", size_of::<u64>()))),
        };
        let Some(found) = found(index) else { continue };
        let param = format!(": parameter {index}, {param},");
        if found.name() != declared.name() {
            let (declared, found) = (declared.name(), found.name());
            return refused(format!("{param} is declared as {declared}, in the source it is {found}"));
        }
        let (FoundParam::Value(Some((_, declared))), FoundParam::Value(Some((type_name, size)))) =
            (declared, found)
        else {
            continue;
        };
        if size != declared {
            let source = format!("in the source it is a {type_name} of {size}");
            return refused(format!("{param} is declared as a value of {declared} bytes, {source}"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::AccessMode;

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
}
