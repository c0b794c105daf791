//! Commands that run once, outside command-buffers.

use std::sync::Arc;

use wakegraph_hal::support::command_list::CommandList;
use wakegraph_hal::support::lowering::After;
use wakegraph_hal::{Command, CommandBufferDesc, Result};

use super::context::LevelZeroContext;
use super::lower::lower;
use super::operation::LevelZeroOperation;
use super::recording::ListRecording;

/// What runs once, outside command-buffers.
#[derive(Debug)]
pub(super) struct SingleRun {
    /// Before what it uses.
    pub(super) recording: ListRecording,
    _list: CommandList<LevelZeroOperation>,
    _command: Option<Arc<Command>>,
}

impl SingleRun {
    pub(super) fn new(recording: ListRecording) -> Box<Self> {
        Box::new(Self { recording, _list: CommandList::default(), _command: None })
    }

    pub(super) fn of_command(context: &Arc<LevelZeroContext>, command: &Arc<Command>) -> Result<Box<Self>> {
        let mut list = CommandList::default();
        list.push(lower(context, command)?, After::new());
        let (commands, desc) = (std::slice::from_ref(&**command), CommandBufferDesc::new().in_order(true));
        let recording = ListRecording::new(context, commands, &list, desc)?;
        Ok(Box::new(Self { recording, _list: list, _command: Some(Arc::clone(command)) }))
    }
}
