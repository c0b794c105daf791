// error[E0608]: cannot index into a value of type `&mut f32`
use wakegraph::kernel;

kernel! {
    fn shift(x: &mut [f32]) { each: |i, x| x[i + 1] = 0.0 }
}
