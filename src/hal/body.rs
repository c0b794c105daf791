//! What a child graph, a conditional or a loop runs: commands with their order, as plain data.

use std::fmt::{self, Debug};

use smallvec::SmallVec;

use super::Command;
use crate::types::{CommandKind, CommandKinds, Error, ErrorKind, Result};

/// Commands with their order, for commands that hold others. Built once, then shared and never changed.
///
/// Kernels in it have no handles and cannot be updated; their alternatives mean nothing.
///
/// ```
/// use wakegraph::hal::{Body, Command};
/// let mut body = Body::new();
/// let first = body.push(Command::Empty, &[])?;
/// body.push(Command::Empty, &[first])?;
/// assert_eq!(body.len(), 2);
/// # Ok::<(), wakegraph::Error>(())
/// ```
pub struct Body {
    commands: Vec<(Command, After)>,
    kinds: CommandKinds,
    depth: usize,
    total: usize,
}

type After = SmallVec<[u32; 2]>;

impl Body {
    /// How deep bodies may lie in bodies: walking them takes the stack.
    pub const MAX_DEPTH: usize = 64;

    /// How many commands a body may hold, those of the bodies in it counted wherever they are
    /// named: a backend may copy them in.
    pub const MAX_COMMANDS: usize = 1 << 24;

    /// A body that does nothing yet.
    pub fn new() -> Self {
        Self { commands: Vec::new(), kinds: CommandKinds::empty(), depth: 1, total: 0 }
    }

    /// Adds a command that runs after the commands with these indices. Gives back its own, counting from 0.
    ///
    /// # Errors
    /// [`InvalidSyncPoint`](ErrorKind::InvalidSyncPoint) for an index that no earlier command has;
    /// [`InvalidSize`](ErrorKind::InvalidSize) for more commands or a deeper nesting than there may be. The body is
    /// unchanged then.
    pub fn push(&mut self, command: Command, after: &[u32]) -> Result<u32> {
        let index = self.commands.len();
        if let Some(wrong) = after.iter().find(|&&earlier| earlier as usize >= index) {
            let why = format!("command {wrong} of the body does not exist: {index} commands were added");
            return Err(Error::new(ErrorKind::InvalidSyncPoint, why)
                .help("pass indices that earlier additions to this body returned"));
        }
        let inner = || command.bodies();
        let depth = inner().map(|body| body.depth + 1).max().unwrap_or(1);
        let total = inner().fold(self.total + 1, |total, body| total.saturating_add(body.total));
        if depth > Self::MAX_DEPTH || total > Self::MAX_COMMANDS {
            let (depth, total) = (Self::MAX_DEPTH, Self::MAX_COMMANDS);
            let why = format!("a body may hold {total} commands, and bodies {depth} deep");
            return Err(Error::new(ErrorKind::InvalidSize, why).help("split the graph"));
        }
        self.kinds |= inner().fold(command.kind().as_set(), |kinds, body| kinds | body.kinds);
        self.depth = self.depth.max(depth);
        self.total = total;
        self.commands.push((command, after.into()));
        Ok(index as u32)
    }

    /// The commands in the order of their additions, each with those that it runs after.
    pub fn commands(&self) -> impl ExactSizeIterator<Item = (&Command, &[u32])> {
        self.commands.iter().map(|(command, after)| (command, &after[..]))
    }

    /// Commands, not counting those of the bodies in it.
    pub fn len(&self) -> usize {
        self.commands.len()
    }

    /// Whether it does nothing.
    pub fn is_empty(&self) -> bool {
        self.commands.is_empty()
    }

    /// The kinds of its commands, and of those of the bodies in it.
    pub fn kinds(&self) -> CommandKinds {
        self.kinds
    }

    /// How deep bodies lie in it: 1 where there is none.
    pub fn depth(&self) -> usize {
        self.depth
    }
}

impl Default for Body {
    fn default() -> Self {
        Self::new()
    }
}

impl Debug for Body {
    /// In a few words: bodies are large, and lie in each other.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kinds = self.commands.iter().map(|(command, _)| command.kind());
        const SHOWN: usize = 8;
        let mut list = f.debug_list();
        list.entries(kinds.take(SHOWN).map(CommandKind::name));
        if self.len() > SHOWN {
            list.entry(&format_args!("{} more", self.len() - SHOWN));
        }
        list.finish()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn an_order_names_earlier_commands_only() {
        let mut body = Body::new();
        assert_eq!(body.push(Command::Empty, &[0]).unwrap_err().kind(), ErrorKind::InvalidSyncPoint);
        assert!(body.is_empty());
        assert_eq!(body.push(Command::Empty, &[]).unwrap(), 0);
        assert_eq!(body.push(Command::Empty, &[0]).unwrap(), 1);
        assert_eq!(body.push(Command::Empty, &[2]).unwrap_err().kind(), ErrorKind::InvalidSyncPoint);
        assert_eq!(body.commands().map(|(_, after)| after.to_vec()).collect::<Vec<_>>(), [vec![], vec![0]]);
    }

    #[test]
    fn bodies_lie_so_deep_and_no_deeper() {
        let mut body = Body::new();
        for depth in 1..Body::MAX_DEPTH {
            assert_eq!(body.depth(), depth);
            let mut outer = Body::new();
            outer.push(Command::Child(Arc::new(body)), &[]).unwrap();
            body = outer;
        }
        let error = Body::new().push(Command::Child(Arc::new(body)), &[]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidSize);
    }

    #[test]
    fn bodies_that_name_each_other_often_are_too_large() {
        let mut body = Arc::new(Body::new());
        for _ in 0..40 {
            let mut outer = Body::new();
            let pushed = [0, 1].map(|_| outer.push(Command::Child(Arc::clone(&body)), &[]));
            if let Some(error) = pushed.into_iter().find_map(Result::err) {
                assert_eq!(error.kind(), ErrorKind::InvalidSize);
                return;
            }
            body = Arc::new(outer);
        }
        panic!("2^40 commands fit");
    }

    #[test]
    fn kinds_are_those_of_all_bodies() {
        let mut inner = Body::new();
        inner.push(Command::Empty, &[]).unwrap();
        let mut outer = Body::new();
        outer.push(Command::Child(Arc::new(inner)), &[]).unwrap();
        assert_eq!(outer.kinds(), CommandKinds::CHILD | CommandKinds::EMPTY);
        assert_eq!(format!("{outer:?}"), "[\"child graph\"]");
    }
}
