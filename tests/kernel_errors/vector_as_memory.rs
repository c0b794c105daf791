// error: kernel `clear` cannot have the parameter `x`: memory is declared as `x: &[T]` or `x: &mut [T]`, a value as `x: T`, local memory as `x: Local<T>`
use wakegraph::kernel;

kernel! {
    fn clear(x: &mut Vec<f32>) { each: |_, x| *x = 0.0 }
}
