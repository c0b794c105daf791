// error[E0277]: `bool` cannot be passed to a kernel by value
use wakegraph::kernel;

kernel! {
    fn negate(really: bool, x: &mut [f32]) { group: |_, really, x| if really { x[0] = -x[0] } }
}
