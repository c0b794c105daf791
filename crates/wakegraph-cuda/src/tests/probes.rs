//! Probes of driver faults that this backend works around. They need a GPU, and are ignored without
//! one. `.ci/gpu` runs them and shows their lines in its summary.
//!
//! A probe does not fail where the driver has the fault: it prints a line. Where the driver no
//! longer has it, the line says `MENDED`, and the workaround that it names can go once no supported
//! driver needs it. The probe fails if the workaround does not help.

use std::process::Command as Process;

use wakegraph_hal::support::graphs::{CommandNodes, InstantiatedGraph as _};
use wakegraph_hal::support::memory::{CopyAddress, CopyBox, FillRow};
use wakegraph_hal::support::streams::DriverContext as _;

use super::super::context::CudaStream;
use super::super::device::CudaMemory;
use super::super::device::OverlapPolicy;
use super::super::graph::{CudaGraph, CudaGraphExec, GraphNode, NewNode};
use super::super::kernel::{CudaKernel, CudaLaunch};
use super::super::lower::{AddOptions, EndNodes};
use super::super::sys::CU_FUNC_ATTRIBUTE_PTX_VERSION;
use super::super::{error, lower};
use super::*;

/// Adds a number to a word after some cycles.
const ADD: &str = "
.version 7.0
.target sm_52
.address_size 64
.visible .entry add(.param .u64 x, .param .u32 n, .param .u32 cycles)
{
    .reg .pred %early;
    .reg .b32 %n, %value, %cycles;
    .reg .b64 %x, %begin, %now, %wait;
    ld.param.u64 %x, [x];
    ld.param.u32 %n, [n];
    ld.param.u32 %cycles, [cycles];
    cvta.to.global.u64 %x, %x;
    cvt.u64.u32 %wait, %cycles;
    mov.u64 %begin, %clock64;
SPIN:
    mov.u64 %now, %clock64;
    sub.u64 %now, %now, %begin;
    setp.lt.u64 %early, %now, %wait;
    @%early bra SPIN;
    ld.global.u32 %value, [%x];
    add.u32 %value, %value, %n;
    st.global.u32 [%x], %value;
    ret;
}
";

/// Replaces a word by 31 times the word and a number, after some cycles: the order of two of them
/// shows in the result. Lets the kernel behind it start at once, and waits for the end of the one
/// before it.
const MIX: &str = "
.version 7.8
.target sm_90
.address_size 64
.visible .entry mix(.param .u64 x, .param .u32 n, .param .u32 cycles)
{
    .reg .pred %early;
    .reg .b32 %n, %value, %cycles;
    .reg .b64 %x, %begin, %now, %wait;
    griddepcontrol.launch_dependents;
    griddepcontrol.wait;
    ld.param.u64 %x, [x];
    ld.param.u32 %n, [n];
    ld.param.u32 %cycles, [cycles];
    cvta.to.global.u64 %x, %x;
    cvt.u64.u32 %wait, %cycles;
    mov.u64 %begin, %clock64;
SPIN:
    mov.u64 %now, %clock64;
    sub.u64 %now, %now, %begin;
    setp.lt.u64 %early, %now, %wait;
    @%early bra SPIN;
    ld.global.u32 %value, [%x];
    mad.lo.u32 %value, %value, 31, %n;
    st.global.u32 [%x], %value;
    ret;
}
";

/// About a millisecond.
const LONG: u32 = 2_000_000;

const WORDS: usize = 4;

struct Probe {
    device: CudaDevice,
    stream: CudaStream,
    kernel: Arc<dyn Kernel>,
    memory: Arc<dyn Memory>,
}

impl Probe {
    fn new() -> Self {
        Self::with("add", &KernelSources::new().ptx(ADD))
    }

    fn with(name: &str, sources: &KernelSources) -> Self {
        let device = open_device(error::driver().unwrap(), 0).unwrap();
        let words = ParamKind::Buffer { access: AccessMode::ReadWrite, element_size: 4, element_align: 4 };
        let number = |name: &'static str| Param { name: name.into(), kind: ParamKind::Value { size: 4 } };
        let params = [Param { name: "x".into(), kind: words }, number("n"), number("cycles")];
        let kernel = device.create_kernel(&KernelDesc { name, params: &params, sources });
        let memory = device.allocate(&MemoryDesc::new(4 * WORDS, MemoryKind::Device));
        let stream = CudaStream::create(&device.inner().context).unwrap();
        Self { kernel: kernel.unwrap(), memory: memory.unwrap(), stream, device }
    }

    fn word(&self, index: usize) -> MemoryView {
        MemoryView::new(self.memory.clone(), 4 * index, 4).unwrap()
    }

    fn address(&self, index: usize) -> u64 {
        CudaMemory::address_of(&self.word(index)).unwrap()
    }

    /// The kernel over a word.
    fn launch(&self, index: usize, n: u32, cycles: u32) -> CudaLaunch {
        let launch = KernelLaunch {
            kernel: self.kernel.clone(),
            args: vec![KernelArg::Memory(self.word(index)), number(n), number(cycles)],
            range: Range::linear(1),
            alternatives: Vec::new(),
        };
        CudaLaunch::of(self.device.inner(), &launch).unwrap()
    }

    fn clear(&self) {
        // SAFETY: nothing is in flight.
        unsafe { self.memory.write(0, &[0; 4 * WORDS]) }.unwrap();
    }

    fn words(&self) -> [u32; WORDS] {
        let mut words = [0; WORDS];
        // SAFETY: nothing is in flight.
        unsafe { self.memory.read(0, bytemuck::cast_slice_mut(&mut words)) }.unwrap();
        words
    }

    fn run(&self, exec: &mut CudaGraphExec) -> crate::Result<()> {
        exec.launch(&self.stream)?;
        Ok(self.stream.synchronize()?)
    }

    /// Launches a slow kernel, behind it something that is switched off, and behind that a copy of
    /// the word that the kernel writes. How many of some launches copied the word too early.
    fn out_of_order(
        &self,
        add_middle: impl FnOnce(&mut CudaGraph, GraphNode) -> GraphNode,
    ) -> crate::Result<usize> {
        let mut graph = CudaGraph::create(&self.device.inner().context)?;
        let slow = graph.body().add(NewNode::Kernel(&self.launch(0, 1, LONG)), &[])?;
        let middle = add_middle(&mut graph, slow);
        let [from, to] = [0, 1].map(|index| CopyAddress { address: self.address(index), is_foreign: false });
        graph.body().add(NewNode::Copy(&CopyBox::row(from, to, 4)), &[middle])?;
        let mut exec = CudaGraphExec::instantiate(&mut graph)?;
        exec.set_enabled(middle, false)?;
        let mut early = 0;
        for _ in 0..LAUNCHES {
            self.clear();
            self.run(&mut exec)?;
            early += usize::from(self.words()[1] != 1);
        }
        Ok(early)
    }
}

const LAUNCHES: usize = 60;

const SWITCHABLE: AddOptions<'_> = AddOptions {
    can_be_disabled: true,
    record: None,
    may_overlap: false,
    overlapping: None,
    loops: None,
    captured: None,
};

/// Set in the child process, which may lose its device to the fault.
const CHILD: &str = "WAKEGRAPH_PROBE";

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn a_set_node_that_is_switched_off() {
    let driver = error::driver().unwrap();
    assert!(context::count(driver).unwrap() > 0);
    if std::env::var_os(CHILD).is_some() {
        let probe = Probe::new();
        let _bound = probe.device.inner().context.bind().unwrap();
        let shape = FillRow { address: probe.address(2), value: 7, element: 4, count: 1 };
        let add = |graph: &mut CudaGraph, slow| graph.body().add(NewNode::Fill(&shape), &[slow]).unwrap();
        match probe.out_of_order(add) {
            Ok(early) => println!("CHILD {early}"),
            Err(error) => println!("CHILD {error}"),
        }
        return;
    }
    let found = in_child("a_set_node_that_is_switched_off");
    report(
        "a set node that is off",
        "`NodeAdder::fill` makes kernels of fills",
        match &*found {
            "0" => None,
            number if number.parse::<usize>().is_ok() => {
                Some(format!("{number} of {LAUNCHES} launches out of order"))
            }
            error => Some(error.to_owned()),
        },
    );
    // The workaround.
    let probe = Probe::new();
    let _bound = probe.device.inner().context.bind().unwrap();
    let fill = Command::BufferFill { dst: probe.word(2), pattern: [7].as_slice().into() };
    let add = |graph: &mut CudaGraph, slow| {
        let (mut nodes, after) = (CommandNodes::default(), EndNodes::from_slice(&[slow]));
        lower::add(probe.device.inner(), graph, &fill, after, SWITCHABLE, &mut nodes).unwrap();
        nodes.kernel.unwrap().0
    };
    assert_eq!(probe.out_of_order(add).unwrap(), 0);
}

/// What a probe prints in a process of its own.
fn in_child(name: &str) -> String {
    let child = Process::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "--nocapture", &format!("backend::cuda::tests::probes::{name}")])
        .env(CHILD, "1")
        .output()
        .unwrap();
    let output = String::from_utf8_lossy(&child.stdout);
    let found = output.lines().find_map(|line| line.split("CHILD ").nth(1));
    found.unwrap_or("its process ended").to_owned()
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn parameters_of_a_node_that_is_switched_off() {
    let probe = Probe::new();
    let _bound = probe.device.inner().context.bind().unwrap();
    let wrong = wrong_chains(&probe, false);
    let seen = (wrong > 0).then(|| format!("{wrong} of {CHAINS} chains of kernels are wrong"));
    report("parameters of a node that is off", "`update::StagedChange::apply` sets them again", seen);
    assert_eq!(wrong_chains(&probe, true), 0, "with parameters that are set again");
}

const CHAINS: usize = 2_000;

/// Random chains of kernels that add numbers to words, with new numbers and switches between
/// launches: how many of them add up to something else. `again`: nodes that are switched on get
/// their parameters again.
fn wrong_chains(probe: &Probe, again: bool) -> usize {
    let mut state = 7u64;
    let mut below = |bound: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % bound
    };
    let mut wrong = 0;
    for _ in 0..CHAINS {
        let len = 2 + below(20);
        let mut kernels: Vec<(usize, u32, bool)> =
            (0..len).map(|_| (below(WORDS), below(1000) as u32, true)).collect();
        let mut graph = CudaGraph::create(&probe.device.inner().context).unwrap();
        let mut nodes: Vec<GraphNode> = Vec::new();
        for &(word, n, _) in &kernels {
            let after = nodes.last().copied();
            nodes.push(
                graph.body().add(NewNode::Kernel(&probe.launch(word, n, 0)), after.as_slice()).unwrap(),
            );
        }
        let mut exec = CudaGraphExec::instantiate(&mut graph).unwrap();
        let mut expected = [0u32; WORDS];
        probe.clear();
        for _ in 0..6 {
            for _ in 0..3 {
                let at = below(len);
                let (word, n, enabled) = &mut kernels[at];
                if below(2) == 0 {
                    *n = below(1000) as u32;
                    exec.set_kernel(nodes[at], &probe.launch(*word, *n, 0)).unwrap();
                }
                if below(3) == 0 {
                    *enabled = below(2) == 0;
                    exec.set_enabled(nodes[at], *enabled).unwrap();
                    if again && *enabled {
                        exec.set_kernel(nodes[at], &probe.launch(*word, *n, 0)).unwrap();
                    }
                }
            }
            probe.run(&mut exec).unwrap();
            kernels.iter().filter(|kernel| kernel.2).for_each(|&(word, n, _)| expected[word] += n);
        }
        wrong += usize::from(probe.words() != expected);
    }
    wrong
}

/// A chain of kernels, each of which may start before the end of the one before it.
struct EarlyChain {
    /// The number that each one adds, and whether it is enabled.
    kernels: Vec<(u32, bool)>,
    nodes: Vec<GraphNode>,
    exec: CudaGraphExec,
    _graph: CudaGraph,
}

impl EarlyChain {
    /// `kernels`: the number that each adds and the cycles that it takes. `early`: with
    /// programmatic edges.
    fn new(probe: &Probe, kernels: &[(u32, u32)], early: bool) -> Self {
        let mut graph = CudaGraph::create(&probe.device.inner().context).unwrap();
        let mut nodes: Vec<GraphNode> = Vec::new();
        for &(n, cycles) in kernels {
            let (launch, after) = (probe.launch(0, n, cycles), nodes.last().copied());
            let new = match early && after.is_some() {
                true => NewNode::OverlappingKernel(&launch),
                false => NewNode::Kernel(&launch),
            };
            nodes.push(graph.body().add(new, after.as_slice()).unwrap());
        }
        let exec = CudaGraphExec::instantiate(&mut graph).unwrap();
        let kernels = kernels.iter().map(|&(n, _)| (n, true)).collect();
        Self { kernels, nodes, exec, _graph: graph }
    }

    /// The word after a launch.
    fn expected(&self, word: u32) -> u32 {
        let enabled = self.kernels.iter().filter(|(_, enabled)| *enabled);
        enabled.fold(word, |word, (n, _)| word.wrapping_mul(31).wrapping_add(*n))
    }

    fn enable(&mut self, at: usize, enabled: bool) {
        self.exec.set_enabled(self.nodes[at], enabled).unwrap();
        self.kernels[at].1 = enabled;
    }

    /// Also gives it the parameters that it had, which the driver forgets when it is disabled.
    fn set(&mut self, probe: &Probe, at: usize, n: u32, cycles: u32) {
        self.exec.set_kernel(self.nodes[at], &probe.launch(0, n, cycles)).unwrap();
        self.kernels[at].0 = n;
    }

    /// The shortest of some launches, in microseconds.
    fn time(&mut self, probe: &Probe) -> f64 {
        let launches = (0..300).map(|_| {
            let begin = std::time::Instant::now();
            probe.run(&mut self.exec).unwrap();
            begin.elapsed()
        });
        launches.min().unwrap().as_nanos() as f64 / 1e3
    }
}

/// How many launches of random chains with programmatic edges leave another word than they should,
/// of how many. Between launches, kernels get new numbers, or are disabled and enabled.
fn wrong_early_launches(probe: &Probe, updates: bool, switches: bool) -> [usize; 2] {
    let mut state = 11u64;
    let mut below = |bound: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % bound
    };
    let [mut wrong, mut launches] = [0; 2];
    for _ in 0..CHAINS {
        let len = 2 + below(12);
        // Some take 25 microseconds, so that what does not wait for them comes first.
        let cycles: Vec<u32> = (0..len).map(|_| [0, 0, 50_000][below(3)]).collect();
        let kernels: Vec<(u32, u32)> = cycles.iter().map(|&cycles| (below(1000) as u32, cycles)).collect();
        let mut chain = EarlyChain::new(probe, &kernels, true);
        for _ in 0..4 {
            for _ in 0..3 {
                let at = below(len);
                if updates {
                    chain.set(probe, at, below(1000) as u32, cycles[at]);
                }
                if switches {
                    let at = below(len);
                    let (n, enabled) = chain.kernels[at];
                    chain.enable(at, !enabled);
                    if !enabled {
                        chain.set(probe, at, n, cycles[at]);
                    }
                }
            }
            probe.clear();
            probe.run(&mut chain.exec).unwrap();
            wrong += usize::from(probe.words()[0] != chain.expected(0));
            launches += 1;
        }
    }
    [wrong, launches]
}

/// None where the device has no programmatic edges.
fn early_probe() -> Option<Probe> {
    let driver = error::driver().unwrap();
    let device = open_device(driver, 0).unwrap();
    (device.inner().overlap != OverlapPolicy::Never)
        .then(|| Probe::with("mix", &KernelSources::new().ptx(MIX).cuda_waits(true)))
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn programmatic_edges_keep_the_order_and_their_speed() {
    let Some(probe) = early_probe() else { return };
    let _bound = probe.device.inner().context.bind().unwrap();
    assert_eq!(wrong_early_launches(&probe, false, false)[0], 0);
    assert_eq!(wrong_early_launches(&probe, true, false)[0], 0, "with new parameters");
    let kernels = [(1, 0); 100];
    let full = EarlyChain::new(&probe, &kernels, false).time(&probe);
    let mut chain = EarlyChain::new(&probe, &kernels, true);
    let early = chain.time(&probe);
    (0..100).for_each(|at| chain.set(&probe, at, 2, 0));
    let updated = chain.time(&probe);
    println!(
        "PROBE programmatic edges: {early:.1} us, {updated:.1} with new parameters, {full:.1} with full edges"
    );
    assert!(updated < 0.9 * full, "{updated} {full}");
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn programmatic_edges_of_kernels_that_are_disabled() {
    let Some(probe) = early_probe() else { return };
    if std::env::var_os(CHILD).is_some() {
        let _bound = probe.device.inner().context.bind().unwrap();
        let switched = wrong_early_launches(&probe, false, true);
        let both = wrong_early_launches(&probe, true, true);
        // The first takes long; how many of the last do not wait for it.
        let mut early = [0; 3];
        for (off, early) in early.iter_mut().enumerate() {
            let mut kernels = vec![(1, LONG)];
            kernels.extend(std::iter::repeat_n((2, 0), off + 1));
            let mut chain = EarlyChain::new(&probe, &kernels, true);
            (1..=off).for_each(|at| chain.enable(at, false));
            for _ in 0..LAUNCHES {
                probe.clear();
                probe.run(&mut chain.exec).unwrap();
                *early += usize::from(probe.words()[0] != chain.expected(0));
            }
        }
        let mut half = EarlyChain::new(&probe, &[(1, 0); 100], true);
        (0..50).for_each(|at| half.enable(2 * at + 1, false));
        let half = half.time(&probe);
        println!(
            "CHILD wrong: {switched:?} of random chains, {both:?} with new ones, {early:?} of {LAUNCHES} \
             behind 0, 1 and 2 disabled ones; 100 with 50 disabled take {half:.1} us"
        );
        return;
    }
    let found = in_child("programmatic_edges_of_kernels_that_are_disabled");
    println!("PROBE programmatic edges of disabled kernels: {found}");
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn the_capability_that_code_is_for() {
    let probe = Probe::new();
    let version = |kernel: &Arc<dyn Kernel>| {
        let function = &kernel.downcast_ref::<CudaKernel>().unwrap().function;
        function.attribute(CU_FUNC_ATTRIBUTE_PTX_VERSION).unwrap()
    };
    let _bound = probe.device.inner().context.bind().unwrap();
    let source = KernelSources::new().c("KERNEL(k, ()) {}");
    let compiled = probe.device.create_kernel(&KernelDesc { name: "k", params: &[], sources: &source });
    let compiled = compiled.map(|kernel| version(&kernel));
    let early = early_probe().map(|probe| version(&probe.kernel));
    println!(
        "PROBE capability of code: {} of PTX for 52, {early:?} of PTX for 90, {compiled:?} compiled for {}",
        version(&probe.kernel),
        probe.device.inner().compute_capability,
    );
    assert_eq!(version(&probe.kernel), 52);
    assert!(early.is_none_or(|early| early == 90));
}

/// Fills of all alignments and lengths by the kernel that takes the place of set nodes.
#[test]
#[ignore = "needs an NVIDIA GPU"]
fn fills_by_a_kernel_set_what_set_nodes_do() {
    const LEN: usize = 4096;
    let probe = Probe::new();
    let inner = probe.device.inner();
    let _bound = inner.context.bind().unwrap();
    let memory = probe.device.allocate(&MemoryDesc::new(LEN, MemoryKind::Device)).unwrap();
    for (pattern, step) in [(&[5u8][..], 1), (&[1, 2], 2), (&[1, 2, 3, 4], 4)] {
        for start in (0..40).step_by(step) {
            for len in (step..100).step_by(step).chain([LEN - 64]) {
                // SAFETY: nothing is in flight.
                unsafe { memory.write(0, &[9; LEN]) }.unwrap();
                let dst = MemoryView::new(memory.clone(), start, len).unwrap();
                let fill = Command::BufferFill { dst, pattern: pattern.into() };
                let mut graph = CudaGraph::create(&inner.context).unwrap();
                let mut nodes = CommandNodes::default();
                lower::add(inner, &mut graph, &fill, EndNodes::new(), SWITCHABLE, &mut nodes).unwrap();
                assert!(nodes.kernel.is_some());
                probe.run(&mut CudaGraphExec::instantiate(&mut graph).unwrap()).unwrap();
                let mut found = [0; LEN];
                // SAFETY: nothing is in flight.
                unsafe { memory.read(0, &mut found) }.unwrap();
                let mut expected = [9; LEN];
                let filled = expected[start..start + len].iter_mut();
                filled.zip(pattern.iter().cycle()).for_each(|(byte, value)| *byte = *value);
                assert_eq!(found, expected, "{pattern:?} over {len} bytes at {start}");
            }
        }
    }
}

/// One line, for people and for the summary of `.ci/gpu`.
fn report(what: &str, remedy: &str, seen: Option<String>) {
    match seen {
        Some(seen) => println!("PROBE {what}: still faulty ({seen}); {remedy}"),
        None => println!("PROBE {what}: MENDED in this driver, so this is needless: {remedy}"),
    }
}
