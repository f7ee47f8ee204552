"""Questions that the paper raises and its tables do not answer: a table and a figure each, made from finished runs."""

from paper.studies import (
    bottleneck,
    distance,
    extrapolation,
    families,
    g2p,
    layers,
    mup,
    norms,
    optimisers,
    scaling,
    scan,
    scan_length,
    scores,
    second,
)

STUDIES = {
    "layers": layers,
    "extrapolation": extrapolation,
    "scan": scan,
    "scan_length": scan_length,
    "scaling": scaling,
    "families": families,
    "second": second,
    "bottleneck": bottleneck,
    "scores": scores,
    "distance": distance,
    "norms": norms,
    "mup": mup,
    "optimisers": optimisers,
    "g2p": g2p,
}
