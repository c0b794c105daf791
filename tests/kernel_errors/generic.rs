// error: kernel `scale` cannot be generic, as device code has fixed types: declare a kernel for each type
use wakegraph::kernel;

kernel! {
    fn scale<T>(factor: T, x: &mut [T]) { each: |_, factor, x| *x *= factor }
}
