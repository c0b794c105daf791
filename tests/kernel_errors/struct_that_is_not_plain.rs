// error[E0277]: `Step` cannot be passed to a kernel by value
use wakegraph::kernel;

#[derive(Clone, Copy)]
#[repr(C)]
struct Step {
    axis: u8,
    length: f32,
}

kernel! {
    fn walk(step: Step, x: &mut [f32]) { each: |_, step, x| *x += step.length }
}
