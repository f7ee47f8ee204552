"""Table 4's rows have what section 6.3 prints, and tensor2tensor's values where it prints none."""

import pytest

from vaswani.configs.base import get_config as base
from vaswani.configs.parsing import get_config
from vaswani.data.corpora import corpus_folder
from vaswani.data.sources import open_corpus

CHANGED = {"data.train", "data.valid", "data.test", "data.vocab_size", "data.max_length", "data.buckets", "model.N",
           "model.d_model", "model.d_k", "model.d_v", "model.P_drop", "model.P_drop_attention", "optim.lr",
           "optim.warmup", "decode.beam", "decode.alpha", "decode.extra_length"}  # fmt: skip


@pytest.mark.parametrize(("row", "vocabulary"), [("wsj", 16_000), ("semi", 32_000)])
def test_a_row_has_the_papers_values(row: str, vocabulary: int) -> None:
    cfg = get_config(row)
    assert (cfg.model.N, cfg.model.d_model, cfg.data.vocab_size) == (4, 1024, vocabulary)
    assert (cfg.decode.beam, cfg.decode.alpha, cfg.decode.extra_length) == (21, 0.3, 300)
    assert cfg.model.h * cfg.model.d_k == cfg.model.h * cfg.model.d_v == cfg.model.d_model
    t2t = (cfg.model.P_drop, cfg.model.P_drop_attention, cfg.optim.lr, cfg.optim.warmup, cfg.data.max_length)
    assert t2t == (0.2, 0.2, 5.0, 16_000, 512)
    wsj = corpus_folder("wsj")
    assert (cfg.data.valid, cfg.data.test) == (f"trees:{wsj}/22.mrg", f"trees:{wsj}/23.mrg")


@pytest.mark.parametrize("row", ["wsj", "semi"])
def test_all_else_is_as_in_the_base_model(row: str) -> None:
    def flat(cfg):
        return {f"{group}.{key}": value for group, keys in cfg.to_dict().items() if isinstance(keys, dict)
                for key, value in keys.items()}  # fmt: skip

    ours, theirs = flat(get_config(row)), flat(base())
    assert {key for key in ours if ours[key] != theirs[key]} == CHANGED
    assert get_config(row).steps == base().steps


@pytest.mark.slow
def test_small_is_the_grammar_and_decodes_as_the_paper_does() -> None:
    cfg = get_config("small")
    assert (cfg.decode.beam, cfg.decode.alpha) == (21, 0.3)
    longest = max(
        len(tree.split()) - len(text.split()) for text, tree in open_corpus("trees:grammar:valid:200").pairs()
    )
    assert longest < cfg.decode.extra_length
    for split in ("train", "valid", "test"):
        assert cfg.data[split].startswith(f"trees:grammar:{split}:")
        assert open_corpus(cfg.data[split]).target_language == "trees"
