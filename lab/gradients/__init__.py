"""How far the gradients of a language model's loss reach."""
