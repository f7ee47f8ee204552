"""The same run on every mesh: losses, shardings, collectives, and the meshes that are rejected."""

import json
import re
import subprocess
import sys
from dataclasses import dataclass, replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax.traverse_util import flatten_dict

from tests.conftest import ROOT
from vaswani.configs.common import default
from vaswani.errors import UserError
from vaswani.model import masked_lm, vision
from vaswani.model.config import ModelConfig
from vaswani.model.parameters import init_params
from vaswani.model.transformer import Transformer
from vaswani.model.vision import ImageConfig
from vaswani.run.sharding import data_mesh, make_mesh, mesh_shape, place_params, placed_shapes

ONE = "1x1x1 accumulate 1 hash 304"
CASES = [
    ((1, 1, 1), 1, "hash", 304),
    ((8, 1, 1), 1, "hash", 304),
    ((4, 2, 1), 1, "hash", 304),
    ((2, 2, 2), 1, "hash", 304),
    ((1, 8, 1), 1, "hash", 304),
    ((1, 1, 8), 1, "hash", 304),
    # A vocabulary that 8 does not divide. Not 301: there a unit of the decoder is 0 within rounding in update 13, where
    # ReLU has either of two gradients, and the losses part by 3e-4.
    ((1, 1, 1), 1, "hash", 299),
    ((2, 2, 2), 1, "hash", 299),
    ((1, 1, 8), 1, "hash", 299),
    ((1, 1, 1), 4, "hash", 304),
    ((2, 2, 2), 2, "hash", 304),
    ((1, 1, 1), 1, "threefry", 304),
    ((2, 2, 2), 2, "threefry", 304),
]


def name(case: tuple[tuple[int, ...], int, str, int]) -> str:
    sizes, accumulate, bits, vocabulary = case
    return f"{'x'.join(map(str, sizes))} accumulate {accumulate} {bits} {vocabulary}"


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict:
    command = [sys.executable, "-m", "tests.mesh_losses", tmp_path_factory.mktemp("meshes"), json.dumps(CASES)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout)


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES[1:], ids=name)
def test_twenty_updates_are_the_same_on_every_mesh_with_dropout(found: dict, case) -> None:
    reference = found[f"1x1x1 accumulate 1 {case[2]} {case[3]}"]["losses"]
    assert found[name(case)]["losses"] == pytest.approx(reference, rel=1e-5)
    assert reference[-1] < reference[0]


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=name)
def test_state_is_where_the_table_says_and_moments_beside_their_parameters(found: dict, case) -> None:
    assert all(found[name(case)]["as_planned"])
    assert all(found[name(case)]["moments_as_parameters"])


@pytest.mark.slow
def test_cut_states_are_cut_and_whole_ones_are_whole(found: dict) -> None:
    def share(case: str) -> float:
        return found[case]["bytes_held"] / found[case]["bytes"]

    assert share("8x1x1 accumulate 1 hash 304") == 1.0
    assert share("1x8x1 accumulate 1 hash 304") < 0.2  # vectors, which this tiny model has many of, stay whole
    assert share("1x1x8 accumulate 1 hash 304") < 0.2
    assert share("2x2x2 accumulate 1 hash 304") < 0.35


@pytest.mark.slow
def test_collectives_are_those_of_the_kind_of_parallelism(found: dict) -> None:
    def kinds(case: str) -> set[str]:
        return set(found[case]["collectives"])

    assert kinds(ONE) == set()
    assert kinds("8x1x1 accumulate 1 hash 304") == {"all-reduce"}  # of gradients: nothing else is ever sent
    assert {"all-gather", "all-reduce"} <= kinds("1x8x1 accumulate 1 hash 304")  # of parameters, before their use
    assert "all-reduce" in kinds("1x1x8 accumulate 1 hash 304")  # of what each device's heads add to an output


@pytest.mark.long
def test_fsdp_sends_parameters_and_no_more_of_a_larger_batch() -> None:
    """But for the embeddings of its tokens, whose table is cut along the width."""
    done = subprocess.run([sys.executable, "-m", "tests.mesh_traffic"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    for family, (small, large) in json.loads(done.stdout).items():
        assert 0 < large <= small, family


@pytest.mark.parametrize(
    ("sizes", "devices", "expected"),
    [((-1, 1, 1), 8, (8, 1, 1)), ((2, -1, 2), 8, (2, 2, 2)), ((1, 2, -1), 2, (1, 2, 1)), ((4, 2, 1), 8, (4, 2, 1))],
)
def test_an_axis_of_minus_one_takes_what_is_left(sizes, devices, expected) -> None:
    cfg = default().mesh
    cfg.data, cfg.fsdp, cfg.tensor = sizes
    assert mesh_shape(cfg, devices) == expected


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ((3, 1, 1), "mesh.data=3, mesh.fsdp=1, mesh.tensor=1 do not divide 8 device"),
        ((-1, 16, 1), "do not divide 8"),
        ((-1, -1, 1), "one may be -1"),
        ((0, 8, 1), "each must be at least 1"),
    ],
)
def test_a_mesh_that_does_not_fit_is_refused(sizes, message) -> None:
    cfg = default().mesh
    cfg.data, cfg.fsdp, cfg.tensor = sizes
    with pytest.raises(UserError, match=message):
        mesh_shape(cfg, 8)


@dataclass(frozen=True)
class Chip:
    """What jax asks of a device to arrange it in a mesh."""

    id: int
    process_index: int
    slice_index: int
    coords: tuple[int, int, int]
    device_kind: str
    platform: str
    core_on_chip: int = 0


def chips_of_v5e_16() -> list[Chip]:
    """4 x 4 chips, of which each of four hosts has 2 x 2, host by host, as `jax.devices()` lists them."""
    chips = []
    for host in range(4):
        for number in range(4):
            x = 2 * (host % 2) + number % 2
            y = 2 * (host // 2) + number // 2
            chips.append(Chip(4 * y + x, host, 0, (x, y, 0), "TPU v5 lite", "tpu"))
    return chips


def gpus_of_two_nodes() -> list[Chip]:
    """A process for each of 16 GPUs, as Slurm starts them. XLA calls each node a slice."""
    return [Chip(gpu, gpu, gpu // 8, (0, 0, 0), "NVIDIA H100 80GB HBM3", "gpu") for gpu in range(16)]


@pytest.mark.parametrize("devices", [chips_of_v5e_16(), gpus_of_two_nodes()], ids=["v5e-16", "two nodes"])
def test_rows_of_an_evaluation_are_contiguous_on_every_host(
    monkeypatch: pytest.MonkeyPatch, devices: list[Chip]
) -> None:
    monkeypatch.setattr(jax, "devices", lambda: devices)
    hosts = [device.process_index for device in data_mesh().devices.flat]
    assert hosts == sorted(device.process_index for device in devices)


@pytest.mark.parametrize(("vocabulary", "held"), [(24, (3, 8)), (23, (23, 8))])
def test_a_vocabulary_that_tensor_does_not_divide_is_whole_along_it(vocabulary: int, held: tuple[int, int]) -> None:
    mesh = jax.sharding.AbstractMesh((1, 2, 8), ("data", "fsdp", "tensor"))
    for name in ("embed", "source_embed", "softmax"):
        placed = placed_shapes({name: jax.ShapeDtypeStruct((vocabulary, 16), jnp.float32)}, mesh)[name]
        assert placed.shape == (vocabulary, 16)
        assert placed.sharding.shard_shape(placed.shape) == held


def test_a_dimension_that_cannot_be_cut_is_named() -> None:
    mesh = jax.sharding.AbstractMesh((1, 1, 8), ("data", "fsdp", "tensor"))
    tree = {"encoder": {"layer_0": {"self_attention": {"wq": jnp.zeros((16, 6, 4))}}}}
    with pytest.raises(UserError, match=r"mesh.tensor=8 does not divide 6, a dimension of encoder/layer_0/self_att"):
        placed_shapes(tree, mesh)


@pytest.mark.parametrize("shape", [(8, 4), (2, 8, 4)])
def test_a_matrix_that_no_rule_names_is_an_error(shape: tuple[int, ...]) -> None:
    mesh = make_mesh(default().mesh, jax.devices()[:1])
    with pytest.raises(ValueError, match=rf"no rule names decoder/router {re.escape(str(shape))}"):
        placed_shapes({"decoder": {"router": jnp.zeros(shape), "bias": jnp.zeros(8)}}, mesh)
    placed = placed_shapes({"decoder": {"bias": jnp.zeros(8)}}, mesh)
    assert placed["decoder"]["bias"].sharding.spec == jax.sharding.PartitionSpec()


def test_a_bias_is_sharded_as_the_outputs_of_its_matrix_among_the_devices_that_share_them() -> None:
    """Along `tensor`, that is: biases are too small to be sharded along `fsdp`."""
    config = ModelConfig(16, N=1, d_model=8, d_ff=16, h=2, d_k=4, d_v=4, biases=True, mixer="attention")
    tree = jax.eval_shape(lambda: init_params(Transformer(config), jax.random.key(0)))
    mesh = jax.sharding.AbstractMesh((2, 2, 2), ("data", "fsdp", "tensor"))
    specs = {name: leaf.sharding.spec for name, leaf in flatten_dict(placed_shapes(tree, mesh), sep="/").items()}
    biases = [name for name in specs if re.search(r"/b[a-z0-9]$", name)]
    assert {name.rpartition("/")[2] for name in biases} == {"bq", "bk", "bv", "bo", "b1", "b2"}
    for name in biases:
        above, _, last = name.rpartition("/")
        outputs = specs[f"{above}/w{last[1:]}"][2 if last == "bo" else 1 :]
        expected = [axis if axis == "tensor" else None for axis in outputs]
        shape = flatten_dict(tree, sep="/")[name].shape
        assert [*specs[name], *[None] * (len(shape) - len(specs[name]))] == expected


# No two of these sizes are equal, so each tells its axis.
SIZES = ModelConfig(14, N=1, d_model=12, d_ff=16, h=10, d_k=4, d_v=6, max_positions=18, kernel_width=3)
IMAGE = ImageConfig(height=9, width=9, patch_height=3, patch_width=3, classes=5)
FAMILIES = {
    "paper": partial(init_params, Transformer(SIZES)),
    "untied, learned": partial(init_params, Transformer(replace(SIZES, tie_embeddings=False, positions="learned"))),
    "t5, biases": partial(init_params, Transformer(replace(SIZES, positions="t5", biases=True))),
    "convolution": partial(init_params, Transformer(replace(SIZES, mixer="convolution"))),
    "masked": partial(init_params, masked_lm.MaskedLM(replace(SIZES, positions="learned"))),
    "classes": partial(init_params, masked_lm.MaskedLM(SIZES, classes=5)),
    "vision": partial(init_params, vision.Vision(replace(SIZES, positions="learned"), IMAGE)),
}


@pytest.mark.parametrize("family", FAMILIES)
def test_matrices_are_sharded_by_width_along_fsdp_and_by_heads_hidden_units_and_subwords_along_tensor(
    family: str,
) -> None:
    """Of a matrix from d_model to d_model, the outputs are along neither."""
    tree = jax.eval_shape(FAMILIES[family], jax.random.key(0))
    mesh = jax.sharding.AbstractMesh((2, 2, 2), ("data", "fsdp", "tensor"))
    along = {SIZES.d_model: "fsdp", SIZES.h: "tensor", SIZES.d_ff: "tensor", SIZES.vocab_size: "tensor"}
    for name, leaf in flatten_dict(placed_shapes(tree, mesh), sep="/").items():
        if leaf.ndim > 1:
            expected = [along.get(size) for size in leaf.shape]
            if expected.count("fsdp") == 2:
                expected[-1] = None
            assert [*leaf.sharding.spec] == expected, name


def test_several_processes_do_not_compare_parameters_that_each_has_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """`jax.device_put` would, in as much memory of each device as the copies of all processes take."""
    monkeypatch.setattr(jax, "process_count", lambda: 2)
    monkeypatch.setattr(jax, "device_put", None)
    table_vd = np.arange(12, dtype=np.float32).reshape(4, 3)
    placed = place_params(make_mesh(default().mesh, jax.devices()[:1]), {"embed": table_vd})
    np.testing.assert_array_equal(placed["embed"], table_vd)


def test_every_array_of_the_state_is_in_the_table() -> None:
    tree = {
        "encoder": {"layer_0": {"feed_forward": {"b2": jnp.zeros(8), "w1": jnp.zeros((8, 4))}}},
        "step": jnp.int32(0),
    }
    placed = placed_shapes({"opt_state": {"0": {"mu": tree}}}, make_mesh(default().mesh, jax.devices()[:1]))
    specs = jax.tree.map(lambda leaf: leaf.sharding.spec, placed)["opt_state"]["0"]["mu"]
    assert specs["encoder"]["layer_0"]["feed_forward"] == {
        "b2": jax.sharding.PartitionSpec(),
        "w1": jax.sharding.PartitionSpec("fsdp", "tensor"),
    }
    assert specs["step"] == jax.sharding.PartitionSpec()


@pytest.mark.parametrize("sizes", [(4, 3, 1), (2, 6, 1), (3, 4, 1), (1, 12, 1), (2, 3, 2)])
def test_rows_are_contiguous_on_three_hosts_of_four_chips(sizes: tuple[int, int, int]) -> None:
    gpus = [Chip(gpu, gpu // 4, gpu // 4, (0, 0, 0), "NVIDIA H100 80GB HBM3", "gpu") for gpu in range(12)]
    cfg = default().mesh
    cfg.data, cfg.fsdp, cfg.tensor = sizes
    hosts = [gpu.process_index for gpu in make_mesh(cfg, gpus).devices.flat]
    assert hosts == sorted(hosts)
