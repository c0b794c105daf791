// error: kernel `clear` needs a comma behind `c: unsafe { .. }`
use wakegraph::kernel;

kernel! {
    fn clear(x: &mut [f32]) { c: unsafe { "" } ptx: unsafe { "" } }
}
