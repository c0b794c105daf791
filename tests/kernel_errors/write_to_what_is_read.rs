// error[E0594]: cannot assign to `y[_]`, which is behind a `&` reference
use wakegraph::kernel;

kernel! {
    fn copy(x: &[f32], y: &[f32]) { item: |i, x, y| y[i] = x[i] }
}
