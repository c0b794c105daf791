//! A kernel with its arguments: what `graph.launch` takes.

use super::KernelRef;
use crate::hal::{KernelArg, Param, ParamKind};
use crate::runtime::allocation::{Operand, View};
use crate::types::{Access, Error, ErrorKind, Result};

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
            return Err(self.invalid(format!("takes {takes} arguments, {given} were given")));
        }
        let mut accesses: Vec<(&Param, Access)> = Vec::new();
        for (param, arg) in params.iter().zip(&self.args) {
            if let Some(access) = self.check(param, arg)? {
                for (other, earlier) in &accesses {
                    if earlier.conflicts_with(&access) {
                        let (first, second) = (&other.name, &param.name);
                        return Err(self
                            .invalid(format!(
                                "gets overlapping memory for '{first}' and '{second}', one of which it writes"
                            ))
                            .help("pass disjoint buffers or slices"));
                    }
                }
                accesses.push((param, access));
            }
        }
        Ok(accesses.into_iter().map(|(_, access)| access).collect())
    }

    pub(crate) fn views(&self) -> impl Iterator<Item = &View> {
        self.args.iter().filter_map(|arg| match arg {
            CallArg::Memory(operand) => Some(&operand.0),
            CallArg::Value(_) => None,
        })
    }

    pub(crate) fn to_hal(&self) -> Result<Vec<KernelArg>> {
        self.args
            .iter()
            .map(|arg| match arg {
                CallArg::Value(value) => Ok(value.clone()),
                CallArg::Memory(operand) => operand.0.to_hal().map(KernelArg::Memory),
            })
            .collect()
    }

    fn check(&self, param: &Param, arg: &CallArg) -> Result<Option<Access>> {
        match (&param.kind, arg) {
            (ParamKind::Buffer { access, element_size, .. }, CallArg::Memory(operand)) => {
                if !operand.0.len.is_multiple_of((*element_size).max(1)) {
                    return Err(self.invalid(format!("gets a partial element for '{}'", param.name)));
                }
                Ok(Some(operand.0.access(*access)))
            }
            (ParamKind::Value { size }, CallArg::Value(KernelArg::Value(bytes))) if bytes.len() == *size => {
                Ok(None)
            }
            (ParamKind::Local { .. }, CallArg::Value(KernelArg::Local(_))) => Ok(None),
            _ => {
                Err(self.invalid(format!("gets an argument of the wrong kind or size for '{}'", param.name)))
            }
        }
    }

    fn invalid(&self, why: String) -> Error {
        Error::new(ErrorKind::InvalidArgument, format!("kernel '{}' {why}", self.kernel.name()))
    }
}
