/* A program that tries to hold more device memory than it may, by the route that its argument names. */
#include "driver.h"
#include <signal.h>

#include "plain.h"
#include "pools.h"
#include "virtual.h"
#include "graphs.h"
#include "sharing.h"
#include "code.h"

static const struct { const char *name; void (*go)(void); } ROUTES[] = {
#define ROUTE(name) {#name, name}
    ROUTE(plain_large),
    ROUTE(plain_of_1_0_mib),
    ROUTE(plain_of_1_1_mib),
    ROUTE(plain_of_2_mib_and_a_byte),
    ROUTE(plain_just_below_1_mib),
    ROUTE(plain_of_4_kib),
    ROUTE(plain_of_all_sizes),
    ROUTE(every_other_of_1_1_mib),
    ROUTE(every_other_of_4_kib),
    ROUTE(every_other_of_700_kib),
    ROUTE(legacy_32_bit),
    ROUTE(legacy_32_bit_pitched),
    ROUTE(pitched_rows),
    ROUTE(pitched_rows_of_a_byte),
    ROUTE(managed_memory),
    ROUTE(absurd_sizes),
    ROUTE(double_free),
    ROUTE(free_of_what_was_never_ours),
    ROUTE(every_order_of_frees),
    ROUTE(freed_by_another_thread),
    ROUTE(eight_threads_race),
    ROUTE(by_look_up),
    ROUTE(by_look_up_of_the_per_thread_form),
    ROUTE(by_look_up_of_the_oldest_form),
    ROUTE(by_look_up_of_the_look_up),
    ROUTE(stream_ordered),
    ROUTE(stream_ordered_per_thread),
    ROUTE(default_pool_by_name),
    ROUTE(explicit_pool),
    ROUTE(explicit_pool_per_thread),
    ROUTE(pool_of_small_pieces),
    ROUTE(many_pools),
    ROUTE(reserve_of_the_default_pool),
    ROUTE(reserve_of_an_explicit_pool),
    ROUTE(reserve_of_many_pools),
    ROUTE(pool_made_current),
    ROUTE(pool_destroyed_with_its_memory),
    ROUTE(pool_destroyed_and_emptied),
    ROUTE(pool_trimmed),
    ROUTE(freed_and_taken_without_waiting),
    ROUTE(plain_memory_freed_in_a_stream),
    ROUTE(plain_memory_freed_behind_a_kernel),
    ROUTE(stream_ordered_memory_freed_plainly),
    ROUTE(physical_memory),
    ROUTE(physical_and_mapped),
    ROUTE(released_while_mapped),
    ROUTE(retained_from_a_mapping),
    ROUTE(mapped_twice),
    ROUTE(released_twice),
    ROUTE(imported_by_its_maker),
    ROUTE(external_memory),
    ROUTE(bound_to_multicast),
    ROUTE(flat_arrays),
    ROUTE(solid_arrays),
    ROUTE(layered_arrays),
    ROUTE(mipmapped_arrays),
    ROUTE(tiny_arrays),
    ROUTE(arrays_destroyed_twice),
    ROUTE(graph_alloc_nodes),
    ROUTE(graph_nodes_of_any_kind),
    ROUTE(graph_nodes_of_any_kind_v2),
    ROUTE(graph_launched_often),
    ROUTE(graph_instantiated_often),
    ROUTE(graph_reserve_left_behind),
    ROUTE(captured_allocations),
    ROUTE(plain_memory_during_a_capture),
    ROUTE(graph_waited_for_in_all_ways),
    ROUTE(ipc_from_a_living_sibling),
    ROUTE(ipc_from_the_dead),
    ROUTE(ipc_opened_and_closed),
    ROUTE(shareable_held_by_both),
    ROUTE(shareable_released_by_its_maker),
    ROUTE(shareable_from_the_dead),
    ROUTE(shareable_from_the_dead_to_the_full),
    ROUTE(two_processes_race),
    ROUTE(three_processes_race),
    ROUTE(forked_after_the_driver_began),
    ROUTE(one_after_the_other_dies_full),
    ROUTE(another_program_after_filling),
    ROUTE(plain_large_with_patience),
    ROUTE(modules),
    ROUTE(modules_with_options),
    ROUTE(modules_from_files),
    ROUTE(libraries),
    ROUTE(libraries_from_files),
    ROUTE(many_small_modules),
    ROUTE(modules_into_a_full_slice),
    ROUTE(modules_that_come_and_go),
    ROUTE(limit_of_the_heap),
    ROUTE(limit_of_printf),
    ROUTE(limit_of_the_stack),
    ROUTE(limit_of_the_heap_when_full),
    ROUTE(limit_of_the_stack_when_full),
    ROUTE(limits_up_and_down),
    ROUTE(secondary_contexts),
    ROUTE(contexts_into_a_full_slice),
    ROUTE(contexts_destroyed_with_their_memory),
    ROUTE(primary_context_reset),
    ROUTE(green_contexts),
    ROUTE(two_devices),
    ROUTE(again_and_again),
};

int main(int words, char **word) {
    size_t all = sizeof ROUTES / sizeof *ROUTES;
    own_name = word[0];
    setvbuf(stdin, NULL, _IONBF, 0); /* so that another program finds unread lines */
    for (size_t at = 0; at < all; at++) {
        if (words == 1) say(ROUTES[at].name);
        else if (!strcmp(word[1], ROUTES[at].name)) { ROUTES[at].go(); return 0; }
    }
    return words == 1 ? 0 : 2;
}
