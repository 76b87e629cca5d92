//! Table of all routes with their expected results.

use tranche_domain::units::Bytes;

/// Expected result of a route.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Expected {
    /// The slice is never over its cap, and all of it is usable.
    Holds,
    /// The route does not hold yet, for this reason.
    #[allow(dead_code, reason = "none is left while every route holds")]
    Fails(&'static str),
}

/// Routes of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Family {
    /// Plain memory in all its forms.
    Plain,
    /// Many buffers a little over or under the driver's unit of allocation.
    Sizes,
    /// Frees in several orders, twice, and by other threads.
    Orders,
    /// Functions that are not called by their exported names, but found by a look-up.
    Doors,
    /// Stream-ordered memory, and the part of it that pools keep.
    Pools,
    /// Memory without an address, and handles released while it is needed.
    Virtual,
    /// Memory bound to multicast objects.
    Multicast,
    /// Arrays of all shapes, mipmapped ones too.
    Arrays,
    /// Memory allocated by graphs and their nodes.
    Graphs,
    /// Memory of other processes.
    Sharing,
    /// Several processes of one slice.
    Relatives,
    /// Modules and libraries in one or several contexts.
    Code,
    /// Limits that cost memory.
    Limits,
    /// Contexts that are created, destroyed and reset.
    Contexts,
    /// A primary context that is reset while other threads use it.
    Resets,
    /// Slices on two devices.
    Devices,
    /// Threads without a current context.
    Bare,
    /// Locations of memory that came with CUDA 13.
    Locations,
    /// Pools that grow by more than is requested.
    Steps,
}

/// GPUs of a route's slice, and its part of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Gpus {
    /// A part of the first GPU.
    Part,
    /// The same part of the first and the second GPU.
    TwoParts,
    /// Two GPUs as a whole.
    TwoWhole,
}

/// A way to try to hold more memory than the cap.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Route {
    /// Name of the route in the program `clients/escape/main.c`.
    pub(crate) name: &'static str,
    /// Kind of the route.
    pub(crate) family: Family,
    /// Memory cap of its slice on each GPU.
    pub(crate) cap: Bytes,
    /// GPUs of its slice, and its part of them.
    pub(crate) gpus: Gpus,
    /// Least CUDA version of its functions, as `cuDriverGetVersion` returns it; 0 for any.
    pub(crate) since: i32,
    /// Number of pools in which a step of growth may be unused when the slice is full.
    pub(crate) pools: u64,
    /// Least part of the cap that devices count when all of it is charged, in permille.
    pub(crate) device_permille: u64,
    /// Reason for which that is less than 999; else empty.
    pub(crate) slack: &'static str,
    /// Expected result of the route.
    pub(crate) expected: Expected,
}

/// Cap with room for several contexts and for the pieces of a route.
const LARGE: Bytes = Bytes::mib(2048);
/// Cap for routes of many small pieces.
const SMALL: Bytes = Bytes::mib(512);

impl Route {
    const fn new(family: Family, name: &'static str) -> Self {
        Self {
            name,
            family,
            cap: LARGE,
            gpus: Gpus::Part,
            since: 0,
            pools: 1,
            device_permille: 999,
            slack: "",
            expected: Expected::Holds,
        }
    }

    /// The route in a smaller slice.
    const fn small(self) -> Self {
        Self { cap: SMALL, ..self }
    }

    /// The route with less on the device than is charged, in permille, for this reason.
    const fn full_to(self, device_permille: u64, slack: &'static str) -> Self {
        Self { device_permille, slack, ..self }
    }

    /// The route as one that does not hold yet, for this reason.
    #[allow(dead_code, reason = "none is left while every route holds")]
    const fn not_yet(self, reason: &'static str) -> Self {
        Self { expected: Expected::Fails(reason), ..self }
    }

    /// The route on drivers of this CUDA version and later.
    const fn since(self, since: i32) -> Self {
        Self { since, ..self }
    }

    /// The route with a part of each of two GPUs.
    const fn on_parts_of_two(self) -> Self {
        Self { gpus: Gpus::TwoParts, ..self }
    }

    /// The route with this number of pools that may have grown beyond their use.
    const fn pools(self, pools: u64) -> Self {
        Self { pools, ..self }
    }

    /// Least charge of the full slice in permille of its cap, if a pool grows by `step`.
    pub(crate) fn promised(&self, step: Bytes) -> u64 {
        let block = 2 << 20;
        let unused = self.pools * step.get().saturating_sub(block);
        999_u64.saturating_sub((unused * 1000).div_ceil(self.cap.get()))
    }

    /// The route on two whole V100s.
    const fn on_two(self) -> Self {
        Self { cap: Bytes::mib(32_510), gpus: Gpus::TwoWhole, ..self }
    }
}

/// All routes, each with its family.
pub(crate) const ROUTES: &[Route] = &[
    Route::new(Family::Plain, "plain_large"),
    Route::new(Family::Plain, "legacy_32_bit"),
    Route::new(Family::Plain, "legacy_32_bit_pitched"),
    Route::new(Family::Plain, "pitched_rows"),
    Route::new(Family::Plain, "pitched_rows_of_a_byte"),
    Route::new(Family::Plain, "managed_memory"),
    Route::new(Family::Sizes, "plain_of_1_0_mib"),
    Route::new(Family::Sizes, "plain_of_1_1_mib"),
    Route::new(Family::Sizes, "plain_of_2_mib_and_a_byte"),
    Route::new(Family::Sizes, "plain_just_below_1_mib"),
    Route::new(Family::Sizes, "plain_of_4_kib").small(),
    Route::new(Family::Sizes, "plain_of_all_sizes").small(),
    Route::new(Family::Sizes, "absurd_sizes"),
    Route::new(Family::Orders, "every_other_of_1_1_mib"),
    Route::new(Family::Orders, "every_other_of_4_kib").small(),
    Route::new(Family::Orders, "every_other_of_700_kib"),
    Route::new(Family::Orders, "double_free"),
    Route::new(Family::Orders, "free_of_what_was_never_ours"),
    Route::new(Family::Orders, "every_order_of_frees"),
    Route::new(Family::Orders, "freed_by_another_thread"),
    Route::new(Family::Orders, "eight_threads_race"),
    Route::new(Family::Doors, "by_look_up"),
    Route::new(Family::Doors, "by_look_up_of_the_per_thread_form"),
    Route::new(Family::Doors, "by_look_up_of_the_oldest_form"),
    Route::new(Family::Doors, "by_look_up_of_the_look_up"),
    Route::new(Family::Pools, "stream_ordered"),
    Route::new(Family::Pools, "stream_ordered_per_thread"),
    Route::new(Family::Pools, "default_pool_by_name"),
    Route::new(Family::Pools, "explicit_pool"),
    Route::new(Family::Pools, "explicit_pool_per_thread"),
    Route::new(Family::Pools, "pool_of_small_pieces").small(),
    Route::new(Family::Pools, "many_pools"),
    Route::new(Family::Pools, "reserve_of_the_default_pool"),
    Route::new(Family::Pools, "reserve_of_an_explicit_pool"),
    Route::new(Family::Pools, "reserve_of_many_pools"),
    Route::new(Family::Pools, "pool_made_current"),
    Route::new(Family::Pools, "pool_destroyed_with_its_memory"),
    Route::new(Family::Pools, "pool_destroyed_and_emptied"),
    Route::new(Family::Pools, "pool_trimmed"),
    Route::new(Family::Pools, "freed_and_taken_without_waiting"),
    Route::new(Family::Pools, "plain_memory_freed_in_a_stream"),
    Route::new(Family::Pools, "plain_memory_freed_behind_a_kernel"),
    Route::new(Family::Pools, "stream_ordered_memory_freed_plainly"),
    Route::new(Family::Virtual, "physical_memory"),
    Route::new(Family::Virtual, "physical_and_mapped"),
    Route::new(Family::Virtual, "released_while_mapped"),
    Route::new(Family::Virtual, "retained_from_a_mapping"),
    Route::new(Family::Virtual, "mapped_twice"),
    Route::new(Family::Virtual, "released_twice"),
    Route::new(Family::Virtual, "imported_by_its_maker"),
    Route::new(Family::Virtual, "external_memory"),
    Route::new(Family::Virtual, "external_memory_as_arrays"),
    Route::new(Family::Virtual, "tiles_of_sparse_arrays"),
    Route::new(Family::Multicast, "bound_to_multicast"),
    Route::new(Family::Arrays, "flat_arrays"),
    Route::new(Family::Arrays, "solid_arrays"),
    Route::new(Family::Arrays, "layered_arrays"),
    Route::new(Family::Arrays, "mipmapped_arrays"),
    Route::new(Family::Arrays, "tiny_arrays")
        .small()
        .full_to(600, "each array is charged a block of its own"),
    Route::new(Family::Arrays, "arrays_destroyed_twice"),
    Route::new(Family::Graphs, "graph_alloc_nodes"),
    Route::new(Family::Graphs, "graph_nodes_of_any_kind"),
    Route::new(Family::Graphs, "graph_nodes_of_any_kind_v2").since(12_030),
    Route::new(Family::Graphs, "graph_launched_often"),
    Route::new(Family::Graphs, "graph_instantiated_often"),
    Route::new(Family::Graphs, "graph_reserve_left_behind"),
    Route::new(Family::Graphs, "captured_allocations"),
    Route::new(Family::Graphs, "plain_memory_during_a_capture"),
    Route::new(Family::Graphs, "graph_waited_for_in_all_ways"),
    Route::new(Family::Sharing, "ipc_from_a_living_sibling"),
    Route::new(Family::Sharing, "ipc_from_the_dead"),
    Route::new(Family::Sharing, "ipc_opened_and_closed"),
    Route::new(Family::Sharing, "shareable_held_by_both"),
    Route::new(Family::Sharing, "shareable_released_by_its_maker"),
    Route::new(Family::Sharing, "shareable_from_the_dead"),
    Route::new(Family::Sharing, "shareable_from_the_dead_to_the_full"),
    Route::new(Family::Sharing, "pool_shared_by_both"),
    Route::new(Family::Sharing, "pool_shared_from_the_dead"),
    Route::new(Family::Sharing, "pool_shared_and_returned"),
    Route::new(Family::Relatives, "two_processes_race"),
    Route::new(Family::Relatives, "three_processes_race"),
    Route::new(Family::Relatives, "forked_after_the_driver_began"),
    Route::new(Family::Relatives, "one_after_the_other_dies_full"),
    Route::new(Family::Relatives, "another_program_after_filling"),
    Route::new(Family::Relatives, "checkpointed_beside_a_sibling").since(12_080),
    Route::new(Family::Code, "modules"),
    Route::new(Family::Code, "modules_with_options"),
    Route::new(Family::Code, "modules_from_files"),
    Route::new(Family::Code, "libraries"),
    Route::new(Family::Code, "libraries_in_several_contexts"),
    Route::new(Family::Code, "contexts_after_libraries"),
    Route::new(Family::Code, "libraries_from_files"),
    Route::new(Family::Code, "many_small_modules")
        .full_to(550, "each variable is charged a block of its own"),
    Route::new(Family::Code, "modules_into_a_full_slice"),
    Route::new(Family::Code, "modules_that_come_and_go"),
    Route::new(Family::Limits, "limit_of_the_heap"),
    Route::new(Family::Limits, "limit_of_printf"),
    Route::new(Family::Limits, "limit_of_the_stack"),
    Route::new(Family::Limits, "limit_of_the_heap_when_full"),
    Route::new(Family::Limits, "limit_of_the_stack_when_full"),
    Route::new(Family::Limits, "limits_up_and_down").full_to(850, "the highest limit stays charged"),
    Route::new(Family::Contexts, "secondary_contexts"),
    Route::new(Family::Contexts, "contexts_into_a_full_slice"),
    Route::new(Family::Contexts, "contexts_destroyed_with_their_memory"),
    Route::new(Family::Contexts, "primary_context_reset"),
    Route::new(Family::Contexts, "primary_context_reset_by_threads"),
    Route::new(Family::Contexts, "green_contexts")
        .since(12_040)
        .full_to(350, "each is charged as a context of its own"),
    Route::new(Family::Resets, "reset_while_others_allocate"),
    Route::new(Family::Resets, "reset_while_others_load_code"),
    Route::new(Family::Resets, "reset_while_others_set_limits"),
    Route::new(Family::Resets, "reset_while_others_use_streams"),
    Route::new(Family::Resets, "reset_while_others_do_all"),
    Route::new(Family::Devices, "two_devices").on_two(),
    Route::new(Family::Devices, "stream_of_another_device").on_parts_of_two(),
    Route::new(Family::Devices, "pool_of_another_device").on_parts_of_two(),
    Route::new(Family::Devices, "pool_made_current_of_another_device").on_parts_of_two(),
    Route::new(Family::Devices, "handle_of_another_device").on_parts_of_two(),
    Route::new(Family::Devices, "graph_of_another_device").on_parts_of_two(),
    Route::new(Family::Devices, "context_of_another_device_on_the_stack").on_parts_of_two(),
    Route::new(Family::Devices, "managed_pool_on_two_devices")
        .on_parts_of_two()
        .since(13_000)
        .full_to(150, "memory without a place is charged on each device that may come to hold it"),
    Route::new(Family::Devices, "libraries_on_two_devices").on_parts_of_two(),
    Route::new(Family::Bare, "async_without_a_context"),
    Route::new(Family::Bare, "pool_without_a_context"),
    Route::new(Family::Bare, "freed_without_a_context"),
    Route::new(Family::Bare, "graph_without_a_context"),
    Route::new(Family::Bare, "imported_without_a_context"),
    Route::new(Family::Bare, "async_without_a_context_on_two_devices").on_parts_of_two(),
    Route::new(Family::Bare, "pool_without_a_context_on_two_devices").on_parts_of_two(),
    Route::new(Family::Bare, "freed_without_a_context_on_two_devices").on_parts_of_two(),
    Route::new(Family::Bare, "graph_without_a_context_on_two_devices").on_parts_of_two(),
    Route::new(Family::Locations, "managed_pool_nowhere").since(13_000),
    Route::new(Family::Locations, "managed_pool_of_the_host").since(13_000),
    Route::new(Family::Locations, "managed_pool_of_a_device").since(13_000),
    Route::new(Family::Locations, "default_managed_pool").since(13_000),
    Route::new(Family::Locations, "managed_pool_set_current").since(13_000),
    Route::new(Family::Locations, "managed_graph_node").since(13_000),
    Route::new(Family::Locations, "pools_of_the_host").since(13_000),
    Route::new(Family::Locations, "pool_of_a_locality_domain").since(13_040),
    Route::new(Family::Locations, "default_pool_of_a_locality_domain").since(13_040),
    Route::new(Family::Locations, "memory_of_a_locality_domain").since(13_040),
    Route::new(Family::Steps, "a_piece_of_each_pool").pools(24),
    Route::new(Family::Steps, "refused_again_and_again").pools(2),
    Route::new(Family::Doors, "by_look_up_of_the_newest"),
    Route::new(Family::Doors, "by_look_up_of_the_newest_per_thread"),
    Route::new(Family::Code, "library_in_later_contexts"),
    Route::new(Family::Code, "library_in_later_contexts_eagerly"),
    Route::new(Family::Code, "library_in_later_contexts_lazily"),
    Route::new(Family::Code, "libraries_in_every_context"),
    Route::new(Family::Code, "libraries_in_every_context_eagerly"),
    Route::new(Family::Code, "library_that_comes_and_goes"),
    Route::new(Family::Code, "functions_loaded_lazily").small(),
    Route::new(Family::Code, "kernels_loaded_lazily")
        .full_to(600, "code that one context needs is charged in all of them"),
    Route::new(Family::Code, "module_by_hexadecimal_size")
        .full_to(700, "a length in a notation that is rarely used is charged upwards"),
];
