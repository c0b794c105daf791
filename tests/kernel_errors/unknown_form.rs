// error: kernel `clear` has a closure `items:`, which there is not: write `each:`, `group:`, `item:` or `host:`
use wakegraph::kernel;

kernel! {
    fn clear(x: &mut [f32]) { items: |i, x| x[i] = 0.0 }
}
