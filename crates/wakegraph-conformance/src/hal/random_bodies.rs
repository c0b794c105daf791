//! Random commands that hold commands: the result is that of running them one after the other as
//! they were added.

use std::sync::Arc;

use wakegraph::hal::{Body, Command, CommandBufferDesc, CommandKinds, MemoryView};

use super::bench::{Bench, append, complete, enqueue, part, read, write};
use crate::random::Random;
use crate::suite::{Need, Setup, lacks, tests};

tests!("bodies/random": &[Need::Results] => [random_bodies]);

/// Words of equal bytes: a fill sets them, a copy moves them, and they are conditions.
const CELLS: usize = 6;

#[derive(Clone, Debug)]
enum Step {
    Fill(usize, u8),
    Copy(usize, usize),
    Nothing,
    If(usize, Vec<Step>, Option<Vec<Step>>),
    Switch(usize, Vec<Vec<Step>>),
    /// Its last step, which comes after all others, sets the condition to 0.
    While(usize, Vec<Step>),
}

/// Cells that are read and cells that are written, as bits.
#[derive(Clone, Copy, Default)]
struct Touched {
    reads: u32,
    writes: u32,
}

impl Touched {
    fn and(self, other: Self) -> Self {
        Self { reads: self.reads | other.reads, writes: self.writes | other.writes }
    }

    fn conflicts(self, other: Self) -> bool {
        self.writes & (other.reads | other.writes) != 0 || other.writes & self.reads != 0
    }
}

impl Step {
    fn random(random: &mut Random, can: CommandKinds, depth: usize) -> Self {
        let cell = random.below(CELLS);
        let body = |random: &mut Random| {
            let len = random.below(6);
            (0..len).map(|_| Self::random(random, can, depth + 1)).collect::<Vec<_>>()
        };
        match random.below(if depth < 4 { 11 } else { 6 }) {
            0..3 => Self::Fill(cell, random.below(3) as u8),
            3..5 => Self::Copy(cell, (cell + random.within(1..=CELLS - 1)) % CELLS),
            5 => Self::Nothing,
            6 | 7 if can.contains(CommandKinds::IF) => {
                let otherwise = random.chance(2).then(|| body(random));
                Self::If(cell, body(random), otherwise)
            }
            // All words but 0 are larger than the number of any body.
            8 if can.contains(CommandKinds::SWITCH) => {
                Self::Switch(cell, (0..random.below(4)).map(|_| body(random)).collect())
            }
            9 if can.contains(CommandKinds::WHILE) => {
                let mut steps = body(random);
                steps.push(Self::Fill(cell, 0));
                Self::While(cell, steps)
            }
            _ => Self::Nothing,
        }
    }

    fn touched(&self) -> Touched {
        let all = |steps: &[Self]| steps.iter().fold(Touched::default(), |all, step| all.and(step.touched()));
        let condition = |cell: usize| Touched { reads: 1 << cell, writes: 0 };
        match self {
            Self::Fill(cell, _) => Touched { reads: 0, writes: 1 << cell },
            Self::Copy(from, to) => Touched { reads: 1 << from, writes: 1 << to },
            Self::Nothing => Touched::default(),
            Self::If(cell, then, otherwise) => {
                condition(*cell).and(all(then)).and(all(otherwise.as_deref().unwrap_or_default()))
            }
            Self::Switch(cell, bodies) => {
                bodies.iter().fold(condition(*cell), |touched, body| touched.and(all(body)))
            }
            Self::While(cell, steps) => condition(*cell).and(all(steps)),
        }
    }

    fn apply(&self, model: &mut [u8; CELLS]) {
        let all = |steps: &[Self], model: &mut [u8; CELLS]| steps.iter().for_each(|step| step.apply(model));
        match self {
            Self::Fill(cell, byte) => model[*cell] = *byte,
            Self::Copy(from, to) => model[*to] = model[*from],
            Self::Nothing => {}
            Self::If(cell, then, _) if model[*cell] != 0 => all(then, model),
            Self::If(_, _, otherwise) => all(otherwise.as_deref().unwrap_or_default(), model),
            Self::Switch(cell, bodies) if model[*cell] == 0 => {
                all(bodies.first().map(Vec::as_slice).unwrap_or_default(), model);
            }
            Self::Switch(..) => {}
            Self::While(cell, steps) => {
                while model[*cell] != 0 {
                    all(steps, model);
                }
            }
        }
    }

    fn command(&self, cells: &[MemoryView]) -> Command {
        let body = |steps: &[Self], is_loop| Arc::new(body(steps, cells, is_loop));
        match self {
            Self::Fill(cell, byte) => {
                Command::BufferFill { dst: cells[*cell].clone(), pattern: [*byte].as_slice().into() }
            }
            Self::Copy(from, to) => {
                Command::BufferCopy { src: cells[*from].clone(), dst: cells[*to].clone() }
            }
            Self::Nothing => Command::Empty,
            Self::If(cell, then, otherwise) => Command::If {
                condition: cells[*cell].clone(),
                then: body(then, false),
                otherwise: otherwise.as_ref().map(|steps| body(steps, false)),
            },
            Self::Switch(cell, bodies) => Command::Switch {
                index: cells[*cell].clone(),
                bodies: bodies.iter().map(|steps| body(steps, false)).collect(),
            },
            Self::While(cell, steps) => {
                Command::While { condition: cells[*cell].clone(), body: body(steps, true) }
            }
        }
    }
}

/// The earlier steps that a step comes after: those that it conflicts with, and what an empty
/// command may join.
fn before(steps: &[Step], index: usize) -> Vec<usize> {
    let touched = steps[index].touched();
    let joins = matches!(steps[index], Step::Nothing) && index.is_multiple_of(2);
    (0..index).filter(|&earlier| joins || steps[earlier].touched().conflicts(touched)).collect()
}

fn body(steps: &[Step], cells: &[MemoryView], is_loop: bool) -> Body {
    let mut body = Body::new();
    for (index, step) in steps.iter().enumerate() {
        let after = match is_loop && index + 1 == steps.len() {
            true => (0..index).collect(),
            false => before(steps, index),
        };
        let after: Vec<_> = after.into_iter().map(|earlier| earlier as u32).collect();
        body.push(step.command(cells), &after).unwrap();
    }
    body
}

fn random_bodies(setup: &Setup) {
    let bench = Bench::new(setup);
    let can = bench.device.capabilities().commands;
    if !can.intersects(CommandKinds::CONTROL) {
        return lacks("conditionals and loops");
    }
    let mut queues = vec![bench.queue.clone()];
    queues.extend(bench.device.capabilities().out_of_order_queues.then(|| bench.out_of_order_queue()));
    for seed in 0..60 {
        let mut random = Random::new(seed);
        let steps: Vec<_> = (0..8).map(|_| Step::random(&mut random, can, 0)).collect();
        let memory = bench.memory(&[0; 4 * CELLS]);
        let cells: Vec<_> = (0..CELLS).map(|cell| part(&memory, 4 * cell, 4)).collect();
        let mut buffer = bench.buffer(CommandBufferDesc::new());
        let mut points = Vec::new();
        for (index, step) in steps.iter().enumerate() {
            append(&mut buffer, &step.command(&cells), &mut points, &before(&steps, index));
        }
        buffer.finalize().unwrap();
        for run in 0..4 {
            let mut model = [(); CELLS].map(|()| random.below(3) as u8);
            write(&memory, &model.map(|byte| [byte; 4]).concat());
            let event = bench.event();
            enqueue(&buffer, &queues[run % queues.len()], &event).unwrap();
            complete(&event);
            let start = model;
            steps.iter().for_each(|step| step.apply(&mut model));
            let expected = model.map(|byte| [byte; 4]).concat();
            assert_eq!(read(&memory), expected, "seed {seed}, run {run}, from {start:?}: {steps:#?}");
        }
    }
}
