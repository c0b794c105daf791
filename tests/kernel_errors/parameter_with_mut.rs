// error: kernel `clear` cannot have the parameter `mut`: memory is declared as `x: &[T]` or `x: &mut [T]`, a value as `x: T`, local memory as `x: Local<T>`
use wakegraph::kernel;

kernel! {
    fn clear(mut x: &mut [f32]) { each: |_, x| *x = 0.0 }
}
