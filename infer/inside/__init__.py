"""What a model computes on the way: traces of its activations, patches of them, and what the logit lens reads."""
