"""Models without residual connections and without layer norms: what becomes of them."""
