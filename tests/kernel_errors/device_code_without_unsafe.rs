// error: kernel `clear` needs `unsafe` around its device code, which the compiler cannot check: write `c: unsafe { SOURCE }`
use wakegraph::kernel;

kernel! {
    fn clear(x: &mut [f32]) {
        each: |_, x| *x = 0.0,
        c: "KERNEL(clear, (SLICE(float, x))) { x[GLOBAL_ID(0)] = 0; }",
    }
}
