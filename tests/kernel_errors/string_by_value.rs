// error[E0277]: `String` cannot be passed to a kernel by value
use wakegraph::kernel;

kernel! {
    fn length(name: String, x: &mut [u32]) { item: |i, name, x| x[i] = name.len() as u32 }
}
