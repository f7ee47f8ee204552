"""What each attention head does on sentences of known structure: roles, alignment, ablation."""
