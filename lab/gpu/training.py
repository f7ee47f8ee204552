"""The parts that train: each run is the commands that a user types, in a folder where a later sitting goes on."""

import json
import subprocess
import sys
import unicodedata
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

from lab.gpu.sitting import SPAWN, Context, file_name
from lab.studies.public_logs.design import LOGS, get_config
from lab.studies.public_logs.train import train_seed
from vaswani.data.corpora import corpus_folder
from vaswani.data.lines import read_lines
from vaswani.files import write_text
from vaswani.run.records import read_metrics

ROOT = Path(__file__).parent.parent.parent

# What makes a run of any config a matter of seconds on a CPU.
MINIATURE: dict[str, Any] = {
    "steps": 2,
    "log_every": 1,
    "data.train": "grammar:train:400",
    "data.valid": "grammar:valid:4",
    "data.test": "grammar:test:4",
    "data.batching": "pack",
    "data.max_length": 64,
    "data.pack_length": 64,
    "data.tokens_per_batch": 256,
    "model.N": 1,
    "model.d_model": 16,
    "model.d_ff": 32,
    "model.h": 2,
    "model.d_k": 8,
    "model.d_v": 8,
    "model.dtype": "float32",
    "model.attention_impl": "einsum",
    "model.scan_layers": False,
    "model.remat": "none",
    "checkpoint.every": 2,
    "eval.every": 2,
    "eval.bleu_sentences": 0,
    "decode.beam": 2,
    "decode.extra_length": 1,
    "decode.checkpoint": "latest",
}
OF_MINIATURE = {"data.vocab_size": 400, "checkpoint.every_epochs": 0, "eval.every_epochs": 0, "eval.patience": 0}

# The base recipe on short sentences: what so little text supports, and no more updates than time allows.
TATOEBA: dict[str, Any] = {"data.vocab_size": 8_000, "eval.bleu_sentences": 0, "log_every": 100}
ON_GPU: dict[str, Any] = {
    "model.dtype": "bfloat16",
    "model.dropout_bits": "hash",
    "model.attention_impl": "cudnn",
    "loss.chunk": 8_192,
    "data.batching": "pack",
}
TO_THE_END = TATOEBA | {
    "steps": 6_000,
    "optim.warmup": 1_000,
    "checkpoint.every": 1_000,  # 780 MB each
    "eval.every": 1_000,
    # So little text is soon known by heart: the checkpoints of the lowest validation loss are averaged.
    "checkpoint.keep_best": 5,
    "decode.checkpoint": "average-best:5",
}
OF_TABLE_3 = TATOEBA | ON_GPU | {"steps": 2_000, "optim.warmup": 800, "checkpoint.every": 2_000, "eval.every": 2_000}

# Dong et al. 2022 (arXiv 2201.10716), table 2: single Transformers on SIGMORPHON 2021. Korean has half of the width.
EPOCH = 32  # updates for 8,000 words, of which 256 are a batch
DONG: dict[str, Any] = {
    "model.N": 3,
    "model.P_drop": 0.2,
    "model.P_drop_attention": 0.2,
    "model.P_drop_relu": 0.2,
    "model.positions": "learned",
    "model.norm": "post",
    "model.scan_layers": False,
    "model.remat": "none",
    "data.tokens_per_batch": 2_048,  # of about eight letters a word
    "optim.schedule": "inverse_sqrt",
    "optim.lr": 1e-3,
    "optim.warmup": 60 * EPOCH,
    "steps": 400 * EPOCH,
    "eval.every": 40 * EPOCH,
    "checkpoint.every": 40 * EPOCH,
    "decode.checkpoint": "latest",
}


def command(*arguments: str) -> str:
    """Runs `python -m` something of ours, whose stderr is the part's log; returns what it prints.

    Raises:
      CalledProcessError: its status is not 0.
    """
    called = [sys.executable, "-m", *arguments]
    return subprocess.run(called, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout


def trained(context: Context, name: str, config: str, keys: dict[str, Any], split: str = "test") -> dict[str, Any]:
    """Trains a config with other values of some keys, and scores a split; returns scores, updates and minutes."""
    if context.tiny:
        keys = keys | MINIATURE | OF_MINIATURE
    workdir = context.runs / file_name(name)
    changes = [f"--config.{key}={value}" for key, value in keys.items()]
    command("train", f"--config={config}", f"--workdir={workdir}", *changes)
    scores = json.loads(command("infer", f"--workdir={workdir}", f"--split={split}", "--json"))
    updates = [record for record in read_metrics(workdir) if record["kind"] == "train"]
    return scores | {"updates": updates[-1]["step"], "training_minutes": round(updates[-1]["seconds"] / 60, 2)}


def side_by_side(
    context: Context, work: Callable[..., dict[str, Any]], runs: dict[str, tuple[Any, ...]]
) -> dict[str, Any]:
    """Does the same work for each name's arguments, in processes of their own: one alone leaves the device half idle.

    Returns the result of each by name; in the rehearsal of two.
    """
    if context.tiny:
        runs = dict(list(runs.items())[:2])
    with ProcessPoolExecutor(len(runs), mp_context=SPAWN) as pool:
        futures = {name: pool.submit(work, *arguments) for name, arguments in runs.items()}
        return {name: future.result() for name, future in futures.items()}


def public_log(context: Context, log: str, seeds: tuple[int, ...]) -> dict[str, Any]:
    """Follows a public log with some seeds; each one's record is as lab/studies/public_logs has it."""
    return {"runs": side_by_side(context, _of_log, {f"seed {seed}": (context, log, seed) for seed in seeds})}


def _of_log(context: Context, log: str, seed: int) -> dict[str, Any]:
    cfg = get_config(log)
    cfg.seed = seed
    published = LOGS[log]
    if context.tiny:
        cfg.update_from_flattened_dict(MINIATURE | {"data.train": "grammar:train:100"})  # a batch
        published = published._replace(epochs=1)
    return train_seed(log, published, cfg, context.runs / f"log-{log}-{seed}")


def multi30k_published(context: Context, seeds: tuple[int, ...]) -> dict[str, Any]:
    """Trains the published recipe with more seeds."""
    config = "configs/multi30k_published.py"
    runs = {f"seed {seed}": (context, f"published {seed}", config, {"seed": seed}) for seed in seeds}
    return {"runs": side_by_side(context, trained, runs)}


def dong(context: Context, languages: tuple[str, ...]) -> dict[str, Any]:
    """Trains Dong's Transformer in some languages; Korean, whose syllables are three letters each, letter by letter."""
    runs: dict[str, tuple[Any, ...]] = {}
    for language in languages:
        width = 128 if language == "kor" else 256
        sizes = {"model.d_model": width, "model.d_ff": 4 * width, "model.d_k": width // 4, "model.d_v": width // 4}
        argument = language
        if language == "kor" and not context.tiny:
            argument = str(letter_by_letter(Path(corpus_folder("sigmorphon2021")) / language, context.runs / language))
        runs[language] = (context, f"dong {language}", f"lab/studies/g2p/design.py:{argument}", DONG | sizes)
    return {"runs": side_by_side(context, trained, runs)}


def letter_by_letter(prefix: Path, to: Path) -> Path:
    """Writes the files that begin with `prefix`, decomposed (NFD); returns the beginning of their names."""
    to.parent.mkdir(parents=True, exist_ok=True)
    for split in ("train", "dev", "test"):
        (path,) = prefix.parent.glob(f"{prefix.name}_{split}.tsv*")
        lines = [unicodedata.normalize("NFD", line) for line in read_lines(path)]
        write_text(to.with_name(f"{to.name}_{split}.tsv"), "".join(f"{line}\n" for line in lines))
    return to


def tatoeba() -> dict[str, str]:
    """Returns the keys that name the files of Tatoeba."""
    folder = corpus_folder("tatoeba")
    return {f"data.{split}": f"text:{folder}/split.en-de.{split}.{{en,de}}.gz" for split in ("train", "valid", "test")}


def base_to_the_end(context: Context) -> dict[str, Any]:
    """Trains the base model on Tatoeba until its validation loss rises, and scores the test split."""
    return trained(context, "tatoeba", "configs/base.py:en-de:gpu", tatoeba() | TO_THE_END)


def row_of_table_3(context: Context, row: str) -> dict[str, Any]:
    """Trains a row of Table 3 at the paper's size on Tatoeba, for `OF_TABLE_3`'s updates, and scores validation."""
    keys = tatoeba() | OF_TABLE_3
    if row == "A1":
        keys["model.attention_impl"] = "einsum"  # cuDNN takes no head of 512
    return trained(context, f"table3 {row}", f"configs/ablations.py:{row}", keys, "valid")
