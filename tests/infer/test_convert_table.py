"""The table of every family, read by the engine in both directions; that its axes are right is for the parity tests.

Those are tests/model/test_parity.py, test_convert_huggingface.py and test_convert_fairseq.py.
"""

import numpy as np
import pytest

from vaswani.errors import UserError
from vaswani.infer.convert import bart, bart_names, bert, gpt2, t5, table, vit
from vaswani.infer.convert.weights import Weights
from vaswani.model.config import ModelConfig

SIZES = table.sizes_of(ModelConfig(vocab_size=11, d_model=6, d_ff=7, h=2, d_k=4, d_v=4))
SIZES |= {"u": 11, "v": 11, "l": 5, "r": 4, "c": 8}
TABLES = {
    "gpt2": gpt2._UNTIED + gpt2._TABLE,
    "t5": t5._TIED + t5._RELU + t5._TABLE,
    "t5 v1.1": t5._UNTIED + t5._GATED + t5._TABLE,
    "bart's": bart._TABLE + bart._LEARNED,
    "bert": bert._TABLE,
    "vit": vit._TABLE,
    "bart": bart_names._LAYERS + bart_names._FINAL_NORMS,
}


def random_weights(rows: list[table.Row]) -> dict[str, np.ndarray]:
    random = np.random.default_rng(0)
    return {row.names[0]: random.standard_normal(row.shape(SIZES)).astype(np.float32) for row in rows}


@pytest.mark.parametrize("order", [None, np.array([0, 2, 4, 1, 3, 5])], ids=["in order", "permuted"])
@pytest.mark.parametrize("family", TABLES)
def test_what_is_read_is_written_as_it_was(family: str, order: np.ndarray | None) -> None:
    rows = table.rows(TABLES[family], N=2)
    given = random_weights(rows)
    params = table.read(Weights("file", given), rows, SIZES, order)
    assert len(params) == sum(len(row.paths) for row in rows), "no two rows have one path"
    written = table.write(params, rows, SIZES, order)
    assert given.keys() == written.keys()
    assert all(np.array_equal(array, written[name]) for name, array in given.items())


def test_choices_go_together_in_name_and_path() -> None:
    rows = table.rows("{side}.{n}.{query,key}  {side}/layer_{n}/self_attention/w{q,k}  hk d", N=2)
    assert [(row.names, row.paths) for row in rows][2:5] == [
        (["encoder.1.query"], ["encoder/layer_1/self_attention/wq"]),
        (["encoder.1.key"], ["encoder/layer_1/self_attention/wk"]),
        (["decoder.0.query"], ["decoder/layer_0/self_attention/wq"]),
    ]
    with pytest.raises(ValueError, match="shorter"):
        table.rows("{weight,bias}  {scale}  d", N=1)


def test_axes_are_those_of_the_letters() -> None:
    """Queries, keys and values of two heads of four entries, as GPT-2 has them: side by side, each head by head."""
    rows = table.rows("c_attn.weight  wq+wk+wv  d 3hk\nc_attn.bias  bq+bk+bv  3hk", N=1)
    weight_di = np.arange(6 * 24, dtype=np.float32).reshape(6, 24)
    bias_i = np.arange(24, dtype=np.float32)
    params = table.read(Weights("file", {"c_attn.weight": weight_di, "c_attn.bias": bias_i}), rows, SIZES)
    assert params["wk"].shape == (6, 2, 4)
    assert np.array_equal(params["wk"][:, 1], weight_di[:, 12:16])
    assert params["bv"].tolist() == [[16, 17, 18, 19], [20, 21, 22, 23]]


def test_a_letter_of_no_size_has_that_of_the_first_weight() -> None:
    rows = table.rows("wte  embed  v d\nhead  softmax  v d", N=1)
    unknown = {letter: size for letter, size in SIZES.items() if letter != "v"}
    wte_vd = np.ones((9, 6), np.float32)
    assert len(table.read(Weights("file", {"wte": wte_vd, "head": wte_vd}), rows, unknown)["softmax"]) == 9
    with pytest.raises(UserError, match=r"'head' is of shape \(8, 6\); it must be \(9, 6\)$"):
        table.read(Weights("file", {"wte": wte_vd, "head": wte_vd[1:]}), rows, unknown)


def test_what_ours_lacks_is_zero_there() -> None:
    rows = table.rows("out.weight  wo  d he\nout.bias  bo  d", N=1)
    written = table.write({"wo": np.ones((2, 4, 6), np.float32)}, rows, SIZES)
    assert np.array_equal(written["out.bias"], np.zeros(6, np.float32))
