// error[E0277]: `bool` cannot be passed to a kernel by value
use wakegraph::kernel;

kernel! {
    fn negate(really: bool, x: &mut [f32]) { each: |_, really, x| if really { *x = -*x } }
}
