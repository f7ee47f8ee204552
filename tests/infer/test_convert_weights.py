"""Readers of other engines' checkpoints account for every weight: a missing, unused or odd one is an error naming it.

Without PyTorch and transformers these tests are skipped, see tests/reference.py.
"""

import json
import shutil
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.reference import TOLERANCE, torch

# isort: split
from tests import foreign, tiny
from vaswani.errors import UserError
from vaswani.ids import BOS, EOS, UNK
from vaswani.infer.convert import fairseq, huggingface, safetensors
from vaswani.infer.convert.folders import Imported, check_shapes
from vaswani.infer.convert.vocabulary import our_rows
from vaswani.infer.convert.weights import Weights
from vaswani.infer.runs import open_run
from vaswani.model.language_model import LanguageModel
from vaswani.model.transformer import Transformer
from vaswani.run.parameters import flatten_params
from vaswani.tasks.config import model_config
from vaswani.tokens import Tokens

# One weight of each family in the middle of the model, and where its shared table may have a copy.
MIDDLE = {
    "marian": "model.decoder.layers.1.encoder_attn.v_proj.weight",
    "pegasus": "model.encoder.layer_norm.weight",
    "bart": "model.decoder.layernorm_embedding.weight",
    "mbart": "model.encoder.embed_positions.weight",
    "m2m_100": "model.encoder.layers.1.fc1.weight",
    "nllb": "model.encoder.layers.1.self_attn.q_proj.bias",
    "gpt2": "transformer.h.1.mlp.c_fc.weight",
    "bert": "bert.encoder.layer.1.attention.self.key.bias",
    "t5": "decoder.block.1.layer.1.EncDecAttention.k.weight",
    "vit": "vit.encoder.layer.1.output.dense.weight",
}
COPIES = {
    "marian": ("model.shared.weight", "lm_head.weight"),
    "pegasus": ("model.shared.weight", "model.decoder.embed_tokens.weight"),
    "bart": ("model.shared.weight", "lm_head.weight"),
    "mbart": ("model.shared.weight", "model.decoder.embed_tokens.weight"),
    "m2m_100": ("model.shared.weight", "lm_head.weight"),
    "nllb": ("model.shared.weight", "model.encoder.embed_tokens.weight"),
    "gpt2": ("transformer.wte.weight", "lm_head.weight"),
    "bert": ("bert.embeddings.word_embeddings.weight", "cls.predictions.decoder.weight"),
    "t5": ("shared.weight", "encoder.embed_tokens.weight"),
}
BUFFERS = {
    "gpt2": {"transformer.h.0.attn.bias": np.ones((1, 1, 40, 40), bool), "h.1.attn.masked_bias": np.float32(-1e4)},
    "bert": {"bert.embeddings.position_ids": np.arange(20)[None]},
    "t5": {
        "decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight": np.ones((32, 2), np.float32),
    },
    "m2m_100": {"model.encoder.embed_positions.weights": np.ones((43, 18), np.float32)},
    "marian": {"model.encoder.embed_tokens.weight": None},  # a copy of the shared table
}


@pytest.fixture(scope="module", params=foreign.TRANSFORMERS)
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("foreign") / request.param
    foreign.make(request.param, place)
    return place


def read(folder: Path, arrays: dict[str, np.ndarray]) -> Imported:
    """What the reader of a folder makes of these weights in the place of those of its file."""
    sizes = json.loads((folder / "config.json").read_text())
    imported = huggingface.READERS[sizes["model_type"]](folder, sizes, Weights(folder, arrays))
    check_shapes(imported)
    return imported


def same(one: Imported, other: Imported) -> bool:
    ours, theirs = flatten_params(one.params), flatten_params(other.params)
    return ours.keys() == theirs.keys() and all(np.array_equal(ours[name], theirs[name]) for name in ours)


def test_a_weight_too_many_or_too_few_is_named(folder: Path) -> None:
    arrays, middle = safetensors.load(folder / "model.safetensors")[0], MIDDLE[folder.name]
    layer = middle.replace(".1.", ".2.", 1) if ".1." in middle else middle.replace("weight", "gain")
    for extra in ("other", layer):
        with pytest.raises(UserError, match=f"'{extra}': a model of these settings has no such weight$"):
            read(folder, arrays | {extra: arrays[middle]})
    left = {name: array for name, array in arrays.items() if name != middle}
    shorter = middle.removeprefix("transformer.").removeprefix("bert.").removeprefix("vit.").removeprefix("model.")
    with pytest.raises(UserError, match=rf"its weights do not match its settings: '(model\.)?{shorter}' is missing$"):
        read(folder, left)


@pytest.mark.parametrize(
    ("how", "wrong"),
    {
        "is of type int64, which is not a floating one": lambda array: array.astype(np.int64),
        "is of type complex64, which": lambda array: array.astype(np.complex64),
        "is not finite": lambda array: np.where(array == array.max(), np.nan, array).astype(np.float32),
        r"is of shape \(\d+,\); it must be": lambda array: np.append(array.reshape(-1), np.float32(0)),
        r"is of shape \(1, [\d, ]+\); it must be": lambda array: array[None],
    }.items(),
)
def test_a_weight_of_a_wrong_kind_is_named(how: str, wrong, folder: Path) -> None:
    arrays, middle = safetensors.load(folder / "model.safetensors")[0], MIDDLE[folder.name]
    with pytest.raises(UserError, match=f"'{middle}' {how}"):
        read(folder, arrays | {middle: wrong(arrays[middle])})


def test_copies_of_a_shared_weight_must_be_the_same(folder: Path) -> None:
    if folder.name not in COPIES:
        pytest.skip("it shares none")
    arrays, (table, copy) = safetensors.load(folder / "model.safetensors")[0], COPIES[folder.name]
    assert same(read(folder, arrays | {copy: arrays[table]}), read(folder, arrays))
    with pytest.raises(UserError, match=r"'\S+' and '\S+' differ; its settings tie them$"):
        read(folder, arrays | {copy: arrays[table] + np.float32(1e-3)})


def test_buffers_of_older_versions_are_no_weights(folder: Path) -> None:
    if folder.name not in BUFFERS:
        pytest.skip("it has none")
    arrays = safetensors.load(folder / "model.safetensors")[0]
    buffers = {
        name: arrays["model.shared.weight"] if array is None else array for name, array in BUFFERS[folder.name].items()
    }
    assert same(read(folder, arrays | buffers), read(folder, arrays))


@pytest.mark.parametrize("family", ["gpt2", "marian", "pegasus"])
@pytest.mark.parametrize("age", ["new", "old"])
def test_an_untied_head_is_read(age: str, family: str, tmp_path: Path) -> None:
    """With `tie_word_embeddings: false`; of the two sides' tables older versions saved one."""
    model = foreign.make(family, tmp_path / family, tie_word_embeddings=False)
    if age == "old" and family != "gpt2":
        both = ("model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight")
        state = model.state_dict()
        for name in both:
            state[name].copy_(state["model.shared.weight"])
        foreign.change_weights(tmp_path / family, lambda arrays: [arrays.pop(name) for name in both])
    imported = huggingface.read(tmp_path / family)
    check_shapes(imported)
    assert not imported.config.model.tie_embeddings
    size = model.config.vocab_size
    assert size == imported.tokenizer.vocab_size - (3 if family == "gpt2" else 1)
    end = model.config.eos_token_id
    start = end if family == "gpt2" else model.config.decoder_start_token_id
    rows = our_rows("", size, pad=model.config.pad_token_id or 0, start=start, eos=end, unk=end + (family != "gpt2"))
    source, target = [7, 9, 12, 5], [start, 8, 6, 11]
    ours = {row: number for number, row in enumerate(rows) if number > UNK}
    config, params = model_config(imported.config, imported.tokenizer.vocab_size), imported.params
    inputs = [Tokens.of(jnp.asarray([[BOS, *(ours[row] for row in target[1:])]], jnp.int32))]
    with torch.no_grad():
        if family == "gpt2":
            logits = model(torch.tensor([target])).logits[0]
        else:
            logits = model(torch.tensor([[*source, end]]), decoder_input_ids=torch.tensor([target])).logits[0]
            inputs.insert(0, Tokens.of(jnp.asarray([[*(ours[row] for row in source), EOS]], jnp.int32)))
    model_class = LanguageModel if family == "gpt2" else Transformer
    found = model_class(config).apply({"params": jax.tree.map(jnp.asarray, params)}, *inputs)[0]
    actual, expected = np.asarray(jax.nn.log_softmax(found)), torch.log_softmax(logits, -1).numpy()
    assert np.abs(actual[:, 4:] - expected[:, rows[4:]]).max() <= TOLERANCE
    assert np.abs(actual[:, EOS] - expected[:, end]).max() <= TOLERANCE

    foreign.change_weights(tmp_path / family, lambda arrays: arrays.pop("lm_head.weight"))
    with pytest.raises(UserError, match=r"'lm_head\.weight' is missing$"):
        huggingface.read(tmp_path / family)


def test_saved_positions_that_are_no_sinusoids_are_refused(tmp_path: Path) -> None:
    foreign.make("pegasus", tmp_path / "pegasus")
    name = "model.decoder.embed_positions.weight"

    def change(arrays: dict[str, np.ndarray]) -> None:
        arrays[name] = arrays[name][:, ::-1]

    foreign.change_weights(tmp_path / "pegasus", change)
    with pytest.raises(UserError, match=r"embed_positions\.weight is off by \S+ from sinusoids, which our model has$"):
        huggingface.read(tmp_path / "pegasus")


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda model: model.pop("decoder.layers.1.fc2.bias"), r"'decoder\.layers\.1\.fc2\.bias' is missing$"),
        (lambda model: model.update(other=torch.ones(3)), r"'other': a model of these settings has no such weight$"),
        (
            lambda model: model.update({"decoder.output_projection.weight": torch.ones(18, 16)}),
            r"'decoder\.embed_tokens\.weight' and 'decoder\.output_projection\.weight' differ",
        ),
        (
            lambda model: model.update({"decoder.layer_norm.weight": torch.ones(16)}),
            r"'decoder\.layer_norm\.weight': a model of these settings has no such weight$",
        ),
        (lambda model: model.update({5: torch.ones(3)}), r"the name of a parameter is 5; it must be text$"),
        (lambda model: model.update(other=torch.ones(3).to_sparse()), r"'other' is not stored value by value"),
        (lambda model: model.update(other=torch.ones(1).expand(10**6, 10**6)), r"'other' is not stored value by"),
        (
            lambda model: model.update({"encoder.layers.0.layer_norms.7.weight": torch.ones(16)}),
            r"'encoder\.layers\.0\.layer_norms\.7\.weight': a model of these settings has no such weight$",
        ),
        (
            lambda model: model.update({"encoder.layers.0.self_attn.in_proj_weight": torch.ones(48, 16)}),
            r"in_proj_weight' and '\S+q_proj\.weight' are the same weight$",
        ),
        (
            lambda model: model.update({"encoder.layers.0.layer_norms.0.bias": torch.ones(16)}),
            r"are the same weight; only one may be present$",
        ),
    ],
)
def test_every_weight_of_fairseq_is_read(change, expected: str, tmp_path: Path) -> None:
    state = foreign.fairseq_state()
    check_shapes(fairseq.read(foreign.make_fairseq(tmp_path, state)))
    change(state["model"])
    with pytest.raises(UserError, match=expected):
        fairseq.read(foreign.make_fairseq(tmp_path, state))


def test_fairseqs_softmax_is_shared_only_if_its_settings_say_so(tmp_path: Path) -> None:
    softmax = "decoder.output_projection.weight"
    state = foreign.fairseq_state(share_all_embeddings=False)
    state["model"][softmax] = 2 * state["model"][softmax]
    params = fairseq.read(foreign.make_fairseq(tmp_path, state)).params
    assert np.array_equal(params["softmax"], 2 * params["target_embed"])
    del state["model"][softmax]
    with pytest.raises(UserError, match=r"'decoder\.output_projection\.weight' is missing$"):
        fairseq.read(foreign.make_fairseq(tmp_path, state))
    state["args"].share_decoder_input_output_embed = True
    state["args"].max_source_positions = None  # which is 1024 there
    imported = fairseq.read(foreign.make_fairseq(tmp_path, state))
    assert np.array_equal(imported.params["softmax"], imported.params["target_embed"])
    assert imported.config.model.max_positions == 1024


def test_every_array_of_our_own_export_is_read(tmp_path: Path) -> None:
    (folder := tmp_path / "exported").mkdir()
    safetensors.write(open_run(tiny.write_run(tmp_path / "run")), folder)
    first = "decoder/layer_0/feed_forward/w1"
    kept = (folder / "model.safetensors").read_bytes()
    for change, expected in (
        (lambda arrays: arrays.update(encoder=np.ones(2, np.float32)), r"'encoder': a model of these settings has no"),
        (lambda arrays: arrays.pop(first), f"'{first}' is missing$"),
        (lambda arrays: arrays.update({first: arrays[first].T}), rf"'{first}' is of shape \(16, 8\); it must be"),
        (lambda arrays: arrays.update({first: arrays[first] * np.inf}), f"'{first}' is not finite$"),
        (lambda arrays: arrays.update({first: arrays[first].astype(np.int64)}), f"'{first}' is of type int64"),
    ):
        (folder / "model.safetensors").write_bytes(kept)
        foreign.change_weights(folder, change)
        with pytest.raises(UserError, match=expected):
            safetensors.read(folder)


VALUES = [
    ("gpt2", {"layer_norm_epsilon": float("nan")}, r"layer_norm_epsilon is nan; it must be a number above 0"),
    ("gpt2", {"n_inner": "abc"}, r"n_inner is 'abc'; it must be a whole number from 1 to 16,777,216$"),
    ("gpt2", {"n_layer": 10**400}, r"n_layer is 10+\.\.\.; it must be"),
    ("gpt2", {"n_positions": 41}, r"parameter positions is \(40, 16\); in the model of its config it is \(41, 16\)$"),
    ("gpt2", {"vocab_size": 1}, r"a vocabulary of 1 has no subwords besides the special ones$|have 280 embeddings"),
    ("bert", {"layer_norm_eps": float("inf")}, r"layer_norm_eps is inf; it must be a number above 0 and at most 1$"),
    ("bert", {"hidden_act": ["gelu"]}, r"hidden_act is \['gelu'\]; it must be one of relu, gelu, .*, swish$"),
    ("marian", {"encoder_layers": 10**8, "decoder_layers": 10**8}, r"encoder_layers is 100000000; it must be"),
    (
        "marian",
        {"encoder_layers": 10**6, "decoder_layers": 10**6},
        r"encoder_layers is 1000000; it must be a whole number from 1 to 1,000$",
    ),
    ("vit", {"num_channels": -1}, r"num_channels is -1; it must be a whole number from 1 to 16,777,216$"),
    ("vit", {"image_size": [8, 8]}, r"its weights are of 13 positions; an image of its settings has 17$"),
]


@pytest.mark.parametrize(("family", "settings", "expected"), VALUES)
def test_a_setting_that_no_model_has_is_named(family: str, settings: dict, expected: str, tmp_path: Path) -> None:
    foreign.make(family, tmp_path / family)
    foreign.change_json(tmp_path / family / "config.json", **settings)
    with pytest.raises(UserError, match=expected):
        check_shapes(huggingface.read(tmp_path / family))


@pytest.mark.parametrize("wrong", [float("nan"), float("inf"), 10**400])
@pytest.mark.parametrize("key", ["image_mean", "image_std"])
def test_pixels_are_normalised_by_finite_numbers(key: str, wrong: float, tmp_path: Path) -> None:
    foreign.make("vit", tmp_path / "vit")
    foreign.change_json(tmp_path / "vit" / "preprocessor_config.json", **{key: [0.5, wrong, 0.5]})
    expected = rf"{key} is \[0\.5, (nan, 0\.5\]|inf, 0\.5\]|10+\.\.\.); it must be a list of numbers"
    with pytest.raises(UserError, match=expected):
        huggingface.read(tmp_path / "vit")


def test_weights_in_several_files_are_those_of_one(tmp_path: Path) -> None:
    model = foreign.make("marian", tmp_path / "one")
    shutil.copytree(tmp_path / "one", tmp_path / "several")
    model.save_pretrained(tmp_path / "several", max_shard_size="8KB")
    files = sorted((tmp_path / "several").glob("model-*.safetensors"))
    assert len(files) > 2
    (tmp_path / "several" / "model.safetensors").unlink(missing_ok=True)
    assert same(huggingface.read(tmp_path / "several"), huggingface.read(tmp_path / "one"))

    index = tmp_path / "several" / "model.safetensors.index.json"
    file_of = json.loads(index.read_text())["weight_map"]
    moved = file_of | {min(file_of): next(file.name for file in files if file.name != file_of[min(file_of)])}
    foreign.change_json(index, weight_map=moved)
    with pytest.raises(
        UserError, match=rf"'{min(file_of)}' is in one of the index and model-\S+, and not in the other$"
    ):
        huggingface.read(tmp_path / "several")
    foreign.change_json(index, weight_map=file_of | {"x": "../one/model.safetensors"})
    with pytest.raises(UserError, match=r"a file is called '../one/model.safetensors'; it must be one of the same"):
        huggingface.read(tmp_path / "several")
    foreign.change_json(index, weight_map=file_of)
    files[0].unlink()
    with pytest.raises(UserError, match=rf"{files[0].name}: cannot be read as safetensors"):
        huggingface.read(tmp_path / "several")


@pytest.mark.parametrize("given", [{"do_rescale": False}, {"rescale_factor": 1 / 127.5}])
@pytest.mark.parametrize("normalised", [False, True])
def test_pixels_of_another_range_are_refused(given: dict, normalised: bool, tmp_path: Path) -> None:
    foreign.make("vit", tmp_path / "vit")
    foreign.change_json(tmp_path / "vit" / "preprocessor_config.json", do_normalize=normalised, **given)
    with pytest.raises(UserError, match=r"(do_rescale=False|rescale_factor=0\.0078\d*) is not supported; it must be"):
        huggingface.read(tmp_path / "vit")


@pytest.mark.parametrize(("given", "row"), [(5, 5), (0, 0), (None, 0), (50256, 0)])
def test_gpt2_begins_a_text_with_its_start_token(given: int | None, row: int, tmp_path: Path) -> None:
    foreign.make("gpt2", tmp_path / "gpt2")
    foreign.change_json(tmp_path / "gpt2" / "config.json", bos_token_id=given)
    table_vd = safetensors.load(tmp_path / "gpt2" / "model.safetensors")[0]["transformer.wte.weight"]
    imported = huggingface.read(tmp_path / "gpt2")
    assert np.array_equal(imported.params["embed"][BOS], table_vd[row])
    assert imported.params["output_bias"][BOS] < -25, "nothing is likelier for it"


def test_a_pegasus_without_marians_tokenizer_says_what_is_read(tmp_path: Path) -> None:
    foreign.make("pegasus", tmp_path / "pegasus")
    (tmp_path / "pegasus" / "vocab.json").unlink()
    with pytest.raises(UserError, match=r"no such file; the tokenizer must be Marian's: vocab\.json, source\.spm and"):
        huggingface.read(tmp_path / "pegasus")


def test_a_tokenizer_that_makes_its_package_panic_is_one_line(tmp_path: Path) -> None:
    foreign.make("t5", tmp_path / "t5")
    normaliser = {"type": "Precompiled", "precompiled_charsmap": "AAAA"}
    foreign.change_json(tmp_path / "t5" / "tokenizer.json", normalizer=normaliser)
    with pytest.raises(UserError, match=r"tokenizer\.json: cannot be read \([^\n]+\)$"):
        huggingface.read(tmp_path / "t5")


def test_an_empty_vocabulary_is_refused(tmp_path: Path) -> None:
    foreign.make("bert", tmp_path / "bert")
    for content in ("", "\n"):
        (tmp_path / "bert" / "vocab.txt").write_text(content)
        with pytest.raises(UserError, match=r"vocab\.txt: this file is empty$"):
            huggingface.read(tmp_path / "bert")


def test_empty_codes_are_refused(tmp_path: Path) -> None:
    path = foreign.make_fairseq(tmp_path, foreign.fairseq_state())
    for content in ("", "#version: 0.2\n"):
        (tmp_path / "bpecodes").write_text(content)
        with pytest.raises(UserError, match=r"bpecodes: its codes are empty; they must be lines of two pieces$"):
            fairseq.read(path)


def test_half_of_a_surrogate_pair_is_no_piece(tmp_path: Path) -> None:
    foreign.make("marian", tmp_path / "marian")
    vocabulary = json.loads((tmp_path / "marian" / "vocab.json").read_text())
    number = vocabulary.pop(next(piece for piece in vocabulary if piece not in ("<unk>", "</s>", "<pad>")))
    (tmp_path / "marian" / "vocab.json").write_text(json.dumps(vocabulary | {"\ud800": number}))
    with pytest.raises(UserError, match=r"one of its texts is not Unicode \('\\ud800'\)$"):
        huggingface.read(tmp_path / "marian")


@pytest.mark.parametrize("file", ["tokenizer_config.json", "config.json"])
def test_a_tokenizer_of_another_class_is_refused(file: str, tmp_path: Path) -> None:
    folder = tmp_path / "bert"
    foreign.make("bert", folder)
    (folder / "tokenizer_config.json").write_text("{}")
    foreign.change_json(folder / file, tokenizer_class="BertTokenizerFast")
    huggingface.read(folder)
    foreign.change_json(folder / file, tokenizer_class="BertJapaneseTokenizer")
    with pytest.raises(UserError, match=r"config\.json: tokenizer_class is 'BertJapaneseTokenizer'; without tokenizer"):
        huggingface.read(folder)


@pytest.mark.parametrize("name", ["gelu_new", "gelu_fast", "gelu_pytorch_tanh"])
def test_an_activation_goes_by_several_names(name: str, tmp_path: Path) -> None:
    foreign.make("gpt2", tmp_path / "gpt2", activation_function=name)
    assert huggingface.read(tmp_path / "gpt2").config.model.activation == "gelu_tanh"
