//! Kernels on every device of this machine, compiled where Intel's offline compiler is installed.

use wakegraph_hal::fake::{FakeDevice, FakeOptions};
use wakegraph_hal::{
    AccessMode, Device, Error, ErrorKind, KernelArg, KernelDesc, KernelSources, MemoryDesc, MemoryKind,
    MemoryView, Param, ParamKind, Range,
};

use super::devices;
use crate::LevelZeroDevice;
use crate::kernel::LevelZeroKernel;
use crate::program::{self, Language};
use crate::sys;

const VALUE: ParamKind = ParamKind::Value { size: 4 };
const LOCAL: ParamKind = ParamKind::Local { element_size: 4 };
const BUFFER: ParamKind =
    ParamKind::Buffer { access: AccessMode::ReadWrite, element_size: 4, element_align: 4 };

fn params(kinds: &[ParamKind]) -> Vec<Param> {
    kinds.iter().map(|kind| Param { name: "p".into(), kind: kind.clone() }).collect()
}

/// Devices whose sources can be compiled here.
fn compiling() -> Vec<std::sync::Arc<dyn Device>> {
    if sys::ocloc().is_ok() { devices() } else { Vec::new() }
}

fn refused(device: &dyn Device, name: &str, kinds: &[ParamKind], sources: &KernelSources) -> Error {
    device.create_kernel(&KernelDesc::new(name, &params(kinds), sources)).unwrap_err()
}

const SOURCE: &str = "KERNEL(scale, (float a, SLICE(float, x), LOCAL_SLICE(float, tile))) {
    tile[LOCAL_ID(0)] = x[GLOBAL_ID(0)];
    x[GLOBAL_ID(0)] = a * tile[LOCAL_ID(0)];
}
KERNEL(other, ()) {}";

#[test]
fn kernels_of_the_dialect_take_their_arguments() {
    for device in compiling() {
        let sources = KernelSources::new().c(SOURCE);
        let params = params(&[VALUE, BUFFER, LOCAL]);
        let kernel = device.create_kernel(&KernelDesc::new("scale", &params, &sources)).unwrap();
        assert!(kernel.max_work_group_size() >= 8);
        let context = &device.downcast_ref::<LevelZeroDevice>().unwrap().context;
        let kernel = LevelZeroKernel::of(&*kernel, context).unwrap();
        let memory = device.allocate(&MemoryDesc::new(4000, MemoryKind::Device)).unwrap();
        let args = |memory| {
            let value = KernelArg::Value(2f32.to_ne_bytes()[..].into());
            [value, KernelArg::Memory(MemoryView::whole(memory)), KernelArg::Local(64)]
        };
        let instance = kernel.instance(&args(memory), &Range::linear(1000).local([8])).unwrap();
        let groups = instance.groups;
        assert_eq!([groups.groupCountX, groups.groupCountY, groups.groupCountZ], [125, 1, 1]);
        assert!(!instance.raw().is_null());
        // A driver without offsets has refused none: the range begins at 0.
        let offset = Range::linear(8).starting_at([16]);
        assert_eq!(kernel.shape(&offset).unwrap().offset, [16, 0, 0]);
        let (fake, _) = FakeDevice::open(FakeOptions::new());
        let foreign = fake.allocate(&MemoryDesc::new(64, MemoryKind::Host)).unwrap();
        let error = kernel.instance(&args(foreign), &Range::linear(8)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
        for range in [Range::linear(10).local([3]), Range::linear((1 << 33) * 5)] {
            let error = kernel.shape(&range).map(|_| ());
            assert!(error.as_ref().is_ok() || error.unwrap_err().kind() == ErrorKind::InvalidSize);
        }
        let error = kernel.shape(&Range::linear(8).starting_at([1 << 32])).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidSize, "{error}");
    }
}

#[test]
fn a_source_s_own_work_group_size_is_kept() {
    for device in compiling() {
        let source = "kernel __attribute__((reqd_work_group_size(4, 2, 1))) void k(global float *x) {}";
        let (sources, params) = (KernelSources::new().opencl_c(source), params(&[BUFFER]));
        let kernel = device.create_kernel(&KernelDesc::new("k", &params, &sources)).unwrap();
        let context = &device.downcast_ref::<LevelZeroDevice>().unwrap().context;
        let kernel = LevelZeroKernel::of(&*kernel, context).unwrap();
        assert_eq!(kernel.shape(&Range::new([8, 8])).unwrap().group_size, [4, 2, 1]);
        for range in [Range::new([8, 8]).local([8, 1]), Range::new([6, 2])] {
            let error = kernel.shape(&range).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidSize);
            assert!(error.message().contains("[4, 2, 1]"), "{error}");
        }
    }
}

#[test]
fn parameters_and_names_are_compared_with_the_source() {
    for device in compiling() {
        let sources = KernelSources::new().c(SOURCE);
        for (kinds, expected) in [
            (&[VALUE, BUFFER][..], "declared with 3 parameters, its source has 5"),
            (&[BUFFER, VALUE, LOCAL], "declared as a buffer, in the source it is a value"),
            (&[VALUE, LOCAL, BUFFER], "declared as local memory, in the source it is a buffer"),
            (&[ParamKind::Value { size: 8 }, BUFFER, LOCAL], "declared as a value of 8 bytes"),
        ] {
            let error = refused(&*device, "scale", kinds, &sources);
            assert_eq!(error.kind(), ErrorKind::InvalidArgument);
            assert!(error.message().contains(expected), "{error}");
        }
        let error = refused(&*device, "none", &[], &sources);
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        assert!(
            error.message().contains("scale, other") || error.message().contains("other, scale"),
            "{error}"
        );
        let error = refused(&*device, "scale", &[], &KernelSources::new().ptx("x"));
        assert_eq!(error.kind(), ErrorKind::FeatureNotSupported, "{error}");
    }
}

#[test]
fn broken_code_is_an_error_with_the_compilers_words() {
    for device in compiling() {
        let error = refused(&*device, "k", &[], &KernelSources::new().c("KERNEL(k, ()) { nonsense; }"));
        assert_eq!(error.kind(), ErrorKind::Driver);
        assert!(error.message().contains("nonsense"), "{error}");
        let product = device.downcast_ref::<LevelZeroDevice>().unwrap().context.product;
        let source = "kernel void k(global int *x) { *x = 1; }";
        let (whole, _) = program::compile("k", source, Language::OpenclC30, product).unwrap();
        let load =
            |bytes: &[u8]| refused(&*device, "k", &[BUFFER], &KernelSources::new().spirv(bytes.to_vec()));
        let mut broken = whole.to_vec();
        broken[0] ^= 1;
        for bytes in [&whole[..whole.len() / 2 / 4 * 4], &whole[..301], &broken] {
            let error = load(bytes);
            assert_eq!(error.kind(), ErrorKind::Driver);
            assert!(error.to_string().contains("no SPIR-V module"), "{error}");
        }
        // Ponte Vecchio has doubles.
        let source = "kernel void k(global double *x) { *x = *x * 1.5; }";
        let doubles = program::compile("k", source, Language::OpenclC30, 0x0bd5)
            .or_else(|_| program::compile("k", source, Language::OpenclC30, 0x1902));
        let (Ok((doubles, _)), params) = (doubles, params(&[BUFFER])) else { continue };
        let sources = KernelSources::new().spirv(doubles.to_vec());
        let loaded = device.create_kernel(&KernelDesc::new("k", &params, &sources));
        match loaded {
            Ok(_) => eprintln!("{} has doubles", device.info().name),
            Err(error) => {
                eprintln!("{error}");
                assert_eq!(error.kind(), ErrorKind::Driver);
                // The loader's validation layer knows no log of a module that was not made.
                let is_hidden = error.message().contains("zeModuleBuildLogGetString");
                assert!(error.message().contains("ouble") || is_hidden, "{error}");
            }
        }
        device.status().unwrap();
    }
}
