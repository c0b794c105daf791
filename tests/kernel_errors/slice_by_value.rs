// error: kernel `copy` cannot have the parameter `x`: memory is declared as `x: &[T]` or `x: &mut [T]`, a value as `x: T`, local memory as `x: Local<T>`
use wakegraph::kernel;

kernel! {
    fn copy(x: [f32], y: &mut [f32]) { each: |i, x, y| *y = x[i] }
}
