// error: kernel `clear` has no code: give it a closure for the CPU (`each:`, `group:`, `item:` or `host:`), or device code as in `c: unsafe { SOURCE }`
use wakegraph::kernel;

kernel! {
    fn clear(x: &mut [f32]) {}
}
