//! Tensors of DLPack in and out.
#![expect(unsafe_code, reason = "imports what it has exported")]

use wakegraph::dlpack::{DLManagedTensor, DLManagedTensorVersioned, ManagedTensor};
use wakegraph::{ErrorKind, Graph, Range};

use crate::kernels::add;
use crate::suite::{Need, Setup, tests};

tests!("graph/dlpack": &[Need::Results] => [out_and_in]);

fn out_and_in(setup: &Setup) {
    through::<DLManagedTensor>(setup);
    through::<DLManagedTensorVersioned>(setup);
}

/// Where memory has no addresses that DLPack knows, it is refused.
fn through<M: ManagedTensor>(setup: &Setup) {
    let device = setup.device();
    let x = device.buffer_from(&[1u32, 2, 3, 4, 5, 6]).unwrap();
    let tensor = x.slice(2..).unwrap().to_dlpack::<M>(&[2, 2]);
    if matches!(device.info().backend, "opencl" | "level_zero") {
        assert_eq!(tensor.unwrap_err().kind(), ErrorKind::FeatureNotSupported);
        return;
    }
    // SAFETY: the memory is used through one buffer at a time.
    let y = unsafe { device.import_dlpack::<u32, _>(tensor.unwrap()) }.unwrap();
    let mut graph = Graph::new(device);
    graph.launch(add(10, &y), Range::linear(4));
    let exec = graph.finalize().unwrap();
    setup.block_on(async {
        exec.submit().await.unwrap();
        assert_eq!(x.to_vec().await.unwrap(), [1, 2, 13, 14, 15, 16]);
    });
    // SAFETY: as above.
    let wrong = unsafe { device.import_dlpack::<f32, _>(x.to_dlpack::<M>(&[6]).unwrap()) };
    assert_eq!(wrong.unwrap_err().kind(), ErrorKind::InvalidArgument);
}
