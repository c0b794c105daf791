// error[E0277]: `bool` cannot be an element of a kernel's memory
use wakegraph::kernel;

kernel! {
    fn mark(seen: wakegraph::Local<bool>, x: &mut [f32]) { group: |_, seen, x| if seen[0] { x[0] = 0.0 } }
}
