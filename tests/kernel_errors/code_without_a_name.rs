// error: kernel `clear` has code that is not a list of `each: closure` and the like, and of device code as in `c: unsafe { SOURCE }`
use wakegraph::kernel;

kernel! {
    fn clear(x: &mut [f32]) { |_, x| *x = 0.0 }
}
