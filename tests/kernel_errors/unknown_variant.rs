// error[E0599]: no method named `opencl` found for struct `KernelSources` in the current scope
use wakegraph::kernel;

kernel! {
    fn clear(x: &mut [f32]) { opencl: unsafe { "" } }
}
