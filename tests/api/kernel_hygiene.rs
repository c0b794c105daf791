//! `kernel!` does not care what is in scope around it: names, preludes, lints.
//!
//! A module without the standard prelude.
#![no_implicit_prelude]
#![deny(unsafe_code, unused, nonstandard_style)]

use ::std::option::Option;
use ::wakegraph::{Device, Graph, Range, kernel};

/// As a macro's author might call things; each of these is a trap.
type Ok = ();
type Vec = ();
type Result = ();
type String = ();
const KERNEL: u32 = 7;

fn run(_: &Range, x: &mut [u32]) {
    x.fill(KERNEL + 5);
}

fn declared(_: &Range, by: u32, x: &mut [u32]) {
    x.fill(by);
}

mod named {
    ::wakegraph::kernel! {
        pub(crate) fn run(x: &mut [u32]) { host: super::run }
        pub(crate) fn range(args: u32, kernel: &mut [u32]) { host: super::declared }
        pub(crate) fn item(item: u32, bound: &mut [u32]) {
            range: |at, index| index.len() + at as usize,
            item: |at, index, range| range[at] = index
        }
        pub(crate) fn host(host: u32, sources: &mut [u32]) { host: |_, source, c| c.fill(source) }
    }
}

kernel! {
    fn by_function(x: &mut [u32]) { host: run }
    fn by_its_own_name(by_its_own_name: &mut [u32]) { host: |_, x| x.fill(1) }
}

fn result_of(
    call: impl ::std::ops::FnOnce(&::wakegraph::Buffer<u32>) -> ::wakegraph::kernel::KernelCall,
) -> u32 {
    let unwrap = |result: ::wakegraph::Result<Device>| result.ok();
    let Option::Some(device) = unwrap(Device::open("host:0")) else { ::std::panic!("the host is there") };
    let runtime = ::tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    let x = device.buffer::<u32>(1).expect("a buffer");
    let mut graph = Graph::new(&device);
    graph.launch(call(&x), Range::linear(1));
    let exec = graph.finalize().expect("a valid graph");
    runtime.block_on(async {
        exec.submit().await.expect("a run");
        x.to_vec().await.expect("a copy")[0]
    })
}

#[test]
fn user_code_keeps_its_meaning() {
    let _: (Ok, Vec, Result, String) = ((), (), (), ());
    ::std::assert_eq!(result_of(|x| by_function(x)), 12);
    ::std::assert_eq!(result_of(|x| by_its_own_name(x)), 1);
    ::std::assert_eq!(result_of(|x| named::run(x)), 12);
    ::std::assert_eq!(result_of(|x| named::range(3, x)), 3);
    ::std::assert_eq!(result_of(|x| named::host(4, x)), 4);
    ::std::assert_eq!(result_of(|x| named::item(5, x)), 5);
}
