"""Vendors' specifications of accelerators, per chip. Nothing here is measured.

TPU: memory, bandwidth and peak from Google's pages on each generation (docs.cloud.google.com/tpu/docs/v5e, and so on);
links and network from "How to Scale Your Model" (jax-ml.github.io/scaling-book/tpus), which gives the usable part of
the links' nominal rate. jax sees a TPU7x as two devices, each with half of the chip's memory, peak and bandwidths; its
links are taken to be as usable as a v5p's, which have the same nominal rate. GPU: NVIDIA's data sheets for the A100,
H100 and H200 (SXM), without sparsity, and the DGX user guides for the network, one adapter of 200 Gb/s (A100) or 400
Gb/s per GPU.
"""

from typing import NamedTuple

GIB = 2**30


class Chip(NamedTuple):
    """One device of jax; bandwidths in bytes/s, each in one direction.

    `link` is what a chip sends in a ring, in both directions together: two links of a TPU, all the NVLinks of a GPU.
    `network` is a chip's share of the data-centre network between slices or nodes.
    """

    name: str
    kind: str  # a part of what jax calls it (`jax.Device.device_kind`)
    memory: int  # bytes of HBM
    peak: float  # bfloat16 operations/s
    memory_bandwidth: float
    link: float
    network: float


# The first whose kind a device's name contains is meant.
CHIPS = {
    "v4": Chip("TPU v4", "TPU v4", 32 * GIB, 275e12, 1200e9, 90e9, 6.25e9),
    "v5e": Chip("TPU v5e", "TPU v5 lite", 16 * GIB, 197e12, 819e9, 90e9, 3.125e9),
    "v5p": Chip("TPU v5p", "TPU v5", 95 * GIB, 459e12, 2765e9, 180e9, 6.25e9),
    "v6e": Chip("TPU v6e", "TPU v6 lite", 32 * GIB, 918e12, 1640e9, 180e9, 12.5e9),
    "tpu7x": Chip("TPU7x half", "TPU7x", 96 * GIB, 1153.5e12, 3690e9, 90e9, 6.25e9),
    "a100": Chip("NVIDIA A100 SXM", "A100", 80 * GIB, 312e12, 2039e9, 300e9, 25e9),
    "h100": Chip("NVIDIA H100 SXM", "H100", 80 * GIB, 989e12, 3350e9, 450e9, 50e9),
    "h200": Chip("NVIDIA H200 SXM", "H200", 141 * GIB, 989e12, 4800e9, 450e9, 50e9),
}

# Seconds in which Python starts a compiled function of some 100 arrays: 0.05 ms for 50, 0.14 ms for 150, on an EPYC.
DISPATCH = 1e-4

# What the estimated times assume.
ASSUMPTIONS = (
    "an estimate, not a measurement: matrix products at the peak of bfloat16 (which TPUs also use for float32, by"
    " default), at full bandwidth what the instructions of layers that are not scanned read from memory and write to it"
    " (what a TPU keeps on the chip is left out), collectives in rings of neighbours at full bandwidth; the lower time"
    " overlaps all three, the upper one overlaps nothing; at least"
    f" {1e3 * DISPATCH} ms to start an update; no waiting for data, validation or checkpoints"
)
