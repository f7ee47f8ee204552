"""Images: read, batched, cut into patches, learned, resumed and classified; what is wrong with a file is one line."""

import dataclasses
import gzip
import struct
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from ml_collections import ConfigDict

import vaswani.infer.attention.patches
import vaswani.infer.patches
from tests import commands
from tests.extras import needed
from tests.trainings import assert_resumes_to_the_same_bits
from vaswani.configs.vision import get_config
from vaswani.data.images import ImageBatches, Images, evaluation_batches, open_images
from vaswani.data.pipeline import ALL_ROWS, ProcessShard
from vaswani.errors import UserError
from vaswani.infer.attention.patches import draw, patch_weights
from vaswani.infer.evaluate import predictions as evaluation
from vaswani.infer.runs import Run, open_run
from vaswani.model.config import ModelConfig
from vaswani.model.parameters import init_params
from vaswani.model.vision import ImageConfig, Vision, patches
from vaswani.run.folder import as_json, record_launch
from vaswani.run.sharding import make_mesh
from vaswani.run.unchanged import has_same_content
from vaswani.tasks import task_of
from vaswani.tasks.vision import image_config, objective
from vaswani.tasks.vision import open_images as images_of
from vaswani.train import loop
from vaswani.train.job import open_job

SIZES = ModelConfig(vocab_size=3, N=1, d_model=16, d_ff=16, h=2, d_k=8, d_v=8, max_positions=9, P_drop=0.0)
IMAGE = ImageConfig(height=4, width=6, patch_height=2, patch_width=3, classes=3)


def write_idx(path: Path, array: np.ndarray) -> Path:
    content = bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return path


def written(folder: Path, count: int = 60, suffix: str = "") -> str:
    """Images of 4 x 6 pixels whose class is the column of pixels that is bright."""
    rng = np.random.default_rng(count)
    labels = rng.integers(0, 3, count).astype(np.uint8)
    images = rng.integers(0, 60, (count, 4, 6)).astype(np.uint8)
    images[np.arange(count), :, labels] = 255
    named = write_idx(folder / f"x{count}{suffix}", images), write_idx(folder / f"y{count}{suffix}", labels)
    return f"idx:{named[0]},{named[1]}"


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_idx_files_are_read(tmp_path: Path, suffix: str) -> None:
    found = open_images(written(tmp_path, suffix=suffix), (4, 6), 3)
    assert found.images_nyx.shape == (60, 4, 6) and found.images_nyx.dtype == np.float32
    np.testing.assert_array_equal(found.images_nyx[:, 0, :3].argmax(axis=1), found.labels_n)
    assert found.images_nyx.max() == 1


def test_digits_are_split_once_and_for_all() -> None:
    needed("sklearn")
    parts = {split: open_images(f"digits:{split}", (8, 8), 10) for split in ("train", "valid", "test")}
    assert {split: len(part.labels_n) for split, part in parts.items()} == {"train": 1259, "valid": 179, "test": 359}
    rows = np.concatenate([part.images_nyx.reshape(-1, 64) for part in parts.values()])
    assert len(np.unique(rows, axis=0)) == 1797 and rows.max() == 1


def test_what_is_wrong_with_images_is_said(tmp_path: Path) -> None:
    spec = written(tmp_path)
    images, labels = spec.removeprefix("idx:").split(",")
    short = tmp_path / "short"
    short.write_bytes(Path(images).read_bytes()[:-5])
    (tmp_path / "text").write_text("hello, this is text")
    (tmp_path / "empty").write_bytes(b"")
    (tmp_path / "bad.gz").write_bytes(b"\x1f\x8b")
    none = write_idx(tmp_path / "none", np.zeros((0, 4, 6), np.uint8)), write_idx(tmp_path / "n", np.zeros(0, np.uint8))
    for wrong, message in (
        (f"idx:{short},{labels}", r"short: 1,451 bytes; for 60 x 4 x 6 it must have 1,456: it is truncated or damaged"),
        (f"idx:{tmp_path}/text,{labels}", r"text: no IDX file of unsigned bytes in 3 dimensions; it begins with 6865"),
        (f"idx:{tmp_path}/empty,{labels}", r"it begins with nothing, not 00000803"),
        (f"idx:{tmp_path}/bad.gz,{labels}", r"bad.gz: cannot be read"),
        (f"idx:{tmp_path}/absent,{labels}", r"absent: cannot be read \(No such file or directory\)"),
        (f"idx:{labels},{images}", r"in 3 dimensions; it begins with 00000801, not 00000803"),
        (f"idx:{images}", r"name two files with a comma between them"),
        (f"idx:{none[0]},{none[1]}", r"0 images and 0 labels; both numbers must be the same, and at least one"),
        (f"idx:{images},{written(tmp_path, 7).split(',')[1]}", r"60 images and 7 labels"),
        ("digit:train", r"images 'digit:train': write digits:SPLIT, mnist1d:SPLIT or idx:IMAGES,LABELS"),
        ("digits:dev", r"SPLIT is one of train, valid, test"),
    ):
        with pytest.raises(UserError, match=message) as error:
            open_images(wrong, (4, 6), 3)
        assert "\n" not in str(error.value)
    with pytest.raises(UserError, match=r": 4 x 6 pixels; image.height and image.width are 8 and 6$"):
        open_images(spec, (8, 6), 3)
    with pytest.raises(UserError, match=r"is 2; with image.classes=2 it must be from 0 to 1$"):
        open_images(spec, (4, 6), 2)


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [("patch_height", 3, "image.patch_height is 3; it must divide image.height, 4"), ("classes", 0, "classes is 0"),
     ("classes", 1, "image.classes is 1; it must be from 2 to 65,536"),
     ("pooling", "max", "image.pooling is 'max'; it must be one of token, mean")],
)  # fmt: skip
def test_a_wrong_key_is_named(field: str, value: object, message: str) -> None:
    cfg = get_config()
    cfg.image.update({"height": 4, "width": 6, "patch_width": 3, field: value})
    with pytest.raises(UserError, match=f"^config: .*{message}"):
        image_config(cfg)


def test_learned_positions_that_are_too_few_are_said() -> None:
    cfg = get_config()
    cfg.model.max_positions = 16
    with pytest.raises(UserError, match=r"^config: model\.max_positions is 16; it must be at least 17, as many"):
        image_config(cfg)


def numbered(count: int) -> Images:
    images_nyx = np.zeros((count, 3, 3), np.float32)
    images_nyx[:, 1, 1] = np.arange(1, count + 1)
    return Images("numbered", images_nyx, np.arange(count, dtype=np.int32))


def test_an_epoch_has_every_image_once_and_resumes_anywhere() -> None:
    batches = ImageBatches(numbered(10), 4, seed=1, shift=1)
    states, found = [], []
    for _ in range(6):
        states.append(batches.get_state())
        found.append(next(batches))
    epochs = [np.concatenate([one.labels_b[one.real_b > 0] for one in found[start : start + 3]]) for start in (0, 3)]
    assert [sorted(epoch) for epoch in epochs] == [list(range(10))] * 2 and list(epochs[0]) != list(epochs[1])
    of_another_seed = ImageBatches(numbered(10), 4, seed=2).plan(0)
    assert of_another_seed[0].rows_bc.tolist() != batches.plan(0)[0].rows_bc.tolist()
    for state, expected in zip(states, found, strict=True):
        again = ImageBatches(numbered(10), 4, seed=1, shift=1)
        again.set_state(state)
        jax.tree.map(np.testing.assert_array_equal, next(again), expected)
        again.close()
    batches.close()
    again.set_state({"epoch": 0, "batch": 3})
    with pytest.raises(UserError, match=r"^data position: batch 3 of an epoch of 3; the run's data changed$"):
        next(again)
    places = {tuple(np.argwhere(image)[0]) for one in found for image in one.images_byx[one.real_b > 0]}
    assert len(places) > 4 and places <= {(y, x) for y in range(3) for x in range(3)}
    values = [image.sum() - 1 == label for one in found for image, label in zip(*one[:2], strict=True) if image.any()]
    assert len(values) == 20 and all(values)


def test_processes_share_a_batch_and_validation_reads_all_once() -> None:
    (whole,) = evaluation_batches(numbered(7), 8)
    shards = [ProcessShard(part, part + 1, 2, 2) for part in (0, 1)]
    halves = [next(iter(evaluation_batches(numbered(7), 8, shard))) for shard in shards]
    jax.tree.map(lambda all_b, *parts: np.testing.assert_array_equal(all_b, np.concatenate(parts)), whole, *halves)
    shifted = []
    for shard in (ALL_ROWS, *shards):
        batches = ImageBatches(numbered(10), 8, seed=1, shift=1, shard=shard)
        shifted.append(next(batches))
        batches.close()
    whole, *halves = shifted
    jax.tree.map(lambda all_b, *parts: np.testing.assert_array_equal(all_b, np.concatenate(parts)), whole, *halves)
    read = list(evaluation_batches(numbered(10), 4))
    assert np.concatenate([one.labels_b[one.real_b > 0] for one in read]).tolist() == list(range(10))


def test_patches_are_blocks_of_pixels() -> None:
    images_byx = jnp.arange(48.0).reshape(2, 4, 6)
    found_btp = patches(IMAGE, images_byx)
    blocks = [images_byx[:, y : y + 2, x : x + 3].reshape(2, 6) for y in (0, 2) for x in (0, 3)]
    np.testing.assert_array_equal(found_btp, np.stack(blocks, axis=1))


@pytest.mark.slow
@pytest.mark.parametrize("pooling", ["token", "mean"])
def test_without_positions_the_order_of_patches_does_not_matter(pooling: str) -> None:
    image = dataclasses.replace(IMAGE, pooling=pooling)
    rng = np.random.default_rng(0)
    images_byx = rng.normal(size=(2, 4, 6)).astype(np.float32)
    turned_byx = np.concatenate([images_byx[:, 2:], images_byx[:, :2]], axis=1)
    for positions, matters in (("none", False), ("learned", True)):
        config = dataclasses.replace(SIZES, positions=positions)
        fresh = init_params(Vision(config, image), jax.random.key(0))
        params = jax.tree.map(lambda leaf: leaf + 0.3 * rng.standard_normal(leaf.shape).astype(np.float32), fresh)
        one, other = (
            Vision(config, image).apply({"params": params}, jnp.asarray(x_byx), jnp.ones(2, jnp.int32))[0]
            for x_byx in (images_byx, turned_byx)
        )
        assert (np.abs(np.asarray(one - other)).max() > 1e-3) == matters


def tiny(folder: Path) -> ConfigDict:
    cfg = get_config()
    cfg.data.train, cfg.data.valid, cfg.data.test = (written(folder, count) for count in (60, 20, 30))
    cfg.image.update({"height": 4, "width": 6, "patch_width": 3, "classes": 3, "shift": 0})
    cfg.data.tokens_per_batch = 5 * 16
    cfg.model.update({"N": 1, "d_model": 16, "d_ff": 16, "h": 2, "d_k": 8, "d_v": 8, "max_positions": 5})
    cfg.optim.update({"schedule": "paper", "lr": 0.3, "warmup": 20})
    cfg.steps, cfg.eval.every, cfg.log_every = 60, 60, 20
    cfg.checkpoint.every = 37  # within an epoch
    return cfg


def test_training_images_are_shifted_as_the_config_says(tmp_path: Path) -> None:
    cfg = tiny(tmp_path)
    first = {}
    for shift in (0, 1):
        cfg.image.shift = shift
        job = open_job(cfg, tmp_path, make_mesh(cfg.mesh, jax.devices()[:1]))
        first[shift] = next(job.batches)
        job.batches.close()
    np.testing.assert_array_equal(first[0].labels_b, first[1].labels_b)
    assert np.any(first[0].images_byx != first[1].images_byx)


def test_no_image_is_shifted_out_of_sight(tmp_path: Path) -> None:
    cfg = tiny(tmp_path)
    mesh = make_mesh(cfg.mesh, jax.devices()[:1])
    cfg.image.shift = 3
    open_job(cfg, tmp_path, mesh).batches.close()
    cfg.image.shift = 4
    with pytest.raises(UserError, match=r"^image\.shift is 4; for images of 4 x 6 pixels it must be below 4, or some"):
        open_job(cfg, tmp_path, mesh)


def test_rows_without_an_image_weigh_nothing() -> None:
    goal = objective(SIZES, IMAGE, 0.1)
    rng = np.random.default_rng(0)
    images = Images("random", rng.random((3, 4, 6), np.float32), np.array([2, 1, 2], np.int32))
    params = jax.tree.map(lambda x: x + 0.3 * rng.standard_normal(x.shape), goal.init(jax.random.key(0)))
    batches = [next(iter(evaluation_batches(images, rows))) for rows in (3, 8)]
    alone, padded = (jax.jit(goal.loss, static_argnums=2)(params, batch, None) for batch in batches)
    assert alone.tokens == padded.tokens == 3
    np.testing.assert_allclose(padded.loss_sum, alone.loss_sum, rtol=1e-4)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("vision")
    assert loop.train(tiny(folder), folder / "run") == 0
    return open_run(folder / "run", task="vision")


@pytest.mark.slow
def test_a_resumed_run_ends_with_the_same_bits(trained: Run, tmp_path: Path) -> None:
    assert_resumes_to_the_same_bits(tiny(trained.workdir.parent), trained.workdir, tmp_path)


def test_images_that_have_moved_are_the_same(tmp_path: Path) -> None:
    cfg = tiny(tmp_path)
    before = {"train": images_of(cfg, cfg.data.train).manifest, "valid": images_of(cfg, cfg.data.valid).manifest}
    record_launch(tmp_path, before, 0)
    (tmp_path / "moved").mkdir()
    config = as_json(cfg)
    config["data"]["train"] = written(tmp_path / "moved")
    assert has_same_content(tmp_path, "data.train", config)
    config["data"]["train"] = written(tmp_path / "moved", count=59)
    assert not has_same_content(tmp_path, "data.train", config)


@pytest.mark.slow
def test_it_learns_and_the_record_counts_every_image(trained: Run) -> None:
    record = evaluation.evaluate(trained, "test")
    images = images_of(trained.config, trained.config.data.test)
    model = Vision(trained.model_config, image_config(trained.config))
    logits_bv, _ = model.apply(
        {"params": jax.tree.map(jnp.asarray, trained.params)}, jnp.asarray(images.images_nyx), jnp.ones(30, jnp.int32)
    )
    right = np.asarray(logits_bv).argmax(axis=1) == images.labels_n
    assert record["accuracy"] == pytest.approx(right.mean()) and record["accuracy"] > 0.9
    assert record["signatures"]["accuracy"] == "images:30|classes:3|top:1"
    assert "accuracy" in evaluation.table(record)


@pytest.mark.slow
def test_patches_are_drawn_over_the_image(trained: Run, tmp_path: Path) -> None:
    image_yx = images_of(trained.config, trained.config.data.test).images_nyx[0]
    _, weights_nhyx = patch_weights(trained, image_yx)
    assert weights_nhyx.shape == (1, 2, 2, 2)
    assert np.all(weights_nhyx.sum(axis=(2, 3)) < 1), "the class token attends to itself, too"
    draw(trained, image_yx, 0, tmp_path / "patches.png")
    assert (tmp_path / "patches.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
def test_the_command_draws_the_image_that_is_asked_for(trained: Run, tmp_path: Path) -> None:
    images = images_of(trained.config, trained.config.data.test)
    draw(trained, images.images_nyx[29], int(images.labels_n[29]), tmp_path / "expected.png")
    arguments = (f"--workdir={trained.workdir}", "--split=test", "--image=29", f"--output={tmp_path}/drawn.png")
    done = commands.run("infer.patches", *arguments)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "drawn.png").read_bytes() == (tmp_path / "expected.png").read_bytes()


@pytest.mark.parametrize("image", [-1, 30])
def test_an_image_that_is_not_there_is_told(trained: Run, tmp_path: Path, image: int) -> None:
    options = {"workdir": str(trained.workdir), "checkpoint": "latest", "split": "test", "corpus": None, "image": image}
    with pytest.raises(UserError, match=rf"^--image={image}: idx:.* has images 0 to 29$"):
        vaswani.infer.patches.main(SimpleNamespace(**options, output=str(tmp_path / "patches.png")))


def test_weights_are_not_hidden_by_ink_and_have_one_scale(
    trained: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    figures: list[Any] = []
    monkeypatch.setattr(vaswani.infer.attention.patches, "save", lambda figure, *_, **__: figures.append(figure))
    image_yx = images_of(trained.config, trained.config.data.test).images_nyx[0]
    draw(trained, image_yx, 0, tmp_path / "patches.png")
    _, weights_nhyx = patch_weights(trained, image_yx)
    image, first, second, bar = figures[0].axes
    assert len(image.images) == 1 and bar.get_ylabel() == "attention weight of a patch"
    for axes, weights_yx in zip((first, second), weights_nhyx[0], strict=True):
        (shown,) = axes.images
        np.testing.assert_allclose(shown.get_array(), weights_yx, rtol=1e-6)
        assert shown.get_alpha() is None and shown.get_clim() == pytest.approx((0, weights_nhyx.max()))


@pytest.mark.slow
def test_patches_of_a_run_without_splits_are_drawn_over_images_that_are_named(trained: Run, tmp_path: Path) -> None:
    arguments = (f"--workdir={trained.workdir}", f"--corpus={written(tmp_path, 5)}", f"--output={tmp_path}/drawn.png")
    done = commands.run("infer.patches", *arguments)
    assert (done.returncode, done.stderr.count("error")) == (0, 0), done.stderr
    assert (tmp_path / "drawn.png").read_bytes().startswith(b"\x89PNG")


def test_images_are_of_a_split_or_of_a_corpus(tmp_path: Path) -> None:
    sources = ("--split=test", "--corpus=idx:a,b")
    done = commands.run("infer.patches", "--workdir=none", *sources, f"--output={tmp_path}/drawn.png")
    assert (done.returncode, done.stderr) == (2, "error: give --split or --corpus, not both\n")


def test_attention_over_a_signal_of_one_row_is_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    figures: list[Any] = []
    monkeypatch.setattr(vaswani.infer.attention.patches, "save", lambda figure, *_, **__: figures.append(figure))
    cfg = get_config("mnist1d")
    cfg.model.update({"N": 1, "d_model": 8, "d_ff": 8, "h": 1, "d_k": 4, "d_v": 4})
    task = task_of("vision")
    config = task.config(cfg, 0)
    params = jax.device_get(task.objective(cfg, config).init(jax.random.key(0)))
    run = Run(tmp_path, cfg, config, None, params, 1, (1,))
    signal_yx = np.random.default_rng(0).random((1, 40), np.float32)
    draw(run, signal_yx, 0, tmp_path / "patches.png")
    signal, weights, _ = figures[0].axes
    assert signal.images[0].get_array().shape == (1, 40) and weights.images[0].get_array().shape == (1, 10)


def untrained(folder: Path) -> Run:
    cfg = tiny(folder)
    task = task_of("vision")
    config = task.config(cfg, 0)
    params = jax.device_get(task.objective(cfg, config).init(jax.random.key(0)))
    return Run(folder, cfg, config, None, params, 1, (1,))


def test_an_empty_corpus_is_not_a_split(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vaswani.infer.patches.open_run", lambda *_, **__: untrained(tmp_path))
    options = {"workdir": str(tmp_path), "checkpoint": None, "split": "test", "corpus": "", "image": 0}
    with pytest.raises(UserError, match=r"^images '': write digits:SPLIT, mnist1d:SPLIT or idx:IMAGES,LABELS"):
        vaswani.infer.patches.main(SimpleNamespace(**options, output=str(tmp_path / "patches.png")))
    assert not (tmp_path / "patches.png").exists()


def test_patches_of_parameters_that_are_not_finite_are_refused(tmp_path: Path) -> None:
    run = untrained(tmp_path)
    broken = run._replace(params=jax.tree.map(lambda leaf: np.full_like(leaf, np.nan), run.params))
    with pytest.raises(UserError, match=r"the parameters of this run are not finite$"):
        patch_weights(broken, np.zeros((4, 6), np.float32))
