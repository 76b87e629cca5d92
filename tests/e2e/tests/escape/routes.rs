//! Every route, with what it ought to come to.

use tranche_domain::units::Bytes;

/// What becomes of a route.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Expected {
    /// Never over the cap, and all of it usable.
    Holds,
    /// Not yet, for this reason.
    #[allow(dead_code, reason = "none is left while every route holds")]
    Fails(&'static str),
}

/// Routes of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Family {
    /// Plain memory in all its forms.
    Plain,
    /// Many buffers a little over or under what the driver allocates in.
    Sizes,
    /// Frees: which, in what order, how often, by whom.
    Orders,
    /// Functions that are not called by their exported names.
    Doors,
    /// Stream-ordered memory and what pools keep of it.
    Pools,
    /// Memory without an address, and handles released while it is needed.
    Virtual,
    /// Multicast objects.
    Multicast,
    /// Arrays.
    Arrays,
    /// Graphs.
    Graphs,
    /// Memory of other processes.
    Sharing,
    /// Processes of one slice.
    Relatives,
    /// Modules and libraries.
    Code,
    /// Limits that cost memory.
    Limits,
    /// Contexts.
    Contexts,
    /// Several devices.
    Devices,
}

/// A way to try to hold more than one may.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Route {
    /// What the program calls it.
    pub(crate) name: &'static str,
    /// What it is like.
    pub(crate) family: Family,
    /// What its slice may hold.
    pub(crate) cap: Bytes,
    /// Whether it has two whole GPUs rather than a part of one.
    pub(crate) whole_gpus: bool,
    /// How much of the cap the devices must count when all of it is charged, of a thousand.
    pub(crate) device_permille: u64,
    /// Why that is not all, where it is not.
    pub(crate) slack: &'static str,
    /// What becomes of it.
    pub(crate) expected: Expected,
}

/// Room for several contexts and for what is tried.
const LARGE: Bytes = Bytes::mib(2048);
/// Less, where the pieces are many.
const SMALL: Bytes = Bytes::mib(512);

impl Route {
    const fn new(family: Family, name: &'static str) -> Self {
        Self {
            name,
            family,
            cap: LARGE,
            whole_gpus: false,
            device_permille: 999,
            slack: "",
            expected: Expected::Holds,
        }
    }

    /// In a smaller slice.
    const fn small(self) -> Self {
        Self { cap: SMALL, ..self }
    }

    /// With less on the device than is charged, for this reason.
    const fn full_to(self, device_permille: u64, slack: &'static str) -> Self {
        Self { device_permille, slack, ..self }
    }

    /// Known not to hold.
    #[allow(dead_code, reason = "none is left while every route holds")]
    const fn not_yet(self, reason: &'static str) -> Self {
        Self { expected: Expected::Fails(reason), ..self }
    }

    /// On two whole V100s.
    const fn on_two(self) -> Self {
        Self { cap: Bytes::mib(32_510), whole_gpus: true, ..self }
    }
}

/// All of them.
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
    Route::new(Family::Graphs, "graph_nodes_of_any_kind_v2"),
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
    Route::new(Family::Code, "modules"),
    Route::new(Family::Code, "modules_with_options"),
    Route::new(Family::Code, "modules_from_files"),
    Route::new(Family::Code, "libraries"),
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
    Route::new(Family::Contexts, "green_contexts").full_to(350, "each is charged as a context of its own"),
    Route::new(Family::Devices, "two_devices").on_two(),
];
