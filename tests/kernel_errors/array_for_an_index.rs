// error[E0277]: the type `[f32]` cannot be indexed by `[usize; _]`
use wakegraph::kernel;

kernel! {
    fn clear(x: &mut [f32]) { host: |range, x| for i in range.items() { x[i] = 0.0 } }
}
