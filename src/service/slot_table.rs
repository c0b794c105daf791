//! The table of a pool's slots: which are free, which are yet to be made, and how much memory they have.

use parking_lot::Mutex;
use wakegraph_hal::{Error, ErrorKind, ResourceId, Result};

use crate::runtime::{Device, Event, ExecutableGraph, Predecessor};
use crate::service::device_memory::DeviceMemory;

/// The slots of a pool, by place, and of each place those that are free.
pub(super) struct SlotTable<T> {
    places: Vec<Place<T>>,
    /// Slots of all places.
    slots: usize,
    /// The number of the next slot that is added.
    next_index: usize,
    /// The most device memory that the slots of one place may have.
    memory_limit: Option<u64>,
    /// Whether slots of a device that hangs are not given out, also where there are no others.
    skips_stalled: bool,
    /// Why there are fewer slots than there were.
    loss: Option<Error>,
}

/// A device with its slots.
struct Place<T> {
    /// None if the closure chooses it, or if it is lost.
    device: Option<Device>,
    /// The devices of each slot so far for which the closure has chosen them, if the pool skips those that
    /// hang.
    chosen: Vec<Box<[Device]>>,
    is_lost: bool,
    /// Slots that there are: free, in use or yet to be made.
    slots: usize,
    idle: Vec<(usize, Box<Made<T>>)>,
    unmade: Vec<usize>,
    making: usize,
    memory: PlaceMemory,
}

/// The right to one slot, which no one else has. Made by [`SlotTable::take`], to be given back.
pub(super) struct Claim<T> {
    pub(super) place: usize,
    pub(super) index: usize,
    /// Contents of the slot. None as long as it has to be made.
    pub(super) made: Option<Box<Made<T>>>,
    /// The slot's device is gone.
    pub(super) is_lost: bool,
}

/// Remains of a lost device, to be dropped without a lock.
pub(super) struct Lost<T> {
    pub(super) made: Vec<Box<Made<T>>>,
    /// The pool's handles, so that the device can be opened again.
    pub(super) devices: Vec<Device>,
}

/// Contents of a slot.
pub(super) struct Made<T> {
    pub(super) executable: ExecutableGraph,
    pub(super) value: T,
    /// The slot's own memory is newer than this.
    pub(super) since: ResourceId,
    pub(super) runs: Mutex<SlotRuns>,
}

/// The runs of a slot of which the pool does not know yet how they ended.
#[derive(Default)]
pub(super) struct SlotRuns {
    in_flight: Vec<Event>,
    failure: Option<Error>,
}

impl SlotRuns {
    pub(super) fn add(&mut self, run: Event) {
        if self.in_flight.len() == self.in_flight.capacity() {
            self.settle();
        }
        self.in_flight.push(run);
    }

    /// Notes the outcome of the runs that have ended. Returns whether all have.
    pub(super) fn settle(&mut self) -> bool {
        // Mostly there is one run. They end in the order of submission.
        while let Some(outcome) = self.in_flight.last().and_then(Event::outcome) {
            self.in_flight.pop();
            self.note(outcome);
        }
        while let Some(outcome) = self.in_flight.first().and_then(Event::outcome) {
            self.in_flight.remove(0);
            self.note(outcome);
        }
        self.in_flight.is_empty()
    }

    fn note(&mut self, outcome: Result<()>) {
        self.failure = outcome.err().filter(spoils).or(self.failure.take());
    }

    /// The run that was submitted last, if it is still in flight. When it has ended, all others have.
    pub(super) fn last(&self) -> Option<Event> {
        self.in_flight.last().cloned()
    }

    /// Why the slot must not be used again.
    pub(super) fn take_failure(&mut self) -> Option<Error> {
        self.failure.take()
    }
}

/// Whether a slot has to be made again after such an error. An error that a host task has returned
/// is an orderly end, and what has been cancelled did not happen.
fn spoils(error: &Error) -> bool {
    !matches!(error.kind(), ErrorKind::Cancelled | ErrorKind::DeadlineExceeded | ErrorKind::HostTaskFailed)
}

impl<T> Made<T> {
    /// Why the slot is of no more use, if a device of it is lost.
    pub(super) fn loss(&self) -> Option<Error> {
        self.executable.devices().find_map(Device::loss)
    }

    /// Returns what still uses the slot: its last run, or else a guard of memory that the slot has for
    /// itself. The next request would wait for it. A slot that is to be made again is not waited for.
    pub(super) fn user(&mut self) -> Option<Predecessor> {
        let runs = self.runs.get_mut();
        if !runs.settle() {
            return runs.last().map(|run| Predecessor::Run(run.run().clone()));
        }
        if runs.failure.is_some() { None } else { self.executable.guard_of_memory_since(self.since) }
    }

    /// Whether a watchdog has found work on one of its devices that does not end.
    fn hangs(&self) -> bool {
        self.executable.devices().any(Device::is_stalled)
    }

    /// Device memory: each allocation, with its bytes.
    pub(super) fn memory(&self) -> impl Iterator<Item = (ResourceId, u64)> {
        self.executable.device_memory()
    }
}

impl<T> SlotTable<T> {
    pub(super) fn new(
        places: Vec<(Option<Device>, usize)>,
        memory_limit: Option<u64>,
        skips_stalled: bool,
    ) -> Self {
        let mut table =
            Self { places: Vec::new(), slots: 0, next_index: 0, memory_limit, skips_stalled, loss: None };
        places.into_iter().for_each(|(device, slots)| table.add(device, slots));
        table
    }

    /// Adds a place with slots to be made.
    pub(super) fn add(&mut self, device: Option<Device>, slots: usize) {
        let numbers = self.next_index..self.next_index + slots;
        self.next_index = numbers.end;
        self.slots += slots;
        self.places.push(Place {
            device,
            chosen: Vec::new(),
            is_lost: false,
            slots,
            idle: Vec::new(),
            // The last is taken first.
            unmade: numbers.rev().collect(),
            making: 0,
            memory: PlaceMemory::default(),
        });
    }

    /// The device of a slot, unless the closure chooses it.
    pub(super) fn device(&self, claim: &Claim<T>) -> Option<Device> {
        self.places[claim.place].device.clone()
    }

    /// Notes the devices of a slot that has been made, if the closure chooses them and the pool skips those
    /// that hang. Returns those that were not known.
    pub(super) fn note_devices(&mut self, claim: &Claim<T>, executable: &ExecutableGraph) -> Vec<Device> {
        let place = &mut self.places[claim.place];
        if !self.skips_stalled || place.device.is_some() {
            return Vec::new();
        }
        let ids = |devices: &[Device]| devices.iter().map(Device::id).collect::<Vec<_>>();
        let devices: Box<[Device]> = executable.devices().cloned().collect();
        if place.chosen.iter().any(|known| ids(known) == ids(&devices)) {
            return Vec::new();
        }
        let is_known = |device: &&Device| place.devices().any(|known| known.id() == device.id());
        let new = devices.iter().filter(|device| !is_known(device)).cloned().collect();
        place.chosen.push(devices);
        new
    }

    /// A slot that is free.
    pub(super) fn take(&mut self) -> Option<Claim<T>> {
        let limit = self.memory_limit;
        self.take_from(|place, takes_hanging| {
            let idle = place.take_idle(takes_hanging).map(|(index, made)| (index, Some(made)));
            idle.or_else(|| Some((place.start_making(limit)?, None)))
        })
    }

    /// A slot that is free and does not have to be made first.
    pub(super) fn take_made(&mut self) -> Option<Claim<T>> {
        self.take_from(|place, takes_hanging| {
            place.take_idle(takes_hanging).map(|(index, made)| (index, Some(made)))
        })
    }

    /// A slot of the first place that has one, and whose device does not hang. Of one that hangs if no other
    /// place has one, unless the pool skips those.
    fn take_from(
        &mut self,
        mut take: impl FnMut(&mut Place<T>, bool) -> Option<(usize, Option<Box<Made<T>>>)>,
    ) -> Option<Claim<T>> {
        let rounds: &[bool] = match self.skips_stalled {
            true => &[false],
            false if self.places.len() > 1 => &[false, true],
            false => &[true],
        };
        for &takes_hanging in rounds {
            for (number, place) in self.places.iter_mut().enumerate() {
                if (takes_hanging || !place.hangs())
                    && let Some((index, made)) = take(place, takes_hanging)
                {
                    return Some(Claim { place: number, index, made, is_lost: false });
                }
            }
        }
        None
    }

    /// A slot that has to be made, on a device that is not to be skipped.
    pub(super) fn take_unmade(&mut self) -> Option<Claim<T>> {
        let (limit, skips) = (self.memory_limit, self.skips_stalled);
        let mut places = self.places.iter_mut().enumerate().filter(|(_, place)| !(skips && place.hangs()));
        places.find_map(|(place, state)| {
            Some(Claim { place, index: state.start_making(limit)?, made: None, is_lost: false })
        })
    }

    /// Counts a slot that has been made. Returns false if the memory of its place exceeds the limit
    /// now.
    pub(super) fn made(&mut self, claim: &mut Claim<T>, made: Box<Made<T>>) -> bool {
        let place = &mut self.places[claim.place];
        place.making -= 1;
        let fits = place.memory.add(&made, self.memory_limit);
        claim.made = Some(made);
        fits
    }

    /// Whether the place has no slot but this one that could give its memory back some time.
    pub(super) fn is_only_one(&self, claim: &Claim<T>) -> bool {
        let place = &self.places[claim.place];
        place.unmade.len() + 1 == place.slots
    }

    /// Counts a slot as unmade again, whose parts have been dropped and had this memory.
    pub(super) fn unmade(&mut self, claim: &Claim<T>, memory: Vec<(ResourceId, u64)>) {
        let place = &mut self.places[claim.place];
        place.memory.all.remove(memory);
        place.making += 1;
    }

    /// Whether a slot that is given back can go to the next request as it is: no device is gone, and its own
    /// is not to be skipped.
    pub(super) fn can_hand_over(&self, claim: &Claim<T>) -> bool {
        let is_skipped = |made: &Made<T>| self.skips_stalled && made.hangs();
        let is_usable = claim.made.as_deref().is_some_and(|made| !is_skipped(made));
        is_usable && self.loss.is_none() && !claim.is_lost
    }

    /// Takes a slot back. Returns it if it is no longer needed.
    pub(super) fn put_back(&mut self, claim: Claim<T>) -> Option<Box<Made<T>>> {
        let Claim { place, index, made, is_lost } = claim;
        let place = &mut self.places[place];
        if made.is_none() {
            place.making -= 1;
        }
        let is_on_lost = |made: &Made<T>| made.loss().is_some();
        if is_lost || place.is_lost || self.loss.is_some() && made.as_deref().is_some_and(is_on_lost) {
            place.slots -= 1;
            self.slots -= 1;
            if let Some(made) = &made {
                place.memory.all.remove(made.memory());
            }
            return made;
        }
        match made {
            Some(made) => place.idle.push((index, made)),
            // One that was made before is the last to be made again: a warm-up comes to each slot once.
            None => place.unmade.insert(0, index),
        }
        None
    }

    /// A device is gone: takes out its slots. Those in use go when they are put back. Returns what
    /// is to be dropped.
    pub(super) fn lose(&mut self, claim: &mut Claim<T>, error: Error) -> Lost<T> {
        claim.is_lost = true;
        self.loss = Some(error);
        let mut dropped = Lost { made: Vec::new(), devices: Vec::new() };
        for place in &mut self.places {
            if let Some(device) = place.device.take_if(|device| device.loss().is_some()) {
                dropped.devices.push(device);
                place.is_lost = true;
                place.slots -= place.unmade.len();
                self.slots -= place.unmade.len();
                place.unmade.clear();
            }
            let is_lost = |devices: &mut Box<[Device]>| devices.iter().any(|device| device.loss().is_some());
            dropped.devices.extend(place.chosen.extract_if(.., is_lost).flatten());
            let is_lost = place.is_lost;
            for (_, made) in place.idle.extract_if(.., |(_, made)| is_lost || made.loss().is_some()) {
                place.slots -= 1;
                self.slots -= 1;
                place.memory.all.remove(made.memory());
                dropped.made.push(made);
            }
        }
        dropped
    }

    /// Why there never will be a slot again, or why requests do not wait for one.
    pub(super) fn closed(&self) -> Option<Error> {
        if self.slots() > 0 {
            return if self.skips_stalled { self.stalled() } else { None };
        }
        Some(self.loss.clone().unwrap_or_else(|| {
            Error::new(ErrorKind::InvalidArgument, "the pool has no slots")
                .help("give it a number of slots, or devices")
        }))
    }

    /// The error of a pool that skips devices which hang, if all of them do.
    fn stalled(&self) -> Option<Error> {
        let mut with_slots = self.places.iter().filter(|place| place.slots > 0);
        if !with_slots.clone().all(Place::hangs) {
            return None;
        }
        let error = Error::new(ErrorKind::Unavailable, "each device of the pool hangs").help(
            "the pool uses a device again when its work has ended; meanwhile, send requests to a pool on another device",
        );
        let cause = with_slots.find_map(|place| place.devices().find_map(Device::stalled));
        Some(cause.map_or(error.clone(), |cause| error.caused_by(cause)))
    }

    pub(super) fn slots(&self) -> usize {
        self.slots
    }

    pub(super) fn idle(&self) -> usize {
        self.places.iter().map(|place| place.idle.len()).sum()
    }

    /// Slots that somebody has a claim to.
    pub(super) fn in_use(&self) -> usize {
        self.places.iter().map(|place| place.slots - place.idle.len() - place.unmade.len()).sum()
    }

    pub(super) fn made_count(&self) -> usize {
        self.places.iter().map(|place| place.slots - place.unmade.len() - place.making).sum()
    }

    /// The device memory of all slots.
    pub(super) fn memory(&self) -> u64 {
        self.places.iter().map(|place| place.memory.all.bytes()).sum()
    }
}

impl<T> Place<T> {
    /// Whether a watchdog has found work on the device that does not end; where the closure chooses, on a
    /// device of each slot so far.
    fn hangs(&self) -> bool {
        match &self.device {
            Some(device) => device.is_stalled(),
            None => {
                let mut chosen = self.chosen.iter();
                !chosen.as_slice().is_empty() && chosen.all(|of_slot| of_slot.iter().any(Device::is_stalled))
            }
        }
    }

    fn devices(&self) -> impl Iterator<Item = &Device> {
        self.device.iter().chain(self.chosen.iter().flatten())
    }

    /// The free slot that was used last, and that does not hang unless those are taken, too.
    fn take_idle(&mut self, takes_hanging: bool) -> Option<(usize, Box<Made<T>>)> {
        if takes_hanging {
            return self.idle.pop();
        }
        let found = self.idle.iter().rposition(|(_, made)| !made.hangs())?;
        Some(self.idle.remove(found))
    }

    /// A slot to make, if its memory fits beside that of the others.
    fn start_making(&mut self, limit: Option<u64>) -> Option<usize> {
        // If there is no other slot, waiting for one would last for ever; making this one may be an
        // error.
        let is_first = self.unmade.len() == self.slots;
        if !is_first && limit.is_some_and(|limit| !self.memory.fits(self.making as u64, limit)) {
            return None;
        }
        let index = self.unmade.pop()?;
        self.making += 1;
        Some(index)
    }
}

/// The device memory of all slots of a place.
#[derive(Default)]
struct PlaceMemory {
    all: DeviceMemory,
    /// The most that a slot has added so far, which is what the next one is expected to add. A slot that did
    /// not fit is not made again before others have given memory back.
    largest: Option<u64>,
}

impl PlaceMemory {
    /// Adds a slot. Returns whether all fit into the limit.
    fn add<T>(&mut self, slot: &Made<T>, limit: Option<u64>) -> bool {
        let before = self.all.bytes();
        let added = self.all.add(slot.memory());
        let fits = limit.is_none_or(|limit| self.all.bytes() <= limit);
        // The first slot brings the memory that all may share. The second shows whether they do.
        let added = match before == 0 && fits {
            true => {
                slot.memory().filter(|(resource, _)| *resource > slot.since).map(|(_, bytes)| bytes).sum()
            }
            false => added,
        };
        self.largest = self.largest.max(Some(added));
        fits
    }

    /// Whether one more slot fits beside those that are being made. The first one shows how large
    /// slots are, so no other is made meanwhile.
    fn fits(&self, making: u64, limit: u64) -> bool {
        match self.largest {
            Some(largest) => self.all.bytes() + largest * (making + 1) <= limit,
            None => making == 0,
        }
    }
}
