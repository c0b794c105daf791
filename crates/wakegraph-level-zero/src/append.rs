//! The lowering *append*: closed lists are handed to an immediate list, in one call with the events
//! to wait for and the one to signal.
#![expect(unsafe_code, reason = "hands lists to the driver")]

use std::sync::Arc;
use std::{ptr, slice};

use wakegraph_hal::QueueDesc;

use super::context::LevelZeroContext;
use super::driver_event::PooledEvent;
use super::handover::{Handover, HandoverFailure};
use super::immediate_list::ImmediateList;
use super::list::{CommandEvents, DriverList};
use super::recording::ListRecording;
use super::run_slot::RunSlot;
use super::sys::{self, DriverResult};

/// The immediate lists of a queue.
#[derive(Debug)]
pub(super) struct AppendQueue {
    main: ImmediateList,
    /// Of the copy engine; created when it is needed.
    copies: Option<ImmediateList>,
    desc: QueueDesc,
}

impl AppendQueue {
    pub(super) fn new(context: &Arc<LevelZeroContext>, desc: QueueDesc) -> DriverResult<Self> {
        Ok(Self {
            main: ImmediateList::acquire(context, &context.features.compute, desc)?,
            copies: None,
            desc,
        })
    }

    /// Hands over a run of a recording.
    ///
    /// # Safety
    /// As for [`CommandBuffer::enqueue`](wakegraph_hal::CommandBuffer::enqueue), behind these events.
    /// The recording is idle.
    #[inline]
    pub(super) unsafe fn run(
        &mut self,
        recording: &ListRecording,
        slot: &RunSlot,
        waits: &[sys::ze_event_handle_t],
    ) -> Result<Handover, HandoverFailure> {
        if let (None, None, None) = (&recording.copies, &slot.begin, &slot.suffix) {
            let order = CommandEvents { after: waits, signal: slot.event.raw() };
            // SAFETY: passed on to the caller; the slot is of this recording.
            let handed = unsafe { self.main.append_lists(&[recording.main.raw()], order) };
            return handed.map(|()| Handover::Whole).map_err(HandoverFailure::nothing);
        }
        // SAFETY: passed on to the caller.
        unsafe { self.run_in_parts(recording, slot, waits) }
    }

    /// Hands over a run with copies, with times, or with both.
    ///
    /// # Safety
    /// As for [`run`](Self::run).
    #[inline(never)]
    unsafe fn run_in_parts(
        &mut self,
        recording: &ListRecording,
        slot: &RunSlot,
        waits: &[sys::ze_event_handle_t],
    ) -> Result<Handover, HandoverFailure> {
        let copies = match &recording.copies {
            Some(copies) => Some((self.copy_engine().map_err(HandoverFailure::nothing)?, copies)),
            None => None,
        };
        let begin = slot.begin.as_ref().map(PooledEvent::raw);
        if let Some(begin) = begin {
            let order = CommandEvents { after: waits, signal: begin };
            self.nothing(slot, order).map_err(HandoverFailure::nothing)?;
        }
        let after = begin.as_ref().map_or(waits, slice::from_ref);
        let suffix = slot.suffix.as_ref();
        // The suffix signals the event by itself.
        let signal = if suffix.is_some() { ptr::null_mut() } else { slot.event.raw() };
        let both = suffix.map(|suffix| [recording.main.raw(), suffix.raw()]);
        let only = [recording.main.raw()];
        let lists = both.as_ref().map_or(&only[..], |both| &both[..]);
        // SAFETY: as above.
        let handed = unsafe { self.main.append_lists(lists, CommandEvents { after, signal }) };
        handed.map_err(|failure| HandoverFailure { failure, is_partial: begin.is_some() })?;
        let Some((_, copies)) = copies else { return Ok(Handover::Whole) };
        let Some(engine) = &mut self.copies else { return Ok(Handover::Whole) };
        // SAFETY: as above. The list waits for the start event, which the main list signals.
        match unsafe { engine.append_lists(&[copies.list.raw()], CommandEvents::NONE) } {
            Ok(()) => Ok(Handover::Whole),
            Err(failure) => Ok(Handover::WithoutCopies(failure)),
        }
    }

    /// Signals the event of a slot behind these and, on an in-order queue, behind everything.
    pub(super) fn mark(&mut self, slot: &RunSlot, waits: &[sys::ze_event_handle_t]) -> DriverResult {
        self.nothing(slot, CommandEvents { after: waits, signal: slot.event.raw() })
    }

    /// Hands over the empty list of a slot.
    fn nothing(&mut self, slot: &RunSlot, order: CommandEvents<'_>) -> DriverResult {
        let context = self.main.context();
        let mut empty = slot.prefix.lock();
        let empty = match &mut *empty {
            Some(list) => list,
            place => {
                let mut list = DriverList::new(context, &context.features.compute, false, false)?;
                list.close()?;
                place.insert(list)
            }
        };
        // SAFETY: the list is closed and idle, as the slot is, and accesses nothing.
        unsafe { self.main.append_lists(&[empty.raw()], order) }
    }

    /// What to wait for until everything is done. The handle is valid while the queue lives.
    pub(super) fn main(&self) -> sys::ze_command_list_handle_t {
        self.main.raw()
    }

    fn copy_engine(&mut self) -> DriverResult {
        let context = self.main.context();
        if let (None, Some(group)) = (&self.copies, &context.features.copy) {
            self.copies = Some(ImmediateList::acquire(context, group, self.desc)?);
        }
        Ok(())
    }
}
