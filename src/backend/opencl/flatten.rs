//! Child graphs: their commands take the child's place in the list.

use std::sync::Arc;

use smallvec::{SmallVec, smallvec};

use super::device::Shared;
use super::lower::{Lowered, lower};
use super::op::Op;
use super::replay::After;
use crate::hal::{Body, Command};
use crate::types::Result;

/// What one command becomes, or one in the bodies that it holds.
pub(super) struct Part {
    pub(super) lowered: Lowered,
    /// The earlier parts that it follows; without one it follows what the whole command does.
    pub(super) after: After,
}

/// The parts of a command, in an order that they can run in; the last follows all others.
pub(super) fn flatten(shared: &Arc<Shared>, command: &Command) -> Result<SmallVec<[Part; 1]>> {
    let mut parts = SmallVec::new();
    add(shared, command, After::new(), &mut parts)?;
    Ok(parts)
}

/// Gives the part that ends the command.
fn add(
    shared: &Arc<Shared>,
    command: &Command,
    after: After,
    parts: &mut SmallVec<[Part; 1]>,
) -> Result<u32> {
    let lowered = match command {
        Command::Child(body) => return add_body(shared, body, after, parts),
        _ => lower(shared, command)?,
    };
    parts.push(Part { lowered, after });
    Ok(parts.len() as u32 - 1)
}

/// Bodies lie in each other less deep than the stack is (`Body::MAX_DEPTH`).
fn add_body(shared: &Arc<Shared>, body: &Body, after: After, parts: &mut SmallVec<[Part; 1]>) -> Result<u32> {
    let mut ends: Vec<u32> = Vec::with_capacity(body.len());
    let mut is_leaf = vec![true; body.len()];
    for (command, befores) in body.commands() {
        let mut behind = after.clone();
        if !befores.is_empty() {
            behind = befores.iter().map(|&before| ends[before as usize]).collect();
            befores.iter().for_each(|&before| is_leaf[before as usize] = false);
        }
        ends.push(add(shared, command, behind, parts)?);
    }
    let leaves: After = ends.into_iter().zip(is_leaf).filter_map(|(end, leaf)| leaf.then_some(end)).collect();
    match leaves[..] {
        // What ends the only leaf was added last.
        [leaf] => Ok(leaf),
        _ => {
            let lowered = Lowered { ops: smallvec![Op::Marker], staged: SmallVec::new() };
            parts.push(Part { lowered, after: if leaves.is_empty() { after } else { leaves } });
            Ok(parts.len() as u32 - 1)
        }
    }
}
