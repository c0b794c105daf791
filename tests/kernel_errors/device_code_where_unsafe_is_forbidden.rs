// error: usage of an `unsafe` block
#![forbid(unsafe_code)]
use wakegraph::kernel;

kernel! {
    fn clear(x: &mut [f32]) { c: unsafe { "KERNEL(clear, (SLICE(float, x))) { x[GLOBAL_ID(0)] = 0; }" } }
}
