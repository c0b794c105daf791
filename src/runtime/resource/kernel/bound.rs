//! The bound on a kernel's range, as its declaration computes it from the arguments.

use std::fmt::{self, Debug};
use std::sync::Arc;

use wakegraph_hal::{
    BlockUnit, Division, Error, ErrorKind, KernelArg, KernelSources, Param, ParamKind, Range, RangeBound,
    Result, dialect,
};

use crate::runtime::resource::kernel::ByValue;
use crate::runtime::resource::kernel::call::CallArg;
use crate::util::panics::catch;

/// The length of a slice, which is all that a kernel's bound needs to know of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SliceLen(usize);

impl SliceLen {
    /// Elements.
    pub fn len(&self) -> usize {
        self.0
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0 == 0
    }
}

/// The arguments of a call as a kernel's bound sees them: read one after the other, in the parameters' order.
#[derive(Debug)]
pub struct BoundArgs<'a> {
    params: &'a [Param],
    args: &'a [CallArg],
    next: usize,
}

impl<'a> BoundArgs<'a> {
    pub(super) fn new(params: &'a [Param], args: &'a [CallArg]) -> Self {
        Self { params, args, next: 0 }
    }

    /// The next argument, a value or [`Local`](crate::Local) memory.
    ///
    /// # Errors
    /// [`InvalidArgument`](ErrorKind::InvalidArgument) when it is not one of this type.
    pub fn value<T: ByValue>(&mut self) -> Result<T> {
        let (param, arg) = self.take()?;
        let value = match arg {
            CallArg::Value(value) => T::from_arg(value),
            CallArg::Memory(_) => None,
        };
        value.ok_or_else(|| mismatch(param, "is not a value of the type asked for"))
    }

    /// The next argument, memory or [`Local`](crate::Local) memory: its length.
    ///
    /// # Errors
    /// [`InvalidArgument`](ErrorKind::InvalidArgument) when it is neither.
    pub fn slice(&mut self) -> Result<SliceLen> {
        let (param, arg) = self.take()?;
        let len = slice_len(param, arg).or_else(|| local_len(param, arg));
        len.map(SliceLen).ok_or_else(|| mismatch(param, "is not memory"))
    }

    fn take(&mut self) -> Result<(&'a Param, &'a CallArg)> {
        let index = self.next;
        let (Some(param), Some(arg)) = (self.params.get(index), self.args.get(index)) else {
            let why = format!("the kernel's bound asks for argument {index}, which there is not");
            return Err(Error::new(ErrorKind::InvalidArgument, why));
        };
        self.next += 1;
        Ok((param, arg))
    }
}

fn slice_len(param: &Param, arg: &CallArg) -> Option<usize> {
    match (&param.kind, arg) {
        (ParamKind::Buffer { element_size, .. }, CallArg::Memory(operand)) => {
            Some(operand.0.len / (*element_size).max(1))
        }
        _ => None,
    }
}

fn local_len(param: &Param, arg: &CallArg) -> Option<usize> {
    match (&param.kind, arg) {
        (ParamKind::Local { element_size }, CallArg::Value(KernelArg::Local(bytes))) => {
            Some(bytes / (*element_size).max(1))
        }
        _ => None,
    }
}

fn mismatch(param: &Param, why: &str) -> Error {
    let why = format!("the kernel's bound reads argument '{}', which {why}", param.name);
    Error::new(ErrorKind::InvalidArgument, why)
}

/// The form that a range needs for a kernel's code, apart from its bound.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct RangeForm {
    /// The dimensions of the index in `item:` or `each:`.
    item_dimensions: Option<usize>,
    /// The unit of code that runs in blocks.
    unit: Option<BlockUnit>,
    has_barrier: bool,
}

impl RangeForm {
    pub(super) fn set_item_dimensions(&mut self, dimensions: usize) {
        self.item_dimensions = Some(dimensions);
    }

    pub(super) fn set_unit(&mut self, unit: BlockUnit) {
        self.unit = Some(unit);
    }

    pub(super) fn runs_in_blocks(&self) -> bool {
        self.unit.is_some()
    }

    pub(super) fn set_sources(&mut self, kernel: &str, sources: &KernelSources) {
        self.has_barrier = sources.c.as_deref().is_some_and(|source| dialect::has_barrier(source, kernel));
    }

    /// The reason why a range does not fit the code, and a remedy.
    pub(super) fn fault(
        &self,
        params: &[Param],
        args: &[CallArg],
        range: &Range,
    ) -> Option<(String, &'static str)> {
        if let Some(of_item) = self.item_dimensions
            && (range.dimensions() < of_item || range.global_size()[of_item..].iter().any(|&size| size != 1))
        {
            let why = format!("its code for a work-item takes an index of {of_item} dimensions");
            return Some((why, "launch it over a range of as many dimensions (`Range::new`)"));
        }
        if let Some(fault) = self.unit.and_then(|unit| division_fault(unit, params, args, range)) {
            return Some(fault);
        }
        if range.local_size().is_some() {
            return None;
        }
        let local = params.iter().find(|param| matches!(param.kind, ParamKind::Local { .. }));
        let why = match local {
            Some(Param { name, .. }) => format!("'{name}' is local memory of a work-group"),
            None if self.has_barrier => "its code in C has a barrier for a work-group".into(),
            None => return None,
        };
        Some((why, "give the size of a work-group, which divides the range (`Range::local`)"))
    }
}

/// The reason why work-items or work-groups cannot each own a part of what is written, and a remedy.
fn division_fault(
    unit: BlockUnit,
    params: &[Param],
    args: &[CallArg],
    range: &Range,
) -> Option<(String, &'static str)> {
    let written = params
        .iter()
        .zip(args)
        .filter(|(param, _)| matches!(param.kind, ParamKind::Buffer { access, .. } if access.writes()));
    let mut lengths = written.filter_map(|(param, arg)| Some((&param.name, slice_len(param, arg)?)));
    let elements = range.elements();
    match unit {
        BlockUnit::WorkItem => {
            let (name, len) = lengths.find(|(_, len)| elements != Some(*len))?;
            let wanted = elements.map_or("too many".into(), |elements| elements.to_string());
            let why = format!(
                "'{name}' has a length of {len}, and each work-item of `each:` owns one of {wanted} elements"
            );
            Some((why, "launch it over as many work-items as what it writes has elements"))
        }
        BlockUnit::WorkGroup => {
            let (name, len) = lengths.find(|(_, len)| Division::of(*len, range).is_none())?;
            let groups = BlockUnit::WorkGroup.count(range);
            let why = format!("'{name}' has a length of {len}, which {groups} work-groups cannot share");
            Some((why, "pass an element for each work-item, or as many for each work-group"))
        }
    }
}

/// Rule by which a kernel's bound follows from the arguments.
#[derive(Clone, Default)]
pub(super) enum BoundRule {
    /// One dimension up to the length of the shortest slice, or any range without slices.
    #[default]
    Shortest,
    /// As many work-items as the shortest slice has elements, in any dimensions.
    ShortestOfItems,
    /// Any range.
    Any,
    /// A closure of the declaration's.
    Declared(Arc<Declared>),
}

type Declared = dyn Fn(&mut BoundArgs<'_>) -> Result<RangeBound> + Send + Sync;

impl BoundRule {
    pub(super) fn declared(
        bound: impl Fn(&mut BoundArgs<'_>) -> Result<RangeBound> + Send + Sync + 'static,
    ) -> Self {
        Self::Declared(Arc::new(bound))
    }

    pub(super) fn is_declared(&self) -> bool {
        matches!(self, Self::Declared(_))
    }

    /// The rule for code that runs in blocks of these units, unless one is declared.
    pub(super) fn or_of(self, unit: BlockUnit) -> Self {
        match (self, unit) {
            (Self::Declared(bound), _) => Self::Declared(bound),
            (_, BlockUnit::WorkItem) => Self::ShortestOfItems,
            (_, BlockUnit::WorkGroup) => Self::Any,
        }
    }

    pub(super) fn apply(&self, params: &[Param], args: &[CallArg]) -> Result<RangeBound> {
        if let Self::Declared(declared) = self {
            // Panics would leave a graph whose parameters are being replaced half-way.
            return catch(|| declared(&mut BoundArgs::new(params, args))).unwrap_or_else(|panic| {
                let why = format!("the closure of the kernel's bound panicked: {panic}");
                Err(Error::new(ErrorKind::KernelPanicked, why))
            });
        }
        let shortest = params.iter().zip(args).filter_map(|(param, arg)| slice_len(param, arg)).min();
        Ok(match (self, shortest) {
            (Self::Shortest, Some(len)) => RangeBound::from([len]),
            (Self::ShortestOfItems, Some(len)) => RangeBound::from(len),
            _ => RangeBound::ANY,
        })
    }
}

impl Debug for BoundRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Shortest | Self::ShortestOfItems => "the shortest slice",
            Self::Any => "none",
            Self::Declared(_) => "declared",
        })
    }
}
