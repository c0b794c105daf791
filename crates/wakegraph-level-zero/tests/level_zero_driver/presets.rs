//! The drivers that this one plays.

use crate::types::*;

/// A driver, and its devices.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Preset {
    /// What `WAKEGRAPH_LZ_DEVICES` calls it.
    pub(crate) name: &'static str,
    pub(crate) api: ze_api_version_t,
    pub(crate) devices: u32,
    pub(crate) sub_devices: u32,
    /// Lists keep their order if they are asked to. A driver that cannot do it takes the flag all the same.
    pub(crate) in_order: bool,
    pub(crate) immediate_append: bool,
    pub(crate) counter_based: bool,
    pub(crate) global_offset: bool,
    /// What mutable lists can change; nothing where there are no such lists.
    pub(crate) mutable: ze_mutable_command_exp_flags_t,
    pub(crate) has_copy_engine: bool,
    /// The longest pattern of a fill on the compute engine.
    pub(crate) longest_pattern: usize,
    pub(crate) timestamp_bits: u32,
    /// The clock's first value leaves so many seconds until it wraps.
    pub(crate) seconds_to_wrap: Option<u64>,
}

const ALL: Preset = Preset {
    name: "all",
    api: version(1, 15),
    devices: 1,
    sub_devices: 0,
    in_order: true,
    immediate_append: true,
    counter_based: true,
    global_offset: true,
    mutable: 0x7f,
    has_copy_engine: false,
    longest_pattern: 128,
    timestamp_bits: 64,
    seconds_to_wrap: None,
};

const APPEND: Preset = Preset {
    name: "append",
    api: version(1, 9),
    counter_based: false,
    mutable: 0,
    longest_pattern: 16,
    timestamp_bits: 36,
    ..ALL
};

/// All of them, in the order that they have by default.
pub(crate) const PRESETS: [Preset; 8] = [
    ALL,
    APPEND,
    // As Intel's driver 22.43, which has global offsets and nothing else that is optional.
    Preset { name: "old", api: version(1, 3), in_order: false, immediate_append: false, ..APPEND },
    Preset { name: "mutable-3e", mutable: 0x3e, ..ALL },
    Preset { name: "copy-engine", has_copy_engine: true, ..ALL },
    Preset { name: "wrap", timestamp_bits: 32, seconds_to_wrap: Some(2), ..ALL },
    Preset { name: "two", devices: 2, ..ALL },
    Preset { name: "sub", sub_devices: 2, ..ALL },
];

/// Nanoseconds of a cycle of the device's clock.
pub(crate) const RESOLUTION: u64 = 83;
pub(crate) const LONGEST_COPY_PATTERN: usize = 1;
pub(crate) const LARGEST_ALLOCATION: u64 = 1 << 30;
pub(crate) const MEMORY: u64 = 4 << 30;
pub(crate) const LARGEST_GROUP: u32 = 1024;
pub(crate) const LARGEST_GROUP_OF_A_KERNEL: u32 = 512;
pub(crate) const LARGEST_GROUP_SIZES: [u32; 3] = [1024, 1024, 64];
pub(crate) const LOCAL_MEMORY: u32 = 64 << 10;

impl Preset {
    /// The extensions that it reports.
    pub(crate) fn extensions(&self) -> Vec<&'static str> {
        let all = [
            (true, "ZE_experimental_relaxed_allocation_limits"),
            (true, "ZE_extension_memory_free_policies"),
            (self.global_offset, "ZE_experimental_global_offset"),
            (self.api >= version(1, 9), "ZE_extension_kernel_max_group_size_properties"),
            (self.immediate_append, "ZE_experimental_immediate_command_list_append"),
            (self.counter_based, "ZE_experimental_event_pool_counter_based"),
            (self.mutable != 0, "ZE_experimental_mutable_command_list"),
        ];
        all.into_iter().filter_map(|(is_there, name)| is_there.then_some(name)).collect()
    }

    /// What the variable asks for, or all.
    pub(crate) fn chosen() -> Vec<Self> {
        let Ok(names) = std::env::var("WAKEGRAPH_LZ_DEVICES") else { return PRESETS.to_vec() };
        let find = |name: &str| {
            let found = PRESETS.iter().find(|preset| preset.name == name.trim());
            *found.unwrap_or_else(|| panic!("WAKEGRAPH_LZ_DEVICES: no driver is called '{name}'"))
        };
        names.split(',').map(find).collect()
    }
}
