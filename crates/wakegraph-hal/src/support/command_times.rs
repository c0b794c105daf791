//! Joins the times of a command's operations.

use crate::CommandTimes;

/// The times of the commands of an enqueue, from those of their operations.
#[derive(Debug)]
pub struct JoinedTimes(Vec<Option<CommandTimes>>);

impl JoinedTimes {
    /// None are known yet, of so many commands.
    pub fn new(commands: usize) -> Self {
        Self(vec![None; commands])
    }

    /// Adds those of one operation of a command.
    pub fn add(&mut self, command: u32, times: CommandTimes) {
        if let Some(known) = self.0.get_mut(command as usize) {
            *known = Some(known.map_or(times, |known| join(known, times)));
        }
    }

    /// The times of each command. One without any times ends when the enqueue starts.
    pub fn finish(self, start: u64) -> Vec<CommandTimes> {
        let nothing = CommandTimes::new(start, start);
        self.0.into_iter().map(|times| times.unwrap_or(nothing)).collect()
    }
}

/// From the earlier start to the later end.
pub fn join(a: CommandTimes, b: CommandTimes) -> CommandTimes {
    CommandTimes::new(a.start.min(b.start), a.end.max(b.end))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_lasts_from_its_first_operation_to_its_last() {
        let mut times = JoinedTimes::new(2);
        times.add(1, CommandTimes::new(5, 7));
        times.add(1, CommandTimes::new(2, 6));
        times.add(9, CommandTimes::new(0, 9));
        assert_eq!(times.finish(1), [CommandTimes::new(1, 1), CommandTimes::new(2, 7)]);
    }
}
