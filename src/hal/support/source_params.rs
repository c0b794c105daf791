//! The parameters that a kernel's source must have.

use crate::hal::{Param, ParamKind};

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
