"""Collectives in the text of compiled programs: every notation of groups, and pieces of one collective."""

from vaswani.train.aot.hlo import Collective, collectives, kernels, traffic, unordered_scatters

PROGRAM = """HloModule jit_step

%fused_computation.1 (p: bf16[64,8]) -> bf16[256,8] {
  %all-gather.1 = bf16[256,8]{1,0:T(8)} all-gather(%p), channel_id=7, replica_groups={{0,1,2,3}}, dimensions={0}
}

%fused_computation.2 (p: bf16[64,8]) -> bf16[256,8] {
  ROOT %all-gather.2 = bf16[256,8]{1,0} all-gather(%p), channel_id=7, replica_groups={{0,1,2,3}}, dimensions={0}
}

%body (p: f32[4]) -> f32[4] {
  %all-reduce.3 = f32[4]{0} all-reduce(%p), channel_id=8, replica_groups=mesh['axis_0'=2,'axis_1'=4] {'axis_1'}
}

%condition (p: s32[]) -> pred[] {
  %all-reduce.9 = pred[]{:T(512)} all-reduce(%p), channel_id=9, replica_groups={}
}

%all-reduce-scatter.1 (input: bf16[16,8]) -> bf16[4,8] {
  %all-reduce.12 = bf16[16,8]{1,0} all-reduce(%input), channel_id=12, replica_groups={{0,1,2,3},{4,5,6,7}}
  ROOT %dynamic-slice.1 = bf16[4,8]{1,0} dynamic-slice(%all-reduce.12, %shard), dynamic_slice_sizes={4,8}
}

ENTRY %main (p: f32[4]) -> f32[4] {
  %all-gather.13 = bf16[9]{0} all-gather(%p), channel_id=13, \
replica_groups=mesh['axis_0'=4,'axis_1'=2], device_ids=([2,4]T(1,0)) {'axis_1'}, dimensions={0}
  %fusion.1 = bf16[256,8] fusion(%p), kind=kLoop, calls=%fused_computation.1
  %fusion.2 = bf16[256,8] fusion(%fusion.1), kind=kLoop, calls=%fused_computation.2
  %all-reduce.4 = (f32[2,3]{1,0:T(8)}, /*index=1*/bf16[5]{0}) all-reduce(%p,%p), channel_id=1, replica_groups=[2,4]<=[8]
  %reduce-scatter.5 = f32[2,8]{1,0} reduce-scatter(%p), channel_id=2, replica_groups={{0,2},{1,3}}, dimensions={0}
  %send.6 = (f32[128,8]{1,0}, u32[], token[]) send(%p, %token), channel_id=2
  %send-done.6 = token[] send-done(%send.6), channel_id=2
  %collective-permute.7 = s32[8]{0} collective-permute(%p), channel_id=3, source_target_pairs={{0,1},{1,2},{2,0}}
  %while.8 = f32[4]{0} while(%p), condition=%condition, body=%body
  %all-gather.11 = f32[4]{0} all-gather(%p), channel_id=11, replica_groups=[2,4]<=[8], dimensions={0}
  ROOT %all-to-all = f32[4]{0} all-to-all(%p), channel_id=4, replica_groups=mesh['axis_0'=8] {'axis_0':(1)2}
}
"""


def test_each_collective_is_read_once_with_its_bytes_and_group() -> None:
    assert sorted(collectives(PROGRAM, devices=8, slices=2)) == [
        Collective("all-gather", 4 * 4, 4),
        Collective("all-gather", 9 * 2, 2),
        Collective("all-gather", 256 * 8 * 2, 4),
        Collective("all-reduce", 1, 8),
        Collective("all-reduce", 4 * 4, 4),
        Collective("all-reduce", 2 * 3 * 4 + 5 * 2, 4),
        Collective("all-to-all", 4 * 4, 2),
        Collective("collective-permute", 8 * 4, 3),
        Collective("reduce-scatter", 2 * 2 * 8 * 4, 2),
        Collective("reduce-scatter", 16 * 8 * 2, 4),
        Collective("send", 128 * 8 * 4, 2),
    ]


def test_a_program_of_one_device_has_no_collectives() -> None:
    assert collectives("ENTRY %main (p: f32[4]) -> f32[4] {\n  ROOT %x = f32[4] add(%p, %p)\n}\n", devices=1) == []


ON_A_GPU = """HloModule jit_step

%fused_scatter (p: f32[9,4]) -> f32[9,4] {
  ROOT %scatter.3 = f32[9,4]{1,0} scatter(%p, %p, %p), update_window_dims={1,2}, to_apply=%add
}

%fused_ordered (p: f32[9,4]) -> f32[9,4] {
  ROOT %scatter.4 = f32[9,4]{1,0} scatter(%p, %p, %p), indices_are_sorted=true, unique_indices=true, to_apply=%add
}

%layer (p: (s32[], f32[9,4])) -> (s32[], f32[9,4]) {
  %attend.1 = (bf16[8,8]{1,0}, u8[0]{0}) custom-call(%p, %p), custom_call_target="__cudnn$fmhaScaleBiasSoftmax"
  %attend.2 = bf16[8,8]{1,0} custom-call(%p, %p), custom_call_target="__cudnn$fmhaScaleBiasSoftmaxBackward"
}

%add (a: f32[], b: f32[]) -> f32[] {
  ROOT %sum = f32[] add(%a, %b)
}

ENTRY %main (p: f32[9,4]) -> f32[9,4] {
  %all-reduce-start = ((bf16[64,8]{1,0}), bf16[64,8]{1,0}) all-reduce-start(%p), channel_id=1, replica_groups={{0,1}}
  %all-reduce-done = bf16[64,8]{1,0} all-reduce-done(%all-reduce-start)
  %all-gather-start = (f32[2]{0}, f32[8]{0}) all-gather-start(%p), channel_id=2, replica_groups=[2,4]<=[8]
  %all-reduce-start.1 = (f32[2]{0}, f32[3]{0}) all-reduce-start(%p, %p), channel_id=3, replica_groups={{0,1}}
  %fusion.1 = f32[9,4]{1,0} fusion(%p), kind=kInput, calls=%fused_scatter
  ROOT %fusion.2 = f32[9,4]{1,0} fusion(%p), kind=kInput, calls=%fused_ordered
}
"""


def test_what_a_program_for_gpus_starts_is_read_by_its_results() -> None:
    assert sorted(collectives(ON_A_GPU, devices=8)) == [
        Collective("all-gather", 8 * 4, 4),
        Collective("all-reduce", 2 * 4 + 3 * 4, 2),
        Collective("all-reduce", 64 * 8 * 2, 2),
    ]


def test_calls_of_cudnn_and_scatters_that_may_collide_are_counted() -> None:
    assert kernels(ON_A_GPU) == {"__cudnn$fmhaScaleBiasSoftmax": 1, "__cudnn$fmhaScaleBiasSoftmaxBackward": 1}
    assert unordered_scatters(ON_A_GPU) == 1
    assert kernels(PROGRAM) == {} and unordered_scatters(PROGRAM) == 0


ON_A_CHIP = """HloModule jit_step

%fused_computation.1 (p: f32[8,4]) -> f32[8,4] {
  ROOT %multiply.1 = f32[8,4]{1,0} multiply(%p, %p)
}

%region (a: f32[], b: f32[]) -> f32[] {
  ROOT %add.1 = f32[] add(%a, %b)
}

ENTRY %main (p: f32[8,4], q: bf16[8,4]) -> f32[8] {
  %p = f32[8,4]{1,0:T(8,128)} parameter(0)
  %q = bf16[8,4]{1,0:T(8,128)(2,1)} parameter(1)
  %copy-start.1 = (f32[8,4]{1,0:T(8,128)S(1)}, f32[8,4]{1,0:T(8,128)}, u32[]{:S(2)}) copy-start(%p)
  %fusion.1 = f32[8,4]{1,0:T(8,128)S(1)} fusion(%q), kind=kLoop, calls=%fused_computation.1
  %copy-done.1 = f32[8,4]{1,0:T(8,128)S(1)} copy-done(%copy-start.1)
  %slice-start.1 = ((f32[8,4]{1,0}), f32[2,4]{1,0}, s32[]{:S(2)}) slice-start(%p), slice={[0:2], [0:4]}
  %slice-done.1 = f32[2,4]{1,0} slice-done(%slice-start.1)
  %bitcast.1 = f32[32]{0:T(1024)S(1)} bitcast(%fusion.1)
  ROOT %reduce.1 = f32[8]{0} reduce(%fusion.1, %copy-done.1), dimensions={1}, to_apply=%region
}
"""


def test_memory_is_read_and_written_by_what_is_not_on_the_chip() -> None:
    fused = 8 * 4 * 2  # its operand; the result stays
    copied = 8 * 4 * 4  # onto the chip
    sliced = 2 * (2 * 4 * 4)  # from memory to memory
    reduced = 8 * 4
    assert traffic(ON_A_CHIP) == fused + copied + sliced + reduced


def test_a_call_of_a_library_reads_its_operands_and_writes_its_results() -> None:
    """The compiler's own analysis, which does not look into the call, counts none of them."""
    calls = """ENTRY %main (p: bf16[8,4]) -> bf16[8,4] {
  %p = bf16[8,4]{1,0} parameter(0)
  %attend.1 = (bf16[8,4]{1,0}, f32[8]{0}, u8[0]{0}) custom-call(%p, %p), custom_call_target="__cudnn$fmhaSoftmax"
}
"""
    assert traffic(calls) == (8 * 4 * 2 + 8 * 4) + 2 * (8 * 4 * 2)
