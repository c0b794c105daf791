// error[E0277]: the type `[f32]` cannot be indexed by `u32`
use wakegraph::kernel;

kernel! {
    fn copy(x: &[f32], y: &mut [f32]) { each: |i, x, y| *y = x[i as u32] }
}
