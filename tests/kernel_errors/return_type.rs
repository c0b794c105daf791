// error: kernel `sum` cannot return a value: give it memory to write, as in `out: &mut [T]`
use wakegraph::kernel;

kernel! {
    fn sum(x: &[f32]) -> f32 { host: |_, x| x.iter().sum() }
}
