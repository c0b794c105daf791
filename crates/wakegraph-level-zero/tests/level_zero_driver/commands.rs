//! Commands: what one does, what it waits for, what it signals.

use std::ffi::c_void;
use std::ops::Range;
use std::sync::Arc;

use crate::Outcome;
use crate::events::{SignalState, Token};
use crate::kernels::Arguments;
use crate::misuse::misuse;
use crate::objects::Handle;
use crate::opencl;
use crate::pointers::{list, read};
use crate::state::{State, lock, now};
use crate::types::*;

#[derive(Debug)]
pub(crate) struct Command {
    pub(crate) call: &'static str,
    pub(crate) operation: Operation,
    pub(crate) waits: Vec<Wait>,
    pub(crate) signal: Option<Handle>,
    pub(crate) order: Order,
}

/// How a command stands to the others of an unordered list.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Order {
    /// It orders nothing.
    Free,
    /// Those behind it follow its end.
    Blocks,
    /// It follows the end of those before it, and those behind it follow its end.
    Barrier,
}

#[derive(Clone, Debug)]
pub(crate) enum Wait {
    Event(Handle),
    /// What an event that counts stood for when the wait was appended.
    Token(Handle, Arc<Token>),
}

#[derive(Debug)]
pub(crate) enum Operation {
    Nothing,
    Copy { to: usize, from: usize, len: usize },
    Region(Box<Region>),
    Fill { to: usize, pattern: Vec<u8>, len: usize },
    Launch(Box<Launch>),
    Reset(Handle),
    Times { events: Vec<Handle>, to: usize, offsets: Option<Vec<usize>> },
    Clock { to: usize },
    Advice { at: usize, len: usize },
}

#[derive(Debug)]
pub(crate) struct Region {
    pub(crate) to: usize,
    pub(crate) to_region: ze_copy_region_t,
    pub(crate) to_pitches: [usize; 2],
    pub(crate) from: usize,
    pub(crate) from_region: ze_copy_region_t,
    pub(crate) from_pitches: [usize; 2],
}

#[derive(Debug)]
pub(crate) struct Launch {
    /// The handle; nothing is read from it any more.
    pub(crate) kernel: Handle,
    pub(crate) instance: opencl::Kernel,
    pub(crate) arguments: Arguments,
    pub(crate) groups: Option<[u32; 3]>,
    /// In a mutable list: what of it may be changed, and for which kernels.
    pub(crate) mutable: ze_mutable_command_exp_flags_t,
    pub(crate) kernels: Vec<Handle>,
}

/// The waits and the signal that a call names.
pub(crate) struct Events {
    pub(crate) waits: Vec<Wait>,
    pub(crate) signal: Option<Handle>,
}

impl Events {
    pub(crate) fn read(
        state: &mut State,
        context: Handle,
        signal: ze_event_handle_t,
        count: u32,
        waits: *mut ze_event_handle_t,
    ) -> Outcome<Self> {
        let events = list(waits.cast_const(), count as usize)?;
        let mut waits = Vec::new();
        for event in events {
            if state.events.get(event as Handle).context != context {
                misuse!("an event is of another context");
            }
            match &state.events.get(event as Handle).signal {
                SignalState::Flag(_) => waits.push(Wait::Event(event as Handle)),
                SignalState::Counter(token) => {
                    let event = event as Handle;
                    waits.extend(token.clone().map(|token| Wait::Token(event, token)));
                }
            }
        }
        let signal = (!signal.is_null()).then_some(signal as Handle);
        if let Some(signal) = signal
            && state.events.get(signal).context != context
        {
            misuse!("an event is of another context");
        }
        Ok(Self { waits, signal })
    }
}

impl Region {
    /// The bytes from the first to the last.
    fn span(at: usize, region: &ze_copy_region_t, [pitch, slice]: [usize; 2]) -> Range<usize> {
        let [x, y, z] = [region.originX, region.originY, region.originZ].map(|n| n as usize);
        let [width, height, depth] = [region.width, region.height, region.depth.max(1)].map(|n| n as usize);
        let start = at + x + y * pitch + z * slice;
        start..start + width + (height - 1) * pitch + (depth - 1) * slice
    }

    pub(crate) fn check(&self) -> Outcome {
        let size = |region: &ze_copy_region_t| [region.width, region.height, region.depth.max(1)];
        if size(&self.to_region) != size(&self.from_region) {
            misuse!("the regions have different sizes");
        }
        let [width, height, depth] = size(&self.to_region);
        if width == 0 || height == 0 {
            return Err(ZE_RESULT_ERROR_INVALID_SIZE);
        }
        for [pitch, slice] in [self.to_pitches, self.from_pitches] {
            if height > 1 && pitch < width as usize || depth > 1 && slice < pitch * height as usize {
                misuse!(
                    "rows or slices overlap: pitches {pitch} and {slice} for {width} x {height} x {depth}"
                );
            }
        }
        Ok(())
    }

    fn rows(&self) -> impl Iterator<Item = (usize, usize)> {
        let [height, depth] = [self.to_region.height, self.to_region.depth.max(1)].map(|n| n as usize);
        let start = |at, region, pitches| Self::span(at, region, pitches).start;
        let to = start(self.to, &self.to_region, self.to_pitches);
        let from = start(self.from, &self.from_region, self.from_pitches);
        let at = |start: usize, [pitch, slice]: [usize; 2], y: usize, z: usize| start + y * pitch + z * slice;
        (0..depth).flat_map(move |z| {
            (0..height).map(move |y| (at(to, self.to_pitches, y, z), at(from, self.from_pitches, y, z)))
        })
    }
}

impl Operation {
    /// The memory that it names, and whether memory of the program will do as well.
    pub(crate) fn memory(&self) -> Vec<(Range<usize>, bool)> {
        match self {
            Self::Nothing | Self::Reset(_) => Vec::new(),
            Self::Copy { to, from, len } => vec![(*to..to + len, true), (*from..from + len, true)],
            Self::Region(region) => vec![
                (Region::span(region.to, &region.to_region, region.to_pitches), true),
                (Region::span(region.from, &region.from_region, region.from_pitches), true),
            ],
            Self::Fill { to, len, .. } => vec![(*to..to + len, false)],
            Self::Launch(launch) => launch.arguments.addresses().map(|at| (at..at + 1, false)).collect(),
            Self::Times { events, to, offsets } => {
                let size = size_of::<ze_kernel_timestamp_result_t>();
                let last =
                    offsets.as_ref().map_or((events.len() - 1) * size, |all| *all.iter().max().unwrap());
                vec![(*to..to + last + size, false)]
            }
            Self::Clock { to } => vec![(*to..to + 8, false)],
            Self::Advice { at, len } => vec![(*at..at + len, false)],
        }
    }

    /// Ends the process unless all its memory is there.
    pub(crate) fn check(&self, state: &mut State, context: Handle) {
        for (range, system) in self.memory() {
            // A pointer argument may stand right behind memory, for a slice of nothing.
            let len = if matches!(self, Self::Launch(_)) { 0 } else { range.len() };
            state.memory.check_address(context, range.start, len, system);
        }
        if let Self::Launch(launch) = self {
            state.kernels.get(launch.kernel);
        }
    }

    /// Carries it out, without the lock.
    pub(crate) fn run(&self, device: Handle) {
        match self {
            Self::Nothing | Self::Reset(_) | Self::Advice { .. } => {}
            Self::Copy { to, from, len } => copy(*to, *from, *len),
            Self::Region(region) => {
                region.rows().for_each(|(to, from)| copy(to, from, region.to_region.width as usize));
            }
            Self::Fill { to, pattern, len } => {
                for at in (0..*len).step_by(pattern.len()) {
                    copy(to + at, pattern.as_ptr() as usize, pattern.len());
                }
            }
            Self::Launch(launch) => launch.run(),
            Self::Times { events, to, offsets } => {
                let mut state = lock();
                for (i, event) in events.iter().enumerate() {
                    let Ok(times) = crate::events::timestamps(&mut state, *event) else {
                        misuse!("the times of an event are read that is not complete")
                    };
                    let offset = offsets.as_ref().map_or(i * size_of_val(&times), |offsets| offsets[i]);
                    copy(to + offset, (&raw const times) as usize, size_of_val(&times));
                }
            }
            Self::Clock { to } => {
                let cycles = lock().devices.get(device).cycles(now());
                copy(*to, (&raw const cycles) as usize, 8);
            }
        }
    }
}

impl Launch {
    fn run(&self) {
        let (arguments, Some(groups)) = (&self.arguments, self.groups) else { return };
        let group = arguments.group.unwrap();
        let global = [0, 1, 2].map(|d| groups[d] as usize * group[d] as usize);
        let values = arguments.values.iter().map(|value| value.clone().unwrap());
        let values: Vec<_> = arguments.parameters.iter().copied().zip(values).collect();
        if global.iter().all(|size| *size > 0) {
            let sizes = [arguments.offset.map(|n| n as usize), global, group.map(|n| n as usize)];
            self.instance.run(&values, sizes);
        }
    }
}

/// Copies bytes; a place that the program has no right to ends the process.
fn copy(to: usize, from: usize, len: usize) {
    // SAFETY: where memory is this driver's, it has been checked and stays until the command is over;
    // otherwise the program promises as much.
    unsafe { std::ptr::copy(from as *const u8, to as *mut u8, len) };
}

/// The counts of a launch.
pub(crate) fn groups(counts: *const ze_group_count_t) -> Outcome<[u32; 3]> {
    let counts = read(counts)?;
    Ok([counts.groupCountX, counts.groupCountY, counts.groupCountZ])
}

/// An address as a number.
pub(crate) fn address<T>(pointer: *const T) -> usize {
    pointer.cast::<c_void>() as usize
}
