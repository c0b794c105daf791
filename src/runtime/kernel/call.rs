//! A kernel with its arguments: what `graph.launch` takes.

use std::fmt;

use super::KernelRef;
use crate::hal::{Bytes, KernelArg, Param, ParamKind};
use crate::runtime::allocation::{Operand, View};
use crate::types::{Access, AccessMode, Error, ErrorKind, Result};

/// A kernel with its arguments, made by calling the function that [`kernel!`](crate::kernel!) declares.
#[derive(Clone, Debug)]
pub struct KernelCall {
    pub(crate) kernel: KernelRef,
    pub(crate) args: Vec<CallArg>,
}

/// One argument.
#[derive(Clone, Debug)]
pub enum CallArg {
    #[doc(hidden)]
    Value(KernelArg),
    #[doc(hidden)]
    Memory(Operand),
}

impl CallArg {
    /// Whether both are the same bytes, or the same memory.
    pub(crate) fn is(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Value(KernelArg::Value(one)), Self::Value(KernelArg::Value(other))) => one == other,
            (Self::Value(KernelArg::Local(one)), Self::Value(KernelArg::Local(other))) => one == other,
            (Self::Memory(Operand(one)), Self::Memory(Operand(other))) => {
                let same_place = (one.offset, one.len) == (other.offset, other.len);
                same_place && std::sync::Arc::ptr_eq(&one.allocation, &other.allocation)
            }
            _ => false,
        }
    }

    pub(crate) fn to_hal(&self) -> Result<KernelArg> {
        match self {
            Self::Value(value) => Ok(value.clone()),
            Self::Memory(operand) => operand.0.to_hal().map(KernelArg::Memory),
        }
    }
}

impl fmt::Display for CallArg {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Value(value) => value.fmt(f),
            Self::Memory(operand) => write!(f, "memory of {}", Bytes(operand.0.len)),
        }
    }
}

impl KernelCall {
    #[doc(hidden)]
    pub fn new(kernel: &'static super::KernelDef, args: Box<[CallArg]>) -> Self {
        Self { kernel: KernelRef::Declared(kernel), args: args.into_vec() }
    }

    /// The accesses of its memory arguments, in the order of the parameters.
    ///
    /// # Errors
    /// `InvalidArgument` when their number or kinds do not fit the parameters (of a raw kernel), or when a written
    /// argument overlaps another one: the kernel would get two references to the same memory.
    pub(crate) fn accesses(&self) -> Result<Vec<Access>> {
        let params = self.kernel.params();
        if params.len() != self.args.len() {
            let (takes, given) = (params.len(), self.args.len());
            let names: Vec<_> = params.iter().map(|param| &*param.name).collect();
            let names = names.join(", ");
            return Err(self.invalid(format!("takes {takes} arguments ({names}), {given} were given")));
        }
        let mut touched: Vec<(&Param, Access)> = Vec::new();
        let mut accesses = Vec::new();
        for (param, arg) in params.iter().zip(&self.args) {
            if let Some((view, mode)) = self.check(param, arg)? {
                let access = view.touched(mode);
                for (other, earlier) in &touched {
                    if earlier.conflicts_with(&access) {
                        let (first, second) = (&other.name, &param.name);
                        return Err(self
                            .invalid(format!(
                                "gets overlapping memory for '{first}' and '{second}', one of which it writes"
                            ))
                            .help("pass disjoint buffers or slices"));
                    }
                }
                touched.push((param, access));
                accesses.push(view.access(mode));
            }
        }
        Ok(accesses)
    }

    pub(crate) fn views(&self) -> impl Iterator<Item = &View> {
        self.args.iter().filter_map(|arg| match arg {
            CallArg::Memory(operand) => Some(&operand.0),
            CallArg::Value(_) => None,
        })
    }

    pub(crate) fn to_hal(&self) -> Result<Vec<KernelArg>> {
        self.args.iter().map(CallArg::to_hal).collect()
    }

    /// The memory of an argument that fits its parameter, and how the kernel uses it.
    fn check<'a>(&self, param: &Param, arg: &'a CallArg) -> Result<Option<(&'a View, AccessMode)>> {
        match (&param.kind, arg) {
            (ParamKind::Buffer { access, element_size, .. }, CallArg::Memory(operand)) => {
                if !operand.0.len.is_multiple_of((*element_size).max(1)) {
                    let why = format!(
                        "gets {} for '{}', which are not whole elements of {}",
                        Bytes(operand.0.len),
                        param.name,
                        Bytes(*element_size)
                    );
                    return Err(self.invalid(why));
                }
                Ok(Some((&operand.0, *access)))
            }
            (ParamKind::Value { size }, CallArg::Value(KernelArg::Value(bytes))) if bytes.len() == *size => {
                Ok(None)
            }
            (ParamKind::Local { .. }, CallArg::Value(KernelArg::Local(_))) => Ok(None),
            _ => {
                let why = format!("gets {arg} for '{}', which takes {}", param.name, param.kind);
                Err(self.invalid(why).help("pass the arguments in the order of the parameters"))
            }
        }
    }

    fn invalid(&self, why: String) -> Error {
        Error::new(ErrorKind::InvalidArgument, format!("kernel '{}' {why}", self.kernel.name()))
    }
}
