//! How a backend makes graphs of commands, launches and changes them.

use std::collections::HashMap;
use std::sync::Arc;

use smallvec::SmallVec;

use super::instance::LaunchableGraph;
use super::objects::GraphObjects;
use super::recording::{GraphRecording, GraphState, RecordedCommand};
use crate::support::streams::{ContextFailure, DriverStream, Started};
use crate::{Command, CommandBufferDesc, CommandChange, KernelLaunch, Result};

/// What differs between drivers. The caller of the functions has bound the context.
pub trait GraphDevice: GraphObjects {
    /// A copy that is set again when its command is enabled.
    type ChangedCopy;

    /// What a command-buffer is, for its users.
    const LOWERING: &'static str;
    /// Whether the driver forgets new parameters of a kernel that is disabled before a launch has used them.
    const FORGETS_DISABLED: bool;

    /// Appends a command behind these earlier ones. On an error the recording is as it was.
    fn append(
        recording: &mut GraphRecording<Self>,
        command: &Command,
        after: SmallVec<[u32; 2]>,
    ) -> Result<()>;

    /// Appends a command, which will be enabled or not, in the place that another one has in
    /// another recording.
    fn append_like(
        recording: &mut GraphRecording<Self>,
        command: &Command,
        like: &RecordedCommand<Self>,
        enabled: bool,
    ) -> Result<()>;

    /// The new launch of a command in this place; none if the graph has to be recorded again for
    /// it.
    fn launch_in_place(
        &self,
        _place: &Self::Place,
        _current: &Self::Launch,
        launch: &KernelLaunch,
    ) -> Result<Option<Self::Launch>> {
        self.launch_of(launch).map(Some)
    }

    /// Whether the command in this place can be disabled without recording the graph again.
    fn can_disable(_place: &Self::Place) -> bool {
        true
    }

    /// Whether the edges of a command that has these places in two graphs are of the same kind.
    fn has_same_edges(_ours: &Self::Place, _theirs: &Self::Place) -> bool {
        true
    }

    /// Takes note that the command with this index has changed.
    fn changed(_recording: &mut GraphRecording<Self>, _index: usize) {}

    /// Whether the graph has no nodes but those of its commands.
    fn has_only_commands(_recording: &GraphRecording<Self>) -> bool {
        true
    }

    /// Instantiates the new graph for launches, without disabled commands.
    fn instantiate(recording: &mut GraphRecording<Self>) -> Result<(Self::Exec, Self::Form)>;

    /// Why a command-buffer with this recording is what it is.
    fn reason(recording: &GraphRecording<Self>) -> &'static str;

    /// Called when a command-buffer is created, which is the time for what takes long.
    fn prepare(_device: &Arc<Self>, _desc: &CommandBufferDesc) {}

    /// Launches the graph behind its last launch. A counter tells of the end, if the launch `counts` and the
    /// graph has such a form.
    fn launch(
        instance: &mut LaunchableGraph<Self>,
        recording: &GraphRecording<Self>,
        stream: &Arc<DriverStream<Self::Context>>,
        counts: bool,
    ) -> Result<Started<Self>>;

    /// Replaces the instantiated graph. Launches in flight go on, and the next launch comes after them.
    fn replace(instance: &mut LaunchableGraph<Self>, exec: Self::Exec, form: Self::Form) -> Result<()>;

    /// Whether the instance may be changed now: launches in flight keep their values, or there are none.
    fn can_change(_device: &Arc<Self>, _instance: &LaunchableGraph<Self>) -> Result<bool> {
        Ok(true)
    }

    /// The copies of a command, if an update from another graph may have changed their parameters in the
    /// instance and the driver forgets that.
    fn changed_copies(_: &GraphRecording<Self>, _index: usize) -> Result<Vec<Self::ChangedCopy>> {
        Ok(Vec::new())
    }

    /// Changes what a copy node copies.
    fn set_copy(exec: &mut Self::Exec, copy: &Self::ChangedCopy)
    -> Result<(), ContextFailure<Self::Context>>;
}

impl<D: GraphDevice> GraphRecording<D> {
    /// Takes note of what the command with this index has become, and of how the graph compares to
    /// that.
    pub fn command_changed(&mut self, index: usize, state: GraphState) {
        self.state = self.state.max(state);
        D::changed(self, index);
    }

    /// The same commands, enabled or disabled as they are, in a graph of their own. The caller has
    /// bound the context.
    pub fn record_again(&self, desc: CommandBufferDesc) -> Result<Self> {
        self.record_changed(desc, &[])
    }

    /// The same with these changes.
    pub fn record_changed(&self, desc: CommandBufferDesc, changes: &[CommandChange]) -> Result<Self> {
        let mut again = Self::new(&self.device, desc)?;
        let changes: HashMap<usize, &CommandChange> =
            changes.iter().map(|change| (change.index, change)).collect();
        for (index, recorded) in self.commands.iter().enumerate() {
            let change = changes.get(&index);
            let command = change.and_then(|change| change.command.as_ref()).unwrap_or(&recorded.command);
            let enabled = change.and_then(|change| change.enabled).unwrap_or(recorded.enabled);
            D::append_like(&mut again, command, recorded, enabled)?;
            if let Some(copy) = again.commands.last_mut() {
                copy.enabled = enabled;
            }
        }
        Ok(again)
    }
}
