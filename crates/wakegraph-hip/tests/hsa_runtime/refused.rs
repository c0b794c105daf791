//! Functions that HIP imports and that do nothing here: they fail, and say which it was.

macro_rules! refused {
    ($($name:ident)*) => { $(
        #[unsafe(no_mangle)]
        extern "C" fn $name() -> $crate::status::Status {
            eprintln!("hsa_runtime: {} is not supported", stringify!($name));
            $crate::status::ERROR
        }
    )* };
}

refused! {
    hsa_amd_image_create hsa_amd_interop_map_buffer hsa_amd_interop_unmap_buffer hsa_amd_ipc_memory_attach
    hsa_amd_ipc_memory_create hsa_amd_ipc_memory_detach hsa_amd_svm_attributes_get hsa_amd_svm_attributes_set
    hsa_amd_svm_prefetch_async hsa_amd_vmem_address_free hsa_amd_vmem_address_reserve
    hsa_amd_vmem_export_shareable_handle hsa_amd_vmem_get_access hsa_amd_vmem_handle_create
    hsa_amd_vmem_handle_release hsa_amd_vmem_import_shareable_handle hsa_amd_vmem_map hsa_amd_vmem_set_access
    hsa_amd_vmem_unmap hsa_ext_image_create hsa_ext_image_create_with_layout hsa_ext_image_data_get_info
    hsa_ext_image_destroy hsa_ext_image_export hsa_ext_image_import hsa_ext_sampler_create
    hsa_ext_sampler_destroy
}
