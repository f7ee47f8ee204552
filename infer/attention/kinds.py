"""The three attentions of an encoder-decoder (section 3.2.3)."""

KINDS = ("encoder", "decoder", "cross")
TITLES = {"encoder": "encoder self-attention", "decoder": "decoder self-attention", "cross": "decoder over encoder"}
