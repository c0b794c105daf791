//! Nothing runs beside a conditional or a loop: what was added before it comes before, what is
//! added later after.
//!
//! Where conditionals and loops ran beside each other, every other process of random graphs met one
//! that never completed, with an idle GPU (H200, driver 580). In this order none did, nor where
//! there were conditionals only, or loops only.

use std::ops::Range;

use crate::hal::Command;
use crate::types::CommandKinds;

/// Commands of one command-buffer or body, counted from 0.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Alone {
    /// The last that the device decides about.
    last: Option<u32>,
}

impl Alone {
    /// The commands that this one, the next, comes after besides those that it says.
    pub(super) fn before(self, index: u32, command: &Command) -> Range<u32> {
        match (decides(command), self.last) {
            (true, last) => last.unwrap_or(0)..index,
            (false, Some(last)) => last..last + 1,
            (false, None) => 0..0,
        }
    }

    /// The command was added.
    pub(super) fn add(&mut self, index: u32, command: &Command) {
        if decides(command) {
            self.last = Some(index);
        }
    }
}

/// Whether there is a conditional or a loop in what the command becomes.
fn decides(command: &Command) -> bool {
    let kinds = match command {
        Command::Child(body) => body.kinds(),
        command => command.kind().as_set(),
    };
    kinds.intersects(CommandKinds::IF | CommandKinds::WHILE)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::hal::{Body, MemoryDesc, MemoryKind, MemoryView};
    use crate::testing::{FakeDevice, FakeOptions};

    #[test]
    fn conditionals_have_all_before_them_or_behind_them() {
        let (device, _) = FakeDevice::open(FakeOptions::new());
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
            (looping(), 0..2),
            (Command::Empty, 2..3),
            (Command::Empty, 2..3),
            (child(child(looping())), 2..5),
            (looping(), 5..6),
            (child(Command::Empty), 6..7),
        ];
        let mut alone = Alone::default();
        for (index, (command, expected)) in (0..).zip(commands) {
            assert_eq!(alone.before(index, &command), expected, "{index}");
            alone.add(index, &command);
        }
    }
}
