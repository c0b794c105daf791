// error[E0425]: cannot find type `Local` in this scope
use wakegraph::kernel;

kernel! {
    fn clear(tile: Local<f32>, x: &mut [f32]) { each: |_, _tile, x| *x = 0.0 }
}
