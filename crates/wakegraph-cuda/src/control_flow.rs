//! Conditionals and loops: the order around them, and the kernel that decides about them.
//!
//! Conditionals and loops of one command-buffer or body run one after the other. Where they ran beside
//! each other, every second process with random graphs met one that never completed, with an idle GPU
//! (H200, driver 580). Other commands may run beside them.

use std::ops::Range;

use wakegraph_hal::{Command, CommandKinds, Result};

use super::builtin_kernels::BuiltinKernel;
use super::device_inner::CudaDeviceInner;
use super::graph::ConditionalHandle;
use super::launch::CudaLaunch;
use super::loop_stop::LoopStop;

/// Orders the commands of one command-buffer or body around conditionals and loops.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ControlFlowOrder {
    /// The last command that is, or contains, a conditional or a loop.
    last: Option<u32>,
}

impl ControlFlowOrder {
    /// The commands that this one, the next, follows besides those that it names.
    pub(super) fn predecessors(self, command: &Command) -> Range<u32> {
        match self.last.filter(|_| has_control_flow(command)) {
            Some(last) => last..last + 1,
            None => 0..0,
        }
    }

    /// The command was added.
    pub(super) fn append(&mut self, index: u32, command: &Command) {
        if has_control_flow(command) {
            self.last = Some(index);
        }
    }
}

/// Whether the command is, or contains, a conditional or a loop.
fn has_control_flow(command: &Command) -> bool {
    let kinds = match command {
        Command::Child(body) => body.kinds(),
        command => command.kind().as_set(),
    };
    kinds.intersects(CommandKinds::IF | CommandKinds::WHILE)
}

/// Whether the command is, or contains, a loop.
pub(super) fn has_loop(command: &Command) -> bool {
    let own = command.kind().as_set();
    let kinds = command.bodies().fold(own, |kinds, body| kinds | body.kinds());
    kinds.intersects(CommandKinds::WHILE)
}

/// The launch that sets `handle` to whether the word at `address` is not 0; the opposite if
/// `inverted`. With `stop`, it decides about a loop, which may have been asked to stop.
pub(super) fn decide(
    device: &CudaDeviceInner,
    handle: ConditionalHandle,
    address: u64,
    inverted: bool,
    stop: Option<&LoopStop>,
) -> Result<CudaLaunch> {
    let [run, asked] = stop.map_or([0; 2], LoopStop::addresses);
    BuiltinKernel::Condition.launch(device, &[handle, address, u64::from(inverted), run, asked], 1)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use wakegraph_hal::{Backend as _, Body, MemoryDesc, MemoryKind, MemoryView};

    use super::*;
    use wakegraph_hal::null::NullBackend;

    #[test]
    fn conditionals_and_loops_follow_each_other() {
        let device = NullBackend.open(0).unwrap();
        let word = device.allocate(&MemoryDesc { len: 4, kind: MemoryKind::Device }).unwrap();
        let condition = MemoryView::whole(word);
        let looping = || Command::While { condition: condition.clone(), body: Arc::new(Body::new()) };
        let child = |command| {
            let mut body = Body::new();
            body.push(command, &[]).unwrap();
            Command::Child(Arc::new(body))
        };
        let commands = [
            (Command::Empty, 0..0),
            (child(Command::Empty), 0..0),
            (looping(), 0..0),
            (Command::Empty, 0..0),
            (Command::Empty, 0..0),
            (child(child(looping())), 2..3),
            (looping(), 5..6),
            (child(Command::Empty), 0..0),
        ];
        let mut order = ControlFlowOrder::default();
        for (index, (command, expected)) in (0..).zip(commands) {
            assert_eq!(order.predecessors(&command), expected, "{index}");
            order.append(index, &command);
        }
    }
}
