"""The paper's numbers, typed by hand, are consistent: those that follow from others are recomputed."""

import pytest

from vaswani.paper import published
from vaswani.paper.published import TABLE2, TABLE3, TABLE4

DIFFERS = {  # what section 6.2 and the table's blanks say a row changes
    "A1": {"h", "d_k", "d_v"},
    "A2": {"h", "d_k", "d_v"},
    "A3": {"h", "d_k", "d_v"},
    "A4": {"h", "d_k", "d_v"},
    "B1": {"d_k"},
    "B2": {"d_k"},
    "C1": {"N"},
    "C2": {"N"},
    "C3": {"N"},
    "C4": {"d_model", "d_k", "d_v"},
    "C5": {"d_model", "d_k", "d_v"},
    "C6": {"d_ff"},
    "C7": {"d_ff"},
    "D1": {"P_drop"},
    "D2": {"P_drop"},
    "D3": {"eps_ls"},
    "D4": {"eps_ls"},
    "E": set(),
    "big": {"d_model", "d_ff", "h", "P_drop", "steps"},
}
MEASURED = {"perplexity", "bleu", "parameters"}


@pytest.mark.parametrize("row", DIFFERS)
def test_a_row_changes_what_the_paper_says(row: str) -> None:
    base, other = TABLE3["base"]._asdict(), TABLE3[row]._asdict()
    assert {key for key in base if base[key] != other[key]} - MEASURED == DIFFERS[row]


@pytest.mark.parametrize("row", ["A1", "A2", "A3", "A4"])
def test_more_heads_keep_the_computation(row: str) -> None:
    for heads in (TABLE3[row], TABLE3["base"]):
        assert heads.h * heads.d_k == heads.h * heads.d_v == heads.d_model


def test_what_the_text_says_of_the_tables() -> None:
    """Sections 6.1 to 6.3: distances that the authors put into words."""
    bleu = {row: values.bleu for row, values in TABLE3.items()}
    assert max(bleu[row] for row in ("base", "A2", "A3", "A4")) - bleu["A1"] == pytest.approx(0.9)
    of = {system.model: system.bleu for system in TABLE2}
    best_before = max(s.bleu["en-de"] for s in TABLE2 if "en-de" in s.bleu and not s.model.startswith("Transformer"))
    assert of["Transformer (big)"]["en-de"] - best_before > 2.0
    assert of["Transformer (base)"]["en-de"] > best_before
    assert of["Transformer (big)"]["en-fr"] > published.BIG_EN_FR_IN_THE_PROCEEDINGS
    ours = {parser.training: parser.f1 for parser in TABLE4 if parser.parser.startswith("Transformer")}
    better = [p.parser for p in TABLE4 if p.training.startswith("WSJ") and p.f1 > ours["WSJ only, discriminative"]]
    assert better == ["Dyer et al. (2016)"]
    assert all(p.f1 <= ours["semi-supervised"] for p in TABLE4 if p.training == "semi-supervised")


def test_an_ensemble_is_better_than_its_system() -> None:
    of = {system.model: system.bleu for system in TABLE2}
    for model, values in of.items():
        if model.endswith(" ensemble"):
            single = of[model.removesuffix(" ensemble")]
            assert all(values[pair] > single[pair] for pair in values)
