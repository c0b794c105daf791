// error[E0308]: mismatched types
use wakegraph::kernel;

pub struct Local<T>(T);

kernel! {
    fn clear(tile: Local<f32>, x: &mut [f32]) { each: |_, _tile, x| *x = 0.0 }
}
