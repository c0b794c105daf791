// error: kernel `clear` needs `unsafe` around its device code, which the compiler cannot check: write `ptx: unsafe { SOURCE }`
use wakegraph::kernel;

kernel! {
    fn clear(x: &mut [f32]) { ptx: include_str!("clear.ptx") }
}
