//! The steps before a first run.

/// A step that a first run waits for, and later ones do not.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[non_exhaustive]
pub enum PreparationStep {
    /// A kernel is compiled, or found where a compiler's output is kept.
    Compile,
    /// A kernel's code is loaded onto its device.
    Load,
    /// A driver allocates memory.
    Allocate,
    /// A command-buffer is made ready to run: CUDA and HIP instantiate a graph.
    Instantiate,
}

impl PreparationStep {
    pub(crate) const ALL: [Self; 4] = [Self::Compile, Self::Load, Self::Allocate, Self::Instantiate];

    /// The step's name: `compile`, `load`, `allocate` or `instantiate`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Compile => "compile",
            Self::Load => "load",
            Self::Allocate => "allocate",
            Self::Instantiate => "instantiate",
        }
    }
}
