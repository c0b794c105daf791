// error: kernel `clear` has several closures for the CPU: one of `each:`, `group:`, `item:` and `host:` is enough
use wakegraph::kernel;

kernel! {
    fn clear(x: &mut [f32]) { each: |_, x| *x = 0.0, item: |i, x| x[i] = 0.0 }
}
