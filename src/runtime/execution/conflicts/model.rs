//! The locking of this module in miniature, in the model of loom: registers and states are numbers, without
//! memory and devices. `scripts/loom.sh` runs it.

use std::sync::Arc;

use loom::thread;

use crate::sync::Mutex;

/// Two executables that use the same two allocations.
struct ModelExecutables {
    registers: [Mutex<ModelRegister>; 2],
    states: [Mutex<ModelExecutable>; 2],
}

#[derive(Default)]
struct ModelRegister {
    in_flight: Vec<u32>,
    /// Whether the first executable's submissions come here.
    is_contested: bool,
}

#[derive(Default)]
struct ModelExecutable {
    contested: Vec<usize>,
    last: Option<u32>,
}

impl ModelExecutables {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            registers: std::array::from_fn(|_| Mutex::new(ModelRegister::default())),
            states: std::array::from_fn(|_| Mutex::new(ModelExecutable::default())),
        })
    }

    /// As `submit`: what the run comes after.
    fn submit(&self, executable: usize, run: u32) -> Vec<u32> {
        {
            let mut state = self.states[executable].lock();
            if state.contested.is_empty() {
                state.last = Some(run);
                return Vec::new();
            }
        }
        loop {
            let contested = self.states[executable].lock().contested.clone();
            let mut registers: Vec<_> = contested.iter().map(|&at| self.registers[at].lock()).collect();
            let mut state = self.states[executable].lock();
            if state.contested != contested {
                continue;
            }
            let mut after = Vec::new();
            for register in &mut registers {
                after.append(&mut register.in_flight);
                register.in_flight.push(run);
            }
            state.last = Some(run);
            return after;
        }
    }

    /// As `register`, for the second executable, while the first one may be submitted.
    fn finalize(&self) {
        for (at, register) in self.registers.iter().enumerate() {
            let mut register = register.lock();
            if !register.is_contested {
                let mut first = self.states[0].lock();
                register.in_flight.extend(first.last);
                first.contested.push(at);
                register.is_contested = true;
            }
            self.states[1].lock().contested.push(at);
        }
    }
}

#[test]
fn loom_two_submissions_have_one_order_on_all_memory() {
    loom::model(|| {
        let world = ModelExecutables::new();
        world.finalize();
        let other = world.clone();
        let thread = thread::spawn(move || other.submit(0, 1));
        let second = world.submit(1, 2);
        let first = thread.join().unwrap();
        assert!(matches!((&first[..], &second[..]), ([], [1, 1]) | ([2, 2], [])), "{first:?} {second:?}");
    });
}

#[test]
fn loom_a_run_is_seen_though_its_memory_becomes_contested_meanwhile() {
    loom::model(|| {
        let world = ModelExecutables::new();
        let other = world.clone();
        let thread = thread::spawn(move || other.submit(0, 1));
        world.finalize();
        let second = world.submit(1, 2);
        let first = thread.join().unwrap();
        // On both allocations, though they become contested one after the other.
        assert!(matches!((&first[..], &second[..]), ([], [1, 1]) | ([2, 2], [])), "{first:?} {second:?}");
    });
}
