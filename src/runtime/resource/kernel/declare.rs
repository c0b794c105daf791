//! The `kernel!` macro.

/// Declares a kernel: its signature once, and its code in one or more variants.
///
/// The macro makes a function with the kernel's name that takes the arguments and returns a
/// [`KernelCall`](crate::kernel::KernelCall) for [`Graph::launch`](crate::Graph::launch). Parameters are
///
/// | written as | the call takes |
/// |---|---|
/// | `x: &[T]` | `&Buffer<T>` or `&HostBuffer<T>`, read |
/// | `x: &mut [T]` | the same, read and written |
/// | `x: T` | a `Pod` value: a number, an array or a struct of them |
/// | `x: Local<T>` | [`Local::new(len)`](crate::Local) |
///
/// The function's documentation says which of them the kernel reads and writes. In the braces stand, in any
/// order and with commas between them, code for the CPU, device code, and a bound on the range.
///
/// # Code for the CPU
/// One closure, without captures, in one of four forms:
///
/// | form | is called for | gets for `x: &mut [T]` | for `x: Local<T>` | runs on |
/// |---|---|---|---|---|
/// | `each:` | each work-item, with its index | its own element, a `&mut T` | the `Local<T>` | all workers |
/// | `group:` | each work-group, as a `Range` | its own [`Part<T>`] | a `&mut [T]` | all workers |
/// | `item:` | each work-item, with its index | a whole `&mut [T]` | the `Local<T>` | one worker |
/// | `host:` | the launch, with its `Range` | a whole `&mut [T]` | the `Local<T>` | one worker |
///
/// [`Part<T>`]: crate::kernel::Part
///
/// In all of them `x: &[T]` is a whole `&[T]`, and `x: T` is a `T`. The index is written as `i`, or as
/// `[x, y]` or `[x, y, z]` for ranges of more dimensions. Slices are indexed as in all Rust: beyond the end
/// is a panic, which fails the submission with an error.
///
/// `each:` and `group:` are the forms to begin with. A launch is divided into blocks, which the workers of
/// the device share, because no two of them can write the same element. A block is also where a launch ends
/// that is cancelled. The code is compiled for several generations of processors (feature `cpu-levels`),
/// all with the same results. The guide's page on kernels for the CPU, `docs/guide/cpu-kernels.md`, says
/// more.
///
/// ## An element for each work-item
/// `each:` is launched over a range that has one work-item for each element of what it writes: its size is
/// the length of each `&mut [T]`. With an offset, that is the size with the offset
/// ([`Range::elements`](crate::Range::elements)), and the elements before it stay as they are. Other ranges
/// are errors, on every device. The item with index `[x, y]` owns the element in row `y` and column `x`,
/// where rows end with the range.
///
/// ```
/// # use wakegraph::{Device, Graph, Range};
/// wakegraph::kernel! {
///     /// y = a * x + y
///     pub fn saxpy(a: f32, x: &[f32], y: &mut [f32]) {
///         each: |i, a, x, y| *y += a * x[i],
///     }
///     /// Red grows to the right and green downwards.
///     pub fn gradient(image: &mut [[u8; 3]]) {
///         each: |[x, y], image| *image = [x as u8, y as u8, 0],
///     }
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> wakegraph::Result<()> {
/// let device = Device::open("host")?;
/// let (x, y) = (device.buffer_from(&[1.0f32, 2.0])?, device.buffer_from(&[5.0f32, 6.0])?);
/// let image = device.buffer::<[u8; 3]>(2 * 3)?;
/// let mut graph = Graph::new(&device);
/// graph.launch(saxpy(2.0, &x, &y), Range::linear(2));
/// graph.launch(gradient(&image), Range::new([2, 3]));
/// graph.finalize()?.submit().await?;
/// assert_eq!(y.to_vec().await?, [7.0, 10.0]);
/// assert_eq!(image.to_vec().await?[3], [1, 1, 0]); // column 1 of row 1
///
/// let mut graph = Graph::new(&device);
/// graph.launch(gradient(&image), Range::new([2, 2])); // two elements would have no owner
/// assert!(graph.finalize().is_err());
/// # Ok(())
/// # }
/// ```
///
/// ## A part for each work-group
/// `group:` gets one work-group at a time, as a [`Range`](crate::Range). Memory with an element for each
/// work-item is divided as the range is: a group owns the rectangle of its items, whose indices begin at 0
/// in each group (`tile[[x, y]]`). Of other memory, whose length is a multiple of the number of groups, each
/// group owns an equal share. Local memory is zeroed for each group. What stands before a barrier in device
/// code is a loop of its own. A range without [`local`](crate::Range::local) is one group.
///
/// ```
/// # use wakegraph::{Device, Graph, Local, Range};
/// wakegraph::kernel! {
///     /// Adds up the elements of each work-group, pair by pair.
///     pub fn sums(x: &[u32], tile: Local<u32>, sums: &mut [u32]) {
///         group: |group, x, tile, sums| {
///             tile.copy_from_slice(&x[group.indices()]);
///             let mut half = group.count() / 2;
///             while half > 0 {
///                 for i in 0..half {
///                     tile[i] += tile[i + half];
///                 }
///                 half /= 2;
///             }
///             sums[0] = tile[0]; // the group's own element
///         },
///     }
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> wakegraph::Result<()> {
/// let device = Device::open("host")?;
/// let (x, of_groups) = (device.buffer_from(&[1u32, 2, 3, 4, 5, 6, 7, 8])?, device.buffer::<u32>(2)?);
/// let mut graph = Graph::new(&device);
/// graph.launch(sums(&x, Local::new(4), &of_groups), Range::linear(8).local([4]));
/// graph.finalize()?.submit().await?;
/// assert_eq!(of_groups.to_vec().await?, [10, 26]);
/// # Ok(())
/// # }
/// ```
///
/// ## Anywhere
/// A kernel that writes outside of its own part, such as a histogram, is `item:` or `host:`. Both are called
/// on one worker; `host:` may use rayon inside. It has to honour the range, as device code does:
/// [`Range::indices`](crate::Range::indices) gives the indices in one dimension,
/// [`Range::items`](crate::Range::items) in more, and [`Range::groups`](crate::Range::groups) the
/// work-groups.
///
/// ```
/// wakegraph::kernel! {
///     /// Counts each value.
///     fn histogram(x: &[u8], bins: &mut [u32]) {
///         range: |x, _bins| x.len(),
///         item: |i, x, bins| bins[usize::from(x[i])] += 1,
///     }
///     /// The same in one call a launch.
///     fn histogram_at_once(x: &[u8], bins: &mut [u32]) {
///         range: |x, _bins| x.len(),
///         host: |range, x, bins| {
///             for i in range.indices() {
///                 bins[usize::from(x[i])] += 1;
///             }
///         },
///     }
/// }
/// ```
///
/// The guide has pages on [kernels](crate::guide::kernels) and on
/// [kernels for the CPU](crate::guide::cpu_kernels).
///
/// # Device code
/// `c:` is source in the [portable C dialect](wakegraph_hal::dialect), and the other fields of
/// [`KernelSources`](wakegraph_hal::KernelSources) have their names. Each stands in `unsafe { .. }`,
/// beside the code for the CPU or alone, because the compiler cannot check it. By declaring it the
/// author promises that **for every range within the [bound](#range), all lengths of the slices and
/// of the local memory, all values of the scalars and all contents of the memory**, the code
///
/// - has the declared parameters: the types that `T` stands for. In the portable dialect, other sizes
///   and a slice without `const` for `&[T]` are errors of [`finalize`](crate::Graph::finalize);
/// - reads and writes no memory but its arguments, each below its length, and its own variables.
///   What the bound does not ensure of an index, because the index depends on a scalar, on an
///   element, on the place in the work-group or on arithmetic, the code compares with `LEN`;
/// - only reads slices declared as `&[T]`;
/// - writes no element that another work-item of the launch reads or writes, but through atomics,
///   or with a barrier between the two in one work-group;
/// - reaches a barrier with all work-items of a group or with none;
/// - reads local memory only where the launch has written it;
/// - ends.
///
/// `cuda_waits: unsafe { true }` beside PTX, CUDA C++ or a cubin is a promise of its own: see
/// [`KernelSources::cuda_waits`](wakegraph_hal::KernelSources::cuda_waits).
///
/// Callers that cannot name the function cannot call it: what else an argument has to be, such as
/// an address, a private kernel behind a function of one's own can ensure.
///
/// ```
/// wakegraph::kernel! {
///     fn square(x: &mut [f32]) {
///         // SAFETY: a work-item uses the element with its index, which is below the length of the
///         // shortest slice.
///         c: unsafe { "KERNEL(square, (SLICE(float, x))) { x[GLOBAL_ID(0)] *= x[GLOBAL_ID(0)]; }" },
///     }
/// }
/// ```
///
/// # Range
/// Every launch and every update is checked against a [`RangeBound`](crate::kernel::RangeBound): a range
/// beyond it is an error. `range:` is a closure that computes it from the
/// parameters in their order: values as they are, slices and local memory as something with
/// `.len()`. It gives a `usize`, a `[usize; D]`, or a `RangeBound`. Bound 0 allows no range, so the
/// closure can check scalars too. The bound holds on the CPU too, so that a program does the same
/// everywhere. Without `range:` it is
///
/// | code for the CPU | bound |
/// |---|---|
/// | `each:` | as many work-items as the shortest slice has elements, in all dimensions together |
/// | `group:` | none |
/// | `item:`, `host:`, none | the length of the shortest slice, in one dimension |
///
/// A kernel without slices has none. A range also has to
///
/// - have the dimensions of the index in `each:` or `item:`;
/// - have an element of all that `each:` writes for each work-item, or a part of all that `group:` writes for
///   each work-group;
/// - have work-groups ([`Range::local`](crate::Range::local)) if a parameter is `Local` or the kernel's body
///   in C has a `BARRIER()`.
///
/// ```
/// use wakegraph::kernel::RangeBound;
///
/// wakegraph::kernel! {
///     /// Each pixel of an image becomes its opposite.
///     fn invert(width: u32, image: &mut [u8]) {
///         range: |width, image| [width as usize, image.len() / width.max(1) as usize],
///         each: |[_, _], _, image| *image ^= 0xff,
///         // SAFETY: the bound keeps `x` below the width and `y` below the number of whole rows.
///         c: unsafe { "KERNEL(invert, (u32 width, SLICE(u8, image))) {
///                          image[GLOBAL_ID(1) * width + GLOBAL_ID(0)] ^= 0xff;
///                      }" },
///     }
///     /// Adds `x` up. Work-items beyond its end do nothing.
///     fn sum(x: &[u32], total: &mut [u32]) {
///         range: |_, _| RangeBound::ANY,
///         item: |i, x, total| if let (Some(x), Some(total)) = (x.get(i), total.first_mut()) { *total += x },
///         // SAFETY: all indices are compared with the lengths, and the additions are atomic.
///         c: unsafe { "KERNEL(sum, (SLICE(const u32, x), SLICE(u32, total))) {
///                          if (GLOBAL_ID(0) < LEN(x) && LEN(total)) ATOMIC_ADD(&total[0], x[GLOBAL_ID(0)]);
///                      }" },
///     }
/// }
/// ```
///
/// # Compile-time errors
/// Device code without `unsafe` is refused, and so is `unsafe` where lints forbid it:
///
/// ```compile_fail
/// wakegraph::kernel! {
///     fn zero(x: &mut [f32]) { c: "KERNEL(zero, (SLICE(float, x))) { x[GLOBAL_ID(0)] = 0; }" }
/// }
/// ```
///
/// ```compile_fail,E0133
/// wakegraph::kernel! {
///     fn zero(x: &mut [f32]) { c: const { "KERNEL(zero, (SLICE(float, x))) { *x = 0; }" } }
/// }
/// ```
///
/// ```compile_fail
/// #![deny(unsafe_code)]
/// wakegraph::kernel! {
///     fn zero(x: &mut [f32]) { c: unsafe { "KERNEL(zero, (SLICE(float, x))) { *x = 0; }" } }
/// }
/// ```
///
/// A closure of `each:` gets its own element and nothing else of what it writes, and that of `group:` its own
/// part, which is no slice. Read slices cannot be written at all:
///
/// ```compile_fail,E0608
/// wakegraph::kernel! { fn shift(x: &mut [f32]) { each: |i, x| x[i + 1] = 0.0 } } // `x` is a `&mut f32`
/// ```
///
/// ```compile_fail,E0594
/// wakegraph::kernel! { fn copy(x: &[f32], y: &mut [f32]) { each: |i, x, y| x[i] = *y } }
/// ```
///
/// ```compile_fail,E0599
/// wakegraph::kernel! { fn clear(x: &mut [f32]) { group: |_, x| x.fill(0.0) } } // a `Part` has rows
/// ```
///
/// Several workers call a closure at a time, so that it captures nothing:
///
/// ```compile_fail,E0435
/// let mut calls = 0;
/// wakegraph::kernel! { fn count(x: &mut [f32]) { each: |_, x| calls += 1 } }
/// ```
///
/// The compiler refuses arguments of another element type, on the device and on the host:
///
/// ```compile_fail,E0277
/// # use wakegraph::{Device, Graph, Range};
/// wakegraph::kernel! { fn double(x: &mut [f32]) { each: |_, x| *x *= 2.0 } }
/// # let device = Device::open("host").unwrap();
/// let numbers = device.buffer_from(&[1u32, 2, 3]).unwrap();
/// Graph::new(&device).launch(double(&numbers), Range::linear(3)); // u32 for f32
/// ```
///
/// ```compile_fail,E0277
/// # use wakegraph::{Device, Graph, Range};
/// wakegraph::kernel! { fn double(x: &mut [f32]) { each: |_, x| *x *= 2.0 } }
/// # let device = Device::open("host").unwrap();
/// let numbers = device.host_buffer_from(&[1.0f64, 2.0]).unwrap();
/// Graph::new(&device).launch(double(&numbers), Range::linear(2)); // f64 for f32
/// ```
#[macro_export]
macro_rules! kernel {
    ($($(#[$meta:meta])* $vis:vis fn $name:ident ($($params:tt)*) { $($code:tt)* })+) => {
        $($crate::__kernel_parse! { @params [$(#[$meta])* $vis fn $name] {$($code)*} [] $($params)* })+
    };
    ($($other:tt)*) => {
        $crate::__kernel_parse! { @functions $($other)* }
    };
}
