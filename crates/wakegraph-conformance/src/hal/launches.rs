//! Launches of the kernels in `kernels.c`, as the contract takes them.

use std::sync::Arc;

use wakegraph::hal::{
    AccessMode, Command, HostArgs, Kernel, KernelArg, KernelDesc, KernelSources, MemoryView, Param,
    ParamKind, ValueBytes,
};
use wakegraph::{Range, Result};

use super::bench::{Bench, launch, read, value};
use crate::kernels::SOURCE;
use crate::watch::{self, Turnstile};

/// Enough rounds for a command that should have waited to be early.
pub(crate) const ROUNDS: u32 = 200_000;

pub(crate) fn number(number: u32) -> KernelArg {
    KernelArg::Value(ValueBytes::from_slice(&number.to_ne_bytes()))
}

fn address(address: u64) -> KernelArg {
    KernelArg::Value(ValueBytes::from_slice(&address.to_ne_bytes()))
}

/// A parameter for memory of elements of this size.
pub(crate) fn elements(name: &'static str, size: usize, access: AccessMode) -> Param {
    let kind = ParamKind::Buffer { access, element_size: size, element_align: size };
    Param { name: name.into(), kind }
}

pub(crate) fn words(view: &MemoryView) -> Vec<u32> {
    read(view).chunks_exact(4).map(|bytes| u32::from_ne_bytes(bytes.try_into().unwrap())).collect()
}

/// The result of `mix` for a number.
pub(crate) fn mixed(x: u32, n: u32) -> u32 {
    x.wrapping_mul(31).wrapping_add(n)
}

/// The result of `grind` for a number.
pub(crate) fn ground(x: u32) -> u32 {
    (0..ROUNDS).fold(x, |x, _| x.wrapping_mul(1_664_525).wrapping_add(1_013_904_223))
}

impl Bench {
    /// A kernel of `kernels.c`, and what it does on the host.
    pub(crate) fn load(
        &self,
        name: &str,
        params: &[Param],
        host: impl Fn(&Range, &mut HostArgs<'_>) -> Result<()> + Send + Sync + 'static,
    ) -> Arc<dyn Kernel> {
        let sources = KernelSources::new().host(host).c(SOURCE);
        self.device.create_kernel(&KernelDesc::new(name, params, &sources)).unwrap()
    }

    /// A kernel of a number and words that changes each word.
    fn over_words(&self, name: &str, step: fn(u32, u32) -> u32) -> Arc<dyn Kernel> {
        let params = [value("n", 4), elements("x", 4, AccessMode::ReadWrite)];
        self.load(name, &params, move |_, args| {
            let n = args.value()?;
            args.write::<u32>()?.iter_mut().for_each(|x| *x = step(*x, n));
            Ok(())
        })
    }

    /// x = 31 * x + n, for each word.
    pub(crate) fn mix(&self, n: u32, x: &MemoryView) -> Command {
        let args = vec![number(n), KernelArg::Memory(x.clone())];
        launch(&self.over_words("mix", mixed), args, Range::linear(x.len() / 4))
    }

    /// Takes a while to change a word.
    pub(crate) fn grind(&self, x: &MemoryView) -> Command {
        let args = vec![number(ROUNDS), KernelArg::Memory(x.clone())];
        launch(&self.over_words("grind", |x, _| ground(x)), args, Range::linear(1))
    }

    /// Waits at the turnstile.
    pub(crate) fn held(&self, turnstile: &Turnstile) -> Command {
        let kernel = self.load("hold", &[value("turnstile", 8)], |_, args| {
            watch::hold(args.value()?);
            Ok(())
        });
        launch(&kernel, vec![address(turnstile.address())], Range::linear(1))
    }
}
