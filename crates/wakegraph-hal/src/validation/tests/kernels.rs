use super::*;

const ARGUMENT: ErrorKind = ErrorKind::InvalidArgument;
const SIZE: ErrorKind = ErrorKind::InvalidSize;

/// A launch of a kernel with these parameters over one work-item.
fn launch(this: &Fixture, params: &[Param], args: Vec<KernelArg>) -> KernelLaunch {
    KernelLaunch { kernel: this.kernel("k", params), args, range: Range::linear(1), alternatives: Vec::new() }
}

#[test]
fn there_is_one_argument_for_each_parameter() {
    let this = Fixture::new();
    let mut short = this.saxpy();
    short.args.pop();
    this.refuses_launch(short, ARGUMENT, "kernel 'saxpy': takes 3 arguments, 2 were given");
    let mut long = this.saxpy();
    long.args.push(value(&[0]));
    this.refuses_launch(long, ARGUMENT, "kernel 'saxpy': takes 3 arguments, 4 were given");
    this.run(&Command::Kernel(Arc::new(launch(&this, &[], vec![])))).unwrap();
}

#[test]
fn arguments_are_of_their_parameters_kinds() {
    let this = Fixture::new();
    let kinds = [
        ("a value of 4 bytes", ParamKind::Value { size: 4 }, 0..1),
        ("memory of 4-byte elements to read", floats(AccessMode::Read), 1..3),
        ("local memory of 4-byte elements", ParamKind::Local { element_size: 4 }, 3..4),
    ];
    let args = [
        ("a value of 4 bytes", value(&[0; 4])),
        ("memory of 64 bytes", KernelArg::Memory(this.memory(64))),
        ("a pointer to 64 bytes", KernelArg::Usm(usm(64, 64))),
        ("local memory of 64 bytes", KernelArg::Local(64)),
    ];
    for (takes, kind, fitting) in &kinds {
        for (index, (is, arg)) in args.iter().enumerate() {
            let launch = launch(&this, &[param("p", kind.clone())], vec![arg.clone()]);
            if fitting.contains(&index) {
                this.run(&Command::Kernel(Arc::new(launch))).unwrap();
            } else {
                let message = format!("kernel 'k': argument 'p' is {is}, the parameter takes {takes}");
                this.refuses_launch(launch, ARGUMENT, &message);
            }
        }
    }
}

#[test]
fn arguments_have_the_size_and_alignment_of_their_parameters() {
    let this = Fixture::new();
    let eights = ParamKind::Buffer { access: AccessMode::Read, element_size: 8, element_align: 8 };
    let local = ParamKind::Local { element_size: 8 };
    let (device, host) = (this.memory(64), this.host_memory(64));
    let misplaced = |view: &MemoryView| {
        let start = view.memory().usm().unwrap().address() + 4;
        format!("starts at {start:#x}, not aligned to 8 bytes")
    };
    let (on_device, on_host) = (misplaced(&device), misplaced(&host));
    let beyond = format!("ends beyond the address space: 16 bytes at {:#x}", usize::MAX - 7);
    for (kind, arg, why) in [
        (
            ParamKind::Value { size: 4 },
            value(&[0; 3]),
            "is a value of 3 bytes, the parameter takes a value of 4 bytes",
        ),
        (
            eights.clone(),
            KernelArg::Memory(part(&device, 8, 12)),
            "has 12 bytes, not whole elements of 8 bytes",
        ),
        (eights.clone(), KernelArg::Memory(part(&device, 4, 16)), &*on_device),
        (eights.clone(), KernelArg::Memory(part(&host, 4, 16)), &*on_host),
        (eights.clone(), KernelArg::Usm(usm(64, 12)), "has 12 bytes, not whole elements of 8 bytes"),
        (eights.clone(), KernelArg::Usm(usm(68, 16)), "starts at 0x44, not aligned to 8 bytes"),
        (eights.clone(), KernelArg::Usm(usm(usize::MAX - 7, 16)), &beyond),
        (eights, KernelArg::Usm(usm(0, 16)), "is a null pointer"),
        (local.clone(), KernelArg::Local(12), "has 12 bytes, not whole elements of 8 bytes"),
        (local, KernelArg::Local(0), "is local memory of 0 bytes"),
    ] {
        let launch = launch(&this, &[param("p", kind)], vec![arg]);
        this.refuses_launch(launch, ARGUMENT, &format!("kernel 'k': argument 'p' {why}"));
    }
}

#[test]
fn what_a_kernel_writes_is_passed_to_it_once() {
    let this = Fixture::new();
    let memory = this.memory(64);
    let [one, two] = [part(&memory, 0, 32), part(&memory, 28, 32)].map(KernelArg::Memory);
    for (a, b, written) in [
        (AccessMode::Read, AccessMode::Write, "b"),
        (AccessMode::ReadWrite, AccessMode::Read, "a"),
        (AccessMode::Write, AccessMode::Write, "a"),
    ] {
        let params = [param("a", floats(a)), param("n", ParamKind::Value { size: 1 }), param("b", floats(b))];
        let launch = launch(&this, &params, vec![one.clone(), value(&[0]), two.clone()]);
        let message = format!(
            "kernel 'k': arguments 'a' (bytes 0..32 of an allocation) and 'b' (bytes 28..60 of an \
             allocation) overlap, and '{written}' is written"
        );
        this.refuses_launch(launch, ARGUMENT, &message);
    }
    let reads = [param("a", floats(AccessMode::Read)), param("b", floats(AccessMode::Read))];
    this.run(&Command::Kernel(Arc::new(launch(&this, &reads, vec![one, two])))).unwrap();
}

#[test]
fn pointers_and_views_of_the_same_bytes_overlap_too() {
    let this = Fixture::new();
    let host = this.host_memory(64);
    let base = host.memory().host_ptr().unwrap().as_ptr() as usize;
    let params = [param("a", floats(AccessMode::Read)), param("b", floats(AccessMode::Write))];
    let with =
        |pointer| launch(&this, &params, vec![KernelArg::Memory(host.clone()), KernelArg::Usm(pointer)]);
    let message = format!(
        "kernel 'k': arguments 'a' (bytes 0..64 of an allocation) and 'b' (addresses {:#x}..{:#x}) overlap, \
         and 'b' is written",
        base + 60,
        base + 68
    );
    this.refuses_launch(with(usm(base + 60, 8)), ARGUMENT, &message);
    for apart in [usm(base + 64, 8), usm(base + 4, 0)] {
        this.run(&Command::Kernel(Arc::new(with(apart)))).unwrap();
    }
}

#[test]
fn local_memory_fits_the_device() {
    let this = Fixture::new();
    let params =
        [param("s", ParamKind::Local { element_size: 4 }), param("t", ParamKind::Local { element_size: 4 })];
    let with = |bytes| launch(&this, &params, vec![KernelArg::Local(bytes), KernelArg::Local(512)]);
    this.run(&Command::Kernel(Arc::new(with(512)))).unwrap();
    let message = "kernel 'k': needs 1028 bytes of local memory, the device has 1024";
    this.refuses_launch(with(516), SIZE, message);
    let huge = usize::MAX - 3;
    let message = format!("kernel 'k': needs {} bytes of local memory, the device has 1024", usize::MAX);
    this.refuses_launch(with(huge), SIZE, &message);
}

#[test]
fn index_spaces_can_be_launched() {
    let this = Fixture::new();
    for offset in [usize::MAX, 1 << 40] {
        let range = Range::linear(2).starting_at([offset]);
        let message = format!("the indices of {range} go beyond 1099511627776, the device's largest");
        this.refuses_launch(
            KernelLaunch { range, ..this.saxpy() },
            SIZE,
            &format!("kernel 'saxpy': {message}"),
        );
    }
    for (range, message) in [
        (Range::new([4, 0]), "kernel 'saxpy': range [4, 0] has a dimension of size 0"),
        (
            Range::linear(16).local([5]),
            "kernel 'saxpy': range [16] in groups of [5]: the work-group size does not divide the \
             global size",
        ),
        (
            Range::new([1, 64]).local([1, 64]),
            "kernel 'saxpy': the work-group is 64 large in dimension 1, the device allows 32",
        ),
        (
            Range::new([16, 8]).local([16, 8]),
            "kernel 'saxpy': a work-group of [16, 8, 1] has 128 work-items, the device allows 64",
        ),
        (
            Range::linear(64).local([64]),
            "kernel 'saxpy': a work-group of [64, 1, 1] has 64 work-items, the kernel allows 32",
        ),
    ] {
        this.refuses_launch(KernelLaunch { range, ..this.saxpy() }, SIZE, message);
    }
    let many = Range::new([2, 34]).local([2, 2]);
    let message = "kernel 'saxpy': 17 work-groups in dimension 1, the device allows 16";
    this.refuses_launch(KernelLaunch { range: many, ..this.saxpy() }, SIZE, message);
    for range in [Range::linear(1 << 40), Range::new([64, 64, 64]).local([2, 4, 4]).starting_at([1, 2, 3])] {
        this.run(&Command::Kernel(Arc::new(KernelLaunch { range, ..this.saxpy() }))).unwrap();
    }
}

#[test]
fn an_offset_needs_the_capability() {
    let this = Fixture::with(Capabilities { global_offset: false, ..everything() });
    let range = Range::linear(4).starting_at([2]);
    this.refuses_launch(
        KernelLaunch { range, ..this.saxpy() },
        ErrorKind::FeatureNotSupported,
        "kernel 'saxpy': range [4] from [2] starts at an offset, which the device cannot do",
    );
}

#[test]
fn views_start_where_the_device_can_bind_them() {
    let this = Fixture::new();
    let bytes = ParamKind::Buffer { access: AccessMode::Read, element_size: 1, element_align: 1 };
    let whole = this.memory(64);
    for (offset, fits) in [(0, true), (4, true), (6, false)] {
        let view = MemoryView::new(whole.memory().clone(), offset, 8).unwrap();
        let launch = launch(&this, &[param("p", bytes.clone())], vec![KernelArg::Memory(view)]);
        if fits {
            this.run(&Command::Kernel(Arc::new(launch))).unwrap();
        } else {
            let message = "kernel 'k': argument 'p' starts at byte 6, the device needs a multiple of 4";
            this.refuses_launch(launch, ARGUMENT, message);
        }
    }
}

#[test]
fn a_kernel_is_not_its_own_alternative() {
    let this = Fixture::new();
    let mut launch = this.saxpy();
    launch.alternatives = vec![this.kernel("other", &saxpy_params()), Arc::clone(&launch.kernel)];
    let message = "kernel 'saxpy': 'saxpy' is listed among its own alternatives";
    let command = Command::Kernel(Arc::new(launch));
    refused(this.updatable_buffer().append(&command, &[]), ARGUMENT, message);
    assert!(this.heard().is_empty());
}
