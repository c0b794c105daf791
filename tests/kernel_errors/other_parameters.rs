// error: kernel `scale` has other parameters than its closure: write `item: |at, factor, x| ..`
use wakegraph::kernel;

kernel! {
    fn scale(factor: f32, x: &mut [f32]) { item: |at, x| x[at] *= 2.0 }
}
