// error[E0277]: `bool` cannot be an element of a kernel's memory
use wakegraph::kernel;

kernel! {
    fn choose(mask: &[bool], x: &mut [f32]) { group: |group, mask, x| if mask[group.offset()[0]] { x[0] = 0.0 } }
}
