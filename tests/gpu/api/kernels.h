/* The kernels of the tests, as PTX that any driver since 2017 compiles.
 *
 * spin_ns(u64 ns)             until the GPU's clock has moved on by ns
 * work(u64 turns)             a fixed amount of arithmetic: unlike spin_ns it takes
 *                             longer when the GPU is given to somebody else meanwhile
 * watch(u64 ns, u64 gap, u64 *log, u64 room)
 *                             reads the clock for ns, logs each jump above gap as
 *                             (before, after); log[0] counts them
 * deep(u64 *out, u64 index)   needs 16 KiB of local memory a thread
 * touch(u64 index)            writes a byte of a variable of 64 MiB that comes with the module
 *
 * The simulated driver reads spin_ns's argument and computes nothing. */
#ifndef TRANCHE_TESTS_KERNELS_H
#define TRANCHE_TESTS_KERNELS_H

#define PTX_HEAD ".version 6.0\n.target sm_52\n.address_size 64\n"

static const char SPIN_PTX[] =
#include "spin_ns.inc" /* tests/workload/spin_ns.ptx, quoted line by line by the Makefile */
    ;

/* The trap on a sum that never comes keeps the arithmetic from being optimised away. */
static const char WORK_PTX[] = PTX_HEAD
    ".visible .entry work(.param .u64 turns)\n"
    "{\n"
    "  .reg .pred %p; .reg .u64 %n, %sum, %zero;\n"
    "  ld.param.u64 %n, [turns];\n"
    "  mov.u64 %sum, %n; mov.u64 %zero, 0;\n"
    "  setp.eq.u64 %p, %n, 0; @%p bra done;\n"
    "again:\n"
    "  mad.lo.u64 %sum, %sum, 6364136223846793005, 1442695040888963407;\n"
    "  sub.u64 %n, %n, 1;\n"
    "  setp.ne.u64 %p, %n, 0;\n"
    "  @%p bra again;\n"
    "  setp.eq.u64 %p, %sum, 1;\n"
    "  @%p trap;\n"
    "done:\n"
    "  ret;\n"
    "}\n";

static const char WATCH_PTX[] = PTX_HEAD
    ".visible .entry watch(.param .u64 ns, .param .u64 gap, .param .u64 log, .param .u64 room)\n"
    "{\n"
    "  .reg .pred %p, %q; .reg .u64 %ns, %gap, %log, %room, %from, %last, %now, %d, %n, %at;\n"
    "  ld.param.u64 %ns, [ns]; ld.param.u64 %gap, [gap];\n"
    "  ld.param.u64 %log, [log]; ld.param.u64 %room, [room];\n"
    "  cvta.to.global.u64 %log, %log;\n"
    "  mov.u64 %from, %globaltimer; mov.u64 %last, %from; mov.u64 %n, 0;\n"
    "again:\n"
    "  mov.u64 %now, %globaltimer;\n"
    "  sub.u64 %d, %now, %last;\n"
    "  setp.gt.u64 %p, %d, %gap;\n"
    "  setp.lt.u64 %q, %n, %room;\n"
    "  and.pred %p, %p, %q;\n"
    "  @!%p bra next;\n"
    "  shl.b64 %at, %n, 4; add.u64 %at, %at, %log;\n"
    "  st.global.u64 [%at+8], %last; st.global.u64 [%at+16], %now;\n"
    "  add.u64 %n, %n, 1;\n"
    "next:\n"
    "  mov.u64 %last, %now;\n"
    "  sub.u64 %d, %now, %from;\n"
    "  setp.lt.u64 %p, %d, %ns;\n"
    "  @%p bra again;\n"
    "  st.global.u64 [%log], %n;\n"
    "  ret;\n"
    "}\n";

static const char DEEP_PTX[] = PTX_HEAD
    ".visible .entry deep(.param .u64 out, .param .u64 index)\n"
    "{\n"
    "  .local .align 8 .b8 hold[16384];\n"
    "  .reg .pred %p; .reg .u64 %out, %i, %n, %base, %at;\n"
    "  ld.param.u64 %out, [out]; ld.param.u64 %i, [index];\n"
    "  cvta.to.global.u64 %out, %out;\n"
    "  mov.u64 %base, hold; mov.u64 %n, 0;\n"
    "fill:\n"
    "  shl.b64 %at, %n, 3; add.u64 %at, %at, %base;\n"
    "  st.local.u64 [%at], %n;\n"
    "  add.u64 %n, %n, 1;\n"
    "  setp.lt.u64 %p, %n, 2048;\n"
    "  @%p bra fill;\n"
    "  and.b64 %i, %i, 2047; shl.b64 %at, %i, 3; add.u64 %at, %at, %base;\n"
    "  ld.local.u64 %n, [%at];\n"
    "  st.global.u64 [%out], %n;\n"
    "  ret;\n"
    "}\n";

static const char TOUCH_PTX[] = PTX_HEAD
    ".visible .global .align 256 .b8 wide[67108864];\n"
    ".visible .entry touch(.param .u64 index)\n"
    "{\n"
    "  .reg .u64 %at, %i; .reg .u32 %one;\n"
    "  ld.param.u64 %i, [index];\n"
    "  and.b64 %i, %i, 67108863;\n"
    "  mov.u64 %at, wide; add.u64 %at, %at, %i;\n"
    "  mov.u32 %one, 1;\n"
    "  st.global.u8 [%at], %one;\n"
    "  ret;\n"
    "}\n";

#endif
