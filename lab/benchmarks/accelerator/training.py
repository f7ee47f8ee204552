"""Training against the clock: what the rows that train models share."""

import os
import shutil
import signal
import threading
from pathlib import Path
from typing import Any

from ml_collections import ConfigDict

from lab.benchmarks.accelerator.record import OutOfTime
from vaswani.files import write_text
from vaswani.infer.evaluate.record import provenance
from vaswani.infer.evaluate.sentences import about, open_split, translate
from vaswani.infer.evaluate.translations import score
from vaswani.infer.runs import open_run
from vaswani.infer.translate.options import chosen
from vaswani.run.averaging import list_checkpoints
from vaswani.run.records import read_metrics
from vaswani.train.check import check_device
from vaswani.train.loop import train

LEAST = 20.0  # seconds without which training is not begun


def emptied(folder: Path) -> Path:
    """Returns the folder, without what an earlier try has left there: a run that is resumed proves nothing new."""
    if folder.exists():
        shutil.rmtree(folder)
    folder.mkdir(parents=True)
    return folder


def write_config(path: Path, cfg: ConfigDict) -> Path:
    """Writes a config file that returns `cfg`; returns its path."""
    text = f"from ml_collections import ConfigDict\n\n\ndef get_config():\n    return ConfigDict({cfg.to_dict()!r})\n"
    write_text(path, text)
    return path


def on_grammar(cfg: ConfigDict, pairs: int) -> ConfigDict:
    """Sets the built-in corpus, with a vocabulary that suits it, in place; returns the config."""
    for split, count in (("train", pairs), ("valid", min(pairs, 500)), ("test", min(pairs, 1_000))):
        cfg.data[split] = f"grammar:{split}:{count}"
    cfg.data.vocab_size, cfg.data.max_length, cfg.data.pack_length = 1_800, 64, 64
    cfg.data.buckets = (16, 32, 64)
    return cfg


def miniature(cfg: ConfigDict) -> ConfigDict:
    """Makes a run of any config a matter of seconds on a CPU, in place; returns the config."""
    on_grammar(cfg, 400)
    cfg.data.valid, cfg.data.test = "grammar:valid:4", "grammar:test:4"
    cfg.data.update({"vocab_size": 500, "batching": "pack", "tokens_per_batch": 256, "buckets": (64,)})
    cfg.model.update({"N": 1, "d_model": 16, "d_ff": 32, "h": 2, "d_k": 8, "d_v": 8, "dtype": "float32"})
    cfg.model.dropout_bits = "hash"
    cfg.model.attention_impl = "einsum"
    cfg.decode.update({"beam": 2, "extra_length": 1, "checkpoint": "latest"})
    cfg.steps, cfg.log_every = 4, 2
    cfg.checkpoint.every = cfg.eval.every = 4
    cfg.eval.bleu_sentences = 0
    return cfg


def trained(
    cfg: ConfigDict, workdir: Path, seconds: float, *, split: str = "test", whole: bool = True
) -> dict[str, Any]:
    """Trains for at most this long, then scores a split; returns every score, and how long the whole run has trained.

    `updates` and `training_minutes` count all launches of a run that was resumed; the minutes are those of the last
    record of an update, so without validation and saving.

    Raises:
      OutOfTime: too little time is left or, with `whole`, it was over before `cfg.steps`; the run can be resumed.
      UserError: the config, a corpus or the folder is at fault.
    """
    if seconds < LEAST:
        raise OutOfTime
    check_device(cfg)
    stop = threading.Timer(seconds, os.kill, (os.getpid(), signal.SIGTERM))  # the loop then saves and returns
    stop.start()
    try:
        train(cfg, workdir)
    except SystemExit as early:
        raise OutOfTime from early
    finally:
        stop.cancel()
    updates = max(checkpoint.step for checkpoint in list_checkpoints(workdir))  # not only of those that are averaged
    if updates < cfg.steps and whole:
        raise OutOfTime
    times = [record["seconds"] for record in read_metrics(workdir) if record["kind"] == "train"]
    run = open_run(workdir)
    sentences = open_split(run, split)
    decoding = chosen(run.config.decode)
    translations, taken = translate([run], sentences, decoding, "translating", "lines")
    hypotheses = [one.text for one in translations]
    return {
        **score([run], sentences.sources, hypotheses, sentences.references, sentences.language),
        **provenance(run, sentences.data, sentences.name),
        **about(sentences, decoding),
        "updates": updates,
        "stopped_early": updates < cfg.steps,
        "training_minutes": round(max(times, default=0.0) / 60, 2),
        "decoding_seconds": round(taken, 2),
    }
