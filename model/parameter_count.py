"""The number of parameters of a model, by formula, without building it."""

from model.config import GATED, ModelConfig


def parameter_count(config: ModelConfig, *, decoder_only: bool = False) -> int:
    """Returns the number of parameters by formula, without building the model; `decoder_only` for a language model.

    The paper's equations have no biases in attention or the softmax, two in each feed-forward network, and a scale and
    a bias in each layer norm. The counts that the paper prints (65e6, 213e6) do not match a shared vocabulary of
    37,000; this formula follows the equations.
    """
    d = config.d_model
    f = config.d_ff
    v = config.vocab_size
    feed_forward = (3 if config.activation in GATED else 2) * d * f
    if config.feed_forward_biases:
        feed_forward += f + d
    norm = d if config.norm_kind == "rms" else 2 * d
    decoder_layer = mixer_parameters(config, causal=True) + feed_forward + 2 * norm
    N = 1 if config.share_layers else config.N
    if config.recurrent != "none":
        stacks = 2
        layers = recurrent_parameters(config)
        untied_tables = 3
    elif decoder_only or config.prefix != "none":
        stacks = 1
        layers = N * decoder_layer
        untied_tables = 2  # embedding, softmax
    else:
        stacks = 2
        encoder_layer = mixer_parameters(config, causal=False) + feed_forward + 2 * norm
        cross_attention = attention_parameters(config) + norm
        layers = N * (encoder_layer + decoder_layer + cross_attention)
        untied_tables = 3  # source embedding, target embedding, softmax
    tables = 1 if config.tie_embeddings else untied_tables
    count = layers + tables * v * d
    count += stacks * config.encoding.biases * config.h
    if config.norm == "pre":
        count += stacks * norm
    if config.encoding.has_table:
        count += stacks * config.max_positions * d
    if config.output_bias:
        count += v
    return count


def mixer_parameters(config: ModelConfig, causal: bool) -> int:
    """Returns the number of parameters of one mixer, in a causal stack or in an encoder."""
    d = config.d_model
    if config.mixer == "recurrent":
        width = d if causal else d // 2  # of one direction; there are d // width
        return 4 * d * (d + width + 1)
    if config.mixer == "convolution":
        return 2 * config.kernel_width * d * d + 2 * d
    return attention_parameters(config) + config.encoding.distances * (config.d_k + config.d_v)


def recurrent_parameters(config: ModelConfig) -> int:
    """Returns the number of parameters of a recurrent translator but for its embeddings and softmax."""
    d = config.d_model
    width = d // config.directions
    encoder_layer = config.directions * cell_parameters(config, d, width)
    decoder_layer = cell_parameters(config, d, d)
    attention = 2 * d * d  # of the output and the context
    if config.recurrent == "fixed":
        attention = 0
    if config.recurrent == "additive":
        decoder_layer = cell_parameters(config, 2 * d, d)
        attention += 2 * d * d + d  # of query and key, and the energy
    return config.N * (encoder_layer + decoder_layer) + attention


def cell_parameters(config: ModelConfig, inputs: int, width: int) -> int:
    """Returns the number of parameters of one LSTM or GRU, which has a second bias where it makes its candidate."""
    if config.cell == "gru":
        return 3 * width * (inputs + width + 1) + width
    return 4 * width * (inputs + width + 1)


def attention_parameters(config: ModelConfig) -> int:
    """Returns the number of parameters of one multi-head attention."""
    count = 2 * config.d_model * config.h * (config.d_k + config.d_v)
    if config.biases:
        count += config.h * (2 * config.d_k + config.d_v) + config.d_model
    if config.qk_norm:
        count += 2 * config.d_k
    if config.scores == "additive":
        count += config.h * config.d_k
    return count
