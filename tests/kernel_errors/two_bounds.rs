// error: kernel `clear` has `range:` twice
use wakegraph::kernel;

kernel! {
    fn clear(x: &mut [f32]) { range: |x| x.len(), range: |x| [x.len()], each: |_, x| *x = 0.0 }
}
