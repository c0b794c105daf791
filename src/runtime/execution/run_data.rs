//! Values that submissions bring for their host tasks.
//!
//! A host task declares that it uses such a value, as it declares buffers. So an executable knows the type of
//! its runs' values, and a submission that brings none, or one of another type, is refused.

use std::any::{Any, TypeId, type_name};
use std::fmt::{self, Debug};
use std::mem;
use std::sync::Arc;

use parking_lot::Mutex;
use wakegraph_hal::{Error, ErrorKind, Result};

use crate::util::deferred_drop::drop_later;

/// The type of the values that host tasks get.
#[derive(Clone, Copy, Debug)]
pub struct RunDataType {
    id: TypeId,
    name: &'static str,
}

impl PartialEq for RunDataType {
    fn eq(&self, other: &Self) -> bool {
        self.id == other.id
    }
}

impl RunDataType {
    pub(crate) fn of<T: 'static>() -> Self {
        Self { id: TypeId::of::<T>(), name: type_name::<T>() }
    }

    /// Adds the types that a host task takes to that of the whole graph.
    ///
    /// # Errors
    /// [`InvalidArgument`](ErrorKind::InvalidArgument) for a second type.
    pub(crate) fn add(all: &mut Option<Self>, task: &[Self]) -> Result<()> {
        for &one in task {
            let first = *all.get_or_insert(one);
            if first != one {
                let why = format!(
                    "the host task takes run data of the type `{}`, others `{}`",
                    one.name, first.name
                );
                return Err(Error::new(ErrorKind::InvalidArgument, why).help(
                    "give all host tasks of a graph the same type; an enum or a struct can hold both",
                ));
            }
        }
        Ok(())
    }

    /// The error of a host task that takes it where submissions bring nothing.
    pub(crate) fn none_expected(self) -> Error {
        let why =
            format!("the host task takes run data of the type `{}`, and no submission brings any", self.name);
        Error::new(ErrorKind::InvalidArgument, why)
            .help("submit an executable whose graph has had such a host task when it was finalized")
    }

    /// Checks that a submission brings what the host tasks of its executable take.
    ///
    /// # Errors
    /// [`InvalidArgument`](ErrorKind::InvalidArgument) if it does not.
    pub(crate) fn check(taken: Option<Self>, brought: Option<&RunValue>) -> Result<()> {
        let (why, help) = match (taken, brought.map(|value| value.kind)) {
            (taken, brought) if taken == brought => return Ok(()),
            (Some(taken), None) => (
                format!(
                    "the host tasks take run data of the type `{}`, and the submission brings none",
                    taken.name
                ),
                "submit with `prepare().run_data(value)`, which no queue can do",
            ),
            (Some(taken), Some(brought)) => (
                format!("the host tasks take run data of the type `{}`, not `{}`", taken.name, brought.name),
                "bring a value of that type",
            ),
            (None, Some(brought)) => (
                format!(
                    "the submission brings run data of the type `{}`, and no host task takes it",
                    brought.name
                ),
                "declare it with `run_data()` among the accesses of a host task",
            ),
            (None, None) => return Ok(()),
        };
        Err(Error::new(ErrorKind::InvalidArgument, why).help(help))
    }
}

/// The value of a run, with its type erased.
///
/// The one that a submission has brought owns the value: its drop has what host tasks have left of it dropped
/// later, because the thread may hold locks, or be a device's.
pub(crate) struct RunValue {
    value: Arc<dyn Any + Send + Sync>,
    kind: RunDataType,
    /// For the owner.
    take_rest: Option<TakeRest>,
}

/// Takes out the value, if no host task has, and returns it if it has a drop. `None` while one uses it.
type TakeRest = fn(&(dyn Any + Send + Sync)) -> Option<Option<Box<dyn Send>>>;

/// Where the value is until a host task takes it.
type Place<T> = Mutex<Option<T>>;

impl RunValue {
    pub(crate) fn new<T: Send + 'static>(value: T) -> Self {
        let value = Arc::new(Place::new(Some(value)));
        Self { value, kind: RunDataType::of::<T>(), take_rest: Some(take_rest::<T>) }
    }

    /// Lends the value to a host task or a run inside this one. It is the owner's to drop.
    pub(crate) fn lend(&self) -> Self {
        Self { value: self.value.clone(), kind: self.kind, take_rest: None }
    }

    /// The value as a host task gets it.
    pub(crate) fn view<T: Send + 'static>(&self) -> RunData<T> {
        RunData(self.value.clone().downcast().ok())
    }
}

fn take_rest<T: Send + 'static>(value: &(dyn Any + Send + Sync)) -> Option<Option<Box<dyn Send>>> {
    let rest = value.downcast_ref::<Place<T>>()?.try_lock()?.take();
    Some(rest.filter(|_| mem::needs_drop::<T>()).map(|rest| Box::new(rest) as Box<dyn Send>))
}

impl Drop for RunValue {
    fn drop(&mut self) {
        let Some(take_rest) = self.take_rest else { return };
        match take_rest(&*self.value) {
            Some(rest) => rest.into_iter().for_each(drop_later),
            // Whoever lets go of it last drops it: not this thread.
            None => drop_later(mem::replace(&mut self.value, Arc::new(()))),
        }
    }
}

impl Debug for RunValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("RunValue").field(&self.kind.name).finish()
    }
}

/// The value that a [submission brings](crate::SubmitBuilder::run_data), as its host tasks get it.
///
/// All host tasks of the run share it. It is there until one of them takes it, and otherwise until the run
/// has ended, when it is dropped. Where a closure of [`with`](Self::with) uses it at that time, it stays
/// until it is taken, or the last `RunData` is dropped.
pub struct RunData<T>(Option<Arc<Place<T>>>);

impl<T> RunData<T> {
    /// The data of a task that none is brought to.
    pub(crate) fn none() -> Self {
        Self(None)
    }

    /// Takes the value. `None` if a host task of the run has taken it, or the run has ended and dropped it.
    pub fn take(&self) -> Option<T> {
        self.0.as_ref()?.lock().take()
    }

    /// Reads or changes the value where it is. `None` where [`take`](Self::take) gives none.
    ///
    /// Other host tasks of the run that ask for the value wait until `use_it` returns. So it must not ask for
    /// the value again, which would wait for ever.
    pub fn with<R>(&self, use_it: impl FnOnce(&mut T) -> R) -> Option<R> {
        self.0.as_ref()?.lock().as_mut().map(use_it)
    }
}

impl<T> Debug for RunData<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("RunData").finish_non_exhaustive()
    }
}
