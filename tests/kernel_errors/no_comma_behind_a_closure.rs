// error: kernel `clear` needs a closure in place, of names without types and with a comma behind it: write `each: |i, x| expression,`
use wakegraph::kernel;

kernel! {
    fn clear(x: &mut [f32]) {
        each: |_, x| { *x = 0.0 }
        c: unsafe { "KERNEL(clear, (SLICE(float, x))) { x[GLOBAL_ID(0)] = 0; }" },
    }
}
