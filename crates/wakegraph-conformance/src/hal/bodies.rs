//! Commands that hold commands: conditionals and loops.

use std::sync::Arc;

use wakegraph::ErrorKind;
use wakegraph::hal::{Body, Command, CommandBufferDesc, CommandKind, MemoryView, WaitList};

use super::bench::{Bench, enqueue_command, part, read, write};
use crate::suite::{Need, Setup, lacks, tests};

tests!("bodies":
    &[Need::Results] => [conditions_choose, conditions_in_host_memory, commands_of_bodies_are_in_order,
        loops_read_the_flag_before_every_round, bodies_in_bodies, as_deep_as_they_may_lie,
        outside_command_buffers],
    &[] => [empty_bodies, what_a_device_lacks_is_refused_by_name, wrong_conditions]);

fn fill(dst: &MemoryView, byte: u8) -> Command {
    Command::BufferFill { dst: dst.clone(), pattern: [byte].as_slice().into() }
}

fn copy(src: &MemoryView, dst: &MemoryView) -> Command {
    Command::BufferCopy { src: src.clone(), dst: dst.clone() }
}

/// Commands one after the other.
fn path(commands: impl IntoIterator<Item = Command>) -> Arc<Body> {
    let mut body = Body::new();
    for command in commands {
        let last = (body.len() as u32).checked_sub(1);
        body.push(command, last.as_slice()).unwrap();
    }
    Arc::new(body)
}

fn if_nonzero(condition: &MemoryView, then: Arc<Body>, otherwise: Option<Arc<Body>>) -> Command {
    Command::If { condition: condition.clone(), then, otherwise }
}

fn while_nonzero(condition: &MemoryView, body: Arc<Body>) -> Command {
    Command::While { condition: condition.clone(), body }
}

/// A row of words. A round of `shift` moves all but the first to the front, so a loop over the
/// first one runs as often as there are words that are not 0 before the first that is.
struct Row {
    words: MemoryView,
    aside: MemoryView,
}

impl Row {
    const LEN: usize = 8;

    fn new(bench: &Bench, words: [u32; Self::LEN]) -> Self {
        let row =
            Self { words: bench.memory(&[0; 4 * Self::LEN]), aside: bench.memory(&[0; 4 * (Self::LEN - 1)]) };
        row.set(words);
        row
    }

    fn set(&self, words: [u32; Self::LEN]) {
        write(&self.words, &words.map(u32::to_ne_bytes).concat());
    }

    fn get(&self) -> Vec<u32> {
        read(&self.words).chunks(4).map(|word| u32::from_ne_bytes(word.try_into().unwrap())).collect()
    }

    fn first(&self) -> MemoryView {
        part(&self.words, 0, 4)
    }

    fn shift(&self) -> [Command; 2] {
        let (front, rest) =
            (part(&self.words, 0, 4 * (Self::LEN - 1)), part(&self.words, 4, 4 * (Self::LEN - 1)));
        [copy(&rest, &self.aside), copy(&self.aside, &front)]
    }
}

fn has(bench: &Bench, kind: CommandKind) -> bool {
    bench.device.capabilities().commands.contains(kind.as_set())
}

//   a=1 -> b=a -+
//               +-> d[0..4]=b, d[4..8]=c
//   c=3 --------+
fn commands_of_bodies_are_in_order(setup: &Setup) {
    let bench = Bench::new(setup);
    if !has(&bench, CommandKind::If) {
        return lacks("conditionals");
    }
    let [a, b, c, d] = [4, 4, 4, 8].map(|len| bench.memory(&vec![9; len]));
    let mut body = Body::new();
    let first = body.push(fill(&a, 1), &[]).unwrap();
    let second = body.push(copy(&a, &b), &[first]).unwrap();
    let third = body.push(fill(&c, 3), &[]).unwrap();
    body.push(copy(&b, &part(&d, 0, 4)), &[second, third]).unwrap();
    body.push(copy(&c, &part(&d, 4, 4)), &[second, third]).unwrap();
    bench.run(&if_nonzero(&bench.memory(&[1; 4]), Arc::new(body), None));
    assert_eq!(read(&d), [1, 1, 1, 1, 3, 3, 3, 3]);
}

fn conditions_choose(setup: &Setup) {
    let bench = Bench::new(setup);
    if !has(&bench, CommandKind::If) {
        return lacks("conditionals");
    }
    let (flag, alone, both) = (bench.memory(&[0; 4]), bench.memory(&[0; 4]), bench.memory(&[0; 4]));
    // The body that runs may change the word: it has been read by then.
    let then = path([fill(&both, 1), fill(&flag, 0)]);
    let otherwise = path([fill(&both, 2), fill(&flag, 1)]);
    let buffer = bench.recorded(&[
        if_nonzero(&flag, path([fill(&alone, 1)]), None),
        if_nonzero(&flag, then, Some(otherwise)),
    ]);
    for word in [0u32, 1, 0, 0x0100_0000, u32::MAX, 0] {
        write(&flag, &word.to_ne_bytes());
        [&alone, &both].into_iter().for_each(|memory| write(memory, &[0; 4]));
        bench.run_buffer(&buffer);
        let expected = if word == 0 { (0, 2, 1) } else { (1, 1, 0) };
        assert_eq!((read(&alone)[0], read(&both)[0], read(&flag)[0]), expected, "for {word:#x}");
    }
}

fn conditions_in_host_memory(setup: &Setup) {
    let bench = Bench::new(setup);
    if !has(&bench, CommandKind::If) {
        return lacks("conditionals");
    }
    let (flags, memory) = (bench.host_memory(&[0; 8]), bench.memory(&[0]));
    let buffer = bench.recorded(&[if_nonzero(&part(&flags, 4, 4), path([fill(&memory, 1)]), None)]);
    for word in [0u32, 5] {
        write(&flags, &[0, word].map(u32::to_ne_bytes).concat());
        bench.run_buffer(&buffer);
        assert_eq!(read(&memory), [u8::from(word != 0)]);
    }
}

fn loops_read_the_flag_before_every_round(setup: &Setup) {
    let bench = Bench::new(setup);
    if !has(&bench, CommandKind::While) {
        return lacks("loops");
    }
    let row = Row::new(&bench, [0; Row::LEN]);
    let after = bench.memory(&[0; 4 * Row::LEN]);
    let buffer = bench.recorded(&[while_nonzero(&row.first(), path(row.shift())), copy(&row.words, &after)]);
    for (words, first) in [
        ([0, 11, 12, 13, 14, 15, 16, 17], [0, 11]),
        ([5, 0, 12, 13, 14, 15, 16, 17], [0, 12]),
        ([5, 4, 3, 2, 1, 0, 16, 17], [0, 16]),
        ([0, 1, 0, 0, 0, 0, 0, 0], [0, 1]),
    ] {
        row.set(words);
        bench.run_buffer(&buffer);
        assert_eq!(row.get()[..2], first, "after {words:?}");
        assert_eq!(read(&after), read(&row.words));
    }
}

// if a { while b { shift b, if c { d=1 } else { d=2 } } }
fn bodies_in_bodies(setup: &Setup) {
    let bench = Bench::new(setup);
    if !has(&bench, CommandKind::If) || !has(&bench, CommandKind::While) {
        return lacks("conditionals and loops");
    }
    let (a, c, d) = (bench.memory(&[0; 4]), bench.memory(&[0; 4]), bench.memory(&[0]));
    let row = Row::new(&bench, [0; Row::LEN]);
    let [aside, back] = row.shift();
    let inner = if_nonzero(&c, path([fill(&d, 1)]), Some(path([fill(&d, 2)])));
    let body = path([aside, back, inner]);
    let outer = if_nonzero(&a, path([while_nonzero(&row.first(), body)]), None);
    let buffer = bench.recorded(&[outer]);
    for (a_word, c_word, rounds, expected) in [(0, 1, 3, 0), (1, 1, 0, 0), (1, 1, 3, 1), (1, 0, 2, 2)] {
        let words = std::array::from_fn(|index| u32::from(index < rounds));
        row.set(words);
        write(&a, &[a_word; 4]);
        write(&c, &[c_word; 4]);
        write(&d, &[0]);
        bench.run_buffer(&buffer);
        let left = if a_word == 0 { words.to_vec() } else { vec![0; Row::LEN] };
        assert_eq!((row.get(), read(&d)[0]), (left, expected), "{a_word} {c_word} {rounds}");
    }
}

fn as_deep_as_they_may_lie(setup: &Setup) {
    let bench = Bench::new(setup);
    if !has(&bench, CommandKind::If) {
        return lacks("conditionals");
    }
    let (flag, memory) = (bench.memory(&[1; 4]), bench.memory(&[0; 4]));
    let mut body = path([fill(&memory, 2)]);
    while body.depth() < Body::MAX_DEPTH {
        body = path([if_nonzero(&flag, body, None)]);
    }
    bench.run(&if_nonzero(&flag, body, None));
    assert_eq!(read(&memory), [2; 4]);
}

fn outside_command_buffers(setup: &Setup) {
    let bench = Bench::new(setup);
    if !has(&bench, CommandKind::While) {
        return lacks("loops");
    }
    let row = Row::new(&bench, [1, 1, 1, 0, 9, 9, 9, 9]);
    let event = bench.event();
    let looping = while_nonzero(&row.first(), path(row.shift()));
    enqueue_command(&looping, &bench.queue, WaitList::NONE, &event).unwrap();
    super::bench::complete(&event);
    assert_eq!(row.get()[..3], [0, 9, 9]);
}

fn empty_bodies(setup: &Setup) {
    let bench = Bench::new(setup);
    let flag = bench.memory(&[0; 4]);
    let nothing = Arc::new(Body::new());
    for command in [
        if_nonzero(&flag, nothing.clone(), Some(nothing.clone())),
        if_nonzero(&flag, path([Command::Empty]), None),
        while_nonzero(&flag, nothing),
    ] {
        if has(&bench, command.kind()) {
            bench.run(&command);
        }
    }
}

fn what_a_device_lacks_is_refused_by_name(setup: &Setup) {
    let bench = Bench::new(setup);
    let flag = bench.memory(&[0; 4]);
    let nothing = Arc::new(Body::new());
    let commands = [
        if_nonzero(&flag, nothing.clone(), None),
        while_nonzero(&flag, nothing),
        Command::Native(super::bench::native(|_| Ok(()))),
    ];
    for command in commands {
        let kind = command.kind();
        if has(&bench, kind) {
            continue;
        }
        let mut buffer = bench.buffer(CommandBufferDesc::new());
        let held = if_nonzero(&flag, path([Command::Empty, command.clone()]), None);
        for command in [&command, &held] {
            let kind = if has(&bench, command.kind()) { kind } else { command.kind() };
            let error = buffer.append(command, &[]).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::FeatureNotSupported, "{error}");
            assert!(error.message().contains(kind.name()), "{error}");
        }
        let event = bench.event();
        let refused = enqueue_command(&command, &bench.queue, WaitList::NONE, &event);
        assert_eq!(refused.unwrap_err().kind(), ErrorKind::FeatureNotSupported, "{kind}");
        // Nothing of it is left behind.
        buffer.append(&Command::Empty, &[]).unwrap();
        buffer.finalize().unwrap();
        bench.run_buffer(&buffer);
    }
}

fn wrong_conditions(setup: &Setup) {
    let bench = Bench::new(setup);
    let (memory, nothing) = (bench.memory(&[0; 16]), Arc::new(Body::new()));
    for (offset, len, kind) in
        [(0, 8, ErrorKind::InvalidSize), (0, 2, ErrorKind::InvalidSize), (2, 4, ErrorKind::InvalidArgument)]
    {
        let wrong = part(&memory, offset, len);
        for command in [if_nonzero(&wrong, nothing.clone(), None), while_nonzero(&wrong, nothing.clone())] {
            if has(&bench, command.kind()) {
                let error = bench.buffer(CommandBufferDesc::new()).append(&command, &[]).unwrap_err();
                assert_eq!(error.kind(), kind, "{error}");
            }
        }
    }
}
