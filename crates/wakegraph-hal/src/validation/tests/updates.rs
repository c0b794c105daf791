use super::*;
use crate::{CommandHandle, CommandUpdate};

const ARGUMENT: ErrorKind = ErrorKind::InvalidArgument;
const SIZE: ErrorKind = ErrorKind::InvalidSize;
const PREFIX: &str = "update of command 0 (kernel 'saxpy')";

/// An updatable buffer that holds one launch, finalized.
struct Updatable {
    fixture: Fixture,
    buffer: ValidatedCommandBuffer,
    handle: CommandHandle,
}

impl Updatable {
    fn new(change: impl FnOnce(&Fixture, &mut KernelLaunch)) -> Self {
        Self::with(everything(), change)
    }

    fn with(capabilities: Capabilities, change: impl FnOnce(&Fixture, &mut KernelLaunch)) -> Self {
        let fixture = Fixture::with(capabilities);
        let mut launch = fixture.saxpy();
        change(&fixture, &mut launch);
        let mut buffer = fixture.updatable_buffer();
        let appended = buffer.append(&Command::Kernel(Arc::new(launch)), &[]).unwrap();
        empty(&mut buffer, &[]).unwrap();
        buffer.finalize().unwrap();
        fixture.heard();
        Self { fixture, buffer, handle: appended.handle.unwrap() }
    }

    fn change(&self, fill: impl FnOnce(&mut CommandUpdate)) -> CommandUpdate {
        let mut update = CommandUpdate::new(self.handle);
        fill(&mut update);
        update
    }

    fn takes(&mut self, fill: impl FnOnce(&mut CommandUpdate)) {
        let update = self.change(fill);
        self.buffer.update(std::slice::from_ref(&update)).unwrap();
        assert_eq!(self.fixture.heard(), [format!("update {:?}", [update])]);
    }

    #[track_caller]
    fn refuses(&mut self, fill: impl FnOnce(&mut CommandUpdate), kind: ErrorKind, message: &str) {
        let update = self.change(fill);
        refused(self.buffer.update(&[update]), kind, message);
        assert!(self.fixture.heard().is_empty());
    }
}

#[test]
fn handles_are_of_commands_in_this_buffer() {
    let mut this = Updatable::new(|_, _| ());
    let (ours, other) = (this.handle.buffer, this.fixture.buffer().info().id);
    for (buffer, index, why) in [
        (other, 0, format!("command 0 belongs to {other:?}, not to {ours:?}")),
        (ours, 1, "command 1 cannot be updated: empty node".into()),
        (ours, 2, "command 2 does not exist: 2 commands were appended".into()),
    ] {
        let update = CommandUpdate::new(CommandHandle { buffer, index });
        refused(this.buffer.update(&[update]), ErrorKind::InvalidCommandHandle, &format!("update: {why}"));
    }
    assert!(this.fixture.heard().is_empty());
}

#[test]
fn each_change_needs_its_capability() {
    type Fill = fn(&mut CommandUpdate);
    let kernel = Fixture::new().saxpy().kernel;
    let changes: [(Fill, UpdateCapabilities, &str); 5] = [
        (|u| u.args.push((0, value(&[1; 4]))), UpdateCapabilities::KERNEL_ARGUMENTS, "arguments"),
        (|u| u.local_size = Some(Some([8, 1, 1])), UpdateCapabilities::LOCAL_WORK_SIZE, "local size"),
        (|u| u.global_size = Some([8, 1, 1]), UpdateCapabilities::GLOBAL_WORK_SIZE, "global size"),
        (|u| u.global_offset = Some([8, 0, 0]), UpdateCapabilities::GLOBAL_WORK_OFFSET, "global offset"),
        (|_| (), UpdateCapabilities::KERNEL_HANDLE, "kernel"),
    ];
    for (fill, bit, what) in changes {
        let of_kernel = bit == UpdateCapabilities::KERNEL_HANDLE;
        let fill = |update: &mut CommandUpdate| {
            fill(update);
            update.kernel = of_kernel.then(|| Arc::clone(&kernel));
        };
        let change = |_: &Fixture, launch: &mut KernelLaunch| launch.alternatives = vec![Arc::clone(&kernel)];
        let able = |update| Capabilities { update, ..everything() };
        let mut without = Updatable::with(able(UpdateCapabilities::all() - bit), change);
        let message = format!("{PREFIX}: the device cannot change a kernel command's {what} ({bit:?})");
        without.refuses(fill, ErrorKind::FeatureNotSupported, &message);
        Updatable::with(able(bit), change).takes(fill);
    }
}

#[test]
fn new_arguments_fit_their_parameters() {
    let mut this = Updatable::new(|_, _| ());
    let short = this.fixture.memory(63);
    for (index, arg, why) in [
        (3, value(&[0; 4]), "argument index 3 is out of range: kernel 'saxpy' takes 3 arguments"),
        (0, value(&[0; 8]), "argument 'a' is a value of 8 bytes, the parameter takes a value of 4 bytes"),
        (
            1,
            value(&[0; 4]),
            "argument 'x' is a value of 4 bytes, the parameter takes memory of 4-byte elements to read",
        ),
        (2, KernelArg::Memory(short), "argument 'y' has 63 bytes, not whole elements of 4 bytes"),
    ] {
        this.refuses(|update| update.args.push((index, arg)), ARGUMENT, &format!("{PREFIX}: {why}"));
    }
    let (value, x) = (value(&[1; 4]), KernelArg::Memory(this.fixture.memory(64)));
    this.takes(|update| update.args = vec![(1, x), (0, value)].into());
}

#[test]
fn new_arguments_are_checked_against_those_that_stay() {
    let mut this = Updatable::new(|_, _| ());
    let memory = this.fixture.memory(64);
    let view = || KernelArg::Memory(memory.clone());
    this.takes(|update| update.args.push((1, view())));
    let message = format!(
        "{PREFIX}: arguments 'x' (bytes 0..64 of an allocation) and 'y' (bytes 0..64 of an allocation) \
         overlap, and 'y' is written"
    );
    this.refuses(|update| update.args.push((2, view())), ARGUMENT, &message);
    // Both at once: `x` makes room.
    let other = KernelArg::Memory(this.fixture.memory(64));
    this.takes(|update| update.args = vec![(2, view()), (1, other)].into());
}

#[test]
fn the_new_index_space_keeps_its_dimensions() {
    let mut this = Updatable::new(|_, launch| launch.range = Range::new([16, 8]).local([4, 4]));
    let more = |what: &str, sizes: &str, unused: usize| {
        format!(
            "{PREFIX}: the new {what} {sizes} has more dimensions than the command's 2; \
             the unused ones must be {unused}"
        )
    };
    let message = more("global size", "[16, 8, 2]", 1);
    this.refuses(|update| update.global_size = Some([16, 8, 2]), ARGUMENT, &message);
    let message = more("local size", "[4, 4, 2]", 1);
    this.refuses(|update| update.local_size = Some(Some([4, 4, 2])), ARGUMENT, &message);
    let message = more("global offset", "[0, 0, 1]", 0);
    this.refuses(|update| update.global_offset = Some([0, 0, 1]), ARGUMENT, &message);
    this.takes(|update| {
        update.global_size = Some([32, 6, 1]);
        update.local_size = Some(Some([8, 2, 1]));
        update.global_offset = Some([1, 2, 0]);
    });
}

#[test]
fn the_new_index_space_can_be_launched_with_what_stays() {
    let mut this = Updatable::new(|_, launch| launch.range = Range::linear(16).local([4]));
    let message =
        format!("{PREFIX}: range [18] in groups of [4]: the work-group size does not divide the global size");
    this.refuses(|update| update.global_size = Some([18, 1, 1]), SIZE, &message);
    let message = format!("{PREFIX}: range [0] in groups of [4] has a dimension of size 0");
    this.refuses(|update| update.global_size = Some([0, 1, 1]), SIZE, &message);
    this.takes(|update| update.local_size = Some(None));
    this.takes(|update| update.global_size = Some([18, 1, 1]));
    let message =
        format!("{PREFIX}: range [18] in groups of [4]: the work-group size does not divide the global size");
    this.refuses(|update| update.local_size = Some(Some([4, 1, 1])), SIZE, &message);
    let message = format!("{PREFIX}: a work-group of [64, 1, 1] has 64 work-items, the kernel allows 32");
    this.refuses(
        |update| (update.global_size, update.local_size) = (Some([64, 1, 1]), Some(Some([64, 1, 1]))),
        SIZE,
        &message,
    );
}

#[test]
fn kernels_are_chosen_among_the_registered_and_back() {
    let mut own = None;
    let mut other = None;
    let mut this = Updatable::new(|fixture, launch| {
        launch.alternatives = vec![fixture.kernel("other", &saxpy_params())];
        own = Some(Arc::clone(&launch.kernel));
        other = Some(Arc::clone(&launch.alternatives[0]));
    });
    let stranger = this.fixture.kernel("stranger", &saxpy_params());
    let message = format!("{PREFIX}: kernel 'stranger' was not registered when the command was appended");
    this.refuses(|update| update.kernel = Some(stranger), ARGUMENT, &message);
    this.takes(|update| update.kernel = other);
    let message = "update of command 0 (kernel 'other'): argument index 9 is out of range: \
                   kernel 'other' takes 3 arguments";
    this.refuses(|update| update.args.push((9, value(&[0]))), ARGUMENT, message);
    this.takes(|update| update.kernel = own);
}

#[test]
fn a_new_kernel_and_its_arguments_are_judged_together() {
    let (mut scale, mut axpby) = (None, None);
    let mut this = Updatable::new(|fixture, launch| {
        let mut params = saxpy_params();
        params.push(param("b", ParamKind::Value { size: 4 }));
        let longer = fixture.kernel("axpby", &params);
        let shorter = fixture.kernel("scale", &[param("a", ParamKind::Value { size: 8 })]);
        (scale, axpby) = (Some(Arc::clone(&shorter)), Some(Arc::clone(&longer)));
        launch.alternatives = vec![longer, shorter];
    });
    let message = format!("{PREFIX}: argument 3 'b' of kernel 'axpby' has no value yet");
    this.refuses(|update| update.kernel = axpby.clone(), ARGUMENT, &message);
    this.takes(|update| (update.kernel, update.args) = (axpby.clone(), vec![(3, value(&[0; 4]))].into()));

    let message = "update of command 0 (kernel 'scale'): argument 'a' is a value of 4 bytes, \
         the parameter takes a value of 8 bytes";
    this.refuses(|update| update.kernel = scale.clone(), ARGUMENT, message);
    this.takes(|update| (update.kernel, update.args) = (scale, vec![(0, value(&[0; 8]))].into()));
}

#[test]
fn one_wrong_update_stops_all_and_changes_nothing() {
    let mut this = Updatable::new(|_, launch| launch.range = Range::linear(16).local([4]));
    let right = this.change(|update| update.local_size = Some(Some([8, 1, 1])));
    let wrong = this.change(|update| update.global_size = Some([4, 1, 1]));
    // The second goes on from the first: 4 work-items do not make groups of 8.
    let message =
        format!("{PREFIX}: range [4] in groups of [8]: the work-group size does not divide the global size");
    refused(this.buffer.update(&[right, wrong]), SIZE, &message);
    assert!(this.fixture.heard().is_empty());
    // Groups are still of 4.
    this.takes(|update| update.global_size = Some([4, 1, 1]));
}

#[test]
fn what_the_backend_refuses_is_not_remembered() {
    let mut this = Updatable::new(|_, launch| launch.range = Range::linear(16).local([4]));
    this.fixture.inject_fault();
    let update = this.change(|update| update.local_size = Some(Some([8, 1, 1])));
    assert_eq!(this.buffer.update(&[update]).unwrap_err().kind(), ErrorKind::Driver);
    this.takes(|update| update.global_size = Some([4, 1, 1]));
}

/// A buffer of a launch and a fill, and their handles.
fn launch_and_fill(capabilities: Capabilities) -> (Fixture, ValidatedCommandBuffer, [CommandHandle; 2]) {
    let fixture = Fixture::with(capabilities);
    let fill = Command::BufferFill { dst: fixture.memory(16), pattern: [1].into_iter().collect() };
    let mut buffer = fixture.updatable_buffer();
    let launch = Command::Kernel(Arc::new(fixture.saxpy()));
    let handles =
        [launch, fill].map(|command| buffer.append(&command, &[]).unwrap().handle.expect("can be disabled"));
    buffer.finalize().unwrap();
    fixture.heard();
    (fixture, buffer, handles)
}

#[test]
fn commands_are_switched_and_only_kernels_have_more_to_change() {
    let (fixture, mut buffer, [launch, fill]) = launch_and_fill(everything());
    let switch = |handle| CommandUpdate { enabled: Some(false), ..CommandUpdate::new(handle) };
    let updates = [switch(launch), switch(fill)];
    buffer.update(&updates).unwrap();
    assert_eq!(fixture.heard(), [format!("update {updates:?}")]);

    let mut update = switch(fill);
    update.global_size = Some([1, 1, 1]);
    let message = "update: command 1 is a buffer fill: it has no kernel, arguments and sizes to be changed";
    refused(buffer.update(&[switch(launch), update]), ErrorKind::InvalidCommandHandle, message);
    assert!(fixture.heard().is_empty());
}

#[test]
fn switching_needs_its_capability() {
    let able =
        Capabilities { update: UpdateCapabilities::all() - UpdateCapabilities::ENABLED, ..everything() };
    let (fixture, mut buffer, [_, fill]) = launch_and_fill(able);
    let switch = CommandUpdate { enabled: Some(false), ..CommandUpdate::new(fill) };
    let message =
        "update of command 1: the device cannot enable or disable commands (UpdateCapabilities(ENABLED))";
    refused(buffer.update(&[switch]), ErrorKind::FeatureNotSupported, message);
    assert!(fixture.heard().is_empty());
}

#[test]
fn operands_of_fills_are_checked_as_at_append() {
    let (fixture, mut buffer, [launch, fill]) = launch_and_fill(everything());
    let with = |handle, memory: Command| CommandUpdate {
        command: Some(Box::new(memory)),
        ..CommandUpdate::new(handle)
    };
    let fill_of = |len, pattern: &[u8]| Command::BufferFill {
        dst: fixture.memory(len),
        pattern: pattern.iter().copied().collect(),
    };
    let copy = Command::BufferCopy { src: fixture.memory(4), dst: fixture.memory(4) };
    let kind = ErrorKind::InvalidArgument;
    let message = "update of command 1: it is a buffer fill, and the new command a buffer copy";
    refused(buffer.update(&[with(fill, copy)]), kind, message);
    let message = "update of command 0: it is a kernel, and the new command a buffer fill";
    refused(buffer.update(&[with(launch, fill_of(4, &[1]))]), kind, message);
    assert_eq!(
        buffer.update(&[with(fill, fill_of(4, &[1, 2, 3]))]).unwrap_err().kind(),
        ErrorKind::InvalidSize
    );
    assert!(fixture.heard().is_empty());
    buffer.update(&[with(fill, fill_of(8, &[1, 2]))]).unwrap();
    let able = Capabilities {
        update: UpdateCapabilities::all() - UpdateCapabilities::MEMORY_OPERANDS,
        ..everything()
    };
    let (fixture, mut buffer, [_, fill]) = launch_and_fill(able);
    let memory = Command::BufferFill { dst: fixture.memory(4), pattern: [1].into_iter().collect() };
    let message = "update of command 1: the device cannot change the operands of fills and copies \
                   (UpdateCapabilities(MEMORY_OPERANDS))";
    refused(buffer.update(&[with(fill, memory)]), ErrorKind::FeatureNotSupported, message);
}

#[test]
fn a_buffer_is_updated_from_one_of_the_same_topology() {
    let fixture = Fixture::new();
    let fill = |len| Command::BufferFill { dst: fixture.memory(len), pattern: [1].into_iter().collect() };
    let record = |fixture: &Fixture, commands: &[(Command, &[usize])]| {
        let mut buffer = fixture.updatable_buffer();
        let mut points: Vec<SyncPoint> = Vec::new();
        for (command, after) in commands {
            let after: Vec<_> = after.iter().map(|&index| points[index]).collect();
            points.push(buffer.append(command, &after).unwrap().sync_point);
        }
        buffer
    };
    let mut buffer = record(&fixture, &[(fill(16), &[]), (fill(16), &[]), (fill(16), &[0, 1])]);
    let early = buffer.update_from(&record(&fixture, &[]));
    refused(early, ErrorKind::InvalidOperation, "command-buffer: updated before finalize");
    buffer.finalize().unwrap();
    fixture.heard();

    let of = "update from another buffer";
    for (commands, why) in [
        (&[(fill(16), &[][..]), (fill(16), &[])][..], "command 2 is in one of them only: 3 here, 2 there"),
        (&[(fill(16), &[]), (Command::Empty, &[])], "command 1 is: buffer fill here, empty node there"),
        (
            &[(fill(16), &[]), (fill(16), &[]), (fill(16), &[1, 0])],
            "command 2 comes after [0, 1] here and after [1, 0] there",
        ),
    ] {
        let other = record(&fixture, commands);
        fixture.heard();
        refused(buffer.update_from(&other), ARGUMENT, &format!("{of}: {why}"));
    }
    let same: [(Command, &[usize]); 3] = [(fill(4), &[]), (fill(4), &[]), (fill(4), &[0, 1])];
    let stranger = Fixture::new();
    let other = record(&stranger, &[]);
    let (theirs, ours) = (other.info().device, buffer.info().device);
    let message = format!("{of}: it belongs to {theirs}, this one to {ours}");
    refused(buffer.update_from(&other), ARGUMENT, &message);
    let other = fixture.buffer();
    let error = buffer.update_from(&other).unwrap_err();
    assert!(error.message().contains("it was created as CommandBufferDesc"), "{error}");

    let other = record(&fixture, &same);
    fixture.heard();
    buffer.update_from(&other).unwrap();
    assert_eq!(fixture.heard(), ["update from a buffer of 3"]);
}

#[test]
fn the_low_latency_hint_of_another_buffer_may_differ() {
    let fixture = Fixture::new();
    let record = |low_latency| {
        let desc = CommandBufferDesc { updatable: true, low_latency, ..CommandBufferDesc::default() };
        let mut buffer = fixture.device.create_command_buffer(&desc).unwrap();
        buffer.append(&Command::Empty, &[]).unwrap();
        buffer.finalize().unwrap();
        buffer
    };
    for low_latency in [false, true] {
        record(low_latency).update_from(&record(!low_latency)).unwrap();
    }
}

#[test]
fn what_a_buffer_was_updated_from_is_what_the_next_update_changes() {
    let (fixture, mut buffer, [launch, _]) = launch_and_fill(everything());
    let mut other = fixture.updatable_buffer();
    let mut grouped = fixture.saxpy();
    grouped.range = Range::linear(16).local([8]);
    other.append(&Command::Kernel(Arc::new(grouped)), &[]).unwrap();
    other
        .append(&Command::BufferFill { dst: fixture.memory(4), pattern: [1].into_iter().collect() }, &[])
        .unwrap();
    buffer.update_from(&other).unwrap();
    let update = CommandUpdate { global_size: Some([4, 1, 1]), ..CommandUpdate::new(launch) };
    let message =
        format!("{PREFIX}: range [4] in groups of [8]: the work-group size does not divide the global size");
    refused(buffer.update(&[update]), SIZE, &message);
}
