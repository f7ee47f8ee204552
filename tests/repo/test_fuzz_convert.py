"""Damaged checkpoints of other engines, a fixed list: each is one line of error, or makes the undamaged run.

In this process, each within seconds; a few through the command. Without PyTorch and transformers it is skipped, see
tests/reference.py.
"""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.reference import torch

# isort: split
from tests import foreign, tiny
from tests.conftest import ROOT
from vaswani.errors import UserError
from vaswani.infer.convert import fairseq, huggingface, safetensors
from vaswani.infer.convert.folders import Imported, check_shapes
from vaswani.infer.runs import open_run
from vaswani.run.folder import as_json
from vaswani.run.parameters import flatten_params

pytestmark = pytest.mark.slow
SECONDS = 60  # for one case, of a few tenths
FAMILIES = (*foreign.TRANSFORMERS, "fairseq", "safetensors")
HUGE, LONG = 10**400, "LONG"  # LONG becomes a number of 5,000 digits
VALUES = (None, -1, 0, 1, 2.5, "abc", "\ud800", [], {}, True, HUGE, LONG, 10**8, float("nan"), float("inf"), [[1]])
Change = Callable[[Path], object]


def settings_of(file: str, key: str, value: Any) -> Change:
    """Puts a value into a JSON file; `key` may be of a group, as in model.N."""

    def change(folder: Path) -> None:
        whole = json.loads((folder / file).read_text())
        *groups, last = key.split(".")
        inner = whole
        for group in groups:
            inner = inner[group]
        inner[last] = value
        (folder / file).write_text(json.dumps(whole).replace(f'"{LONG}"', "9" * 5_000))

    return change


def weights(change: Callable[[dict[str, np.ndarray], str], object]) -> Change:
    """Changes the arrays of model.safetensors, given the name of one that is drawn with the seed 1."""

    def applied(folder: Path) -> None:
        def draw(arrays: dict[str, np.ndarray]) -> None:
            change(arrays, str(np.random.default_rng(1).choice(sorted(arrays))))

        foreign.change_weights(folder, draw)

    return applied


def odd(function: Callable[[np.ndarray], np.ndarray]) -> Change:
    return weights(lambda arrays, name: arrays.update({name: function(arrays[name])}))


def content(file: str, function: Callable[[bytes], bytes]) -> Change:
    return lambda folder: (folder / file).write_bytes(function((folder / file).read_bytes()))


def instead(file: str, make: Callable[[Path], object]) -> Change:
    """Puts something else in the place of a file."""

    def change(folder: Path) -> None:
        (folder / file).unlink()
        make(folder / file)

    return change


ARRAYS: dict[str, Change] = {
    "extra": weights(lambda arrays, name: arrays.update(other=arrays[name])),
    "missing": weights(lambda arrays, name: arrays.pop(name)),
    "flat": odd(lambda array: np.append(array.reshape(-1), np.float32(0))),
    "deep": odd(lambda array: array[None]),
    "doubled": odd(lambda array: np.concatenate([array, array])),
    "empty": odd(lambda array: array[:0]),
    "scalar": odd(lambda array: array.reshape(-1)[0]),
    "nan": odd(lambda array: array * np.float32("nan")),
    "infinite": odd(lambda array: array.astype(np.float64) + 1e300),
    "int64": odd(lambda array: array.astype(np.int64)),
    "complex": odd(lambda array: array.astype(np.complex64)),
    "bool": odd(lambda array: array > 0),
    "float64": odd(lambda array: array.astype(np.float64)),  # nothing is lost: the undamaged run
    "renamed": weights(lambda arrays, name: arrays.update({f"{name}.": arrays.pop(name)})),
    "a name above another": weights(lambda arrays, name: arrays.update({f"{name}/a": np.ones(1)})),
    "a name below another": weights(lambda arrays, name: arrays.update({name.split("/")[0]: np.ones(1)})),
    "a name of control characters": weights(lambda arrays, name: arrays.update({"\n\x00": arrays[name]})),
    "none": weights(lambda arrays, name: arrays.clear()),
}  # fmt: skip


def files(*names: str) -> Iterator[tuple[str, Change]]:
    """Damages of whole files, each of which a reader needs."""
    for name in names:
        yield f"{name} cut", content(name, lambda given: given[: len(given) // 2])
        yield f"{name} empty", content(name, lambda given: b"")
        yield f"{name} of noise", content(name, lambda given: np.random.default_rng(2).bytes(len(given)))
        yield f"{name} missing", lambda folder, name=name: (folder / name).unlink()
        yield f"{name} a folder", instead(name, Path.mkdir)
        yield f"{name} a pipe", instead(name, os.mkfifo)
        yield f"{name} without end", instead(name, lambda path: path.symlink_to("/dev/zero"))


def each(file: str, keys: dict[str, tuple]) -> Iterator[tuple[str, Change]]:
    for key, values in keys.items():
        for value in values:
            shown = "HUGE" if value == HUGE else ascii(value)
            yield f"{file} {key}={shown}", settings_of(file, key, value)


def drawn(file: str, keys: tuple[str, ...], count: int, seed: int) -> Iterator[tuple[str, Change]]:
    """`count` values of `VALUES` for each key, drawn; of ids and epsilons none that another model could have."""
    random = np.random.default_rng(seed)
    for key in keys:
        values = [VALUES[n] for n in random.permutation(len(VALUES))[:count]]
        free = key.endswith(("_id", "_eps", "_epsilon"))
        yield from each(file, {key: tuple(value for value in values if not (free and value in (0, 1)))})


def rewritten(change: Callable[[dict[str, Any]], object], **settings: Any) -> Change:
    """Writes fairseq's checkpoint anew, with its state changed."""

    def applied(folder: Path) -> None:
        state = foreign.fairseq_state(**settings)
        change(state)
        foreign.make_fairseq(folder, state)

    return applied


def _quantised() -> Any:
    with warnings.catch_warnings(action="ignore"):  # that later versions have no such tensors
        return torch.quantize_per_tensor(torch.ones(18, 16), 0.1, 0, torch.qint8)


def _fairseq() -> Iterator[tuple[str, Change]]:
    # Of half the codes nobody can tell that it is half.
    yield from (
        (name, change) for name, change in files("model.pt", "dict.en.txt", "bpecodes") if name != "bpecodes cut"
    )
    for key, values in {
        "max_source_positions": (-1, 0, "abc", HUGE, 10**9, 2.5, torch.ones(3)),
        "encoder_layers": (10**8, -1, None, HUGE, True, torch.ones(2, 2)),
        "decoder_layers": (1, "2"),
        "encoder_embed_dim": (2, 10**9, 15, [16]),
        "encoder_attention_heads": (0, 3, 10**9),
        "activation_fn": (None, "linear", ["relu"], "\ud800"),
        "adaptive_softmax_cutoff": (torch.ones(3), [], "1"),
        "encoder_normalize_before": (None, "yes", 1),
        "share_all_embeddings": (None, 1, torch.ones(2)),
        "source_lang": (None, 5, "", "\ud800", "a\0b", "x" * 300, "../en", ["en"]),
    }.items():
        for value in values:
            shown = "HUGE" if value is HUGE else "".join(ascii(value).split())[:20]
            yield f"{key}={shown}", rewritten(lambda state: None, **{key: value})
    table = "decoder.embed_tokens.weight"
    for name, tensor in {
        "sparse": torch.ones(18, 16).to_sparse(),
        "int64": torch.ones(18, 16, dtype=torch.int64),
        "complex": torch.ones(18, 16, dtype=torch.complex64),
        "conjugate": torch.ones(18, 16, dtype=torch.complex64).conj(),
        "quantised": _quantised(),
        "without values": torch.ones(18, 16, device="meta"),
        "of one value": torch.ones(1, 1).expand(10**7, 10**6),
        "half": torch.ones(18, 16).half(),
        "8 bits": torch.ones(18, 16).to(torch.float8_e4m3fn),
        "scalar": torch.tensor(1.0),
        "a parameter": torch.nn.Parameter(torch.ones(18, 15)),
        "a list": [1.0, 2.0],
    }.items():
        yield f"a table {name}", rewritten(lambda state, tensor=tensor: state["model"].update({table: tensor}))
    yield "no weights", rewritten(lambda state: state["model"].clear())
    yield "no model", rewritten(lambda state: state.pop("model"))
    yield "no settings", rewritten(lambda state: state.pop("args"))
    yield "settings of a list", rewritten(lambda state: state.update(args=[1]))
    yield "a task of a number", rewritten(lambda state: state.update(args=None, cfg={"model": {}, "task": 5}))
    yield (
        "in_proj of a scalar",
        rewritten(
            lambda state: state["model"].update({"encoder.layers.0.self_attn.in_proj_weight": torch.tensor(1.0)})
        ),
    )
    yield "a version alone", content("bpecodes", lambda given: b"#version: 0.2\n")
    yield "codes of one piece", content("bpecodes", lambda given: b"abc\n")
    yield "a dictionary not in UTF-8", content("dict.de.txt", lambda given: b"\xff\xfe 1\n")


def _safetensors() -> Iterator[tuple[str, Change]]:
    yield from ARRAYS.items()
    yield from files("model.safetensors", "config.json", "tokenizer.model")
    sizes = ("N", "d_model", "h", "d_ff", "positions", "mixer", "tie_embeddings", "norm")
    keys = (*(f"model.{size}" for size in sizes), "task", "data.classes", "model")
    yield from drawn("config.json", keys, 5, seed=3)
    yield from each("config.json", {"model.N": (10**8,), "model.h": (2**31 - 1,)})
    for kind in ("marian", "moses-bpe", "byte-level", "\ud800", 5):
        for pieces in ([], ["<pad>", "<s>", "</s>", "<unk>", "\ud800"], "abc", [5]):
            fields = {"kind": kind, "pieces": pieces, "source": "", "target": "!", "codes": [], "languages": ["en"]}
            fields |= {"ids": [HUGE] * 5, "tokenizer": {}}
            file = json.dumps(fields).encode()
            yield f"a tokenizer {kind!a} of {pieces}", content("tokenizer.model", lambda given, file=file: file)
    for step in ("9" * 5_000, "-1", "\u0663", str(2**31)):
        yield (
            f"step {step[:9]!a}",
            content("model.safetensors", lambda given, step=step: _with_metadata(given, {"step": step})),
        )


def _with_metadata(file: bytes, metadata: dict[str, str]) -> bytes:
    """A file of safetensors with another `__metadata__`."""
    size = int.from_bytes(file[:8], "little")
    header = json.dumps(json.loads(file[8 : 8 + size]) | {"__metadata__": metadata}).encode()
    return len(header).to_bytes(8, "little") + header + file[8 + size :]


def _transformers(family: str) -> Iterator[tuple[str, Change]]:
    common = ("vocab_size", "tie_word_embeddings", "model_type")
    yield from ARRAYS.items() if family in ("marian", "gpt2", "vit") else list(ARRAYS.items())[:3]
    match family:
        case "marian":
            yield from files("model.safetensors", "config.json", "vocab.json", "source.spm")
            keys = ("d_model", "encoder_layers", "encoder_attention_heads", "pad_token_id", "decoder_start_token_id")
            yield from drawn("config.json", (*common, *keys, "activation_function", "scale_embedding"), 6, seed=4)
            yield from each("vocab.json", {"<unk>": (None, -1, HUGE, LONG, 10**8, "1"), "▁The": (1, -5, [], "\ud800")})
            yield from each("config.json", {"encoder_layers": (10**8,), "d_model": (2**24,), "vocab_size": (1, 2**24)})
        case "pegasus":
            yield from each("config.json", {"max_position_embeddings": (63, 2**24, None), "vocab_size": (1,)})
            yield from files("target.spm")
        case "bart":
            yield from files("tokenizer.json")
            keys = ("max_position_embeddings", "eos_token_id", "decoder_start_token_id")
            yield from drawn("config.json", (*common, *keys), 5, seed=10)
        case "mbart":
            yield from files("tokenizer.json", "tokenizer_config.json")
            yield from drawn("config.json", ("encoder_ffn_dim", "activation_function", "pad_token_id"), 5, seed=11)
        case "m2m_100":
            yield from files("vocab.json", "sentencepiece.bpe.model")
            yield from drawn("config.json", ("d_model", "encoder_layers", "decoder_layers"), 6, seed=12)
            values = (None, 5, "xx", [], {}, "\ud800", True)
            keys = ("src_lang", "tgt_lang", "language_codes", "tokenizer_class")
            yield from each("tokenizer_config.json", dict.fromkeys(keys, values))
        case "nllb":
            values = (None, 5, "xx", [], {}, "\ud800", True)
            yield from each("tokenizer_config.json", dict.fromkeys(("src_lang", "legacy_behaviour"), values))
        case "gpt2":
            yield from files("tokenizer.json")
            keys = ("n_embd", "n_layer", "n_head", "n_positions", "layer_norm_epsilon", "eos_token_id", "n_inner")
            yield from drawn("config.json", (*common, *keys, "scale_attn_weights"), 8, seed=5)
            parts = {"model": (None, {}, 5), "version": ("9", HUGE), "added_tokens": ([5], {}, LONG)}
            yield from each("tokenizer.json", parts)
            yield "an older tokenizer, cut", _older(b'{"a": 0, "b"', b"#version: 0.2\na b\n")
            yield "an older tokenizer without merges", _older(b'{"a": 0, "b": 1}', b"")
            yield "an older tokenizer of two symbols", _older(b'{"a": 0, "b": 1}', b"#version: 0.2\n")
        case "bert":
            yield from files("vocab.txt")
            yield "a vocabulary of one line feed", content("vocab.txt", lambda given: b"\n")
            yield "a vocabulary of another model", content("vocab.txt", lambda given: given + b"a\nb\nc\nd\n")
            keys = ("hidden_size", "layer_norm_eps", "max_position_embeddings", "hidden_act", "is_decoder")
            yield from drawn("config.json", (*common, *keys), 6, seed=6)
        case "t5":
            yield from files("tokenizer.json")
            keys = ("d_kv", "num_layers", "num_decoder_layers", "feed_forward_proj", "pad_token_id", "eos_token_id")
            yield from drawn("config.json", (*common, *keys, "layer_norm_epsilon"), 6, seed=7)
        case "vit":
            keys = ("num_channels", "image_size", "patch_size", "layer_norm_eps", "num_hidden_layers")
            yield from drawn("config.json", keys, 8, seed=8)
            keys = ("image_mean", "image_std", "do_normalize", "rescale_factor")
            yield from drawn("preprocessor_config.json", keys, 6, seed=9)
            lists = ([0.5, float("nan"), 0.5], [0.5, HUGE, 1], [1, 1, float("inf")], [True] * 3, ["1"] * 3)
            yield from each("preprocessor_config.json", {"image_mean": lists, "image_std": lists})
            yield from each("config.json", {"image_size": ([2**24, 2**24], [6, 6], [6, 8, 1]), "num_channels": (-1,)})


def _older(vocabulary: bytes, merges: bytes) -> Change:
    """Puts the two files of older versions in the place of GPT-2's tokenizer.json."""

    def change(folder: Path) -> None:
        (folder / "tokenizer.json").unlink()
        (folder / "vocab.json").write_bytes(vocabulary)
        (folder / "merges.txt").write_bytes(merges)

    return change


def cases(family: str) -> Iterator[tuple[str, Change]]:
    """The name of each damage of a family's checkpoint, and what does it."""
    if family == "fairseq":
        return _fairseq()
    return _safetensors() if family == "safetensors" else _transformers(family)


def original(family: str, folder: Path) -> Path:
    """An undamaged checkpoint."""
    if family == "fairseq":
        foreign.make_fairseq(folder, foreign.fairseq_state())
    elif family == "safetensors":
        folder.mkdir()
        safetensors.write(open_run(tiny.write_run(folder.parent / "run")), folder)
    else:
        foreign.make(family, folder)
    return folder


def read(family: str, folder: Path) -> Imported:
    if family == "fairseq":
        imported = fairseq.read(folder / "model.pt")
    else:
        imported = (safetensors if family == "safetensors" else huggingface).read(folder)
    check_shapes(imported)
    return imported


def result(imported: Imported) -> tuple[Any, ...]:
    """What must be equal of two runs."""
    tokenizer = imported.tokenizer.sha256 if imported.tokenizer else None
    arrays = {name: array.tobytes() for name, array in flatten_params(imported.params).items()}
    return as_json(imported.config), tokenizer, arrays


@contextlib.contextmanager
def limited(name: str) -> Iterator[None]:
    """Fails after `SECONDS`."""

    def late(*_: object) -> None:
        raise TimeoutError(f"{name}: no answer in {SECONDS} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize("family", FAMILIES)
def test_every_damage_is_one_line_or_harmless(family: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    kept = original(family, tmp_path / family)
    expected = result(read(family, kept))
    tried, harmless, faults = 0, [], []
    for name, change in dict(cases(family)).items():
        tried += 1
        folder = tmp_path / "damaged" / family
        shutil.rmtree(folder.parent, ignore_errors=True)
        shutil.copytree(kept, folder)
        change(folder)
        capfd.readouterr()
        try:
            with limited(name):
                actual = result(read(family, folder))
            harmless.append(name)
            if actual != expected:
                faults.append(f"{name}: accepted, and something else is read")
        except UserError as error:
            printed = capfd.readouterr().err
            if "\n" in str(error) or printed.strip():
                faults.append(f"{name}: {error}\n{printed}")
        except BaseException as error:
            faults.append(f"{name}: {type(error).__name__}: {str(error)[:200]}")
            if isinstance(error, KeyboardInterrupt):
                raise
    print(f"{family}: {tried} cases, {len(harmless)} of them harmless: {harmless}")
    assert not faults, "\n".join(faults)
    assert tried > (10 if family in ("pegasus", "bart", "mbart", "nllb") else 50)


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("huggingface:~nosuchuser/x", "there is no user nosuchuser"),
        (f"huggingface:{'x' * 300}", "File name too long"),
        (f"fairseq:{'x/' * 3000}", "File name too long"),
        ("fairseq:/dev/zero", "not a regular file"),
        ("safetensors:/dev/zero", "there is no model.safetensors"),
        ("huggingface:{folder}", "n_layer is"),
    ],
)
def test_the_command_prints_one_line(source: str, expected: str, tmp_path: Path) -> None:
    folder = original("gpt2", tmp_path / "gpt2")
    settings_of("config.json", "n_layer", HUGE)(folder)
    called = [sys.executable, "-m", "infer.convert", f"--from={source.format(folder=folder)}"]
    done = subprocess.run(
        [*called, f"--workdir={tmp_path / 'run'}"], cwd=ROOT, capture_output=True, text=True, timeout=300
    )
    assert (done.returncode, done.stdout) == (2, "") and expected in done.stderr, done.stderr
    assert done.stderr.count("\n") == 1 and done.stderr.startswith("error: ")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["gpt2"]
