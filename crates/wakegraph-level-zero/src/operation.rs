//! Operations: commands in the form in which the driver takes them, one call each.
#![expect(unsafe_code, reason = "records commands on the caller's memory")]

use smallvec::SmallVec;
use wakegraph_hal::support::lowering::DriverOperation;
use wakegraph_hal::support::refusal;
use wakegraph_hal::{Advice, NativeCommand, NativeStream, Result};

use super::context::LevelZeroContext;
use super::features::EngineGroup;
use super::kernel::LaunchInstance;
use super::list::{CommandEvents, DriverList, RegionPlace};
use super::sys;

/// One call of the driver.
#[derive(Debug)]
pub(super) enum LevelZeroOperation {
    Kernel(LaunchInstance),
    Copy {
        from: usize,
        to: usize,
        len: usize,
    },
    CopyRegion {
        region: sys::ze_copy_region_t,
        from: RegionPlace,
        to: RegionPlace,
    },
    Fill {
        address: usize,
        len: usize,
        pattern: Pattern,
    },
    /// A hint, which never fails.
    Prefetch {
        address: usize,
        len: usize,
    },
    /// A hint, which never fails.
    Advise {
        address: usize,
        len: usize,
        advice: Advice,
    },
    Native(NativeCommand),
    /// Does nothing, in its place in the order.
    Barrier,
}

impl DriverOperation for LevelZeroOperation {
    const NOTHING: &'static Self = &Self::Barrier;
}

/// The bytes that a fill repeats: as many as a power of two.
pub(super) type Pattern = SmallVec<[u8; 16]>;

impl LevelZeroOperation {
    /// Whether its call takes events. The others have to be between barriers.
    pub(super) fn takes_events(&self) -> bool {
        !matches!(self, Self::Prefetch { .. } | Self::Advise { .. } | Self::Native(_))
    }

    /// Whether an engine that only copies can run it.
    pub(super) fn can_be_copied_by(&self, group: &EngineGroup) -> bool {
        match self {
            Self::Copy { .. } | Self::CopyRegion { .. } => true,
            Self::Fill { pattern, .. } => pattern.len() <= group.longest_pattern,
            _ => false,
        }
    }

    /// Appends it to a list. An operation that takes no events is given none.
    ///
    /// # Safety
    /// The memory that the operation names is valid, and nothing else touches it in a conflicting way, when
    /// the list runs. The list is of the engine that can run it.
    pub(super) unsafe fn append(
        &self,
        context: &LevelZeroContext,
        list: &mut DriverList,
        order: CommandEvents<'_>,
    ) -> Result<()> {
        let appended = match self {
            Self::Kernel(instance) => match instance.get() {
                Some(instance) => list.launch(instance.raw(), &instance.groups, order),
                None => return Err(refusal::enqueue_before_finalize()),
            },
            // SAFETY: passed on to the caller.
            Self::Copy { from, to, len } => unsafe { list.copy([*from, *to], *len, order) },
            // SAFETY: passed on to the caller.
            Self::CopyRegion { region, from, to } => unsafe { list.copy_region(region, *from, *to, order) },
            // SAFETY: passed on to the caller.
            Self::Fill { address, len, pattern } => unsafe { list.fill(*address, *len, pattern, order) },
            Self::Prefetch { address, len } => ignore_refusal(list.prefetch(*address, *len)),
            Self::Advise { address, len, advice } => {
                let advice = match advice {
                    Advice::ReadMostly => sys::ZE_MEMORY_ADVICE_SET_READ_MOSTLY,
                    Advice::PreferDevice => sys::ZE_MEMORY_ADVICE_SET_PREFERRED_LOCATION,
                    Advice::PreferHost => sys::ZE_MEMORY_ADVICE_SET_SYSTEM_MEMORY_PREFERRED_LOCATION,
                    _ => sys::ZE_MEMORY_ADVICE_CLEAR_READ_MOSTLY,
                };
                ignore_refusal(list.advise(*address, *len, advice))
            }
            Self::Native(native) => {
                // SAFETY: list and context live as long as the call.
                let lent =
                    unsafe { NativeStream::new("level_zero", list.raw().cast(), context.raw().cast()) };
                // SAFETY: the list is recorded and runs later, in the order of the command.
                return unsafe { native.call(&lent) };
            }
            Self::Barrier => list.barrier(order),
        };
        Ok(appended?)
    }
}

/// A hint that the driver refuses is none.
fn ignore_refusal(hint: sys::DriverResult) -> sys::DriverResult {
    if let Err(sys::LevelZeroFailure { call, code }) = hint {
        tracing::debug!(target: "wakegraph::level_zero", call, code, "a hint was refused");
    }
    Ok(())
}
