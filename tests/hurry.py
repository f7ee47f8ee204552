"""Compiler settings for fast compilation: optimising a tiny model takes ten times longer than running it."""

from importlib.metadata import version

HURRIED = {"xla_backend_optimization_level": 0}
AS_IN_TRAINING = {"xla_backend_optimization_level": 3}  # the compiler's own
if version("jaxlib").startswith("0.10."):  # later compilers refuse to start when given this flag
    HURRIED["xla_cpu_use_fusion_emitters"] = False
    AS_IN_TRAINING["xla_cpu_use_fusion_emitters"] = True

XLA_FLAGS = " ".join(f"--{name}={str(value).lower()}" for name, value in HURRIED.items())
