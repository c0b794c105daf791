//! The register of one allocation: which executables use it, and which uses of it may not have ended.

use std::sync::Arc;

use wakegraph_hal::Access;

use super::users::{User, Users};
use crate::runtime::execution::accesses::{MergedAccesses, conflict, covers, writes};
use crate::runtime::execution::executable::{ExecutableId, ExecutableInner, ExecutableState};
use crate::runtime::execution::run::{
    Awaited, Fence, FenceGuard, FenceHolder, GuardAhead, Predecessor, Predecessors,
};
use crate::runtime::resource::allocation::Allocation;

/// The users of one allocation, and its uses that may be in flight: the base of the order between them.
#[derive(Default)]
pub(crate) struct Register {
    users: Users,
    /// The number of submissions that still come here without a conflict: where guards were taken, others
    /// follow.
    lingering: u8,
    pub(super) in_flight: RecordedUses,
}

/// Submissions between two guards of the same memory in a service that takes a guard for each.
const LINGER: u8 = 8;

impl Register {
    /// Sends the submissions of every other executable that conflicts with these accesses here, and records
    /// what such an executable has in flight. Adds the executables to `others`, which the caller drops after
    /// the locks.
    pub(super) fn contest(
        &mut self,
        allocation: &Arc<Allocation>,
        by: Option<ExecutableId>,
        accesses: &[Access],
        others: &mut Vec<Arc<ExecutableInner>>,
    ) {
        let Self { users, in_flight, .. } = self;
        users.retain_conflicting(accesses, |user| {
            if user.is_contested || by == Some(user.id) {
                return true;
            }
            let Some(executable) = user.alive() else { return false };
            // A submission that does not come here yet holds this lock from its start to its end.
            let mut state = executable.state.lock();
            in_flight.record_last(&state, user);
            state.contested.insert(allocation, &user.accesses);
            drop(state);
            user.is_contested = true;
            others.push(executable);
            true
        });
    }

    /// Makes known that later runs of an executable use the allocation so, and in no other way. Runs in
    /// flight that use it in another way stay on record. Adds to `others` what the caller drops after the
    /// locks.
    pub(super) fn set_user(
        &mut self,
        allocation: &Arc<Allocation>,
        executable: &Arc<ExecutableInner>,
        accesses: Vec<Access>,
        others: &mut Vec<Arc<ExecutableInner>>,
    ) {
        let id = executable.id;
        if self.users.get(id).is_some_and(|user| *user.accesses == *accesses) {
            return;
        }
        let accesses = MergedAccesses::from(accesses);
        self.contest(allocation, Some(id), &accesses, others);
        let is_contested = self.is_contested(id, &accesses);
        let mut state = executable.state.lock();
        self.remove(id, &mut state, allocation);
        if is_contested {
            state.contested.insert(allocation, &accesses);
        }
        let executable = Arc::downgrade(executable);
        self.users.insert(User { id, executable, accesses, since: state.runs, is_contested });
    }

    /// Makes known that an executable does not use the allocation any more, except for its runs in flight.
    pub(super) fn remove_user(&mut self, allocation: &Arc<Allocation>, executable: &Arc<ExecutableInner>) {
        self.remove(executable.id, &mut executable.state.lock(), allocation);
    }

    fn remove(&mut self, id: ExecutableId, state: &mut ExecutableState, allocation: &Arc<Allocation>) {
        let Some(user) = self.users.remove(id) else { return };
        if user.is_contested {
            state.contested.remove(allocation);
        } else {
            self.in_flight.record_last(state, &user);
        }
    }

    /// Whether something else may conflict with these accesses of an executable now or with a later
    /// submission of it.
    pub(super) fn is_contested(&mut self, id: ExecutableId, accesses: &[Access]) -> bool {
        self.users.conflicts_with(id, accesses)
            || self.in_flight.conflicts(Some(id), accesses).next().is_some()
    }

    /// A guard comes here.
    pub(super) fn linger(&mut self) {
        self.lingering = LINGER;
    }

    /// Whether a submission that conflicts with nothing had better come here again.
    pub(super) fn lingers(&mut self) -> bool {
        let lingers = self.lingering > 0;
        self.lingering = self.lingering.saturating_sub(1);
        lingers
    }

    /// Lets the executable's submissions pass this register by, until something contests the allocation
    /// again.
    pub(super) fn release(&mut self, id: ExecutableId) {
        if let Some(user) = self.users.get_mut(id) {
            user.is_contested = false;
        }
    }

    #[cfg(test)]
    pub(super) fn has_guards(&self) -> bool {
        self.in_flight.all().any(Use::is_guard)
    }

    #[cfg(test)]
    pub(super) fn in_flight_count(&self) -> usize {
        self.in_flight.all().count()
    }

    #[cfg(test)]
    pub(crate) fn user_count(&self) -> usize {
        self.users.len()
    }
}

/// Uses of an allocation that may not have ended.
#[derive(Default)]
pub(super) struct RecordedUses {
    /// The uses that write, oldest first.
    writing: Vec<Use>,
    /// The uses that only read, oldest first.
    reading: Vec<Use>,
    /// Number of uses that have been recorded.
    recorded: u64,
    /// Number of uses from which on those that have ended are taken out.
    sweep_at: usize,
    /// A fence that may have ended, for the next guard.
    spare: Option<Arc<Fence>>,
}

pub(super) struct Use {
    /// Counts the uses of the allocation.
    number: u64,
    by: Predecessor,
    /// `None` for a guard.
    owner: Option<ExecutableId>,
    accesses: MergedAccesses,
}

impl Use {
    fn is_of(&self, owner: Option<ExecutableId>) -> bool {
        #[cfg(test)]
        tests::VISITED.set(tests::VISITED.get() + 1);
        owner.is_some() && self.owner == owner
    }

    fn is_guard(&self) -> bool {
        self.owner.is_none() && matches!(self.by, Predecessor::Fence(_))
    }

    /// Whether a new use of these accesses by this owner has to wait for it.
    fn is_before(&self, owner: Option<ExecutableId>, accesses: &[Access]) -> bool {
        !self.is_of(owner) && conflict(&self.accesses, accesses) && !self.by.has_freed_memory()
    }

    /// For a guard that waits for this use.
    pub(super) fn awaited(&self) -> Awaited {
        Awaited { by: self.by.clone(), accesses: self.accesses.clone() }
    }

    /// For a run with these accesses that waits for this use.
    pub(super) fn predecessor_of(&self, accesses: &MergedAccesses) -> Predecessor {
        match &self.by {
            Predecessor::Fence(fence) if self.is_guard() => {
                Predecessor::Guard(Box::new(GuardAhead { fence: fence.clone(), accesses: accesses.clone() }))
            }
            by => by.clone(),
        }
    }
}

impl RecordedUses {
    fn all(&self) -> impl Iterator<Item = &Use> {
        self.writing.iter().chain(&self.reading)
    }

    /// Uses of others that conflict with these accesses and have not ended.
    pub(super) fn conflicts(
        &self,
        owner: Option<ExecutableId>,
        accesses: &[Access],
    ) -> impl Iterator<Item = &Predecessor> {
        self.all().filter(move |one| one.is_before(owner, accesses)).map(|one| &one.by)
    }

    /// A guard that has not ended.
    pub(super) fn guard(&self) -> Option<&Predecessor> {
        let is_guard = |by: &&Predecessor| matches!(by, Predecessor::Fence(fence) if !fence.is_lifted());
        self.all().map(|one| &one.by).find(is_guard)
    }

    /// The predecessors of a new use of these accesses by this owner: the uses of others that conflict with
    /// it, the newest first, up to a guard that conflicts with everything that the new use does. That guard
    /// waits for the rest.
    pub(super) fn before(
        &self,
        owner: Option<ExecutableId>,
        accesses: &[Access],
        mut each: impl FnMut(&Use),
    ) {
        let mut since = 0;
        for one in self.writing.iter().rev().filter(|one| one.is_before(owner, accesses)) {
            each(one);
            if one.is_guard() && covers(&one.accesses, accesses) {
                since = one.number;
                break;
            }
        }
        if writes(accesses) {
            let newer = self.reading.iter().rev().take_while(|one| one.number > since);
            newer.filter(|one| one.is_before(owner, accesses)).for_each(each);
        }
    }

    /// Takes out what has ended, unless that is at most about half of what there is.
    pub(super) fn take_ended(&mut self, finished: &mut Predecessors) {
        // Doubled, so that on average a new use pays for few old ones, however many are in flight.
        if self.writing.len() + self.reading.len() >= self.sweep_at {
            #[cfg(test)]
            tests::VISITED.set(tests::VISITED.get() + self.all().count());
            self.take_out(|one| one.by.has_freed_memory(), finished);
            self.sweep_at = 2 * (self.writing.len() + self.reading.len());
        }
    }

    /// Takes out the use of a guard.
    pub(super) fn take(&mut self, guard: &Arc<Fence>, out: &mut Predecessors) {
        let is_its = |one: &Use| matches!(&one.by, Predecessor::Fence(fence) if Arc::ptr_eq(fence, guard));
        self.take_out(is_its, out);
    }

    /// Records a use.
    pub(super) fn record(&mut self, by: Predecessor, owner: Option<ExecutableId>, accesses: MergedAccesses) {
        self.recorded += 1;
        let uses = if writes(&accesses) { &mut self.writing } else { &mut self.reading };
        uses.push(Use { number: self.recorded, by, owner, accesses });
    }

    /// Takes out what need not be waited for beside a new use of these accesses by this owner, which ends
    /// after all that it conflicts with and after its owner's earlier ones.
    pub(super) fn take_superseded(
        &mut self,
        owner: Option<ExecutableId>,
        accesses: &MergedAccesses,
        superseded: &mut Predecessors,
    ) {
        let covers = |one: &Use| accesses.is_same(&one.accesses) || covers(accesses, &one.accesses);
        if !writes(accesses) {
            // A read ends after no other read but its owner's, and the newest of those has taken out the
            // others.
            let newest = owner.and_then(|_| self.reading.iter().rposition(|one| one.is_of(owner)));
            if let Some(newest) = newest.filter(|&newest| covers(&self.reading[newest])) {
                superseded.push(self.reading.remove(newest).by);
            }
            return;
        }
        let ends_before = |one: &Use| one.is_of(owner) || conflict(accesses, &one.accesses);
        self.take_out(|one| ends_before(one) && covers(one), superseded);
    }

    /// Takes out uses. Most often there is one use or none, which needs no iterator that moves the others up.
    fn take_out(&mut self, is_out: impl Fn(&Use) -> bool, out: &mut Predecessors) {
        let mut take = |one: Use| match one.by {
            Predecessor::Fence(fence) if self.spare.is_none() && fence.passed_on().is_empty() => {
                self.spare = Some(fence);
            }
            by => out.push(by),
        };
        for uses in [&mut self.writing, &mut self.reading] {
            match uses.len() {
                0 => {}
                1 => uses.pop_if(|one| is_out(one)).into_iter().for_each(&mut take),
                _ => uses.extract_if(.., |one| is_out(one)).for_each(&mut take),
            }
        }
    }

    /// A fence for a guard: one that nothing refers to any more, or a new one.
    pub(super) fn fence(&mut self, holder: FenceHolder) -> FenceGuard {
        FenceGuard::reuse(self.spare.take(), holder)
    }

    fn record_last(&mut self, state: &ExecutableState, user: &User) {
        if let Some(run) = state.last_in_flight().filter(|run| run.number() > user.since) {
            self.record(Predecessor::Run(run), Some(user.id), user.accesses.clone());
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::cell::Cell;

    use proptest::prelude::*;
    use wakegraph_hal::ResourceId;

    use super::*;
    use crate::runtime::execution::accesses::merged;
    use crate::runtime::execution::accesses::tests::accesses;

    thread_local! {
        /// Number of uses that this thread has visited, to find what a new one has to wait for.
        pub(in super::super) static VISITED: Cell<usize> = const { Cell::new(0) };
    }

    const EXECUTABLES: usize = 4;

    /// One step of a random history.
    #[derive(Clone, Debug)]
    enum Step {
        /// An executable starts a run.
        Start { executable: usize, accesses: Vec<Access> },
        /// One of the runs in flight ends.
        End(prop::sample::Index),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let resource = ResourceId::unique();
        let start = (0..EXECUTABLES, accesses(resource))
            .prop_map(|(executable, accesses)| Step::Start { executable, accesses });
        prop::collection::vec(
            prop_oneof![2 => start, 1 => any::<prop::sample::Index>().prop_map(Step::End)],
            1..40,
        )
    }

    /// A run of the history; a fence stands for it in the register.
    struct Started {
        executable: usize,
        accesses: Vec<Access>,
        lease: Option<FenceGuard>,
        /// The runs that it was given to wait for.
        after: Vec<usize>,
    }

    /// One step of a random history of guards.
    #[derive(Clone, Debug)]
    enum GuardStep {
        Ask(Access),
        /// A guard whose turn has come is dropped.
        End(prop::sample::Index),
        /// Any guard is dropped.
        GiveUp(prop::sample::Index),
    }

    fn guard_steps() -> impl Strategy<Value = Vec<GuardStep>> {
        let resource = ResourceId::unique();
        let ask = accesses(resource).prop_map(|accesses| GuardStep::Ask(accesses[0]));
        let index = any::<prop::sample::Index>;
        let step = prop_oneof![
            3 => ask,
            1 => index().prop_map(GuardStep::End),
            1 => index().prop_map(GuardStep::GiveUp),
        ];
        prop::collection::vec(step, 1..60)
    }

    proptest! {
        /// Each guard has its turn as soon as no earlier one is left that conflicts with it.
        #[test]
        fn guards_wait_for_what_conflicts_and_for_nothing_else(steps in guard_steps()) {
            let (mut register, mut scrap) = (RecordedUses::default(), Predecessors::new());
            let mut guards: Vec<(Access, FenceGuard)> = Vec::new();
            let has_turn = |guard: &FenceGuard| guard.before().next().is_none();
            for step in steps {
                match step {
                    GuardStep::Ask(access) => {
                        register.take_ended(&mut scrap);
                        let (accesses, mut before) = (MergedAccesses::from(access), Vec::new());
                        register.before(None, &accesses, |one| before.push(one.awaited()));
                        let mut guard = register.fence(FenceHolder::Update);
                        register.record(Predecessor::Fence(guard.fence().clone()), None, accesses.clone());
                        guard.set_before(accesses, before);
                        guards.push((access, guard));
                    }
                    GuardStep::End(index) => {
                        let turns = (0..guards.len()).filter(|&at| has_turn(&guards[at].1));
                        let turns: Vec<_> = turns.collect();
                        if !turns.is_empty() {
                            guards.remove(*index.get(&turns));
                        }
                    }
                    GuardStep::GiveUp(index) => {
                        if !guards.is_empty() {
                            guards.remove(index.index(guards.len()));
                        }
                    }
                }
                for (at, (access, guard)) in guards.iter().enumerate() {
                    let must_wait = guards[..at].iter().any(|(earlier, _)| earlier.conflicts_with(access));
                    prop_assert_eq!(has_turn(guard), !must_wait);
                }
            }
        }

        /// Whoever waits for what the register names ends up behind every earlier run that conflicts.
        #[test]
        fn superseded_uses_are_still_waited_for(steps in steps()) {
            let ids: Vec<_> = (0..EXECUTABLES).map(|_| ExecutableId::unique()).collect();
            let mut register = RecordedUses::default();
            let mut runs: Vec<Started> = Vec::new();
            let mut scrap = Predecessors::new();
            for step in steps {
                match step {
                    Step::Start { executable, accesses } => {
                        let (owner, accesses) = (Some(ids[executable]), merged(&accesses));
                        register.take_ended(&mut scrap);
                        let number = |by: &Predecessor| runs.iter().position(|run| match (by, &run.lease) {
                            (Predecessor::Fence(fence), Some(lease)) => Arc::ptr_eq(fence, lease.fence()),
                            _ => false,
                        });
                        let mut after: Vec<_> =
                            register.conflicts(owner, &accesses).map(|by| number(by).unwrap()).collect();
                        for &one in &after {
                            prop_assert!(conflict(&runs[one].accesses, &accesses));
                        }
                        // As every submission, behind the last run of its executable.
                        let is_own = |run: &Started| run.executable == executable && run.lease.is_some();
                        after.extend(runs.iter().rposition(is_own));
                        let mut behind = vec![false; runs.len()];
                        let mut pending = after.clone();
                        while let Some(at) = pending.pop() {
                            if runs[at].lease.is_some() && !std::mem::replace(&mut behind[at], true) {
                                pending.extend(&runs[at].after);
                            }
                        }
                        for (run, &behind) in runs.iter().zip(&behind) {
                            let must_wait = run.lease.is_some() && conflict(&run.accesses, &accesses);
                            prop_assert!(!must_wait || behind);
                        }
                        let lease = FenceGuard::new(FenceHolder::Update);
                        let shared = MergedAccesses::from(accesses.clone());
                        register.take_superseded(owner, &shared, &mut scrap);
                        register.record(Predecessor::Fence(lease.fence().clone()), owner, shared);
                        runs.push(Started { executable, accesses, lease: Some(lease), after });
                    }
                    Step::End(index) => {
                        let has_ended = |&one: &usize| runs[one].lease.is_none();
                        let last = |at: usize| {
                            runs[..at].iter().rposition(|run| run.executable == runs[at].executable)
                        };
                        let may_end: Vec<_> = (0..runs.len())
                            .filter(|&at| runs[at].lease.is_some())
                            .filter(|&at| {
                                let own_has_ended = last(at).is_none_or(|last| has_ended(&last));
                                own_has_ended && runs[at].after.iter().all(has_ended)
                            })
                            .collect();
                        if !may_end.is_empty() {
                            let at = *index.get(&may_end);
                            runs[at].lease = None;
                        }
                    }
                }
            }
        }
    }
}
