// error: `kernel!` takes functions without generics and return types, as in `fn scale(factor: f32, x: &mut [f32]) { each: |_, factor, x| *x *= factor }`
use wakegraph::kernel;

kernel! {
    struct Clear;
}
