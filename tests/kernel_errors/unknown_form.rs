// error: kernels have no closure `items:`: write `each:`, `group:`, `item:` or `host:`
use wakegraph::kernel;

kernel! {
    fn clear(x: &mut [f32]) { items: |i, x| x[i] = 0.0 }
}
